"""Evidence features of a group of factors, as matrices X of shape (n_factors, n_features).

A group's scores are `X @ W` for its weights W of shape (n_features, n_patterns), and its gradient is `X.T @ R` for
residuals R of shape (n_factors, n_patterns). Five ways to hold X: all ones, dense columns, one block of columns a row
(`per`), sparse rows (a bag of words), and one of these repeated for every row of a table.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np

from relcrf.columns.offsets import offsets
from relcrf.kernels import sparse


class AbstractFeatures(ABC):
    """A feature matrix; rows are factors."""

    n_rows: int
    n_features: int

    @abstractmethod
    def arrays(self) -> tuple[np.ndarray, ...]:
        """The stored arrays."""

    @property
    def nbytes(self) -> int:
        """Bytes of the stored arrays."""
        return sum(array.nbytes for array in self.arrays())

    @abstractmethod
    def scores(self, weights: np.ndarray, rows: np.ndarray | slice) -> np.ndarray:
        """`X[rows] @ weights`, shape (n, n_patterns); or (1, n_patterns) where all rows are equal."""

    def add_scores(self, weights: np.ndarray, rows: np.ndarray | slice, out: np.ndarray, fresh: bool) -> None:
        """`out += X[rows] @ weights`, or `=` where `out` is fresh."""
        if fresh:
            out[:] = self.scores(weights, rows)
        else:
            out += self.scores(weights, rows)

    @abstractmethod
    def take(self, rows: np.ndarray) -> AbstractFeatures:
        """A matrix of these rows, copied."""

    @abstractmethod
    def accumulate(self, residual: np.ndarray, rows: np.ndarray | slice, out: np.ndarray) -> None:
        """`out += X[rows].T @ residual`; `residual` has one row where `scores` gives one."""

    @abstractmethod
    def squared(self) -> AbstractFeatures:
        """The matrix with every entry squared."""

    @abstractmethod
    def row(self, index: int) -> list[tuple[int, float]]:
        """The non-zero entries of one row: (feature, value)."""

    @property
    def rows_are_equal(self) -> bool:
        return False

    def likeness(self, rows: np.ndarray | slice) -> np.ndarray | None:
        """A number for each row, shape (n,), the same for equal rows; None where rows have values of their own."""
        return None

    @property
    def n_blocks(self) -> int:
        """How many blocks of columns there are, each of as many features, of which a row has one."""
        return 1

    def block_of(self, rows: np.ndarray | slice) -> np.ndarray:
        """The block of each row, shape (n,)."""
        chosen = np.arange(*rows.indices(self.n_rows)) if isinstance(rows, slice) else rows
        return np.zeros(len(chosen), dtype=np.int32)


@dataclass(frozen=True)
class Ones(AbstractFeatures):
    """The constant feature 1: nothing is stored."""

    n_rows: int
    n_features: int = 1

    def arrays(self) -> tuple[np.ndarray, ...]:
        return ()

    @property
    def rows_are_equal(self) -> bool:
        return True

    def likeness(self, rows: np.ndarray | slice) -> np.ndarray | None:
        return self.block_of(rows)

    def scores(self, weights: np.ndarray, rows: np.ndarray | slice) -> np.ndarray:
        return weights

    def take(self, rows: np.ndarray) -> AbstractFeatures:
        return Ones(len(rows), self.n_features)

    def accumulate(self, residual: np.ndarray, rows: np.ndarray | slice, out: np.ndarray) -> None:
        out += residual

    def squared(self) -> AbstractFeatures:
        return self

    def row(self, index: int) -> list[tuple[int, float]]:
        return [(0, 1.0)]


@dataclass(frozen=True)
class Dense(AbstractFeatures):
    """One column a feature. `values` has shape (n_rows, n_features)."""

    values: np.ndarray

    @property
    def n_rows(self) -> int:  # type: ignore[override]
        return len(self.values)

    @property
    def n_features(self) -> int:  # type: ignore[override]
        return int(self.values.shape[1])

    def arrays(self) -> tuple[np.ndarray, ...]:
        return (self.values,)

    def scores(self, weights: np.ndarray, rows: np.ndarray | slice) -> np.ndarray:
        values = self.values[rows]
        out = np.empty((len(values), weights.shape[1]))
        sparse.dense_scores(values, weights, True, out)
        return out

    def add_scores(self, weights: np.ndarray, rows: np.ndarray | slice, out: np.ndarray, fresh: bool) -> None:
        sparse.dense_scores(self.values[rows], weights, fresh, out)

    def take(self, rows: np.ndarray) -> AbstractFeatures:
        return Dense(np.ascontiguousarray(self.values[rows]))

    def accumulate(self, residual: np.ndarray, rows: np.ndarray | slice, out: np.ndarray) -> None:
        sparse.accumulate_dense(self.values[rows], residual, out)

    def squared(self) -> AbstractFeatures:
        return replace(self, values=self.values**2)

    def row(self, index: int) -> list[tuple[int, float]]:
        return [(d, float(v)) for d, v in enumerate(self.values[index]) if v != 0.0]


@dataclass(frozen=True)
class Keyed(AbstractFeatures):
    """One of `n_keys` blocks of columns a row: feature `key * D + d` has `values[row, d]`.

    `key` has shape (n_rows,), int32; `values` (n_rows, D), or (0, 1) where the only feature is the constant 1.
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

    def arrays(self) -> tuple[np.ndarray, ...]:
        return self.key, self.values

    @property
    def n_blocks(self) -> int:
        return self.n_keys

    def block_of(self, rows: np.ndarray | slice) -> np.ndarray:
        return np.asarray(self.key[rows])

    def likeness(self, rows: np.ndarray | slice) -> np.ndarray | None:
        return None if len(self.values) else self.block_of(rows)

    def _values(self, rows: np.ndarray | slice) -> np.ndarray:
        return self.values[rows] if len(self.values) else self.values

    def scores(self, weights: np.ndarray, rows: np.ndarray | slice) -> np.ndarray:
        key = self.key[rows]
        out = np.empty((len(key), weights.shape[1]))
        sparse.keyed_scores(key, self._values(rows), weights, out)
        return out

    def take(self, rows: np.ndarray) -> AbstractFeatures:
        return Keyed(np.ascontiguousarray(self.key[rows]), np.ascontiguousarray(self._values(rows)), self.n_keys)

    def accumulate(self, residual: np.ndarray, rows: np.ndarray | slice, out: np.ndarray) -> None:
        sparse.keyed_accumulate(self.key[rows], self._values(rows), residual, out)

    def squared(self) -> AbstractFeatures:
        return replace(self, values=self.values**2)

    def row(self, index: int) -> list[tuple[int, float]]:
        width = int(self.values.shape[1])
        values = self.values[index] if len(self.values) else np.ones(1)
        return [(int(self.key[index]) * width + d, float(v)) for d, v in enumerate(values) if v != 0.0]


@dataclass(frozen=True)
class Sparse(AbstractFeatures):
    """CSR rows. `values` has shape (nnz,), or (0,) where every stored entry is 1."""

    row_start: np.ndarray
    column: np.ndarray
    values: np.ndarray
    n_features: int

    def __post_init__(self) -> None:
        for array in self.arrays():  # from a file or not: the same type to a kernel, which is compiled once
            array.flags.writeable = False

    @property
    def n_rows(self) -> int:  # type: ignore[override]
        return len(self.row_start) - 1

    def arrays(self) -> tuple[np.ndarray, ...]:
        return self.row_start, self.column, self.values

    def _indices(self, rows: np.ndarray | slice) -> np.ndarray:
        return np.arange(*rows.indices(self.n_rows)) if isinstance(rows, slice) else rows

    def scores(self, weights: np.ndarray, rows: np.ndarray | slice) -> np.ndarray:
        chosen = self._indices(rows)
        out = np.empty((len(chosen), weights.shape[1]))
        sparse.csr_scores(self.row_start, self.column, self.values, weights, chosen, out)
        return out

    def take(self, rows: np.ndarray) -> Sparse:
        sizes = np.diff(self.row_start)[rows]
        start = offsets(sizes)
        entries = np.repeat(self.row_start[rows] - start[:-1], sizes) + np.arange(int(start[-1]))
        values = self.values[entries] if len(self.values) else self.values
        return Sparse(start, self.column[entries], values, self.n_features)

    def accumulate(self, residual: np.ndarray, rows: np.ndarray | slice, out: np.ndarray) -> None:
        sparse.csr_accumulate(self.row_start, self.column, self.values, residual, self._indices(rows), out)

    def squared(self) -> AbstractFeatures:
        return replace(self, values=self.values**2)

    def row(self, index: int) -> list[tuple[int, float]]:
        entries = slice(int(self.row_start[index]), int(self.row_start[index + 1]))
        values = self.values[entries] if len(self.values) else np.ones(entries.stop - entries.start)
        return [(int(c), float(v)) for c, v in zip(self.column[entries], values, strict=True)]


@dataclass(frozen=True)
class Tiled(AbstractFeatures):
    """A matrix repeated `times` times, one below the other; stored once."""

    tile: AbstractFeatures
    times: int

    @property
    def n_rows(self) -> int:  # type: ignore[override]
        return self.tile.n_rows * self.times

    @property
    def n_features(self) -> int:  # type: ignore[override]
        return self.tile.n_features

    @property
    def rows_are_equal(self) -> bool:
        return self.tile.rows_are_equal

    @property
    def n_blocks(self) -> int:
        return self.tile.n_blocks

    def block_of(self, rows: np.ndarray | slice) -> np.ndarray:
        return self.tile.block_of(self._rows(rows))

    def likeness(self, rows: np.ndarray | slice) -> np.ndarray | None:
        return self.tile.likeness(self._rows(rows))

    def arrays(self) -> tuple[np.ndarray, ...]:
        return self.tile.arrays()

    def _rows(self, rows: np.ndarray | slice) -> np.ndarray:
        chosen = np.arange(*rows.indices(self.n_rows)) if isinstance(rows, slice) else rows
        return np.asarray(chosen % self.tile.n_rows)

    def scores(self, weights: np.ndarray, rows: np.ndarray | slice) -> np.ndarray:
        return self.tile.scores(weights, self._rows(rows))

    def add_scores(self, weights: np.ndarray, rows: np.ndarray | slice, out: np.ndarray, fresh: bool) -> None:
        self.tile.add_scores(weights, self._rows(rows), out, fresh)

    def take(self, rows: np.ndarray) -> AbstractFeatures:
        return self.tile.take(self._rows(rows))

    def accumulate(self, residual: np.ndarray, rows: np.ndarray | slice, out: np.ndarray) -> None:
        self.tile.accumulate(residual, self._rows(rows), out)

    def squared(self) -> AbstractFeatures:
        return replace(self, tile=self.tile.squared())

    def row(self, index: int) -> list[tuple[int, float]]:
        return self.tile.row(index % self.tile.n_rows)
