"""Conditioning on evidence: observed nodes are removed, and factors are restricted to the free nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relcrf.columns.offsets import entries_of_runs, offsets
from relcrf.graph.scopes import Potentials, Scopes
from relcrf.kernels import score_tables


@dataclass(frozen=True, eq=False)
class ConditionedGraph:
    """A graph conditioned on the states of some of its nodes.

    Args:
        scopes, potentials: The graph over the free nodes; a factor over one free node is added to the node's table.
        constant: Sum of the log potentials of the observed nodes and of fully observed factors, in nats; -inf if the
            evidence is impossible.
        free_nodes: Original indices of the free nodes, ascending, shape (scopes.n_nodes,).
    """

    scopes: Scopes
    potentials: Potentials
    constant: float
    free_nodes: np.ndarray


def condition(scopes: Scopes, potentials: Potentials, states: np.ndarray) -> ConditionedGraph:
    """Return the graph over the free nodes.

    An agreement factor (see `Scopes`) with observed nodes does not remain an agreement, because its log potential then
    applies to the observed state only. If several of its nodes are free, the factor receives a full table.

    Args:
        states: Observed state of each node, shape (n_nodes,); -1 for a free node.
    """
    is_free = states < 0
    nodes, observed = np.flatnonzero(is_free), np.flatnonzero(~is_free)
    new_index = np.cumsum(is_free) - 1
    free_slot = np.flatnonzero(is_free[scopes.node])
    n_free = np.bincount(scopes.factor[free_slot], minlength=scopes.n_factors).astype(np.int64)
    slot_start = offsets(n_free)
    touched = n_free < scopes.arity
    agreed_state, is_active = _agreement_states(scopes, states, touched)
    is_table = touched & (agreed_state < 0)

    kept_factors = np.flatnonzero((n_free > 1) & is_active)
    new_factor = np.cumsum((n_free > 1) & is_active) - 1
    agreement = None if scopes.agreement is None else (scopes.agreement & ~touched)[kept_factors]
    start = offsets(n_free[kept_factors])
    node = new_index[scopes.node[free_slot[entries_of_runs(slot_start, kept_factors)]]].astype(np.int32)
    reduced = Scopes(scopes.cardinality[nodes], start, node, agreement)

    node_tables = potentials.nodes[entries_of_runs(scopes.state_start, nodes)]
    factor_tables = np.zeros(int(reduced.table_start[-1]))
    untouched = np.flatnonzero(~touched[kept_factors])
    factor_tables[entries_of_runs(reduced.table_start, untouched)] = potentials.factors[
        entries_of_runs(scopes.table_start, kept_factors[untouched])
    ]

    observed_offset = np.where(is_free, 0, states)[scopes.node] * scopes.stride
    cell = scopes.table_start[:-1] + np.bincount(
        scopes.factor, weights=observed_offset, minlength=scopes.n_factors
    ).astype(np.int64)
    cell = np.where(agreed_state < 0, cell, scopes.table_start[:-1])
    constant = float(potentials.nodes[scopes.state_start[observed] + states[observed]].sum())
    constant += float(potentials.factors[cell[(n_free == 0) & is_active]].sum())
    for size in np.unique(n_free[is_table & (n_free > 0)]):
        selected = np.flatnonzero(is_table & (n_free == size))
        slots = free_slot[slot_start[selected, None] + np.arange(size)]
        score_tables.add_cliques(
            potentials.factors[None, :],
            score_tables.pattern_matrix(None),
            cell[selected],
            scopes.stride[slots].astype(np.int32),
            scopes.cardinality[scopes.node[slots]].astype(np.int32),
            reduced.state_start[new_index[scopes.node[slots[:, 0]]]]
            if size == 1
            else reduced.table_start[new_factor[selected]],
            node_tables if size == 1 else factor_tables,
        )
    selected = np.flatnonzero((agreed_state >= 0) & is_active & (n_free == 1))
    target = new_index[scopes.node[free_slot[slot_start[selected]]]]
    np.add.at(node_tables, reduced.state_start[target] + agreed_state[selected], potentials.factors[cell[selected]])
    selected = np.flatnonzero((agreed_state >= 0) & is_active & (n_free > 1))
    if len(selected):
        step = np.add.reduceat(reduced.stride, reduced.start[:-1])[new_factor[selected]]
        factor_tables[reduced.table_start[new_factor[selected]] + step * agreed_state[selected]] = potentials.factors[
            cell[selected]
        ]
    return ConditionedGraph(reduced, Potentials(node_tables, factor_tables), constant, nodes)


def _agreement_states(scopes: Scopes, states: np.ndarray, touched: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the observed state of each agreement, else -1, and a mask that is False if observed states differ."""
    state, is_active = np.full(scopes.n_factors, -1), np.ones(scopes.n_factors, dtype=bool)
    if scopes.agreement is None or not scopes.n_factors:
        return state, is_active
    slot_states = states[scopes.node]
    high = np.maximum.reduceat(slot_states, scopes.start[:-1])
    low = np.minimum.reduceat(np.where(slot_states < 0, np.iinfo(np.int32).max, slot_states), scopes.start[:-1])
    partly_observed = touched & scopes.agreement
    state[partly_observed] = high[partly_observed]
    is_active[partly_observed] = (low == high)[partly_observed]
    return state, is_active
