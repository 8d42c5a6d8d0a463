"""Message schedules of belief propagation: flooding, sequential sweeps over nodes, and residual scheduling.

A *slot* is a node in the scope of a factor; its message goes from factor to node. *Pending* messages are not yet sent.
"""

from __future__ import annotations

import numpy as np
from numba import boolean, float64, int64

from relcrf.kernels.compile import allocation_free_kernel, inline_kernel
from relcrf.kernels.messages import (
    FLAT,
    LONG,
    NETWORK,
    SCRATCH,
    STATE,
    TABLES,
    absorb_message,
    compute_product,
    compute_update,
    store_message,
)


@allocation_free_kernel(NETWORK, TABLES, STATE)
def compute_products(net, tables, state):
    """Compute the product of the potential and the incoming messages of each node."""
    for v in range(len(net.factors.cardinality)):
        compute_product(net, tables, state, v)


@allocation_free_kernel(NETWORK, TABLES, STATE, SCRATCH, LONG, FLAT, LONG)
def flood(net, tables, state, scratch, factors, product, n_impossible):
    """Run one round of flooding over some factors: update all their messages from the products in `state`.

    Args:
        factors: indices of the factors.
        product, n_impossible: updated in place, laid out as in `state`: the new messages are multiplied into `product`,
            and their impossible states are counted in `n_impossible`.

    Returns:
        The largest change of a message; nan if a node or factor has no possible state.
    """
    new = scratch[3]
    max_change = 0.0
    for f in factors:
        first, stop = net.factors.start[f], net.factors.start[f + 1]
        for slot in range(first, stop):
            change = compute_update(net, tables, state, slot, scratch, new[slot - first])
            max_change = change if not change <= max_change else max_change
        for slot in range(first, stop):
            store_message(net, slot, new[slot - first], state.message)
            absorb_message(net, tables, slot, product, n_impossible, state.message)
        if np.isnan(max_change):
            return max_change
    return max_change


@allocation_free_kernel(NETWORK, TABLES, STATE, SCRATCH, boolean)
def sweep(net, tables, state, scratch, backwards):
    """Visit the nodes in order, or in reverse order, and update the messages of each node's factors to other nodes.

    Returns:
        The largest change of a message; nan if a node or factor has no possible state.
    """
    new = scratch[3][0]
    n_nodes = len(net.factors.cardinality)
    max_change = 0.0
    for step in range(n_nodes):
        v = n_nodes - 1 - step if backwards else step
        compute_product(net, tables, state, v)
        for i in range(net.factors.touch_start[v], net.factors.touch_start[v + 1]):
            f = net.factors.factor[net.factors.touch[i]]
            first, stop = net.factors.start[f], net.factors.start[f + 1]
            if stop - first > 2:
                for slot in range(first, stop):
                    compute_product(net, tables, state, net.factors.node[slot])
            for slot in range(first, stop):
                if slot == net.factors.touch[i]:
                    continue
                change = compute_update(net, tables, state, slot, scratch, new)
                max_change = change if not change <= max_change else max_change
                store_message(net, slot, new, state.message)
                if stop - first > 2:
                    compute_product(net, tables, state, net.factors.node[slot])
        if np.isnan(max_change):
            return max_change
    return max_change


@inline_kernel
def _update_key(largest, slot, key):
    """Set the key of a slot in the tournament tree `largest`; update the leaf's ancestors until one is unchanged."""
    node = (len(largest) >> 1) + slot
    largest[node] = key
    while node > 1:
        node >>= 1
        top = max(largest[2 * node], largest[2 * node + 1])
        if top == largest[node]:
            break
        largest[node] = top


@inline_kernel
def _find_winner(largest):
    """Return the slot with the largest key; ties go to the first slot."""
    node = 1
    while 2 * node < len(largest):
        node = 2 * node + int(largest[2 * node] < largest[node])
    return node - (len(largest) >> 1)


@allocation_free_kernel(NETWORK, TABLES, STATE, SCRATCH, FLAT, FLAT)
def compute_pending(net, tables, state, scratch, pending, change):
    """Compute the pending value of every message.

    Args:
        pending: overwritten by the pending messages, in the layout of `state.message`.
        change: for each message, overwritten by the largest change of an entry, shape (n_slots,).
    """
    new = scratch[3][0]
    for slot in range(len(net.factors.node)):
        change[slot] = compute_update(net, tables, state, slot, scratch, new)
        store_message(net, slot, new, pending)


@allocation_free_kernel(NETWORK, TABLES, STATE, SCRATCH, FLAT, FLAT, float64, int64)
def send_by_residual(net, tables, state, scratch, pending, largest, tolerance, max_messages):
    """Send the message with the largest pending change, recompute the messages that depend on it, and repeat.

    Args:
        pending: pending messages, as `compute_pending` computes them; updated in place.
        largest: tournament tree of the changes, shape (2 n,), where n >= n_slots is a power of two. The leaves, from
            index n on, are the changes of slots, padded with 0; node i >= 1 is the maximum of nodes 2 i and 2 i + 1.
        max_messages: maximum number of messages to send; the kernel stops earlier if no change exceeds `tolerance`.

    Returns:
        The largest pending change; nan if a node or factor has no possible state.
    """
    new = scratch[3][0]
    for _ in range(max_messages):
        if largest[1] <= tolerance:
            break
        slot = _find_winner(largest)
        v = net.factors.node[slot]
        m = net.message_start[slot]
        for x in range(net.factors.cardinality[v]):
            state.message[m + x] = pending[m + x]
        compute_product(net, tables, state, v)
        _update_key(largest, slot, 0.0)
        for i in range(net.factors.touch_start[v], net.factors.touch_start[v + 1]):
            neighbour_slot = net.factors.touch[i]
            f = net.factors.factor[neighbour_slot]
            for other in range(net.factors.start[f], net.factors.start[f + 1]):
                # A message depends on its old value only if damped, on its factor's other messages only if reweighted.
                if other == neighbour_slot and (other != slot or tables.damping == 0.0):
                    continue
                if other != neighbour_slot and neighbour_slot == slot and net.appearance[f] == 1.0:
                    continue
                change = compute_update(net, tables, state, other, scratch, new)
                if np.isnan(change):
                    return change
                at = net.message_start[other]
                for x in range(net.factors.cardinality[net.factors.node[other]]):
                    pending[at + x] = new[x]
                _update_key(largest, other, change)
    return largest[1]
