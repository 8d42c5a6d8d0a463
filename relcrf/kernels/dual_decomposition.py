"""Dual coordinate ascent for the most probable joint state: messages from factors to nodes lower an upper bound.

For any messages m[f, i] from factors f to their nodes i, no joint state has a score above

    sum over nodes i of max (node[i] + sum over f of m[f, i])  +  sum over factors f of max (factor[f] - sum over i of m[f, i])

A pass processes the nodes in order. For each node, it adds the max-marginals of the node's factors to the node's
potential, and distributes the sum equally among the factors that have a later node. The *max-marginal* of a factor for
a state of a node is the maximum of the factor minus the messages to its other nodes. Processing a node never raises the
bound. On a forest whose nodes are ordered children first, the bound is tight after one pass.

Messages never contain -inf: a state that a factor makes impossible is permanently removed from the mask `alive`.

A *slot* is an entry of `Factors.node`: one node in the scope of one factor. An *agreement* is a factor with one log
potential, for the cells in which all its nodes have the same state.
"""

from __future__ import annotations

import numpy as np
from numba import boolean, float64, int32, int64

from relcrf.kernels.compile import kernel
from relcrf.kernels.factors import FACTORS, advance_cell, max_arity, max_cardinality


@kernel()
def _agreement_max_marginals(factors, weight, slot, message_start, message, alive, out):
    """Run `compute_max_marginals` for an agreement: take the better case of equal states and different states.

    States that differ from x have the unconstrained maximum, unless x is the best state of all other nodes. One of these nodes
    must then have its second-best state.
    """
    f = factors.factor[slot]
    n = factors.cardinality[factors.node[slot]]
    unconstrained = 0.0
    min_loss = np.inf  # smallest decrease of the unconstrained maximum if one other node must not have its best state
    common = -2  # the best state of all other nodes; -1 if they differ, -2 without other nodes
    for x in range(n):
        out[x] = weight
    for p in range(factors.start[f], factors.start[f + 1]):
        if p == slot:
            continue
        first = factors.state_start[factors.node[p]]
        top, second, best = -np.inf, -np.inf, -1
        for x in range(n):
            value = -message[message_start[p] + x] if alive[first + x] else -np.inf
            out[x] += value
            if value > top:
                top, second, best = value, top, x
            elif value > second:
                second = value
        unconstrained += top
        min_loss = min(min_loss, top - second)
        common = best if common == -2 or common == best else -1
    for x in range(n):
        loss = min_loss if common == -2 or common == x else 0.0
        out[x] = max(out[x], unconstrained - loss)


@kernel()
def compute_max_marginals(factors, factor_table, slot, message_start, message, alive, state, out):
    """Write the max-marginals of a slot's factor, for all states of the slot's node, to `out`.

    Args:
        slot: index of the slot.
        message_start: offset of each slot's message in `message`.
        alive: mask of the possible states of all nodes, flat.
        state: scratch whose length is the largest arity.
    """
    f = factors.factor[slot]
    first, stop = factors.start[f], factors.start[f + 1]
    cell = factors.table_start[f]
    if factors.agreement[f]:
        _agreement_max_marginals(factors, factor_table[cell], slot, message_start, message, alive, out)
        return
    n = factors.cardinality[factors.node[slot]]
    step = factors.stride[slot]
    out[:n] = -np.inf
    if stop - first == 2:
        other = 2 * first + 1 - slot
        other_start = factors.state_start[factors.node[other]]
        for y in range(factors.cardinality[factors.node[other]]):
            if alive[other_start + y]:
                for x in range(n):
                    at = cell + x * step + y * factors.stride[other]
                    out[x] = max(out[x], factor_table[at] - message[message_start[other] + y])
        return
    state[:] = 0
    while cell >= 0:
        possible = True
        for q in range(first, stop):
            possible = possible and (q == slot or alive[factors.state_start[factors.node[q]] + state[q - first]])
        if possible:
            for x in range(n):
                value = factor_table[cell + x * step]
                for q in range(first, stop):
                    if q != slot:
                        value -= message[message_start[q] + state[q - first]]
                out[x] = max(out[x], value)
        cell = advance_cell(factors, first, stop, slot, state, cell)


@kernel((FACTORS, float64[::1], float64[::1], int64[::1], boolean[::1], int64[::1], float64[::1], boolean[::1]))
def update_messages(factors, node_table, factor_table, order, has_later_node, message_start, message, alive):
    """Update all messages in one pass over the nodes.

    Args:
        has_later_node: for each slot, whether its factor has a node after the slot's node in `order`.
        message: updated in place.
        alive: updated in place; states that are found to be impossible become False.

    Returns:
        False if some node has no possible state, so that no joint state is possible.
    """
    total = np.empty(max_cardinality(factors))
    out = np.empty(max_cardinality(factors))
    state = np.empty(max_arity(factors), dtype=np.int64)
    for v in order:
        n = factors.cardinality[v]
        first = factors.state_start[v]
        n_later = 0
        top = -np.inf
        for x in range(n):
            total[x] = node_table[first + x] if alive[first + x] else -np.inf
        for t in range(factors.touch_start[v], factors.touch_start[v + 1]):
            slot = factors.touch[t]
            compute_max_marginals(factors, factor_table, slot, message_start, message, alive, state, out)
            for x in range(n):
                total[x] += out[x]
                message[message_start[slot] + x] = out[x]
            if has_later_node[slot]:
                n_later += 1
        for x in range(n):
            top = max(top, total[x])
        if top == -np.inf:
            return False
        for x in range(n):
            alive[first + x] = total[x] > -np.inf
        for t in range(factors.touch_start[v], factors.touch_start[v + 1]):
            slot = factors.touch[t]
            for x in range(n):
                at = message_start[slot] + x
                if not alive[first + x]:
                    message[at] = 0.0
                elif has_later_node[slot]:
                    message[at] -= (total[x] - top) / n_later
    return True


@kernel((FACTORS, float64[::1], float64[::1], int64[::1], float64[::1], boolean[::1]))
def upper_bound(factors, node_table, factor_table, message_start, message, alive):
    """Compute the upper bound on the score of any joint state."""
    out = np.empty(max_cardinality(factors))
    state = np.empty(max_arity(factors), dtype=np.int64)
    bound = 0.0
    for v in range(len(factors.cardinality)):
        top = -np.inf
        for x in range(factors.cardinality[v]):
            at = factors.state_start[v] + x
            if alive[at]:
                value = node_table[at]
                for t in range(factors.touch_start[v], factors.touch_start[v + 1]):
                    value += message[message_start[factors.touch[t]] + x]
                top = max(top, value)
        bound += top
    for f in range(len(factors.start) - 1):
        slot = factors.start[f]
        v = factors.node[slot]
        compute_max_marginals(factors, factor_table, slot, message_start, message, alive, state, out)
        top = -np.inf
        for x in range(factors.cardinality[v]):
            if alive[factors.state_start[v] + x]:
                top = max(top, out[x] - message[message_start[slot] + x])
        bound += top
    return bound


@kernel((FACTORS, float64[::1], float64[::1], int64[::1], int64[::1], float64[::1], boolean[::1], int32[::1]))
def decode(factors, node_table, factor_table, order, message_start, message, alive, states):
    """Set the nodes in reverse `order`, each to its best state given the messages and the nodes set before.

    Args:
        alive: updated in place; only the chosen state of each node remains True.
        states: overwritten by the joint state.
    """
    total = np.empty(max_cardinality(factors))
    out = np.empty(max_cardinality(factors))
    state = np.empty(max_arity(factors), dtype=np.int64)
    for v in order[::-1]:
        n = factors.cardinality[v]
        first = factors.state_start[v]
        for x in range(n):
            total[x] = node_table[first + x]
        for t in range(factors.touch_start[v], factors.touch_start[v + 1]):
            compute_max_marginals(factors, factor_table, factors.touch[t], message_start, message, alive, state, out)
            for x in range(n):
                total[x] += out[x]
        best = -1
        for x in range(n):
            if alive[first + x] and (best < 0 or total[x] > total[best]):
                best = x
        states[v] = best
        for x in range(n):
            alive[first + x] = x == best
