"""Contrastive feature induction: the candidates along which the objective is steepest, from errors and signals of literals.

Source: Lao & Zhu, Contrastive Feature Induction for Efficient Structure Learning of Conditional Random Fields (2014),
equations 13 and 14; Grafting: Perkins, Lacker & Theiler (2003).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from relcrf.columns.offsets import offsets
from relcrf.graph.candidates import CandidateSet, CandidateSide, KeyRelation, PairSpace
from relcrf.graph.triples import CompositeLiterals, TripleSpace
from relcrf.kernels.induction import SparseMatrix, top_products, top_products_dense
from relcrf.learning.histogram import Histogram
from relcrf.learning.literal_likelihood import AbstractLiteralObjective
from relcrf.structure.activation import AbstractActivation, ActivationResult
from relcrf.structure.edge_queue import EdgeQueue
from relcrf.structure.scores import CandidateScorer

BIN_EDGES = np.round(np.linspace(-1.0, 1.0, 101), 2)
"""Bins of histograms: errors and signals are differences of probabilities."""


@dataclass(frozen=True)
class ContrastiveInduction(AbstractActivation):
    """Takes the candidates with the largest gradients beyond their l1, from the errors and the signals of literals.

    A literal's error is its probability less whether it holds; its signal is whether it holds, less how often it does among the
    samples of its key. The gradient of a pair is `sum over samples of signal_A error_B + error_A signal_B` where the errors
    of each key add up to 0, as they do once the weights of single literals have converged without a penalty. So only
    samples count in which one literal has a large error and the other a large signal, and the rest is left out.

    A pair that stands in the model is a composite literal, which a third one may join (equation 14): a triple's gradient is
    `sum over samples of error_AB x_C + x_AB error_C`. Here whether a literal holds is its own signal, with no mean taken off:
    the errors of a composite add up to the gradient of its pair, which a penalty keeps from 0; and a conjunction is seldom
    true, so that it has fewer large entries without its mean. With thresholds of 0 that is exact at any weights.

    Args:
        max_added: how many join at a time.
        error_threshold, signal_threshold: what is no larger is left out. With both 0 nothing is, and gradients are exact.
        exhaustive: as dense products, all that there are; thresholds do not act.
    """

    max_added: int = 50
    error_threshold: float = 0.0
    signal_threshold: float = 0.0
    exhaustive: bool = False
    _signal_cache: dict[tuple[int, int | None], tuple[np.ndarray, SparseMatrix, CandidateSide]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def choose(self, tests: CandidateScorer, queue: EdgeQueue) -> ActivationResult:
        model = tests.model
        assert isinstance(model, AbstractLiteralObjective)
        errors, signals = model.errors_and_signals(tests.point)
        joining, _ = self.best_candidates(model, tests.point, errors, signals, tests.l1)
        gradient = model.candidate_gradient(joining, errors, signals)
        return ActivationResult(joining, gradient, queue, is_exhausted=not len(joining))

    def best_candidates(
        self,
        model: AbstractLiteralObjective,
        point: np.ndarray,
        errors: np.ndarray,
        truth_values: np.ndarray,
        min_gradients: Sequence[float],
    ) -> tuple[CandidateSet, np.ndarray]:
        """Return the candidates that are not in the model, by the size of their gradients, and these as they were estimated.

        Args:
            errors, truth_values: see `AbstractLiteralObjective.errors_and_signals`, at the point.
            min_gradients: for each space what a gradient must be larger than.
        """
        places = [model.chosen.indices_in_space(number) for number in range(len(model.spaces))]
        standing = [model.chosen.pairs(at[point[model.n_base + at] != 0.0]) for at in places]
        found, gradients = [], []
        for number, space in enumerate(model.spaces):
            known = model.chosen.pairs(places[number])
            n = self.max_added + len(known)
            if isinstance(space, TripleSpace):
                grown = [space.candidate_pairs(k, standing) for k in range(3)]
                first, second, gradient = self._best_triples(
                    model, space, grown, errors, truth_values, min_gradients[number], n
                )
            else:
                first, second, gradient = self._best_pairs(space, errors, truth_values, min_gradients[number], n)
            width = np.int64(space.sides[-1].n_keys)  # keys of pairs are int32, and their products are not
            new = ~np.isin(first * width + second, known[:, 0] * width + known[:, 1])
            found.append(np.stack((np.full(int(new.sum()), number), first[new], second[new])))
            gradients.append(gradient[new])
        rows = np.concatenate([np.empty((3, 0), dtype=np.int64), *found], axis=1)
        gradient = np.concatenate([np.empty(0), *gradients])
        order = np.lexsort((*rows[::-1], -np.abs(gradient)))[: self.max_added]
        return CandidateSet(rows[:, order]), gradient[order]

    def histograms(self, model: AbstractLiteralObjective, point: np.ndarray) -> dict[str, Histogram]:
        """Return the histograms `errors` and `signals` of all cells of a model's spaces, with what is beyond the thresholds.

        Args:
            point: shape (n_base + n_chosen,).
        """
        errors, holds = model.errors_and_signals(point)
        sides = [side for space in model.spaces for side in space.sides]
        least_error, least_signal = (None, None) if self.exhaustive else (self.error_threshold, self.signal_threshold)
        signals = (holds[side.variable] - key_means(side, holds[side.variable])[side.key] for side in sides)
        return {
            "errors": Histogram.from_chunks((errors[side.variable] for side in sides), BIN_EDGES, least_error),
            "signals": Histogram.from_chunks(signals, BIN_EDGES, least_signal),
        }

    def _best_pairs(
        self,
        space: PairSpace,
        errors: np.ndarray,
        truth_values: np.ndarray,
        min_gradient: float,
        n: int,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The keys of the best candidates of a space, those in the model among them, and their gradients."""
        relation, sides = int(space.relation), space.sides
        if self.exhaustive:
            a, b, c, d = (
                _dense_matrix(side, values[side.variable], space.n_samples)
                for side in sides
                for values in (errors, truth_values)
            )
            return top_products_dense(a, b, c, d, relation, min_gradient, n)
        (error, signal), (other_error, other_signal) = (
            (self._large_errors(side, errors, n_samples), self._large_signals(side, truth_values, n_samples))
            for side, n_samples in zip(sides, (None, space.n_samples), strict=True)
        )
        return top_products(error, signal, other_error, other_signal, relation, min_gradient, n)

    def _best_triples(
        self,
        model: AbstractLiteralObjective,
        space: TripleSpace,
        parent_pairs: Sequence[np.ndarray],
        errors: np.ndarray,
        truth_values: np.ndarray,
        min_gradient: float,
        n: int,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The same of triples that grow from pairs: a composite and a literal each, whichever of the three that is.

        Args:
            parent_pairs: for each of the three literals the composites of the two others, as pairs of their keys, shape (n, 2).
        """
        thresholds = (0.0, 0.0) if self.exhaustive else (self.error_threshold, self.signal_threshold)
        found, gradients = [np.empty((0, 2), dtype=np.int64)], [np.empty(0)]
        for k, pairs in enumerate(parent_pairs):
            if not len(pairs):
                continue
            one, other = (side for place, side in enumerate(space.sides) if place != k)
            made = CompositeLiterals.from_pairs(one, other, space.n_samples, pairs, len(truth_values))
            values = model.composite_errors(made, errors, truth_values)
            error, signal = _large_errors_and_truth(made.side, *values, thresholds, None)
            third_error, third_signal = _large_errors_and_truth(
                space.sides[k].by_sample, *values, thresholds, space.n_samples
            )
            a, b, gradient = top_products(
                error, signal, third_error, third_signal, KeyRelation.ANY, min_gradient, n, space.key_limits(k, pairs)
            )
            found.append(space.encode_keys(np.insert(pairs[a], k, b, axis=1)))
            gradients.append(gradient)
        return _deduplicate(np.concatenate(found), np.concatenate(gradients))

    def _large_errors(self, side: CandidateSide, errors: np.ndarray, n_samples: int | None) -> SparseMatrix:
        """The large errors of a side, by key, or by sample where their number is given."""
        cells = side if n_samples is None else side.by_sample
        return _large_entries(cells, errors[cells.variable], self.error_threshold, n_samples)

    def _large_signals(self, side: CandidateSide, truth_values: np.ndarray, n_samples: int | None) -> SparseMatrix:
        """The large signals of a side, likewise. Those of labels stay the same from round to round, and are kept."""
        known = self._signal_cache.get((id(side), n_samples))
        if known is not None and known[0] is truth_values:
            return known[1]
        cells, means = side, key_means(side, truth_values[side.variable])
        key = side.key
        if n_samples is not None:
            cells = side.by_sample
            key = cells.sample
        found = _large_entries(cells, truth_values[cells.variable] - means[key], self.signal_threshold, n_samples)
        self._signal_cache[id(side), n_samples] = truth_values, found, side
        return found


def _deduplicate(pairs: np.ndarray, gradient: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Candidates that may stand several times, shape (n, 2), each once with the largest of its gradients."""
    order = np.lexsort((-np.abs(gradient), pairs[:, 1], pairs[:, 0]))
    pairs, gradient = pairs[order], gradient[order]
    new = np.ones(len(pairs), dtype=bool)
    new[1:] = (pairs[1:] != pairs[:-1]).any(axis=1)
    return pairs[new, 0], pairs[new, 1], gradient[new]


def _dense_matrix(side: CandidateSide, values: np.ndarray, n_samples: int) -> np.ndarray:
    """The cells of a side as a dense matrix, shape (n_samples, n_keys)."""
    out = np.zeros((n_samples, side.n_keys))
    out[side.sample, side.key] = values
    return out


def key_means(side: CandidateSide, values: np.ndarray) -> np.ndarray:
    """The mean of the values of each key's cells, shape (n_keys,)."""
    sizes = np.diff(side.start)
    totals = np.add.reduceat(np.append(values, values.dtype.type(0)), np.minimum(side.start[:-1], len(values)))
    means = np.divide(totals, sizes, where=sizes > 0, out=np.zeros(len(sizes)))
    return means.astype(values.dtype)


def _large_errors_and_truth(
    cells: CandidateSide,
    errors: np.ndarray,
    truth_values: np.ndarray,
    thresholds: tuple[float, float],
    n_rows: int | None,
) -> tuple[SparseMatrix, SparseMatrix]:
    """The large errors of some cells, and where their literals hold."""
    return (
        _large_entries(cells, errors[cells.variable], thresholds[0], n_rows),
        _large_entries(cells, truth_values[cells.variable], thresholds[1], n_rows),
    )


def _large_entries(cells: CandidateSide, values: np.ndarray, threshold: float, n_rows: int | None) -> SparseMatrix:
    """The cells with larger values than the least, as a matrix.

    Args:
        n_rows: how many rows it has at least; rows beyond the cells' are empty.
    """
    kept = np.abs(values) > threshold
    start = offsets(kept)[cells.start].astype(np.int64)
    if n_rows is not None:
        start = np.append(start, np.full(n_rows + 1 - len(start), start[-1]))
    return SparseMatrix(start, cells.sample[kept], values[kept])
