"""Scores of candidates: gradients show whether adding a candidate to a model would decrease the objective.

Sources: Chaabene & Huang, Best-choice edge grafting for efficient structure learning of Markov random fields (2018);
Lee, Ganapathi & Koller, Efficient structure learning of Markov networks using L1-regularization (2006).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from relcrf.learning.candidate_objective import AbstractCandidateObjective
from relcrf.learning.edge_objective import AbstractEdgeObjective
from relcrf.structure.pair_index import PairIndex

EDGES_PER_BATCH = 1 << 14
"""Number of edges that are tested at a time."""


NULL_SAMPLE_SIZE = 512
"""Number of random edges of a space that `null_gradient` uses for its estimate."""


@dataclass(frozen=True, eq=False)
class CandidateScorer:
    """Gradients of the objective for the weights of candidates that are not in the model, at a given point.

    The *ratio* of an edge is `|gradient| / (l1 sqrt(size))`, where `size` is the number of weights of the edge and the
    gradient is that of these weights. An edge with a ratio above 1 passes: adding it decreases the penalised objective.

    Args:
        model: The objective with the candidates selected so far.
        pair_index: Numbering of the candidates; methods identify edges by these numbers.
        point: Weights of the model.
        l1: Positive penalty strength of each space.
        score_by_counts: If True, replace the gradient by the difference between the expected counts of joint states for
            independent ends and the observed counts, times `terms_per_edge` of the objective. This is the gradient in a
            model without candidates, which does not depend on the point.
        is_out_of_time: Function that returns True if the time limit for tests is exceeded.
        smooth_gradient: Gradient of the smooth part of the objective at the point.
        active_weights: Mask of the active weights of the selected candidates.
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
    """For each call of `ratios`, the numbers (ascending) and the gradients of the edges that passed."""

    @property
    def edge_model(self) -> AbstractEdgeObjective:
        """Return the objective, which must be an `AbstractEdgeObjective`."""
        assert isinstance(self.model, AbstractEdgeObjective)
        return self.model

    @cached_property
    def _chosen(self) -> np.ndarray:
        return self.pair_index.encode(self.model.chosen)

    def is_unchosen(self, pairs: np.ndarray) -> np.ndarray:
        """Return a mask of the given edge numbers: True for edges that are not in the model."""
        return ~np.isin(pairs, self._chosen)

    def iter_unchosen(self) -> Iterator[np.ndarray]:
        """Yield batches of the numbers of all edges outside the model, ascending; stop at the time limit."""
        for begin in range(0, self.pair_index.size, EDGES_PER_BATCH):
            if self.is_out_of_time():
                return
            pairs = np.arange(begin, min(begin + EDGES_PER_BATCH, self.pair_index.size))
            yield pairs[self.is_unchosen(pairs)]

    def ratios(self, pairs: np.ndarray) -> np.ndarray:
        """Return the ratios of some edges, given by number, shape (n,)."""
        candidates, out = self.pair_index.decode(pairs), np.empty(len(pairs))
        for space, l1 in enumerate(self.l1):
            indices = candidates.indices_in_space(space)
            gradient = self._gradients(space, candidates.pairs(indices))
            out[indices] = np.sqrt((gradient**2).mean(axis=1)) / l1
            passed = np.flatnonzero(out[indices] > 1.0)
            if len(passed) and not self.score_by_counts:
                passed = passed[np.argsort(pairs[indices[passed]])]
                self._passed_gradients.append((pairs[indices[passed]], gradient[passed]))
        return out

    def gradient(self, pairs: np.ndarray) -> np.ndarray:
        """Return the gradients of the edges with the numbers `pairs`, concatenated edge by edge, shape (n_weights,).

        Gradients of edges that passed a test are cached.
        """
        candidates, gradients = self.pair_index.decode(pairs), {}
        for cached, gradient in self._passed_gradients:
            rows = np.minimum(np.searchsorted(cached, pairs), len(cached) - 1)
            for k in np.flatnonzero(cached[rows] == pairs):
                gradients[int(k)] = gradient[rows[k]]
        for space in range(len(self.l1)):
            indices = [int(k) for k in candidates.indices_in_space(space) if int(k) not in gradients]
            if indices:
                missing = candidates.pairs(np.array(indices))
                gradients.update(zip(indices, self.edge_model.edge_gradients(self.point, space, missing), strict=True))
        return np.concatenate([np.empty(0), *(gradients[k] for k in range(len(pairs)))])

    def weight_ratios(self, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the ratio of each weight of some edges, `|gradient| / l1`.

        Returns:
            The edge number of each weight and the index of the weight within this edge, shape (n_weights, 2); and the
            ratios, shape (n_weights,).
        """
        candidates, rows, ratios = self.pair_index.decode(pairs), [], []
        for space, l1 in enumerate(self.l1):
            indices = candidates.indices_in_space(space)
            ratio = np.abs(self._gradients(space, candidates.pairs(indices))) / l1
            row, weight = np.indices(ratio.shape).reshape(2, -1)
            rows.append(np.column_stack((pairs[indices[row]], weight)))
            ratios.append(ratio.ravel())
        return np.concatenate(rows), np.concatenate(ratios)

    def _gradients(self, space: int, pairs: np.ndarray) -> np.ndarray:
        """Return the gradients of edges of one space, shape (n, n_weights)."""
        if not len(pairs) or not self.score_by_counts:
            return self.edge_model.edge_gradients(self.point, space, pairs)
        counts = edge_joint_counts(self.edge_model, space, pairs)
        total = np.maximum(counts.sum(axis=(1, 2), keepdims=True), 1.0)
        independent = counts.sum(axis=2, keepdims=True) * counts.sum(axis=1, keepdims=True) / total
        difference = self.edge_model.terms_per_edge * (independent - counts).reshape(len(pairs), -1)
        return np.asarray(difference @ self.edge_model.spaces[space].patterns)


def edge_joint_counts(model: AbstractEdgeObjective, space: int, pairs: np.ndarray) -> np.ndarray:
    """Return the counts of joint states of edges of one space, shape (n, n_first_states, n_second_states), float64."""
    shape = [len(side.truth) for side in model.spaces[space].sides]
    return model.edge_counts(space, pairs).reshape(-1, *shape).astype(np.float64)


def null_gradient(model: AbstractEdgeObjective, space: int, seed: int) -> float:
    """Estimate the root mean square of the gradients of a space's edges under a null hypothesis, with no chosen edges.

    The null hypothesis is that the labels of the two ends are independent, with their observed frequencies p and q. The
    counts of joint states then have the covariance `n (diag p - p p') x (diag q - q q')`. The gradient is the deviation
    of the counts from the expected counts, times the number of terms of the objective per edge.
    """
    edge_space = model.spaces[space]
    pair_index = PairIndex((edge_space,), seed)
    if not pair_index.size:
        return 0.0
    sample = pair_index.decode(pair_index.search_order(np.arange(min(NULL_SAMPLE_SIZE, pair_index.size))))
    counts = edge_joint_counts(model, space, sample.pairs(np.arange(len(sample))))
    n = np.maximum(counts.sum(axis=(1, 2)), 1.0)
    first, second = (_covariance(counts.sum(axis=axis) / n[:, None]) for axis in (2, 1))
    patterns = edge_space.patterns.reshape(*counts.shape[1:], -1)
    squares = np.einsum("abw,cdw,eac,ebd->ew", patterns, patterns, first, second, optimize=True)
    return float(model.terms_per_edge * np.sqrt((n[:, None] * squares).mean()))


def _covariance(frequencies: np.ndarray) -> np.ndarray:
    """Return the covariance of state indicators, shape (n, k, k), given state probabilities of shape (n, k)."""
    out: np.ndarray = frequencies[:, :, None] * (np.eye(frequencies.shape[1]) - frequencies[:, None, :])
    return out
