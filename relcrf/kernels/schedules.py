"""In which order messages of belief propagation are sent: all at once, node by node, or the one that changes most first."""

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
    """Makes the products of all nodes."""
    for v in range(len(net.factors.cardinality)):
        compute_product(net, tables, state, v)


@allocation_free_kernel(NETWORK, TABLES, STATE, SCRATCH, LONG, FLAT, LONG)
def flood(net, tables, state, work, factors, product, barred):
    """One round of flooding over some factors: all their messages anew from the state's products.

    Args:
        factors: which. product, barred: what the new messages make of the nodes, as those of the state.

    Returns:
        the largest change of a message; nan where a node or factor has nothing that can be.
    """
    new = work[3]
    most = 0.0
    for f in factors:
        first, stop = net.factors.start[f], net.factors.start[f + 1]
        for place in range(first, stop):
            change = compute_update(net, tables, state, place, work, new[place - first])
            most = change if not change <= most else most
        for place in range(first, stop):
            store_message(net, place, new[place - first], state.message)
            absorb_message(net, tables, place, product, barred, state.message)
        if np.isnan(most):
            return most
    return most


@allocation_free_kernel(NETWORK, TABLES, STATE, SCRATCH, boolean)
def sweep(net, tables, state, work, backwards):
    """Visits each node in order, or in the order reversed, and sends all that its factors say to their other nodes.

    Returns:
        the largest change of a message; nan where a node or factor has nothing that can be.
    """
    new = work[3][0]
    n_nodes = len(net.factors.cardinality)
    most = 0.0
    for visit in range(n_nodes):
        v = n_nodes - 1 - visit if backwards else visit
        compute_product(net, tables, state, v)
        for i in range(net.factors.touch_start[v], net.factors.touch_start[v + 1]):
            f = net.factors.factor[net.factors.touch[i]]
            first, stop = net.factors.start[f], net.factors.start[f + 1]
            if stop - first > 2:
                for place in range(first, stop):
                    compute_product(net, tables, state, net.factors.node[place])
            for place in range(first, stop):
                if place == net.factors.touch[i]:
                    continue
                change = compute_update(net, tables, state, place, work, new)
                most = change if not change <= most else most
                store_message(net, place, new, state.message)
                if stop - first > 2:
                    compute_product(net, tables, state, net.factors.node[place])
        if np.isnan(most):
            return most
    return most


@inline_kernel
def _update_key(largest, place, key):
    """Gives a place a new key in the tournament, up to where another one wins anyway."""
    seat = (len(largest) >> 1) + place
    largest[seat] = key
    while seat > 1:
        seat >>= 1
        top = max(largest[2 * seat], largest[2 * seat + 1])
        if top == largest[seat]:
            break
        largest[seat] = top


@inline_kernel
def _find_winner(largest):
    """The place with the largest key, the first of equal ones."""
    seat = 1
    while 2 * seat < len(largest):
        seat = 2 * seat + int(largest[2 * seat] < largest[seat])
    return seat - (len(largest) >> 1)


@allocation_free_kernel(NETWORK, TABLES, STATE, SCRATCH, FLAT, FLAT)
def compute_pending(net, tables, state, work, pending, change):
    """Works out every message that could be sent.

    Args:
        pending: as the messages, overwritten. change: the largest change of each, shape (n_places,), overwritten.
    """
    new = work[3][0]
    for place in range(len(net.factors.node)):
        change[place] = compute_update(net, tables, state, place, work, new)
        store_message(net, place, new, pending)


@allocation_free_kernel(NETWORK, TABLES, STATE, SCRATCH, FLAT, FLAT, float64, int64)
def send_by_residual(net, tables, state, work, pending, largest, tolerance, most):
    """Sends the message that changes most, works out anew those that depend on it, and so on.

    Args:
        pending: of `pend`. largest: the changes as a tournament, shape (2 n,) where n is a power of two and at least n_places:
            those of the places from n on, 0 behind them, and at each seat i from 1 on the larger one of 2 i and 2 i + 1.
        most: messages to send; fewer where none changes by more than `tolerance`.

    Returns:
        the largest change that is pending; nan where a node or factor has nothing that can be.
    """
    new = work[3][0]
    for _ in range(most):
        if largest[1] <= tolerance:
            break
        place = _find_winner(largest)
        v = net.factors.node[place]
        m = net.message_start[place]
        for x in range(net.factors.cardinality[v]):
            state.message[m + x] = pending[m + x]
        compute_product(net, tables, state, v)
        _update_key(largest, place, 0.0)
        for i in range(net.factors.touch_start[v], net.factors.touch_start[v + 1]):
            through = net.factors.touch[i]
            f = net.factors.factor[through]
            for other in range(net.factors.start[f], net.factors.start[f + 1]):
                # What was sent tells on itself if it was damped, and on its own factor if that is reweighted.
                if other == through and (other != place or tables.damping == 0.0):
                    continue
                if other != through and through == place and net.appearance[f] == 1.0:
                    continue
                change = compute_update(net, tables, state, other, work, new)
                if np.isnan(change):
                    return change
                at = net.message_start[other]
                for x in range(net.factors.cardinality[net.factors.node[other]]):
                    pending[at + x] = new[x]
                _update_key(largest, other, change)
    return largest[1]
