"""Possible states: states that are left when the zeros of all factors have been propagated."""

from __future__ import annotations

import numpy as np

from relcrf.columns.offsets import entries_of_runs
from relcrf.graph.conditioning import ConditionedGraph, condition
from relcrf.graph.scopes import Potentials, Scopes, SharedPotentials
from relcrf.kernels import zeros


def find_possible_states(scopes: Scopes, potentials: Potentials) -> np.ndarray | None:
    """Return a mask of the states that may occur in a possible joint state; None if no joint state is possible.

    Zeros are propagated locally. A state outside the mask is impossible; a state in the mask may be impossible, too. The same
    holds for the whole graph: None is a proof.

    Returns:
        The mask, shape (state_start[-1],), bool.
    """
    possible = potentials.nodes > -np.inf
    if possible.all() and (potentials.factors > -np.inf).all():
        return possible
    is_consistent = zeros.propagate_zeros(scopes.kernel_factors, potentials.factors, possible)
    return possible if is_consistent else None


def is_impossible(scopes: Scopes, potentials: SharedPotentials) -> bool:
    """Return True if the zeros of the potentials prove that no joint state is possible."""
    has_zeros = bool(np.isneginf(potentials.nodes).any() or np.isneginf(potentials.tables).any())
    return has_zeros and find_possible_states(scopes, potentials.expand()) is None


def condition_on_possible(scopes: Scopes, potentials: Potentials, states: np.ndarray) -> ConditionedGraph | None:
    """Return the graph over the nodes with several possible states, given evidence; None if the evidence is impossible.

    Other nodes are treated like observed nodes, and states that zeros exclude have log potential -inf.

    Args:
        states: Observed state of each node, shape (n_nodes,); -1 for a free node. Overwritten by the only possible state of
            each node that has one.
    """
    left = condition(scopes, potentials, states)
    possible = find_possible_states(left.scopes, left.potentials)
    if possible is None or left.constant == -np.inf:
        return None
    starts = left.scopes.state_start
    n_possible = (
        np.add.reduceat(possible, starts[:-1], dtype=np.int64) if left.scopes.n_nodes else np.zeros(0, np.int64)
    )
    determined = np.flatnonzero(n_possible == 1)
    if len(determined):
        cells = np.flatnonzero(possible)
        owner = np.searchsorted(starts, cells, side="right") - 1
        cells = cells[np.isin(owner, determined)]
        states[left.free_nodes[determined]] = cells - starts[determined]
        left = condition(scopes, potentials, states)
    kept = possible[entries_of_runs(starts, np.flatnonzero(n_possible > 1))]
    nodes = np.where(kept, left.potentials.nodes, -np.inf)
    return ConditionedGraph(left.scopes, Potentials(nodes, left.potentials.factors), left.constant, left.free_nodes)
