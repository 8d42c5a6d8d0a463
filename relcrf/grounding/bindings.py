"""Parts of a group of factors as they are looked at: which factors touch a variable, and what some of its bindings are.

A binding is what a template's name stands for once: over several variables a factor of its own; over one variable a part of
that variable's factor where there are keys (an entry of a sparse row), and without keys all of them together, added up.
Nothing is expanded and no column is read further than it must be, so that all of this also serves groups that are larger
than the memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from relcrf.columns.storage import read_rows
from relcrf.graph.factor_graph import FactorGroup, RepeatedScope
from relcrf.graph.features import AbstractFeatures, Dense, Keyed, Ones, Sparse, Tiled

CHUNK_FACTORS = 1 << 20
"""Factors that are looked through at a time."""

EMPTY = np.empty(0, dtype=np.int64)


def find_factors(scope: Sequence[np.ndarray], slot: int, variable: int) -> np.ndarray:
    """The factors that have a variable at a place of the scope, ascending."""
    if isinstance(scope, RepeatedScope):
        offsets = scope.offsets[slot]
        wanted = variable - scope.starts[slot] - scope.strides[slot] * scope.rows.astype(np.int64)
        found = [
            row * len(offsets) + np.flatnonzero(offsets == wanted[row])
            for row in np.flatnonzero(np.isin(wanted, offsets))
        ]
        return np.concatenate([EMPTY, *found])
    column = scope[slot]
    if slot == 0:  # by which factors are sorted
        first, stop = (int(np.searchsorted(column, np.int32(variable), side)) for side in ("left", "right"))
        return np.arange(first, stop)
    parts = [
        start + np.flatnonzero(read_rows(column, start, start + CHUNK_FACTORS) == variable)
        for start in range(0, len(column), CHUNK_FACTORS)
    ]
    return np.concatenate([EMPTY, *parts])


def read_variables(scope: Sequence[np.ndarray], slot: int, factors: np.ndarray) -> np.ndarray:
    """The variables that some factors have at a place, shape (n,)."""
    if isinstance(scope, RepeatedScope):
        row, pattern = np.divmod(factors, len(scope.offsets[slot]))
        origin = scope.starts[slot] + scope.strides[slot] * scope.rows[row].astype(np.int64)
        return np.asarray(origin + scope.offsets[slot][pattern])
    return np.asarray(scope[slot][factors])


def count_bindings(features: AbstractFeatures, width: int) -> int:
    """
    Args:
        width: number of features of a key, here and below.
    """
    match features:
        case Sparse(_, column):
            return len(column) // width
        case Tiled(tile, times):
            return times * count_bindings(tile, width)
    return features.n_rows


def factors_of_bindings(features: AbstractFeatures, bindings: np.ndarray, width: int) -> np.ndarray:
    """The factor of each binding, shape (n,)."""
    match features:
        case Sparse(row_start):
            return np.asarray(np.searchsorted(row_start, bindings * width, side="right") - 1)
        case Tiled(tile):
            row, inside = np.divmod(bindings, count_bindings(tile, width))
            return np.asarray(row * tile.n_rows + factors_of_bindings(tile, inside, width))
    return bindings


def bindings_of_factors(features: AbstractFeatures, factors: np.ndarray, width: int) -> np.ndarray:
    """All bindings of some factors, one factor after the other."""
    first, stop = _binding_ranges(features, factors, width)
    lengths = stop - first
    before = np.cumsum(lengths) - lengths
    return np.asarray(np.repeat(first - before, lengths) + np.arange(lengths.sum()))


def _binding_ranges(features: AbstractFeatures, factors: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """The first binding of each factor, and the one behind its last."""
    match features:
        case Sparse(row_start):
            return row_start[factors] // width, row_start[factors + 1] // width
        case Tiled(tile):
            row, inside = np.divmod(factors, tile.n_rows)
            first, stop = _binding_ranges(tile, inside, width)
            before = row * count_bindings(tile, width)
            return before + first, before + stop
    return factors, factors + 1


@dataclass(frozen=True)
class BindingRows:
    """Some bindings of one template.

    Args:
        scope: for each place the variables that stand there, shape (n,).
        keys: codes of `per`, shape (n,); zeros where there is none.
        values: of the features, shape (n, width).
    """

    scope: tuple[np.ndarray, ...]
    keys: np.ndarray
    values: np.ndarray

    def __len__(self) -> int:
        return len(self.keys)


def read_bindings(group: FactorGroup, bindings: np.ndarray, width: int) -> BindingRows:
    """Some bindings of a group, in the order in which they are asked for."""
    factors = factors_of_bindings(group.features, bindings, width)
    scope = tuple(read_variables(group.scope, place, factors) for place in range(len(group.scope)))
    return BindingRows(scope, *_keys_and_values(group.features, bindings, width))


def concatenate_rows(parts: Sequence[BindingRows], arity: int, width: int) -> BindingRows:
    """The bindings of several groups of a template, one group after the other."""
    scope = tuple(np.concatenate([EMPTY, *(part.scope[place] for part in parts)]) for place in range(arity))
    keys = np.concatenate([EMPTY, *(part.keys for part in parts)])
    return BindingRows(scope, keys, np.concatenate([np.empty((0, width)), *(part.values for part in parts)]))


def _keys_and_values(features: AbstractFeatures, bindings: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    zeros, ones = np.zeros(len(bindings), dtype=np.int64), np.ones((len(bindings), width))
    match features:
        case Ones():
            return zeros, ones
        case Dense(values):
            return zeros, values[bindings]
        case Keyed(key, values):
            return key[bindings], values[bindings] if len(values) else ones
        case Sparse(_, column, values):
            entries = bindings[:, None] * width + np.arange(width)
            return column[entries[:, 0]] // width, values[entries] if len(values) else ones
        case Tiled(tile):
            return _keys_and_values(tile, bindings % count_bindings(tile, width), width)
    raise AssertionError(f"{type(features).__name__} is no feature matrix that can be looked at")
