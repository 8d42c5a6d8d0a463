"""Rows of bindings as the feature matrices of factors."""

from __future__ import annotations

import numpy as np

from relcrf.graph.features import AbstractFeatures, Dense, Keyed, Ones, Sparse


def features_of(
    scope: list[np.ndarray], key: np.ndarray | None, n_keys: int, columns: list[np.ndarray]
) -> tuple[list[np.ndarray], AbstractFeatures]:
    """The scope of the factors and their features; factors over one variable add up to one.

    Args:
        scope: for each place the variable of each binding; ascending by the first.
        key: of each binding, below `n_keys`; None without `per`.
        columns: the features of each binding; none is the constant 1.
    """
    if len(scope) == 1:
        return _unary(scope[0], key, n_keys, columns)
    return scope, _each(len(scope[0]), key, n_keys, columns)


def unary_bytes(n: int, variables: int, width: int, *, has_keys: bool, has_values: bool) -> int:
    """Bytes of a unary group of n bindings on so many variables."""
    if n == variables:
        return 4 * variables + (4 * n if has_keys else 0) + (8 * n * width if has_values else 0)
    if not has_keys:
        return 4 * variables + 8 * variables * width
    return 4 * variables + 8 * (variables + 1) + (4 + (4 if has_values else 0)) * n * width


def _each(n: int, key: np.ndarray | None, n_keys: int, columns: list[np.ndarray]) -> AbstractFeatures:
    """The features of factors that each have one row."""
    if key is None:
        return Dense(np.column_stack(columns)) if columns else Ones(n)
    return Keyed(key, np.column_stack(columns) if columns else np.empty((0, 1)), n_keys)


def _unary(
    variable: np.ndarray, key: np.ndarray | None, n_keys: int, columns: list[np.ndarray]
) -> tuple[list[np.ndarray], AbstractFeatures]:
    """One factor a variable: bindings that share it add up, since log potentials are linear in the features.

    `variable` is ascending. A bag of words becomes one sparse row a page.
    """
    is_first = np.ones(len(variable), dtype=bool)
    is_first[1:] = variable[1:] != variable[:-1]
    first = np.flatnonzero(is_first)
    if len(first) == len(variable):
        return [variable], _each(len(variable), key, n_keys, columns)
    distinct = np.ascontiguousarray(variable[first])
    if key is None:
        rows = np.column_stack(columns) if columns else np.ones((len(variable), 1))
        return [distinct], Dense(np.add.reduceat(rows, first, axis=0))
    row_start = np.append(first, len(variable)).astype(np.int64)
    if not columns:
        return [distinct], Sparse(row_start, key, np.empty(0, dtype=np.float32), n_keys)
    width = len(columns)
    column = (key[:, None] * np.int32(width) + np.arange(width, dtype=np.int32)).ravel()
    values = np.column_stack(columns).astype(np.float32).ravel()
    return [distinct], Sparse(row_start * width, column, values, n_keys * width)
