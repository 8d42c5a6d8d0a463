"""Joint marginals of the factors that inference returns besides the marginals of variables."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from relcrf.graph.factor_graph import FactorGroup
from relcrf.graph.reduction import ReducedGraph


def joint_marginals(graph: ReducedGraph, nodes: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Return the flat joint marginals of the factors of all groups with `needs_marginals`, in the order of groups and factors.

    The variables of such a factor are free and ascending. If a backend omits a factor from its graph, the joint marginal is the
    product of the marginals of its variables.

    Args:
        nodes, factors: Flat marginals of the graph's scopes, see `Marginals`.
    """
    tables = [
        _group_marginals(graph, number, group, nodes, factors).ravel()
        for number, group in enumerate(graph.graph.groups)
        if group.needs_marginals
    ]
    return np.concatenate([np.empty(0), *tables])


def _group_marginals(
    graph: ReducedGraph, number: int, group: FactorGroup, nodes: np.ndarray, factors: np.ndarray
) -> np.ndarray:
    """Return the joint marginals of the factors of a group, shape (n_factors, n_joint_states)."""
    scope = np.searchsorted(graph.variables, np.stack([*group.scope], axis=1))
    tables = np.ones((len(scope), 1))
    for node, size in zip(scope.T, group.cardinalities, strict=True):
        belief = nodes[graph.state_start[node][:, None] + np.arange(size)]
        tables = (tables[:, :, None] * belief[:, None, :]).reshape(len(scope), -1)
    for rows, start in _stored_tables(graph, number, scope):
        tables[rows] = factors[start[:, None] + np.arange(group.n_joint_states)]
    return tables


def _stored_tables(graph: ReducedGraph, number: int, scope: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield factors of a group that are factors of the graph, and the offset of the table of each."""
    if scope.shape[1] == 2:
        keys = graph.edges[:, 0].astype(np.int64) * graph.n_nodes + graph.edges[:, 1]
        wanted = scope[:, 0] * np.int64(graph.n_nodes) + scope[:, 1]
        rows = np.flatnonzero(np.isin(wanted, keys))
        yield rows, graph.table_start[np.searchsorted(keys, wanted[rows])]
    first = graph.n_edges
    for terms in graph.clique_terms:
        if terms.group == number:
            yield terms.factor, graph.scopes.table_start[first : first + len(terms.factor)]
        first += len(terms.factor)
