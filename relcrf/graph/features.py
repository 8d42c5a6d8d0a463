"""Evidence features of a group of factors, as matrices X of shape (n_factors, n_features).

For weights W of shape (n_features, n_patterns), the scores of the group are `X @ W`. For residuals R of shape
(n_factors, n_patterns), the gradient with respect to W is `X.T @ R`. X has five representations: a constant 1, a dense
matrix, a block of columns per key (a value of the template's `per` clause), a sparse matrix, and a matrix that is
repeated for every row of a table.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from relcrf.columns.offsets import entries_of_runs, offsets
from relcrf.columns.storage import read_rows
from relcrf.kernels import sparse
from relcrf.kernels.dense import dense_kernels
from relcrf.kernels.threads import freeze

MAX_SINGLE_SQUARED = 1e15
"""Maximum magnitude of numbers that are squared in single precision, whose largest number is about 3e38."""


class FeatureEntries(NamedTuple):
    """The stored entries of a feature matrix in coordinate form, including stored zeros; each array has shape (n,).

    Args:
        row: Position of the entry's row in the list of requested rows.
    """

    row: np.ndarray
    feature: np.ndarray
    value: np.ndarray


class AbstractFeatures(ABC):
    """A feature matrix X with one row per factor."""

    n_rows: int
    n_features: int

    def arrays(self) -> tuple[np.ndarray, ...]:
        """Return the stored arrays."""
        return tuple(value for value in vars(self).values() if isinstance(value, np.ndarray))

    def columns(self) -> dict[str, np.ndarray]:
        """Return arrays by name. Concatenating the arrays of two matrices concatenates the rows of the matrices."""
        return {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}

    def from_columns(self, n_rows: int, columns: Mapping[str, np.ndarray]) -> AbstractFeatures:
        """Return a matrix of this class from `n_rows` and the arrays by name that `columns` returns."""
        return replace(self, **columns)  # type: ignore[type-var]

    @property
    def nbytes(self) -> int:
        """Return the size of the stored arrays in bytes."""
        return sum(array.nbytes for array in self.arrays())

    @property
    def n_entries(self) -> int:
        """Return the number of entries that `entries` returns for all rows."""
        return self.n_rows * (self.n_features // self.n_blocks)

    @abstractmethod
    def scores(self, weights: np.ndarray, rows: np.ndarray | slice) -> np.ndarray:
        """Return `X[rows] @ weights`, shape (n, n_patterns); or shape (1, n_patterns) if all rows of X are equal."""

    def add_scores(self, weights: np.ndarray, rows: np.ndarray | slice, out: np.ndarray, overwrite: bool) -> None:
        """Add `X[rows] @ weights` to `out`; if `overwrite` is True, assign the product to `out` instead."""
        if overwrite:
            out[:] = self.scores(weights, rows)
        else:
            out += self.scores(weights, rows)

    @abstractmethod
    def take(self, rows: np.ndarray | slice) -> AbstractFeatures:
        """Return a matrix of some rows: a copy or, for a slice, which must have both ends, possibly a view."""

    @abstractmethod
    def accumulate(self, residual: np.ndarray, rows: np.ndarray | slice, out: np.ndarray) -> None:
        """Add `X[rows].T @ residual` to `out`; `residual` has a single row if `scores` returns a single row."""

    @abstractmethod
    def squared(self) -> AbstractFeatures:
        """Return the matrix with every entry squared."""

    def _values(self, rows: np.ndarray) -> np.ndarray:
        """Return each row's values in its column block, shape (n, width); shape (1, width) if all rows are equal."""
        return np.ones((1, self.n_features))

    def entries(self, rows: np.ndarray) -> FeatureEntries:
        """Return the entries of some rows in row order. `rows` has shape (n,)."""
        values = self._values(rows)
        width = values.shape[1]
        feature = self.block_of(rows)[:, None].astype(np.int64) * width + np.arange(width)
        row = np.repeat(np.arange(len(rows)), width)
        return FeatureEntries(row, feature.ravel(), np.broadcast_to(values, (len(rows), width)).ravel())

    def row(self, index: int) -> list[tuple[int, float]]:
        """Return one row as pairs (feature, value): nonzero entries or, for a sparse matrix, all stored entries."""
        _, feature, value = self.entries(np.array([index]))
        return [(f, v) for f, v in zip(feature.tolist(), value.tolist(), strict=True) if v != 0.0]

    @property
    def rows_are_equal(self) -> bool:
        return False

    def row_classes(self, rows: np.ndarray | slice) -> np.ndarray | None:
        """Return class labels, shape (n,): rows with equal labels are equal. None if rows store separate values."""
        return None

    @property
    def n_blocks(self) -> int:
        """Return the number of column blocks. All blocks have equal width; each row is nonzero in only one block."""
        return 1

    def block_of(self, rows: np.ndarray | slice) -> np.ndarray:
        """Return the column block of each row, shape (n,)."""
        return np.zeros(len(self._indices(rows)), dtype=np.int32)

    def _indices(self, rows: np.ndarray | slice) -> np.ndarray:
        return np.arange(*rows.indices(self.n_rows)) if isinstance(rows, slice) else rows


def _read_rows(column: np.ndarray, rows: np.ndarray | slice) -> np.ndarray:
    """Return some rows of a column; for a slice of a memory-mapped column, see `read_rows`."""
    return read_rows(column, rows.start, rows.stop) if isinstance(rows, slice) else np.ascontiguousarray(column[rows])


def _squares(values: np.ndarray) -> np.ndarray:
    """Return the squares of values, in double precision if they could leave the range of single precision."""
    largest = max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))
    is_extreme = largest > MAX_SINGLE_SQUARED or 0.0 < largest < 1.0 / MAX_SINGLE_SQUARED
    return np.asarray((values.astype(np.float64) if is_extreme else values) ** 2)


@dataclass(frozen=True)
class Ones(AbstractFeatures):
    """The constant feature 1, without stored values."""

    n_rows: int
    n_features: int = 1

    def from_columns(self, n_rows: int, columns: Mapping[str, np.ndarray]) -> AbstractFeatures:
        return Ones(n_rows, self.n_features)

    @property
    def rows_are_equal(self) -> bool:
        return True

    def row_classes(self, rows: np.ndarray | slice) -> np.ndarray | None:
        return self.block_of(rows)

    def scores(self, weights: np.ndarray, rows: np.ndarray | slice) -> np.ndarray:
        return weights

    def take(self, rows: np.ndarray | slice) -> AbstractFeatures:
        return Ones(len(self._indices(rows)), self.n_features)

    def accumulate(self, residual: np.ndarray, rows: np.ndarray | slice, out: np.ndarray) -> None:
        out += residual

    def squared(self) -> AbstractFeatures:
        return self


@dataclass(frozen=True)
class Dense(AbstractFeatures):
    """A dense feature matrix. `values` has shape (n_rows, n_features)."""

    values: np.ndarray

    @property
    def n_rows(self) -> int:  # type: ignore[override]
        return len(self.values)

    @property
    def n_features(self) -> int:  # type: ignore[override]
        return int(self.values.shape[1])

    def scores(self, weights: np.ndarray, rows: np.ndarray | slice) -> np.ndarray:
        values = self.values[rows]
        out = np.empty((len(values), weights.shape[1]))
        dense_kernels(weights.shape[1]).scores(values, freeze(weights, np.float64), True, out)
        return out

    def add_scores(self, weights: np.ndarray, rows: np.ndarray | slice, out: np.ndarray, overwrite: bool) -> None:
        dense_kernels(weights.shape[1]).scores(self.values[rows], freeze(weights, np.float64), overwrite, out)

    def take(self, rows: np.ndarray | slice) -> AbstractFeatures:
        return Dense(_read_rows(self.values, rows))

    def _values(self, rows: np.ndarray) -> np.ndarray:
        return np.asarray(self.values[rows])

    def accumulate(self, residual: np.ndarray, rows: np.ndarray | slice, out: np.ndarray) -> None:
        dense_kernels(residual.shape[1]).accumulate(self.values[rows], residual, out)

    def squared(self) -> AbstractFeatures:
        return replace(self, values=_squares(self.values))


@dataclass(frozen=True)
class Keyed(AbstractFeatures):
    """A matrix with one column block per key. In row i, feature `key[i] * D + d` is `values[i, d]`; the others are 0.

    `key` has shape (n_rows,), int32; `values` has shape (n_rows, D), or shape (0, 1) if D is 1 and every value is 1.
    """

    key: np.ndarray
    values: np.ndarray
    n_keys: int

    @property
    def n_rows(self) -> int:  # type: ignore[override]
        return len(self.key)

    @property
    def n_features(self) -> int:  # type: ignore[override]
        return self.n_keys * int(self.values.shape[1])

    @property
    def n_blocks(self) -> int:
        return self.n_keys

    def block_of(self, rows: np.ndarray | slice) -> np.ndarray:
        return np.asarray(self.key[rows])

    def row_classes(self, rows: np.ndarray | slice) -> np.ndarray | None:
        return None if len(self.values) else self.block_of(rows)

    def _stored_values(self, rows: np.ndarray | slice) -> np.ndarray:
        return self.values[rows] if len(self.values) else self.values

    def _kernel_arrays(self, rows: np.ndarray | slice) -> tuple[np.ndarray, np.ndarray]:
        """Return the keys and stored values of some rows as read-only arrays, for which the kernels are compiled."""
        values = self._stored_values(rows)
        return freeze(self.key[rows], np.int32), freeze(values, values.dtype)

    def _values(self, rows: np.ndarray) -> np.ndarray:
        return self._stored_values(rows) if len(self.values) else np.ones((1, 1))

    def scores(self, weights: np.ndarray, rows: np.ndarray | slice) -> np.ndarray:
        key, values = self._kernel_arrays(rows)
        out = np.empty((len(key), weights.shape[1]))
        sparse.keyed_scores(key, values, weights, out)
        return out

    def take(self, rows: np.ndarray | slice) -> AbstractFeatures:
        values = _read_rows(self.values, rows) if len(self.values) else self.values
        return Keyed(_read_rows(self.key, rows), values, self.n_keys)

    def accumulate(self, residual: np.ndarray, rows: np.ndarray | slice, out: np.ndarray) -> None:
        sparse.keyed_accumulate(*self._kernel_arrays(rows), residual, out)

    def squared(self) -> AbstractFeatures:
        return replace(self, values=_squares(self.values))


@dataclass(frozen=True)
class Sparse(AbstractFeatures):
    """A matrix in CSR form. `values` has shape (nnz,), or shape (0,) if every stored entry is 1."""

    row_start: np.ndarray
    column: np.ndarray
    values: np.ndarray
    n_features: int

    def __post_init__(self) -> None:
        for array in self.arrays():  # like arrays mapped from files; kernels are compiled for read-only arrays
            array.flags.writeable = False

    @property
    def n_rows(self) -> int:  # type: ignore[override]
        return len(self.row_start) - 1

    @property
    def n_entries(self) -> int:
        return len(self.column)

    def columns(self) -> dict[str, np.ndarray]:
        return {"length": np.diff(self.row_start), "column": self.column, "values": self.values}

    def from_columns(self, n_rows: int, columns: Mapping[str, np.ndarray]) -> AbstractFeatures:
        return Sparse(offsets(columns["length"]), columns["column"], columns["values"], self.n_features)

    def scores(self, weights: np.ndarray, rows: np.ndarray | slice) -> np.ndarray:
        indices = self._indices(rows)
        out = np.empty((len(indices), weights.shape[1]))
        kernel = sparse.csr_kernels(weights.shape[1], self.values.dtype).scores
        kernel(self.row_start, self.column, self.values, weights, indices, out)
        return out

    def take(self, rows: np.ndarray | slice) -> Sparse:
        entries: np.ndarray | slice
        if isinstance(rows, slice):
            start = read_rows(self.row_start, rows.start, rows.stop + 1)
            entries, start = slice(int(start[0]), int(start[-1])), start - start[0]
        else:
            entries, start = entries_of_runs(self.row_start, rows), offsets(np.diff(self.row_start)[rows])
        values = _read_rows(self.values, entries) if len(self.values) else self.values
        return Sparse(start, _read_rows(self.column, entries), values, self.n_features)

    def entries(self, rows: np.ndarray) -> FeatureEntries:
        entry = entries_of_runs(self.row_start, rows)
        row = np.repeat(np.arange(len(rows)), np.diff(self.row_start)[rows])
        return FeatureEntries(row, self.column[entry], self.values[entry] if len(self.values) else np.ones(len(entry)))

    def accumulate(self, residual: np.ndarray, rows: np.ndarray | slice, out: np.ndarray) -> None:
        kernel = sparse.csr_kernels(out.shape[1], self.values.dtype).accumulate
        kernel(self.row_start, self.column, self.values, residual, self._indices(rows), out)

    def squared(self) -> AbstractFeatures:
        return replace(self, values=_squares(self.values))

    def row(self, index: int) -> list[tuple[int, float]]:
        _, feature, value = self.entries(np.array([index]))
        return list(zip(feature.tolist(), value.tolist(), strict=True))


@dataclass(frozen=True)
class Tiled(AbstractFeatures):
    """A matrix that is stored once and repeated `times` times vertically."""

    tile: AbstractFeatures
    times: int

    @property
    def n_rows(self) -> int:  # type: ignore[override]
        return self.tile.n_rows * self.times

    @property
    def n_features(self) -> int:  # type: ignore[override]
        return self.tile.n_features

    @property
    def n_entries(self) -> int:
        return self.tile.n_entries * self.times

    @property
    def rows_are_equal(self) -> bool:
        return self.tile.rows_are_equal

    @property
    def n_blocks(self) -> int:
        return self.tile.n_blocks

    def block_of(self, rows: np.ndarray | slice) -> np.ndarray:
        return self.tile.block_of(self._tile_rows(rows))

    def row_classes(self, rows: np.ndarray | slice) -> np.ndarray | None:
        return self.tile.row_classes(self._tile_rows(rows))

    def arrays(self) -> tuple[np.ndarray, ...]:
        return self.tile.arrays()

    def _tile_rows(self, rows: np.ndarray | slice) -> np.ndarray:
        return np.asarray(self._indices(rows) % self.tile.n_rows)

    def scores(self, weights: np.ndarray, rows: np.ndarray | slice) -> np.ndarray:
        return self.tile.scores(weights, self._tile_rows(rows))

    def add_scores(self, weights: np.ndarray, rows: np.ndarray | slice, out: np.ndarray, overwrite: bool) -> None:
        self.tile.add_scores(weights, self._tile_rows(rows), out, overwrite)

    def take(self, rows: np.ndarray | slice) -> AbstractFeatures:
        return self.tile.take(self._tile_rows(rows))

    def entries(self, rows: np.ndarray) -> FeatureEntries:
        return self.tile.entries(self._tile_rows(rows))

    def accumulate(self, residual: np.ndarray, rows: np.ndarray | slice, out: np.ndarray) -> None:
        self.tile.accumulate(residual, self._tile_rows(rows), out)

    def squared(self) -> AbstractFeatures:
        return replace(self, tile=self.tile.squared())

    def row(self, index: int) -> list[tuple[int, float]]:
        return self.tile.row(index % self.tile.n_rows)
