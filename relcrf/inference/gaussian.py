"""Inference in Gaussian distributions with sparse precision matrices, by sparse Cholesky factorisation where it is affordable.

Source: Rue & Held, Gaussian Markov Random Fields (2005), chapters 2 and 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csc_matrix, csr_matrix
from scipy.sparse.csgraph import connected_components, reverse_cuthill_mckee
from scipy.sparse.linalg import spilu
from scipy.special import ndtri

from relcrf.inference.gaussian_estimates import EstimatedInverse, random_signs, sample_normal
from relcrf.inference.result import Verdict
from relcrf.kernels import sparse_cholesky

MAX_FACTOR_ENTRIES = 1 << 27
"""Maximum number of entries of a factor; 2**27 entries, with the inverse, take 2.5 GiB."""

MAX_OPERATIONS = 2e10
"""Maximum number of operations for a factor, which take 25 seconds with those for the entries of the inverse."""

MAX_LIKELIHOOD_OPERATIONS = 4e8
"""The same for the likelihood, which learning evaluates about 40 times; half a second each."""

N_LEFT_OUT_SAMPLES = 200
"""Number of samples for `ConditionalPattern.leave_one_out`; a variance then has a standard error of at most a tenth of the part
that unknown neighbours cause."""

SQUARES_STEP = 1e-5
"""Relative step of the central difference in `CholeskyFactor.squares`, whose relative error is then about 1e-10."""

SMALL_ROWS = 10_000
"""Number of rows for which an elimination order takes less than a second, even if the factor is dense."""


@dataclass(frozen=True, eq=False)
class PrecisionPattern:
    """The pattern of a symmetric positive definite matrix, with an elimination order and the pattern of its factor.

    Args:
        n: Number of rows.
        first, second: Rows and columns of the entries beside the diagonal, one for each pair of variables, shape (n_pairs,);
            pairs may occur repeatedly and in both directions, and their values are added.
        signs: Random signs for estimates, shape (n_probes, n); None for those of `random_signs`.
    """

    n: int
    first: np.ndarray
    second: np.ndarray
    signs: np.ndarray | None = None

    @cached_property
    def _adjacency(self) -> csc_matrix:
        rows, columns = np.concatenate((self.first, self.second)), np.concatenate((self.second, self.first))
        return csc_matrix((np.ones(len(rows)), (rows, columns)), shape=(self.n, self.n))

    @cached_property
    def position(self) -> np.ndarray:
        """The position of each row in the elimination order (multiple minimum degree), shape (n,), int32."""
        if not len(self.first):
            return np.arange(self.n, dtype=np.int32)
        matrix = self._adjacency.copy()
        matrix.data[:] = -1.0
        matrix.setdiag(np.diff(matrix.indptr) + 1.0)
        # SciPy gives access to the order by a factorisation only; one that drops all entries is the fastest.
        options = {"SymmetricMode": True}
        factor = spilu(
            matrix, drop_tol=1.0, fill_factor=1.0, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options
        )
        return np.asarray(factor.perm_c, dtype=np.int32)

    @cached_property
    def n_operations(self) -> float:
        """The number of operations for the factor; a lower bound where it exceeds `MAX_OPERATIONS`.

        The order of a large dense graph takes longer than inference without it, so that the first half of the rows, in the order
        of a breadth-first search, is tried before.
        """
        if self.n > SMALL_ROWS and len(self.first) and (bound := self._half().n_operations) > MAX_OPERATIONS:
            return bound
        return float((np.diff(self._tree[1]).astype(np.float64) ** 2).sum())

    def _half(self) -> PrecisionPattern:
        """Return the pattern of half of the rows."""
        position = np.full(self.n, -1, dtype=np.int32)
        chosen = reverse_cuthill_mckee(self._adjacency, symmetric_mode=True)[: self.n // 2]
        position[chosen] = np.arange(len(chosen))
        first, second = position[self.first], position[self.second]
        kept = (first >= 0) & (second >= 0)
        return PrecisionPattern(len(chosen), first[kept], second[kept])

    def is_affordable(self, max_operations: float) -> bool:
        """Return True if the factor takes at most so many operations, and its entries fit into the memory."""
        return self.n_operations <= max_operations and self.n_factor_entries <= MAX_FACTOR_ENTRIES

    @cached_property
    def _triangle(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The lower triangle in compressed rows, and the entry of each pair."""
        a, b = self.position[self.first], self.position[self.second]
        low, high = np.minimum(a, b).astype(np.int64), np.maximum(a, b).astype(np.int64)
        keys, entry = np.unique(high * max(1, self.n) + low, return_inverse=True)
        row_start = np.searchsorted(keys, np.arange(self.n + 1) * max(1, self.n))
        return row_start.astype(np.int64), (keys % max(1, self.n)).astype(np.int32), entry

    @cached_property
    def _tree(self) -> tuple[np.ndarray, np.ndarray]:
        row_start, column, _ = self._triangle
        parent, start = sparse_cholesky.elimination_tree(row_start, column)
        return parent, start

    @property
    def n_factor_entries(self) -> int:
        """The number of entries of the factor below the diagonal."""
        return int(self._tree[1][-1])

    @cached_property
    def _rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The matrix without the diagonal in compressed rows, and the entry of each pair and of each in the other direction."""
        rows = np.concatenate((self.first, self.second)).astype(np.int64)
        keys, entry = np.unique(rows * max(1, self.n) + np.concatenate((self.second, self.first)), return_inverse=True)
        row_start = np.searchsorted(keys, np.arange(self.n + 1) * max(1, self.n))
        return row_start.astype(np.int64), (keys % max(1, self.n)).astype(np.int32), entry

    def invert(
        self, diagonal: np.ndarray, values: np.ndarray, max_operations: float = MAX_OPERATIONS
    ) -> CholeskyFactor | EstimatedInverse:
        """Return the factor of a matrix if it is affordable, and otherwise estimates of its inverse.

        Args:
            diagonal: Diagonal of the matrix, shape (n,); at least the sum of the absolute values of the pairs in each row.
            values: Value of each pair, shape (n_pairs,).
        """
        if self.is_affordable(max_operations):
            return self.factorise(diagonal, values)
        row_start, column, entry = self._rows
        signs = random_signs(self.n) if self.signs is None else self.signs
        return EstimatedInverse(diagonal, self.first, self.second, values, (row_start, column), entry, signs)

    def factorise(self, diagonal: np.ndarray, values: np.ndarray) -> CholeskyFactor:
        """Return the factor of a matrix.

        Args:
            diagonal: Diagonal of the matrix, shape (n,).
            values: Value of each pair, shape (n_pairs,).
        """
        row_start, column, entry = self._triangle
        parent, start = self._tree
        merged = np.bincount(entry, values, minlength=len(column)).astype(np.float64)
        ordered = np.empty(self.n)
        ordered[self.position] = diagonal
        row, lower = np.zeros(start[-1], dtype=np.int32), np.zeros(start[-1])
        pivot = np.zeros(self.n)
        n_done = sparse_cholesky.factorise(row_start, column, merged, ordered, parent, start, row, lower, pivot)
        if n_done < self.n:
            pivot[:] = (
                np.nan
            )  # weights so extreme that rounding makes a pivot negative; the line search shortens its step
        return CholeskyFactor(self, start, row, lower, pivot, diagonal, values)


@dataclass(frozen=True, eq=False)
class CholeskyFactor:
    """The factor L D L' of a matrix, whose rows are in elimination order.

    Args:
        diagonal, values: The matrix, see `PrecisionPattern.factorise`.
    """

    pattern: PrecisionPattern
    start: np.ndarray
    row: np.ndarray
    lower: np.ndarray
    pivot: np.ndarray
    diagonal: np.ndarray
    values: np.ndarray

    verdict = Verdict("exact")

    @property
    def log_determinant(self) -> float:
        return float(np.log(self.pivot).sum())

    def solve(self, vector: np.ndarray) -> np.ndarray:
        """Return the product of the inverse and a vector, shape (n,)."""
        ordered = np.empty(len(vector))
        ordered[self.pattern.position] = vector
        sparse_cholesky.solve(self.start, self.row, self.lower, self.pivot, ordered)
        return np.asarray(ordered[self.pattern.position])

    @cached_property
    def _selected(self) -> tuple[np.ndarray, np.ndarray]:
        inverse, diagonal = np.empty(len(self.lower)), np.empty(len(self.pivot))
        sparse_cholesky.selected_inverse(self.start, self.row, self.lower, self.pivot, inverse, diagonal)
        return inverse, diagonal

    @property
    def variances(self) -> np.ndarray:
        """The diagonal of the inverse, shape (n,)."""
        return np.asarray(self._selected[1][self.pattern.position])

    def squares(self, weights: np.ndarray) -> np.ndarray:
        """Return the sums of the squares of each row of the inverse, weighted by column, shape (n,).

        They are the derivatives at t = 0 of the diagonal of (A - t W)^-1, where A is the matrix and W contains the weights; here,
        central differences.

        Args:
            weights: Weights of the columns, at least 0, shape (n,). The eigenvalues of the matrix are about 1 or larger.
        """
        largest = float(weights.max(initial=0.0))
        if not largest > 0.0:
            return np.zeros(len(weights))
        step = SQUARES_STEP / largest
        ends = (self.pattern.factorise(self.diagonal - t * weights, self.values).variances for t in (step, -step))
        return np.asarray(np.subtract(*ends) / (2.0 * step))

    @property
    def determinant_gradient(self) -> tuple[np.ndarray, np.ndarray]:
        """Derivatives of the log determinant with respect to the diagonal and, halved, to the values of the pairs.

        They are the entries of the inverse, shapes (n,) and (n_pairs,).
        """
        pattern = self.pattern
        first, second, out = (
            pattern.position[pattern.first],
            pattern.position[pattern.second],
            np.empty(len(pattern.first)),
        )
        inverse, diagonal = self._selected
        sparse_cholesky.inverse_entries(self.start, self.row, inverse, diagonal, first, second, out)
        return self.variances, out


@dataclass(frozen=True, eq=False)
class PairWeights:
    """The precision matrix Q of standardised deviations; see `graph/numeric_graph.py`.

    Args:
        n: Number of variables.
        first, second: The two variables of each pair, shape (n_pairs,), int32.
        difference, sum: Weights d and s of each pair, shape (n_pairs,), positive.
    """

    n: int
    first: np.ndarray
    second: np.ndarray
    difference: np.ndarray
    sum: np.ndarray

    @property
    def diagonal(self) -> np.ndarray:
        """The diagonal of Q, shape (n,)."""
        total = self.difference + self.sum
        ends = np.bincount(self.first, total, self.n) + np.bincount(self.second, total, self.n)
        return np.asarray(1.0 + ends)

    @property
    def values(self) -> np.ndarray:
        """The entry of Q of each pair, shape (n_pairs,)."""
        return np.asarray(self.sum - self.difference)

    def multiply(self, u: np.ndarray) -> np.ndarray:
        """Return Q u, shape (n,)."""
        values, size = self.values, self.n
        forward = np.bincount(self.first, values * u[self.second], size)
        return np.asarray(self.diagonal * u + forward + np.bincount(self.second, values * u[self.first], size))


@dataclass(frozen=True, eq=False)
class ConditionalPattern:
    """The patterns of Q and of its block of unknown variables.

    Args:
        is_known: Mask of the variables whose values are known, shape (n,).
    """

    n: int
    first: np.ndarray
    second: np.ndarray
    is_known: np.ndarray

    @cached_property
    def unknown(self) -> np.ndarray:
        """The unknown variables, ascending."""
        return np.flatnonzero(~self.is_known)

    @cached_property
    def within(self) -> np.ndarray:
        """The mask of the pairs of two unknown variables, shape (n_pairs,)."""
        return np.asarray(~self.is_known[self.first] & ~self.is_known[self.second])

    @cached_property
    def _signs(self) -> np.ndarray:
        """Signs that both patterns share, so that the errors of the difference of their log determinants cancel in part."""
        return random_signs(self.n)

    @cached_property
    def whole(self) -> PrecisionPattern:
        return PrecisionPattern(self.n, self.first, self.second, self._signs)

    @cached_property
    def block(self) -> PrecisionPattern:
        """The pattern of the block of Q of the unknown variables, in the order of `unknown`."""
        position = np.cumsum(~self.is_known) - 1
        first, second = (position[ends[self.within]].astype(np.int32) for ends in (self.first, self.second))
        return PrecisionPattern(len(self.unknown), first, second, self._signs[:, self.unknown])

    def condition(
        self,
        weights: PairWeights,
        u: np.ndarray,
        precision: np.ndarray | float = 0.0,
        shift: np.ndarray | float = 0.0,
        max_operations: float = MAX_OPERATIONS,
    ) -> tuple[np.ndarray, CholeskyFactor | EstimatedInverse]:
        """Return the conditional means of all deviations, known ones unchanged, and the inverse of the block of the unknown.

        Args:
            u: The deviations, shape (n,); those of unknown variables are ignored.
            precision, shift: Gaussian factors exp(shift * u - precision * u^2 / 2) of the unknown variables, shape (n,).
            max_operations: See `PrecisionPattern.invert`.
        """
        known = np.where(self.is_known, u, 0.0)
        diagonal = weights.diagonal + precision
        inverse = self.block.invert(diagonal[self.unknown], weights.values[self.within], max_operations)
        known[self.unknown] = inverse.solve((shift - weights.multiply(known))[self.unknown])
        return known, inverse

    def leave_one_out(self, weights: PairWeights, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean and the variance of each known deviation, given all other known ones, shape (n_known,) each.

        With P the precision matrix of the known deviations (Q with the others integrated out), they are u_i - (P u)_i / P_ii and
        1 / P_ii. P_ii is exact if all neighbours of i are known, or if the pairs form a forest; otherwise it is estimated from
        `N_LEFT_OUT_SAMPLES` samples.

        Args:
            u: The deviations, shape (n,); those of unknown variables are ignored.
        """
        means, inverse = self.condition(weights, u)
        product, unknown = weights.multiply(means)[self.is_known], self.unknown
        reduction = np.zeros(len(product))
        if len(unknown) and self._is_forest:
            # Only one path joins two neighbours of i, through i, so that they are independent given the known deviations.
            ends = np.concatenate((self.first, self.second)), np.concatenate((self.second, self.first))
            entries = csr_matrix((np.tile(weights.values, 2), ends), shape=(self.n, self.n))  # adds repeated pairs
            variances = np.zeros(self.n)
            variances[unknown] = inverse.variances
            reduction = (entries.power(2) @ variances)[self.is_known]
        elif self.n > len(unknown) > 0:
            reduction = self._sample_reduction(weights, inverse)
        variances = 1.0 / np.maximum(weights.diagonal[self.is_known] - reduction, 1.0)
        return u[self.is_known] - variances * product, variances

    @property
    def _is_forest(self) -> bool:
        """Whether the pairs form a forest, apart from repetitions."""
        ends = np.unique(np.sort(np.stack((self.first, self.second), axis=1), axis=1), axis=0)
        links = csr_matrix((np.ones(len(ends)), ends.T), shape=(self.n, self.n))
        return bool(connected_components(links, directed=False)[0] == self.n - len(ends))

    def _sample_reduction(self, weights: PairWeights, inverse: CholeskyFactor | EstimatedInverse) -> np.ndarray:
        """Estimate the part of each known variable's entry of Q that integrating out the unknown ones removes."""
        unknown, total = self.unknown, np.zeros(self.n - len(self.unknown))
        block = weights.diagonal[unknown], self.block.first, self.block.second, weights.values[self.within]
        for sample in range(N_LEFT_OUT_SAMPLES):
            x = np.zeros(self.n)
            x[unknown] = inverse.solve(sample_normal(sample, *block))
            total += weights.multiply(x)[self.is_known] ** 2 / N_LEFT_OUT_SAMPLES
        return total


@dataclass(frozen=True, eq=False)
class NumberMarginals:
    """The marginal distributions of some numbers.

    Args:
        variables: Variables, ascending, shape (n,).
        means, deviations: Mean and standard deviation of each, shape (n,).
    """

    variables: np.ndarray
    means: np.ndarray
    deviations: np.ndarray

    def intervals(self, min_probability: float | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the limits of central intervals; larger deviations have the given probability, a number or of shape (n,)."""
        half = -ndtri(0.5 * min_probability) * self.deviations
        return self.means - half, self.means + half

    def select(self, chosen: np.ndarray) -> NumberMarginals:
        """Return the marginals of the variables in a mask of all variables of the graph."""
        kept = chosen[self.variables]
        return NumberMarginals(self.variables[kept], self.means[kept], self.deviations[kept])
