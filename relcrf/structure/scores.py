"""Scores of candidates: whether the objective would fall if a candidate that is not in a model got weights.

Source: Chaabene & Huang; Lee, Ganapathi & Koller, Efficient structure learning of Markov networks using L1-regularization (2006).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from relcrf.learning.candidate_objective import AbstractCandidateObjective
from relcrf.learning.edge_likelihood import EdgeLikelihood
from relcrf.structure.pair_index import PairIndex

EDGES_PER_BATCH = 1 << 14
"""Edges that are tested at a time."""


NULL_SAMPLE_SIZE = 512
"""Edges of a space, drawn at random, from which the gradient by chance is estimated."""


@dataclass(frozen=True, eq=False)
class CandidateScorer:
    """The slopes of the objective along candidates that are not chosen, at one point.

    An edge's *ratio* is `|gradient| / (strength sqrt(size))`, of the gradient in its `size` weights: above 1 it is worth its
    penalty.

    Args:
        model: with what is chosen. point: its weights.
        l1: strengths of the spaces, each above 0.
        score_by_counts: replaces the gradient by twice the difference between the joint states' counts and what they would be of
            independent ends. That is the gradient where nothing is chosen; it does not depend on the point.
        is_out_of_time: returns whether there is no time left for more tests.
        smooth_gradient: the gradient of the smooth part at the point. opened: which weights of the chosen have joined.
    """

    model: AbstractCandidateObjective
    pair_index: PairIndex
    point: np.ndarray
    l1: tuple[float, ...]
    score_by_counts: bool = False
    is_out_of_time: Callable[[], bool] = lambda: False
    smooth_gradient: np.ndarray = field(default_factory=lambda: np.empty(0))
    active_weights: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=bool))
    _passed_gradients: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list, init=False, repr=False)
    """Indices (ascending) and gradients of the edges that passed."""

    @property
    def edge_model(self) -> EdgeLikelihood:
        """Return the objective, which must be one of edges."""
        assert isinstance(self.model, EdgeLikelihood)
        return self.model

    @cached_property
    def _chosen(self) -> np.ndarray:
        return self.pair_index.encode(self.model.chosen)

    def is_unchosen(self, pairs: np.ndarray) -> np.ndarray:
        """Which pairs, by number, are not chosen, bool."""
        return ~np.isin(pairs, self._chosen)

    def iter_unchosen(self) -> Iterator[np.ndarray]:
        """The numbers of all edges that are not chosen, ascending, `BATCH` at a time; fewer where time runs out."""
        for begin in range(0, self.pair_index.size, EDGES_PER_BATCH):
            if self.is_out_of_time():
                return
            pairs = np.arange(begin, min(begin + EDGES_PER_BATCH, self.pair_index.size))
            yield pairs[self.is_unchosen(pairs)]

    def ratios(self, pairs: np.ndarray) -> np.ndarray:
        """Of some edges by number, shape (n,)."""
        asked, out = self.pair_index.decode(pairs), np.empty(len(pairs))
        for space, l1 in enumerate(self.l1):
            places = asked.indices_in_space(space)
            gradient = self._gradients(space, asked.pairs(places))
            out[places] = np.sqrt((gradient**2).mean(axis=1)) / l1
            passed = np.flatnonzero(out[places] > 1.0)
            if len(passed) and not self.score_by_counts:
                passed = passed[np.argsort(pairs[places[passed]])]
                self._passed_gradients.append((pairs[places[passed]], gradient[passed]))
        return out

    def gradient(self, pairs: np.ndarray) -> np.ndarray:
        """Of the weights of some edges, by number, one edge after the other, shape (n_weights,); what has passed is known."""
        asked, found = self.pair_index.decode(pairs), {}
        for known, gradient in self._passed_gradients:
            rows = np.minimum(np.searchsorted(known, pairs), len(known) - 1)
            for place in np.flatnonzero(known[rows] == pairs):
                found[int(place)] = gradient[rows[place]]
        for space in range(len(self.l1)):
            places = [int(place) for place in asked.indices_in_space(space) if int(place) not in found]
            if places:
                chosen = asked.pairs(np.array(places))
                found.update(zip(places, self.edge_model.edge_gradients(self.point, space, chosen), strict=True))
        return np.concatenate([np.empty(0), *(found[place] for place in range(len(pairs)))])

    def weight_ratios(self, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the ratio of each weight of some edges, `|gradient| / strength`.

        Returns:
            the number of the edge and that of the weight in it, shape (n_weights, 2); and the ratios, shape (n_weights,).
        """
        asked, rows, ratios = self.pair_index.decode(pairs), [], []
        for space, l1 in enumerate(self.l1):
            places = asked.indices_in_space(space)
            ratio = np.abs(self._gradients(space, asked.pairs(places))) / l1
            row, weight = np.indices(ratio.shape).reshape(2, -1)
            rows.append(np.column_stack((pairs[places[row]], weight)))
            ratios.append(ratio.ravel())
        return np.concatenate(rows), np.concatenate(ratios)

    def _gradients(self, space: int, pairs: np.ndarray) -> np.ndarray:
        """Of edges of one space, shape (n, n_weights)."""
        if not len(pairs) or not self.score_by_counts:
            return self.edge_model.edge_gradients(self.point, space, pairs)
        counts = edge_joint_counts(self.edge_model, space, pairs)
        total = np.maximum(counts.sum(axis=(1, 2), keepdims=True), 1.0)
        independent = counts.sum(axis=2, keepdims=True) * counts.sum(axis=1, keepdims=True) / total
        out: np.ndarray = 2.0 * (independent - counts).reshape(len(pairs), -1) @ self.edge_model.spaces[space].patterns
        return out


def edge_joint_counts(model: EdgeLikelihood, space: int, pairs: np.ndarray) -> np.ndarray:
    """Return counts of joint states of edges of one space, shape (n, n_first_states, n_second_states), float64."""
    shape = [len(side.truth) for side in model.spaces[space].sides]
    return model.edge_counts(space, pairs).reshape(-1, *shape).astype(np.float64)


def null_gradient(model: EdgeLikelihood, space: int, seed: int) -> float:
    """Estimate the root mean square of the gradient's components of edges of a space, at the model without edges.

    It is that of labels with the frequencies that they have if those of two ends were independent: counts of joint states then
    have the covariance `n (diag p - p p') x (diag q - q q')`, and the gradient is twice their distance from their expectations.
    """
    whole = model.spaces[space]
    numbers = PairIndex((whole,), seed)
    if not numbers.size:
        return 0.0
    asked = numbers.decode(numbers.search_order(np.arange(min(NULL_SAMPLE_SIZE, numbers.size))))
    counts = edge_joint_counts(model, space, asked.pairs(np.arange(len(asked))))
    n = np.maximum(counts.sum(axis=(1, 2)), 1.0)
    first, second = (_covariance(counts.sum(axis=axis) / n[:, None]) for axis in (2, 1))
    patterns = whole.patterns.reshape(*counts.shape[1:], -1)
    squares = np.einsum("abw,cdw,eac,ebd->ew", patterns, patterns, first, second, optimize=True)
    return float(np.sqrt((4.0 * n[:, None] * squares).mean()))


def _covariance(frequencies: np.ndarray) -> np.ndarray:
    """Return the covariance of indicators of states with some probabilities, shape (n, k), as shape (n, k, k)."""
    out: np.ndarray = frequencies[:, :, None] * (np.eye(frequencies.shape[1]) - frequencies[:, None, :])
    return out
