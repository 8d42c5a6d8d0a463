"""Builders of factor groups, which convert sorted batches of bindings to columns of scopes and features."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from relcrf.columns.storage import ColumnBuilder, Storage
from relcrf.graph.features import AbstractFeatures, Dense, Keyed, Ones, Sparse

CHUNK_ROWS = 1 << 20
"""Number of combined key codes that are mapped to dense keys (indices in the weight block) at a time."""


@dataclass(frozen=True)
class SortedBindings:
    """A batch of bindings, sorted by the first variable. Bindings with the same first variable are in one batch.

    Args:
        scope: a column of variables for each slot, i.e. each position in the scope.
        key: combined key code of each binding, i.e. one integer for the values of all items of `per`; None without `per`.
        features: feature columns; empty for the constant 1.
    """

    scope: Sequence[np.ndarray]
    key: np.ndarray | None
    features: Sequence[np.ndarray]

    def __len__(self) -> int:
        return len(self.scope[0])

    def take(self, rows: np.ndarray) -> SortedBindings:
        """Return some of the bindings."""
        key = None if self.key is None else self.key[rows]
        scope, features = ([c[rows] for c in columns] for columns in (self.scope, self.features))
        return SortedBindings(scope, key, features)


def find_run_starts(variable: np.ndarray) -> np.ndarray:
    """Return the index of the first entry of each variable in an ascending column."""
    is_first = np.ones(len(variable), dtype=bool)
    is_first[1:] = variable[1:] != variable[:-1]
    return np.flatnonzero(is_first)


class GroupBuilder:
    """A builder of the factors of one group.

    If the scope is a single variable, all bindings of a variable are summed into one factor, because log potentials are linear
    in the features. For example, a bag of words is one sparse row per page. Features are stored in single precision if there
    are keys (12 bytes per binding), otherwise in double precision.

    Args:
        name: prefix of file names.
        width: number of features; 0 for the constant 1.
        key_type: dtype of the combined key codes. It is int64 if the codes may exceed int32; `finish` then maps the codes
            to int32 keys.
    """

    def __init__(
        self, storage: Storage, name: str, arity: int, *, has_key: bool, width: int, key_type: type = np.int32
    ) -> None:
        self._storage, self._name, self._arity, self._has_key, self._width = storage, name, arity, has_key, width
        self._scope = [storage.column(np.int32, name=f"{name}.scope{k}") for k in range(arity)]
        self._key = storage.column(key_type, name=f"{name}.key") if has_key else None
        self._values: ColumnBuilder | None = None
        if width or (arity == 1 and not has_key):
            self._values = storage.column(np.float32 if has_key else np.float64, max(width, 1), f"{name}.values")
        self._row_start: ColumnBuilder | None = None
        if arity == 1 and has_key:
            self._row_start = storage.column(np.int64, name=f"{name}.row_start")
            self._row_start.append(np.zeros(1, dtype=np.int64))
        self.n_rows = 0

    def add(self, rows: SortedBindings) -> None:
        """Add a batch of bindings."""
        self.n_rows += len(rows)
        if self._key is not None and rows.key is not None:
            self._key.append(rows.key)
        if self._arity > 1:
            for column, variable in zip(self._scope, rows.scope, strict=True):
                column.append(variable)
            if self._values is not None:
                self._values.append(np.column_stack(rows.features))
            return
        (variable,) = rows.scope
        starts = find_run_starts(variable)
        self._scope[0].append(variable[starts])
        if self._row_start is not None:
            self._row_start.append(np.append(starts[1:], len(variable)) + self.n_rows - len(variable))
        if self._values is not None:
            values = np.column_stack(rows.features) if self._width else np.ones((len(variable), 1))
            self._values.append(values if self._has_key else np.add.reduceat(values, starts, axis=0))

    def finish(
        self, n_keys: int, dense_keys: DenseKeyMap | None = None
    ) -> tuple[tuple[np.ndarray, ...], AbstractFeatures]:
        """Return the scope and the features of the group.

        Args:
            n_keys: number of keys of the weight block; 1 without keys.
            dense_keys: mapping from combined key codes to dense keys; None if the codes are dense already.
        """
        scope = tuple(column.finish() for column in self._scope)
        n_factors = len(scope[0])
        is_one_per_factor = self.n_rows == n_factors
        if self._key is None:
            values = self._values.finish() if self._values is not None else None
            if values is None or (not self._width and is_one_per_factor):
                return scope, Ones(n_factors)
            return scope, Dense(values)
        is_sparse = not is_one_per_factor
        key = self._finish_keys(dense_keys, max(self._width, 1) if is_sparse else 1)
        values = self._values.finish() if self._values is not None else None
        row_start = self._row_start.finish() if self._row_start is not None else None
        if not is_sparse:
            no_values = np.empty((0, 1), dtype=np.float32)
            return scope, Keyed(key, no_values if values is None else values, n_keys)
        assert row_start is not None
        width = max(self._width, 1)
        flat_values = np.empty(0, dtype=np.float32) if values is None else values.reshape(-1)
        return scope, Sparse(row_start if width == 1 else row_start * width, key, flat_values, n_keys * width)

    def _finish_keys(self, dense_keys: DenseKeyMap | None, width: int) -> np.ndarray:
        """Return the column of dense keys or, with several features per key (`width` > 1), of feature indices."""
        assert self._key is not None
        key = self._key.finish()
        if dense_keys is None and width == 1:
            return key
        out = self._storage.column(np.int32, name=f"{self._name}.feature")
        for part in _iter_chunks(key):
            dense = part if dense_keys is None else dense_keys(part)
            out.append((dense[:, None] * width + np.arange(width)).ravel() if width > 1 else dense)
        return out.finish()


@dataclass(frozen=True)
class DenseKeyMap:
    """A mapping from combined key codes to dense keys.

    Args:
        keys: distinct combined key codes, ascending, shape (n,), int64.
        dense_keys: dense key of each code, i.e. the index of the key in the weight block, shape (n,), int32.
    """

    keys: np.ndarray
    dense_keys: np.ndarray

    def __call__(self, keys: np.ndarray) -> np.ndarray:
        return np.asarray(self.dense_keys[np.searchsorted(self.keys, keys)], dtype=np.int32)


def _iter_chunks(column: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(column), CHUNK_ROWS):
        yield np.asarray(column[start : start + CHUNK_ROWS])


def count_group_bytes(n_bindings: int, n_variables: int, arity: int, width: int, *, has_keys: bool) -> int:
    """Return the size in bytes of a factor group.

    Args:
        n_variables: number of variables that have a factor, if the group is unary.
        arity: length of the scope.
        width: number of features; 0 for the constant 1.
    """
    if arity > 1:
        return (4 * arity + (4 + 4 * width if has_keys else 8 * width)) * n_bindings
    if not has_keys:
        return 4 * n_variables + (8 * n_variables * max(width, 1) if width or n_bindings > n_variables else 0)
    if n_bindings == n_variables:
        return 4 * n_variables + 4 * n_bindings + 4 * n_bindings * width
    return 4 * n_variables + 8 * (n_variables + 1) + (4 * max(width, 1) + 4 * width) * n_bindings
