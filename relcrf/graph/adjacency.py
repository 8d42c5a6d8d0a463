"""Which variables are neighbours: they stand in one factor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
from scipy.sparse import coo_array, csr_array

from relcrf.columns.offsets import entries_of_runs
from relcrf.graph.candidates import AbstractSpace
from relcrf.graph.components import FACTORS_PER_CHUNK, iter_row_variables, iter_scope_chunks, label_components
from relcrf.graph.factor_graph import FactorGraph, FactorGroup, RepeatedScope
from relcrf.graph.reduction import Role
from relcrf.kernels import components as kernel


def adjacency_matrix(graph: FactorGraph) -> csr_array:
    """A matrix of shape (n_variables, n_variables), bool and symmetric: who stands in a factor with whom.

    Where structure is repeated for every row of a table, the variables of a row are a chain, so that it need not be expanded:
    what is connected stays so.
    """
    first, second = [np.empty(0, dtype=np.int32)], [np.empty(0, dtype=np.int32)]

    def join(a: np.ndarray, b: np.ndarray) -> None:
        apart = a != b
        first.extend((a[apart], b[apart]))
        second.extend((b[apart], a[apart]))

    for group in graph.groups:
        if len(group.scope) < 2:
            continue
        if isinstance(group.scope, RepeatedScope):
            for variables in iter_row_variables(group.scope):
                join(variables[:, :-1].ravel(), variables[:, 1:].ravel())
            continue
        for a, b in combinations(group.scope, 2):
            join(np.asarray(a), np.asarray(b))
    rows, columns = np.concatenate(first), np.concatenate(second)
    size = graph.n_variables
    return csr_array(coo_array((np.ones(len(rows), dtype=bool), (rows, columns)), shape=(size, size)))


def unconditional_components(graph: FactorGraph, spaces: Sequence[AbstractSpace] = ()) -> np.ndarray:
    """The lowest variable of each one's component where none is known, shape (n_variables,), int32; see `components`.

    Args:
        spaces: of candidates: variables that one of them may join are connected.
    """
    # Factors over one variable join nothing, those that are repeated for every row neither.
    joining = replace(graph, groups=tuple(group for group in graph.groups if len(group.scope) > 1))
    parent = label_components(joining, np.full(graph.n_variables, Role.FREE, dtype=np.int8))
    every = np.ones(graph.n_variables, dtype=bool)
    for space in spaces:
        sample, variable = cells_by_sample(space)
        follows = sample[1:] == sample[:-1]
        kernel.unite(parent, variable[:-1][follows], variable[1:][follows], every)
    kernel.flatten(parent)
    return parent


def cells_by_sample(space: AbstractSpace) -> tuple[np.ndarray, np.ndarray]:
    """The cells that candidates of a space may join, those of a sample with each other: samples, ascending, and variables."""
    there = [np.bincount(side.sample, minlength=space.n_samples) > 0 for side in space.sides]
    sample = np.concatenate([side.sample for side in space.sides])
    kept = np.flatnonzero(np.logical_and.reduce(there)[sample])
    kept = kept[np.argsort(sample[kept], kind="stable")]
    return sample[kept], np.concatenate([side.variable for side in space.sides])[kept]


def list_neighbours(adjacency: csr_array, variables: np.ndarray) -> np.ndarray:
    """The neighbours of some variables, one after the other, with repetitions; shape (n,)."""
    return np.asarray(adjacency.indices[entries_of_runs(adjacency.indptr, variables)])


def iter_expanded_scopes(group: FactorGroup) -> Iterator[list[np.ndarray]]:
    """The scopes of some factors after others, in their order, those of repeated structure as well; see `iter_scope_chunks`."""
    scope = group.scope
    if not isinstance(scope, RepeatedScope):
        yield from iter_scope_chunks(group)
        return
    step = max(1, FACTORS_PER_CHUNK // max(len(scope.offsets[0]), 1))
    for start in range(0, len(scope.rows), step):
        yield list(replace(scope, rows=scope.rows[start : start + step]))
