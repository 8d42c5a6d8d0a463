"""Connected components of the free variables of a ground graph; clamped variables do not connect their neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from relcrf.columns.storage import read_rows
from relcrf.graph.factor_graph import FactorGraph, FactorGroup, RepeatedScope
from relcrf.graph.reduction import Role
from relcrf.kernels import components as kernel

FACTORS_PER_CHUNK = 1 << 20
"""Number of factors per chunk; it bounds the memory for the scopes of a chunk."""


def label_components(graph: FactorGraph, roles: np.ndarray) -> np.ndarray:
    """Return, for each variable, the lowest variable index in its component, shape (n_variables,), int32.

    A factor connects two free variables if its scope contains both variables and no absent variable. A variable that is
    not free forms a separate component. Factors are read in chunks. A `RepeatedScope` is not expanded; the free
    variables of each of its rows are treated as one component.

    Args:
        roles: A `Role` for each variable, shape (n_variables,), int8.
    """
    parent = np.arange(graph.n_variables, dtype=np.int32)
    free = roles == Role.FREE
    for group in graph.groups:
        if isinstance(group.scope, RepeatedScope):
            for variables in iter_row_variables(group.scope):
                # Connect each free variable to the next free variable in the same row.
                row, column = np.nonzero(free[variables])
                in_same_row = row[1:] == row[:-1]
                free_variables = variables[row, column]
                kernel.unite(parent, free_variables[:-1][in_same_row], free_variables[1:][in_same_row], free)
            continue
        for scope in iter_scope_chunks(group):
            present = np.logical_and.reduce([roles[variable] != Role.ABSENT for variable in scope])
            for a, b in combinations(scope, 2):
                kernel.unite(parent, a[present], b[present], free)
    kernel.flatten(parent)
    return parent


def iter_scope_chunks(group: FactorGroup, size: int = FACTORS_PER_CHUNK) -> Iterator[list[np.ndarray]]:
    """Yield the scopes of successive chunks of factors: a list of one array per scope position, shape (n,), int32.

    Args:
        size: Number of factors per chunk.
    """
    for start in range(0, group.n_factors, size):
        yield [read_rows(variable, start, min(start + size, group.n_factors)) for variable in group.scope]


def iter_row_variables(scope: RepeatedScope) -> Iterator[np.ndarray]:
    """Yield the distinct variables of each row, in chunks of n rows, shape (n, n_variables_per_row), int32."""
    columns = []
    for start, stride, offset in zip(scope.starts, scope.strides, scope.offsets, strict=True):
        columns += [(start + int(o), stride) for o in np.unique(offset)]
    columns = list(dict.fromkeys(columns))
    starts, strides = (np.array(values, dtype=np.int64) for values in zip(*columns, strict=True))
    step = max(1, FACTORS_PER_CHUNK // len(columns))
    for first in range(0, len(scope.rows), step):
        rows = scope.rows[first : first + step].astype(np.int64)
        yield (rows[:, None] * strides + starts).astype(np.int32)
