"""Exact sampling of node sets whose factors form a forest, given all other nodes: upward filtering, downward sampling.

A *set* is a list of nodes, parents before children, with at most two nodes of each factor. All other nodes are fixed
while the set is drawn. Each factor with nodes in the set has one *entry*, which belongs to the factor's only node in
the set or, if there are two, to the child. A *slot* is an entry of `Factors.node`: one node in the scope of one factor.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import boolean, int32, int64, types

from relcrf.kernels.compile import inline_kernel
from relcrf.kernels.factors import common_state, draw_state, row_offset


class NodeSets(NamedTuple):
    """Sets of nodes, in CSR form.

    Args:
        start: start of each set in `node`, shape (n_sets + 1,).
        node, parent: the nodes of all sets, and the parent of each node in the same set, -1 for a root.
        entry_start: for each position in `node`, the offset of its entries; shape (len(node) + 1,).
        slot: for each entry, the slot of the entry's node in the factor.
        parent_slot: for each entry, the slot of the node's parent in the same factor; -1 if there is none.
        records_node: for each position, whether the node's probabilities are recorded at this position.
        records_factor: for each entry, whether the factor's probabilities are recorded at this entry. In a sweep, each
            node and each factor is recorded once.
    """

    start: np.ndarray
    node: np.ndarray
    parent: np.ndarray
    entry_start: np.ndarray
    slot: np.ndarray
    parent_slot: np.ndarray
    records_node: np.ndarray
    records_factor: np.ndarray


_INT32, _INT64 = int32[::1], int64[::1]
NODE_SETS = types.NamedTuple((_INT64, _INT32, _INT32, _INT64, _INT64, _INT64, boolean[::1], boolean[::1]), NodeSets)
"""The Numba type of `NodeSets`."""


@inline_kernel
def _add_unary_factors(factors, sets, factor_table, first_position, last_position, states, belief):
    """Add all factors with a single node in the set to the beliefs of positions first_position .. last_position - 1."""
    # Unpack the tuples once: accessing their arrays costs as much as a small factor.
    factor, start, node, stride = factors.factor, factors.start, factors.node, factors.stride
    agreement, table_start, cardinality = factors.agreement, factors.table_start, factors.cardinality
    state_start, member, entry_start = factors.state_start, sets.node, sets.entry_start
    slots, parent_slots = sets.slot, sets.parent_slot
    for k in range(first_position, last_position):
        v = member[k]
        first = state_start[v]
        for e in range(entry_start[k], entry_start[k + 1]):
            if parent_slots[e] >= 0:
                continue
            slot = slots[e]
            f = factor[slot]
            if agreement[f]:
                x = common_state(start[f], start[f + 1], slot, -1, node, states)
                if x >= 0:
                    belief[first + x] += factor_table[table_start[f]]
                continue
            cell = table_start[f] + row_offset(start[f], start[f + 1], slot, -1, node, stride, states)
            for x in range(cardinality[v]):
                belief[first + x] += factor_table[cell + x * stride[slot]]


@inline_kernel
def fill_pair_table(factors, sets, factor_table, k, n_child, n_parent, states, pair):
    """Sum the log potentials of all factors that a node shares with its parent into `pair`; rows are parent states."""
    factor, start, node, stride = factors.factor, factors.start, factors.node, factors.stride
    agreement, table_start, slots, parent_slots = factors.agreement, factors.table_start, sets.slot, sets.parent_slot
    for at in range(n_child * n_parent):
        pair[at] = 0.0
    for e in range(sets.entry_start[k], sets.entry_start[k + 1]):
        slot = slots[e]
        parent_slot = parent_slots[e]
        if parent_slot < 0:
            continue
        f = factor[slot]
        if agreement[f]:
            common = common_state(start[f], start[f + 1], slot, parent_slot, node, states)
            for x in range(n_child):
                if common == -2 or common == x:
                    pair[x * n_child + x] += factor_table[table_start[f]]
            continue
        cell = table_start[f] + row_offset(start[f], start[f + 1], slot, parent_slot, node, stride, states)
        for y in range(n_parent):
            for x in range(n_child):
                pair[y * n_child + x] += factor_table[cell + y * stride[parent_slot] + x * stride[slot]]


@inline_kernel
def filter_upward(factors, sets, node_table, factor_table, s, states, belief, pair):
    """For each state of each node of set `s`, compute the log-sum-exp over the states of the node's descendants.

    Args:
        belief: overwritten by the results, flat over the states of all nodes.
        pair: scratch whose length is the largest product of the cardinalities of a node and its parent.
    """
    cardinality, state_start, member, parent = factors.cardinality, factors.state_start, sets.node, sets.parent
    for k in range(sets.start[s], sets.start[s + 1]):
        v = member[k]
        for at in range(state_start[v], state_start[v + 1]):
            belief[at] = node_table[at]
    _add_unary_factors(factors, sets, factor_table, sets.start[s], sets.start[s + 1], states, belief)
    for k in range(sets.start[s + 1] - 1, sets.start[s] - 1, -1):
        p = parent[k]
        if p < 0:
            continue
        v = member[k]
        n = cardinality[v]
        first = state_start[v]
        fill_pair_table(factors, sets, factor_table, k, n, cardinality[p], states, pair)
        for y in range(cardinality[p]):
            top = -np.inf
            for x in range(n):
                top = max(top, belief[first + x] + pair[y * n + x])
            if top > -np.inf:
                total = 0.0
                for x in range(n):
                    total += np.exp(belief[first + x] + pair[y * n + x] - top)
                top += np.log(total)
            belief[state_start[p] + y] += top


@inline_kernel
def condition_on_parent(first, n, belief, pair, y, fallback, out):
    """Write the probability of each state of a node, given its parent's state `y` (-1 for a root), to `out`.

    Args:
        first, n: offset of the node's states in `belief`, and number of states.
        pair: as `fill_pair_table` computes it.
        fallback: the state that gets probability 1 if no state is possible.
    """
    top = -np.inf
    for x in range(n):
        out[x] = belief[first + x]
        if y >= 0:
            out[x] += pair[y * n + x]
        top = max(top, out[x])
    if top == -np.inf:
        for x in range(n):
            out[x] = 0.0
        out[fallback] = 1.0
    else:
        total = 0.0
        for x in range(n):
            out[x] = np.exp(out[x] - top)
            total += out[x]
        for x in range(n):
            out[x] /= total


@inline_kernel
def sample_downward(factors, sets, factor_table, s, uniform, belief, pair, out, states):
    """Draw the states of the nodes of set `s` after `filter_upward`, each given its parent's state, into `states`.

    Args:
        uniform: random numbers in [0, 1), one for each node of the set.
        out: scratch whose length is the largest cardinality.
    """
    cardinality, state_start, member, parent = factors.cardinality, factors.state_start, sets.node, sets.parent
    for k in range(sets.start[s], sets.start[s + 1]):
        v = member[k]
        p = parent[k]
        n = cardinality[v]
        if p >= 0:
            fill_pair_table(factors, sets, factor_table, k, n, cardinality[p], states, pair)
        condition_on_parent(state_start[v], n, belief, pair, states[p] if p >= 0 else -1, states[v], out)
        states[v] = draw_state(n, out, uniform[k - sets.start[s]])
