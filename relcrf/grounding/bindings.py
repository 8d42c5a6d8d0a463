"""Random access to the bindings of a factor group: the factors of a variable, and the contents of given bindings.

A *binder* is a logical variable of a template; a *binding* assigns an entity or value to each binder. A template over several
random terms has one factor for each binding. A template over one term has one factor for each random variable. If this
template has keys (`per`), each binding is an entry in the sparse feature row of the factor; otherwise, the features of all
bindings of the variable are summed into one row, which counts as one binding. A *slot* is a position in a scope. The functions
do not expand a `RepeatedScope` and read only the necessary parts of columns, so that groups may be larger than memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from relcrf.columns.storage import read_rows
from relcrf.graph.factor_graph import FactorGroup, RepeatedScope
from relcrf.graph.features import AbstractFeatures, Dense, Keyed, Ones, Sparse, Tiled

CHUNK_FACTORS = 1 << 20
"""Number of factors that are searched at a time, so that few variables are in memory."""

EMPTY = np.empty(0, dtype=np.int64)


def find_factors(scope: Sequence[np.ndarray], slot: int, variable: int) -> np.ndarray:
    """Return the indices of the factors with the given variable in a slot of the scope, ascending."""
    if isinstance(scope, RepeatedScope):
        offsets = scope.offsets[slot]
        target_offsets = variable - scope.starts[slot] - scope.strides[slot] * scope.rows.astype(np.int64)
        row_factors = [
            row * len(offsets) + np.flatnonzero(offsets == target_offsets[row])
            for row in np.flatnonzero(np.isin(target_offsets, offsets))
        ]
        return np.concatenate([EMPTY, *row_factors])
    column = scope[slot]  # the factors of chosen candidates are not sorted by their variables
    chunks = [
        start + np.flatnonzero(read_rows(column, start, start + CHUNK_FACTORS) == variable)
        for start in range(0, len(column), CHUNK_FACTORS)
    ]
    return np.concatenate([EMPTY, *chunks])


def read_variables(scope: Sequence[np.ndarray], slot: int, factors: np.ndarray) -> np.ndarray:
    """Return the variable of each given factor in a slot of the scope, shape (n,)."""
    if isinstance(scope, RepeatedScope):
        row, pattern = np.divmod(factors, len(scope.offsets[slot]))
        origin = scope.starts[slot] + scope.strides[slot] * scope.rows[row].astype(np.int64)
        return np.asarray(origin + scope.offsets[slot][pattern])
    return np.asarray(scope[slot][factors])


def count_bindings(features: AbstractFeatures, width: int) -> int:
    """Return the number of bindings of a factor group with these features.

    Args:
        width: number of features per key.
    """
    match features:
        case Sparse(_, column):
            return len(column) // width
        case Tiled(tile, times):
            return times * count_bindings(tile, width)
    return features.n_rows


def factors_of_bindings(features: AbstractFeatures, bindings: np.ndarray, width: int) -> np.ndarray:
    """Return the index of the factor of each binding, shape (n,)."""
    match features:
        case Sparse(row_start):
            return np.asarray(np.searchsorted(row_start, bindings * width, side="right") - 1)
        case Tiled(tile):
            row, tile_bindings = np.divmod(bindings, count_bindings(tile, width))
            return np.asarray(row * tile.n_rows + factors_of_bindings(tile, tile_bindings, width))
    return bindings


def bindings_of_factors(features: AbstractFeatures, factors: np.ndarray, width: int) -> np.ndarray:
    """Return the indices of all bindings of some factors, in the order of the factors."""
    first, stop = _binding_ranges(features, factors, width)
    lengths = stop - first
    starts = np.cumsum(lengths) - lengths
    return np.asarray(np.repeat(first - starts, lengths) + np.arange(lengths.sum()))


def _binding_ranges(features: AbstractFeatures, factors: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each factor, the index of the first binding and the exclusive end index of the bindings."""
    match features:
        case Sparse(row_start):
            return row_start[factors] // width, row_start[factors + 1] // width
        case Tiled(tile):
            row, tile_factors = np.divmod(factors, tile.n_rows)
            first, stop = _binding_ranges(tile, tile_factors, width)
            start = row * count_bindings(tile, width)
            return start + first, start + stop
    return factors, factors + 1


@dataclass(frozen=True)
class BindingRows:
    """Some bindings of one template.

    Args:
        scope: for each slot, the variable of each binding, shape (n,).
        keys: key index of each binding, shape (n,); zeros if the template has no `per`.
        values: feature values, shape (n, width).
    """

    scope: tuple[np.ndarray, ...]
    keys: np.ndarray
    values: np.ndarray

    def __len__(self) -> int:
        return len(self.keys)


def read_bindings(group: FactorGroup, bindings: np.ndarray, width: int) -> BindingRows:
    """Read some bindings of a group, in the given order."""
    factors = factors_of_bindings(group.features, bindings, width)
    scope = tuple(read_variables(group.scope, slot, factors) for slot in range(len(group.scope)))
    return BindingRows(scope, *_keys_and_values(group.features, bindings, width))


def concatenate_rows(parts: Sequence[BindingRows], arity: int, width: int) -> BindingRows:
    """Concatenate the bindings of several groups of a template."""
    scope = tuple(np.concatenate([EMPTY, *(part.scope[slot] for part in parts)]) for slot in range(arity))
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
    raise AssertionError(f"unsupported feature matrix {type(features).__name__}")
