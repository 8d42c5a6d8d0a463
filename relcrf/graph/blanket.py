"""Local conditionals: the distribution of each variable given its Markov blanket, for factors of any size.

If all neighbours of a variable are clamped to their states, the variable becomes an isolated node. The isolated nodes
of all free variables form a graph without edges, whose likelihood is the pseudo-likelihood (Besag 1975).
"""

from __future__ import annotations

import numpy as np

from relcrf.columns.offsets import offsets
from relcrf.graph.factor_graph import FactorGraph
from relcrf.graph.reduction import ReducedGraph, Role, build_node_terms


def blanket_graph(graph: FactorGraph, roles: np.ndarray, states: np.ndarray) -> ReducedGraph:
    """Return a graph of isolated nodes, one for each free variable; all other variables of a factor are clamped.

    Args:
        roles: A `Role` for each variable, shape (n_variables,), int8; factors over an absent variable are omitted.
        states: States of all free and clamped variables, shape (n_variables,).
    """
    variables = np.flatnonzero(roles == Role.FREE)
    cardinality = graph.cardinality[variables]
    node_of = np.full(graph.n_variables, -1, dtype=np.int32)
    node_of[variables] = np.arange(len(variables), dtype=np.int32)
    terms = []
    for index, group in enumerate(graph.groups):
        present = np.ones(group.n_factors, dtype=bool)
        for variable in group.scope:
            present &= roles[variable] != Role.ABSENT
        for position, variable in enumerate(group.scope):
            stride = np.zeros(group.n_factors, dtype=np.int32)
            base = np.zeros(group.n_factors, dtype=np.int32)
            is_first = present & (node_of[variable] >= 0)
            for other, (neighbour, step) in enumerate(zip(group.scope, group.strides, strict=True)):
                same = neighbour == variable
                stride += np.where(same, np.int32(step), np.int32(0))
                base += np.where(same, np.int32(0), states[neighbour].astype(np.int32) * np.int32(step))
                if other < position:
                    is_first &= ~same  # a repeated variable has one term, at its first position in the scope
            factor = np.flatnonzero(is_first)
            if len(factor):
                terms.append(build_node_terms(index, factor, node_of[variable[factor]], base[factor], stride[factor]))
    return ReducedGraph(
        graph=graph,
        variables=variables,
        cardinality=cardinality,
        state_start=offsets(cardinality),
        edges=np.empty((0, 2), dtype=np.int32),
        table_start=np.zeros(1, dtype=np.int64),
        node_terms=tuple(terms),
        edge_terms=(),
    )
