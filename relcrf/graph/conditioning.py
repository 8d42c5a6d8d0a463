"""Evidence taken out of a graph: known nodes leave it, and what is left is smaller."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relcrf.columns.offsets import entries_of_runs, offsets
from relcrf.graph.scopes import Potentials, Scopes
from relcrf.kernels import score_tables


@dataclass(frozen=True, eq=False)
class ConditionedGraph:
    """A graph given the states of some of its nodes.

    Args:
        scopes, potentials: over the free nodes; factors that kept one node are part of its table.
        constant: log potential of what was known altogether, in nats; -inf where that cannot be.
        free_nodes: which nodes are free, ascending; shape (scopes.n_nodes,).
    """

    scopes: Scopes
    potentials: Potentials
    constant: float
    free_nodes: np.ndarray


def condition(scopes: Scopes, potentials: Potentials, states: np.ndarray) -> ConditionedGraph:
    """The graph of the free nodes.

    An agreement with known nodes is one no more: it speaks of one state, and becomes a table where several nodes are free.

    Args:
        states: shape (n_nodes,); -1 where a node is free.
    """
    is_free = states < 0
    nodes, known = np.flatnonzero(is_free), np.flatnonzero(~is_free)
    number = np.cumsum(is_free) - 1
    free_place = np.flatnonzero(is_free[scopes.node])
    n_free = np.bincount(scopes.factor[free_place], minlength=scopes.n_factors).astype(np.int64)
    place_start = offsets(n_free)
    touched = n_free < scopes.arity
    state, speaks = _agreement_states(scopes, states, touched)
    is_table = touched & (state < 0)

    kept = np.flatnonzero((n_free > 1) & speaks)
    new = np.cumsum((n_free > 1) & speaks) - 1
    agreement = None if scopes.agreement is None else (scopes.agreement & ~touched)[kept]
    start = offsets(n_free[kept])
    node = number[scopes.node[free_place[entries_of_runs(place_start, kept)]]].astype(np.int32)
    left = Scopes(scopes.cardinality[nodes], start, node, agreement)

    of_nodes = potentials.nodes[entries_of_runs(scopes.state_start, nodes)]
    of_factors = np.zeros(int(left.table_start[-1]))
    same = np.flatnonzero(~touched[kept])
    of_factors[entries_of_runs(left.table_start, same)] = potentials.factors[
        entries_of_runs(scopes.table_start, kept[same])
    ]

    known_states = np.where(is_free, 0, states)[scopes.node] * scopes.stride
    cell = scopes.table_start[:-1] + np.bincount(
        scopes.factor, weights=known_states, minlength=scopes.n_factors
    ).astype(np.int64)
    cell = np.where(state < 0, cell, scopes.table_start[:-1])
    constant = float(potentials.nodes[scopes.state_start[known] + states[known]].sum())
    constant += float(potentials.factors[cell[(n_free == 0) & speaks]].sum())
    for size in np.unique(n_free[is_table & (n_free > 0)]):
        some = np.flatnonzero(is_table & (n_free == size))
        places = free_place[place_start[some, None] + np.arange(size)]
        score_tables.add_cliques(
            potentials.factors[None, :],
            np.empty((0, 0)),
            cell[some],
            scopes.stride[places],
            scopes.cardinality[scopes.node[places]].astype(np.int64),
            left.state_start[number[scopes.node[places[:, 0]]]] if size == 1 else left.table_start[new[some]],
            of_nodes if size == 1 else of_factors,
        )
    some = np.flatnonzero((state >= 0) & speaks & (n_free == 1))
    target = number[scopes.node[free_place[place_start[some]]]]
    np.add.at(of_nodes, left.state_start[target] + state[some], potentials.factors[cell[some]])
    some = np.flatnonzero((state >= 0) & speaks & (n_free > 1))
    if len(some):
        step = np.add.reduceat(left.stride, left.start[:-1])[new[some]]
        of_factors[left.table_start[new[some]] + step * state[some]] = potentials.factors[cell[some]]
    return ConditionedGraph(left, Potentials(of_nodes, of_factors), constant, nodes)


def _agreement_states(scopes: Scopes, states: np.ndarray, touched: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The state of which each agreement with known nodes speaks, -1 of other factors; and False where its nodes differ."""
    state, speaks = np.full(scopes.n_factors, -1), np.ones(scopes.n_factors, dtype=bool)
    if scopes.agreement is None or not scopes.n_factors:
        return state, speaks
    of_place = states[scopes.node]
    high = np.maximum.reduceat(of_place, scopes.start[:-1])
    low = np.minimum.reduceat(np.where(of_place < 0, np.iinfo(np.int32).max, of_place), scopes.start[:-1])
    known = touched & scopes.agreement
    state[known] = high[known]
    speaks[known] = (low == high)[known]
    return state, speaks
