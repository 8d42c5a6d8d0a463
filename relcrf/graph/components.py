"""Which free variables depend on each other: the connected components of a graph whose clamped variables cut it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from relcrf.columns.storage import read_rows
from relcrf.graph.factor_graph import FactorGraph, FactorGroup, RepeatedScope
from relcrf.graph.reduction import Role
from relcrf.kernels import components as kernel

FACTORS_PER_CHUNK = 1 << 20
"""Factors that are read at a time."""


def label_components(graph: FactorGraph, roles: np.ndarray) -> np.ndarray:
    """For each variable the lowest variable of its component, shape (n_variables,), int32.

    Two free variables are joined by a factor over both that no absent variable touches; a variable that is not free is alone.
    The factors are read in parts. Where structure is repeated for every row of a table, the free variables of a row are
    taken for one component, so that it need not be expanded.

    Args:
        roles: a `Role` for each variable, shape (n_variables,), int8.
    """
    parent = np.arange(graph.n_variables, dtype=np.int32)
    free = roles == Role.FREE
    for group in graph.groups:
        if isinstance(group.scope, RepeatedScope):
            for variables in iter_row_variables(group.scope):
                # From each free variable to the next one in its row: what lies between is not free.
                row, place = np.nonzero(free[variables])
                follows = row[1:] == row[:-1]
                chosen = variables[row, place]
                kernel.unite(parent, chosen[:-1][follows], chosen[1:][follows], free)
            continue
        for scope in iter_scope_chunks(group):
            present = np.logical_and.reduce([roles[place] != Role.ABSENT for place in scope])
            for a, b in combinations(scope, 2):
                kernel.unite(parent, a[present], b[present], free)
    kernel.flatten(parent)
    return parent


def iter_scope_chunks(group: FactorGroup) -> Iterator[list[np.ndarray]]:
    """The scopes of some factors after others: for each place the variables, shape (n,), int32."""
    for start in range(0, group.n_factors, FACTORS_PER_CHUNK):
        yield [read_rows(place, start, min(start + FACTORS_PER_CHUNK, group.n_factors)) for place in group.scope]


def iter_row_variables(scope: RepeatedScope) -> Iterator[np.ndarray]:
    """All variables of some rows after others, shape (n, n_variables_of_a_row), int32."""
    columns = []
    for start, stride, offset in zip(scope.starts, scope.strides, scope.offsets, strict=True):
        columns += [(start + int(o), stride) for o in np.unique(offset)]
    columns = list(dict.fromkeys(columns))
    starts, strides = (np.array(values, dtype=np.int64) for values in zip(*columns, strict=True))
    step = max(1, FACTORS_PER_CHUNK // len(columns))
    for first in range(0, len(scope.rows), step):
        rows = scope.rows[first : first + step].astype(np.int64)
        yield (rows[:, None] * strides + starts).astype(np.int32)
