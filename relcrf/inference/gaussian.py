"""Exact inference in Gaussian distributions with sparse precision matrices, by sparse Cholesky factorisation.

Source: Rue & Held, Gaussian Markov Random Fields (2005), chapters 2 and 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csc_matrix
from scipy.sparse.linalg import splu
from scipy.stats import norm

from relcrf.errors import Diagnostic, UsageError
from relcrf.kernels import sparse_cholesky

MAX_FACTOR_ENTRIES = 1 << 27
"""Maximum number of entries of a factor; 2**27 entries, with the inverse, take 2.5 GiB."""


@dataclass(frozen=True, eq=False)
class PrecisionPattern:
    """The pattern of a symmetric positive definite matrix, with an elimination order and the pattern of its factor.

    Args:
        n: Number of rows.
        first, second: Rows and columns of the entries beside the diagonal, one for each pair of variables, shape (n_pairs,);
            pairs may occur repeatedly and in both directions, and their values are added.
    """

    n: int
    first: np.ndarray
    second: np.ndarray

    @cached_property
    def position(self) -> np.ndarray:
        """The position of each row in the elimination order, shape (n,), int32."""
        position = np.arange(self.n, dtype=np.int32)
        if len(self.first):
            rows, columns = np.concatenate((self.first, self.second)), np.concatenate((self.second, self.first))
            adjacency = csc_matrix((np.ones(len(rows)), (rows, columns)), shape=(self.n, self.n))
            adjacency.data[:] = -1.0
            degrees = np.diff(adjacency.indptr)
            adjacency.setdiag(degrees + 1.0)
            options = {"SymmetricMode": True}
            order = splu(adjacency.tocsc(), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options).perm_c
            position[:] = order
        return position

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

    def factorise(self, diagonal: np.ndarray, values: np.ndarray) -> CholeskyFactor:
        """Return the factor of a matrix.

        Args:
            diagonal: Diagonal of the matrix, shape (n,).
            values: Value of each pair, shape (n_pairs,).

        Raises:
            UsageError: If the factor has more than `MAX_FACTOR_ENTRIES` entries (E377).
        """
        if self.n_factor_entries > MAX_FACTOR_ENTRIES:
            message = (
                f"exact inference of {self.n:,} numbers needs {self.n_factor_entries:,} entries of a Cholesky factor"
            )
            hint = "use --backend local, or connect fewer numbers by the 'where' of templates over two numbers"
            raise UsageError(Diagnostic("E377", message, hint=hint))
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
        return CholeskyFactor(self, start, row, lower, pivot)


@dataclass(frozen=True, eq=False)
class CholeskyFactor:
    """The factor L D L' of a matrix, whose rows are in elimination order."""

    pattern: PrecisionPattern
    start: np.ndarray
    row: np.ndarray
    lower: np.ndarray
    pivot: np.ndarray

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

    def covariances(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Return the entries of the inverse for pairs of the pattern, shape (n_pairs,)."""
        position, out = self.pattern.position, np.empty(len(first))
        inverse, diagonal = self._selected
        sparse_cholesky.inverse_entries(self.start, self.row, inverse, diagonal, position[first], position[second], out)
        return out


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
    def whole(self) -> PrecisionPattern:
        return PrecisionPattern(self.n, self.first, self.second)

    @cached_property
    def block(self) -> PrecisionPattern:
        """The pattern of the block of Q of the unknown variables, in the order of `unknown`."""
        position = np.cumsum(~self.is_known) - 1
        first, second = (position[ends[self.within]].astype(np.int32) for ends in (self.first, self.second))
        return PrecisionPattern(len(self.unknown), first, second)

    def condition(
        self, weights: PairWeights, u: np.ndarray, precision: np.ndarray | float = 0.0, shift: np.ndarray | float = 0.0
    ) -> tuple[np.ndarray, CholeskyFactor]:
        """Return the conditional means of all deviations, known ones unchanged, and the factor of the block of the unknown.

        Args:
            u: The deviations, shape (n,); those of unknown variables are ignored.
            precision, shift: Gaussian factors exp(shift * u - precision * u^2 / 2) of the unknown variables, shape (n,).
        """
        known = np.where(self.is_known, u, 0.0)
        diagonal = weights.diagonal + precision
        factor = self.block.factorise(diagonal[self.unknown], weights.values[self.within])
        known[self.unknown] = factor.solve((shift - weights.multiply(known))[self.unknown])
        return known, factor


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

    def intervals(self, min_probability: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the limits of central intervals; larger deviations have the given probability."""
        half = norm.isf(0.5 * min_probability) * self.deviations
        return self.means - half, self.means + half

    def select(self, chosen: np.ndarray) -> NumberMarginals:
        """Return the marginals of the variables in a mask of all variables of the graph."""
        kept = chosen[self.variables]
        return NumberMarginals(self.variables[kept], self.means[kept], self.deviations[kept])
