"""Contrastive feature induction: selection of candidates by gradients from the errors and signals of literals.

The error of a literal is its probability minus its truth value. The signal of a literal is its truth value; for pairs,
the mean truth value over the samples of the literal's key is subtracted. A literal has an error and a signal for each
cell, i.e. for each sample in which the key occurs. In contrastive divergence, the error is `q1 - q0` and the truth
value is replaced by `(q0 + q1) / 2`, so that the signal is that of Algorithm 1, `(eps0 + eps1) / 2` with `eps = q -
mean q`. See `learning/active_candidates.py` for the terms in this file.

Source: Lao & Zhu, Contrastive Feature Induction for Efficient Structure Learning of Conditional Random Fields (2014),
Algorithm 1, Theorem 3, equations 13 and 14; Grafting: Perkins, Lacker & Theiler (2003).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from relcrf.columns.offsets import offsets
from relcrf.graph.candidates import CandidateSet, CandidateSide, KeyRelation, PairSpace
from relcrf.graph.triples import CompositeLiterals, TripleSpace
from relcrf.kernels.induction import NO_LIMITS, SparseMatrix, top_products, top_products_dense
from relcrf.learning.histogram import Histogram
from relcrf.learning.literal_likelihood import AbstractLiteralObjective
from relcrf.structure.activation import AbstractActivation, ActivationResult
from relcrf.structure.edge_queue import EdgeQueue
from relcrf.structure.scores import CandidateScorer

BIN_EDGES = np.round(np.linspace(-1.0, 1.0, 101), 2)
"""Bin edges of histograms; errors and signals, as differences of probabilities, are between -1 and 1."""


@dataclass(frozen=True)
class ContrastiveInduction(AbstractActivation):
    """Contrastive feature induction: add the candidates with the largest absolute gradients above the l1 strength.

    The gradient of a pair of literals A and B is `sum over samples of x_A error_B + error_A x_B` with truth values x.
    Substituting `x = signal + mean x` gives the contrastive gradient (equation 13) and the mean term of Theorem 3:

        sum over samples of (signal_A error_B + error_A signal_B)  +  mean_A sum(error_B) + sum(error_A) mean_B

    The mean term is 0 only if the weights of single literals have converged without a penalty. The mean term is the
    product for one additional sample, in which the signal of each key is its mean and the error is the sum of its
    errors. If all signals of a key are large, its truth values replace its signals, because false literals then have no
    entry; a second additional sample subtracts the key's mean times the sum of large errors. Only the largest terms are
    summed: those of samples in which one literal has a large error and the other literal has a large signal. With
    thresholds of 0, the result is exact for any weights if both keys have a cell in each sample. Otherwise, it includes
    errors of samples without a cell of the other key; `exact` excludes these.

    A pair AB in the model is a composite literal, which a third literal C can extend (equation 14). The gradient of a
    triple is `sum over samples of error_AB x_C + x_AB error_C`, where x are truth values. The truth values are not
    centred, for two reasons. First, the errors of the composite AB sum to the gradient of the pair AB, which is not 0
    with a penalty. Second, a conjunction is rarely true, so that uncentred values have fewer large entries. With
    thresholds of 0, the gradient of a triple is exact for any weights.

    Args:
        max_added: Maximum number of candidates to add at a time.
        error_threshold, signal_threshold: Errors or signals with absolute values up to this threshold are ignored.
        exhaustive: If True, compute all gradients by dense products; thresholds are not used.
        centred: If False, the truth values of pairs are not centred, like those of triples.
        falls_back: Whether `choose` computes exact gradients if no candidate passes the test. Otherwise, the optimiser
            converges before exact gradients are computed: a search of 300 states with thresholds of 0.1 then has 115
            iterations instead of 86.
    """

    max_added: int = 50
    error_threshold: float = 0.0
    signal_threshold: float = 0.0
    exhaustive: bool = False
    centred: bool = True
    falls_back: bool = False
    _signal_cache: dict[tuple[int, bool], tuple[np.ndarray, SparseMatrix, CandidateSide]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def exact(self) -> ContrastiveInduction:
        """Return the rule with exact gradients of all candidates.

        Without centring, false literals have no entry, so that the products remain sparse without thresholds.
        """
        return replace(self, error_threshold=0.0, signal_threshold=0.0, centred=False, falls_back=False)

    def choose(self, scorer: CandidateScorer, queue: EdgeQueue) -> ActivationResult:
        model = scorer.model
        assert isinstance(model, AbstractLiteralObjective)
        errors, signals = model.errors_and_signals(scorer.point)
        candidates, _ = self.best_candidates(model, scorer.point, errors, signals, scorer.l1)
        if self.falls_back and not len(candidates):
            candidates, _ = self.exact().best_candidates(model, scorer.point, errors, signals, scorer.l1)
        gradient = model.candidate_gradient(candidates, errors, signals)
        return ActivationResult(candidates, gradient, queue, is_exhausted=not len(candidates))

    def best_candidates(
        self,
        model: AbstractLiteralObjective,
        point: np.ndarray,
        errors: np.ndarray,
        truth_values: np.ndarray,
        min_gradients: Sequence[float],
    ) -> tuple[CandidateSet, np.ndarray]:
        """Return the candidates outside the model with the largest absolute gradients, and the estimated gradients.

        Args:
            errors, truth_values: Errors and signals from `AbstractLiteralObjective.errors_and_signals`.
            min_gradients: Exclusive lower bound of the absolute gradient for each space.
        """
        chosen_indices = [model.chosen.indices_in_space(number) for number in range(len(model.spaces))]
        nonzero_pairs = [
            model.chosen.pairs(indices[point[model.n_base + indices] != 0.0]) for indices in chosen_indices
        ]
        rows_by_space, gradients = [], []
        for number, space in enumerate(model.spaces):
            chosen_pairs = model.chosen.pairs(chosen_indices[number])
            n = self.max_added + len(chosen_pairs)
            if isinstance(space, TripleSpace):
                parent_pairs = [space.candidate_pairs(k, nonzero_pairs) for k in range(3)]
                first, second, gradient = self._best_triples(
                    model, space, parent_pairs, errors, truth_values, min_gradients[number], n
                )
            else:
                first, second, gradient = self._best_pairs(space, errors, truth_values, min_gradients[number], n)
            width = np.int64(space.sides[-1].n_keys)  # keys are int32; pair codes need 64 bits
            is_new = ~np.isin(first * width + second, chosen_pairs[:, 0] * width + chosen_pairs[:, 1])
            rows_by_space.append(np.stack((np.full(int(is_new.sum()), number), first[is_new], second[is_new])))
            gradients.append(gradient[is_new])
        rows = np.concatenate([np.empty((3, 0), dtype=np.int64), *rows_by_space], axis=1)
        gradient = np.concatenate([np.empty(0), *gradients])
        order = np.lexsort((*rows[::-1], -np.abs(gradient)))[: self.max_added]
        return CandidateSet(rows[:, order]), gradient[order]

    def histograms(self, model: AbstractLiteralObjective, point: np.ndarray) -> dict[str, Histogram]:
        """Return histograms of the errors and signals of all literals, with the counts beyond the thresholds.

        Args:
            point: Weights, shape (n_base + n_chosen,).
        """
        errors, truth_values = model.errors_and_signals(point)
        sides = [side for space in model.spaces for side in space.sides]
        error_threshold, signal_threshold = (
            (None, None) if self.exhaustive else (self.error_threshold, self.signal_threshold)
        )
        signals = (
            truth_values[side.variable] - key_means(side, truth_values[side.variable])[side.key] for side in sides
        )
        return {
            "errors": Histogram.from_chunks((errors[side.variable] for side in sides), BIN_EDGES, error_threshold),
            "signals": Histogram.from_chunks(signals, BIN_EDGES, signal_threshold),
        }

    def _best_pairs(
        self,
        space: PairSpace,
        errors: np.ndarray,
        truth_values: np.ndarray,
        min_gradient: float,
        n: int,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the first keys, second keys and gradients of the best candidates, including those in the model."""
        sides = space.sides
        relation, limits = (space.relation, NO_LIMITS) if space.ranks is None else (KeyRelation.ANY, space.key_limits())
        if self.exhaustive:
            a, b, c, d = (
                _dense_matrix(side, values[side.variable], space.n_samples)
                for side in sides
                for values in (errors, truth_values)
            )
            return top_products_dense(a, b, c, d, relation, min_gradient, n, limits)
        if self.centred:
            (error, signal), (other_error, other_signal) = (
                (
                    self._large_errors(side, errors, space.n_samples, by_sample=by_sample),
                    self._large_signals(side, truth_values, space.n_samples, by_sample=by_sample),
                )
                for side, by_sample in zip(sides, (False, True), strict=True)
            )
        else:
            (error, signal), (other_error, other_signal) = (
                _large_errors_and_truth(cells, errors, truth_values, self._thresholds, n_rows)
                for cells, n_rows in ((sides[0], None), (sides[1].by_sample, space.n_samples))
            )
        return top_products(error, signal, other_error, other_signal, relation, min_gradient, n, limits)

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
        """Return the best triples that extend a pair in the model by a third literal, in the form of `_best_pairs`.

        Args:
            parent_pairs: For each of the three literals, the pairs in the model that this literal can extend: keys of
                the two other literals, shape (n, 2).
        """
        triples, gradients = [np.empty((0, 2), dtype=np.int64)], [np.empty(0)]
        for k, pairs in enumerate(parent_pairs):
            if not len(pairs):
                continue
            first, second = (side for position, side in enumerate(space.sides) if position != k)
            composites = CompositeLiterals.from_pairs(first, second, space.n_samples, pairs, len(truth_values))
            values = model.composite_errors(composites, errors, truth_values)
            error, signal = _large_errors_and_truth(composites.side, *values, self._thresholds, None)
            third_error, third_signal = _large_errors_and_truth(
                space.sides[k].by_sample, *values, self._thresholds, space.n_samples
            )
            a, b, gradient = top_products(
                error, signal, third_error, third_signal, KeyRelation.ANY, min_gradient, n, space.key_limits(k, pairs)
            )
            triples.append(space.encode_keys(np.insert(pairs[a], k, b, axis=1)))
            gradients.append(gradient)
        return _deduplicate(np.concatenate(triples), np.concatenate(gradients))

    @property
    def _thresholds(self) -> tuple[float, float]:
        return (0.0, 0.0) if self.exhaustive else (self.error_threshold, self.signal_threshold)

    def _large_errors(
        self, side: CandidateSide, errors: np.ndarray, n_samples: int, *, by_sample: bool
    ) -> SparseMatrix:
        """Return the large errors of a side.

        Two additional samples contain the sums of all errors, if they are large, and the sums of large errors.

        Args:
            by_sample: Whether the rows are samples and the columns are keys, or vice versa.
        """
        cells = side.by_sample if by_sample else side
        large = _large_entries(cells, errors[cells.variable], self.error_threshold, n_samples if by_sample else None)
        all_errors = errors[side.variable]
        large_errors = np.where(np.abs(all_errors) > self.error_threshold, all_errors, 0.0).astype(errors.dtype)
        large = _add_sample(large, key_sums(side, all_errors), self.error_threshold, n_samples, by_sample)
        return _add_sample(large, key_sums(side, large_errors), 0.0, n_samples + 1, by_sample)

    def _large_signals(
        self, side: CandidateSide, truth_values: np.ndarray, n_samples: int, *, by_sample: bool
    ) -> SparseMatrix:
        """Return the large signals of a side, with two additional samples, in the form of `_large_errors`.

        The additional samples contain the means of the truth values, and the negative means of those keys whose truth
        values replace the signals (see the class). The result is cached until the truth values change.
        """
        cached = self._signal_cache.get((id(side), by_sample))
        if cached is not None and cached[0] is truth_values:
            return cached[1]
        means = key_means(side, truth_values[side.variable])
        cells = side.by_sample if by_sample else side
        replaced_means = np.where(self._has_large_signals(side, truth_values, means, n_samples), means, 0.0)
        centres = (means - replaced_means).astype(means.dtype)
        signals = truth_values[cells.variable] - centres[cells.sample if by_sample else cells.key]
        large = _large_entries(cells, signals, self.signal_threshold, n_samples if by_sample else None)
        large = _add_sample(large, means, self.signal_threshold, n_samples, by_sample)
        large = _add_sample(large, -replaced_means.astype(means.dtype), 0.0, n_samples + 1, by_sample)
        self._signal_cache[id(side), by_sample] = truth_values, large, side
        return large

    def _has_large_signals(
        self, side: CandidateSide, truth_values: np.ndarray, means: np.ndarray, n_samples: int
    ) -> np.ndarray:
        """Return a mask of the keys that have a cell in each sample, large signals, and no small truth value except 0."""
        truth, threshold = truth_values[side.variable], self.signal_threshold
        large = (np.abs(truth - means[side.key]) > threshold) & ((truth == 0.0) | (np.abs(truth) > threshold))
        return np.asarray(key_sums(side, large.astype(np.int64)) == n_samples)


def _deduplicate(pairs: np.ndarray, gradient: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return each distinct row of `pairs`, shape (n, 2), once, with the row's gradient of largest absolute value."""
    order = np.lexsort((-np.abs(gradient), pairs[:, 1], pairs[:, 0]))
    pairs, gradient = pairs[order], gradient[order]
    new = np.ones(len(pairs), dtype=bool)
    new[1:] = (pairs[1:] != pairs[:-1]).any(axis=1)
    return pairs[new, 0], pairs[new, 1], gradient[new]


def _dense_matrix(side: CandidateSide, values: np.ndarray, n_samples: int) -> np.ndarray:
    """Return the values of the cells of a side as a dense matrix, shape (n_samples, n_keys)."""
    out = np.zeros((n_samples, side.n_keys))
    out[side.sample, side.key] = values
    return out


def key_sums(side: CandidateSide, values: np.ndarray) -> np.ndarray:
    """Return the sum of the values of each key's cells, shape (n_keys,)."""
    totals = np.add.reduceat(np.append(values, values.dtype.type(0)), np.minimum(side.start[:-1], len(values)))
    return np.where(np.diff(side.start) > 0, totals, values.dtype.type(0))


def key_means(side: CandidateSide, values: np.ndarray) -> np.ndarray:
    """Return the mean of the values of each key's cells, shape (n_keys,); 0 for keys without cells."""
    means: np.ndarray = key_sums(side, values) / np.maximum(np.diff(side.start), 1)
    return means.astype(values.dtype)


def _large_errors_and_truth(
    cells: CandidateSide,
    errors: np.ndarray,
    truth_values: np.ndarray,
    thresholds: tuple[float, float],
    n_rows: int | None,
) -> tuple[SparseMatrix, SparseMatrix]:
    """Return the large errors and the large truth values of some cells as sparse matrices."""
    return (
        _large_entries(cells, errors[cells.variable], thresholds[0], n_rows),
        _large_entries(cells, truth_values[cells.variable], thresholds[1], n_rows),
    )


def _large_entries(cells: CandidateSide, values: np.ndarray, threshold: float, n_rows: int | None) -> SparseMatrix:
    """Return a sparse matrix of the cell values with an absolute value above the threshold.

    Args:
        n_rows: Minimum number of rows; additional rows are empty.
    """
    kept = np.abs(values) > threshold
    start = offsets(kept)[cells.start].astype(np.int64)
    if n_rows is not None:
        start = np.append(start, np.full(n_rows + 1 - len(start), start[-1]))
    return SparseMatrix(start, cells.sample[kept], values[kept])


def _add_sample(
    matrix: SparseMatrix, values: np.ndarray, threshold: float, n_samples: int, by_sample: bool
) -> SparseMatrix:
    """Return a sparse matrix with an additional sample `n_samples`, which contains the large values.

    Args:
        values: Value of each key in the additional sample, shape (n_keys,).
        by_sample: Whether the rows of the matrix are samples and the columns are keys, or vice versa.
    """
    large = np.abs(values) > threshold
    if by_sample:
        return SparseMatrix(
            np.append(matrix.start, matrix.start[-1] + large.sum()),
            np.append(matrix.column, np.flatnonzero(large).astype(matrix.column.dtype)),
            np.append(matrix.value, values[large]),
        )
    row_ends = matrix.start[1:][large]
    return SparseMatrix(
        matrix.start + offsets(large),
        np.insert(matrix.column, row_ends, n_samples),
        np.insert(matrix.value, row_ends, values[large]),
    )
