"""Adjacency of variables: two variables are neighbours if a factor contains both."""

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
    """Return the symmetric adjacency matrix of the variables, bool, shape (n_variables, n_variables).

    To avoid expanding a `RepeatedScope`, the variables of each of its rows are connected in a chain. This preserves
    connectivity, but not the individual pairs.
    """
    first, second = [np.empty(0, dtype=np.int32)], [np.empty(0, dtype=np.int32)]

    def join(a: np.ndarray, b: np.ndarray) -> None:
        differ = a != b
        first.extend((a[differ], b[differ]))
        second.extend((b[differ], a[differ]))

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
    """Return the component of each variable if no variable is observed, shape (n_variables,), int32.

    A component is identified by the lowest index of its variables; see `label_components`.

    Args:
        spaces: Candidate spaces (`candidates.py`); variables over which a candidate could have a factor are connected.
    """
    # Omit unary factors: in a `RepeatedScope`, they would connect all variables of a row.
    connecting = replace(graph, groups=tuple(group for group in graph.groups if len(group.scope) > 1))
    parent = label_components(connecting, np.full(graph.n_variables, Role.FREE, dtype=np.int8))
    everywhere = np.ones(graph.n_variables, dtype=bool)
    for space in spaces:
        sample, variable = cells_by_sample(space)
        in_same_sample = sample[1:] == sample[:-1]
        kernel.unite(parent, variable[:-1][in_same_sample], variable[1:][in_same_sample], everywhere)
    kernel.flatten(parent)
    return parent


def cells_by_sample(space: AbstractSpace) -> tuple[np.ndarray, np.ndarray]:
    """Return the sample (ascending) and the variable of the cells of a candidate space; for cells see `candidates.py`.

    Samples that do not have cells on every side are omitted, because no candidate has a factor in such a sample.
    """
    has_cell = [np.bincount(side.sample, minlength=space.n_samples) > 0 for side in space.sides]
    sample = np.concatenate([side.sample for side in space.sides])
    selected = np.flatnonzero(np.logical_and.reduce(has_cell)[sample])
    selected = selected[np.argsort(sample[selected], kind="stable")]
    return sample[selected], np.concatenate([side.variable for side in space.sides])[selected]


def list_neighbours(adjacency: csr_array, variables: np.ndarray) -> np.ndarray:
    """Return the concatenated lists of neighbours of some variables, with duplicates; shape (n,)."""
    return np.asarray(adjacency.indices[entries_of_runs(adjacency.indptr, variables)])


def iter_expanded_scopes(group: FactorGroup) -> Iterator[list[np.ndarray]]:
    """Yield the scopes of successive chunks of factors, like `iter_scope_chunks`; each `RepeatedScope` is expanded."""
    scope = group.scope
    if not isinstance(scope, RepeatedScope):
        yield from iter_scope_chunks(group)
        return
    step = max(1, FACTORS_PER_CHUNK // max(len(scope.offsets[0]), 1))
    for start in range(0, len(scope.rows), step):
        yield list(replace(scope, rows=scope.rows[start : start + step]))
