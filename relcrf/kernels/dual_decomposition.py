"""Dual coordinate ascent for the most probable joint state: messages from factors to nodes that lower an upper bound.

With a message m[f, i] of each factor to each of its nodes, no joint state scores more than

    sum over nodes i of max (node[i] + sum over f of m[f, i])  +  sum over factors f of max (factor[f] - sum over i of m[f, i])

Going through the nodes in an order, each takes all that its factors can give (their max-marginals) and hands it on in equal
shares to those factors that have a later node. No such step raises the bound, and on a forest whose nodes come children
first one pass makes it tight.

What cannot be is not sent in messages: a state that some factor rules out is struck from `alive`, for good.
"""

from __future__ import annotations

import numpy as np
from numba import boolean, float64, int32, int64

from relcrf.kernels.compile import kernel
from relcrf.kernels.factors import FACTORS, advance_cell, max_arity, max_cardinality


@kernel()
def _agreement_max_marginals(factors, weight, place, message_start, message, alive, out):
    """`pull` of an agreement: all others agree and count its weight, or they are each at their best and do not all agree."""
    f = factors.factor[place]
    n = factors.cardinality[factors.node[place]]
    free = 0.0
    for p in range(factors.start[f], factors.start[f + 1]):
        if p != place:
            top = -np.inf
            for x in range(n):
                if alive[factors.state_start[factors.node[p]] + x]:
                    top = max(top, -message[message_start[p] + x])
            free += top
    for x in range(n):
        together = weight
        least = np.inf  # what it costs at least that one of them is elsewhere
        for p in range(factors.start[f], factors.start[f + 1]):
            if p == place:
                continue
            first = factors.state_start[factors.node[p]]
            top = -np.inf
            elsewhere = -np.inf
            for y in range(n):
                if alive[first + y]:
                    top = max(top, -message[message_start[p] + y])
                    if y != x:
                        elsewhere = max(elsewhere, -message[message_start[p] + y])
            together += -message[message_start[p] + x] if alive[first + x] else -np.inf
            least = min(least, top - elsewhere)
        out[x] = max(together, free - least)


@kernel()
def compute_max_marginals(factors, factor_table, place, message_start, message, alive, state, out):
    """The best that a factor can give each state of one of its nodes, less its messages to the others; into `out`.

    Args:
        place: the node's, in the scopes' `node`.
        message_start: where each place's message begins in `message`.
        alive: which states of all nodes are left, flat. state: scratch, the largest arity.
    """
    f = factors.factor[place]
    first, stop = factors.start[f], factors.start[f + 1]
    cell = factors.table_start[f]
    if factors.agreement[f]:
        _agreement_max_marginals(factors, factor_table[cell], place, message_start, message, alive, out)
        return
    n = factors.cardinality[factors.node[place]]
    step = factors.stride[place]
    out[:n] = -np.inf
    if stop - first == 2:
        other = 2 * first + 1 - place
        alone = factors.state_start[factors.node[other]]
        for y in range(factors.cardinality[factors.node[other]]):
            if alive[alone + y]:
                for x in range(n):
                    at = cell + x * step + y * factors.stride[other]
                    out[x] = max(out[x], factor_table[at] - message[message_start[other] + y])
        return
    state[:] = 0
    while cell >= 0:
        can_be = True
        for q in range(first, stop):
            can_be = can_be and (q == place or alive[factors.state_start[factors.node[q]] + state[q - first]])
        if can_be:
            for x in range(n):
                value = factor_table[cell + x * step]
                for q in range(first, stop):
                    if q != place:
                        value -= message[message_start[q] + state[q - first]]
                out[x] = max(out[x], value)
        cell = advance_cell(factors, first, stop, place, state, cell)


@kernel((FACTORS, float64[::1], float64[::1], int64[::1], boolean[::1], int64[::1], float64[::1], boolean[::1]))
def update_messages(factors, node_table, factor_table, order, goes_on, message_start, message, alive):
    """One pass over the nodes.

    Args:
        goes_on: for each place, whether its factor has a node later in `order`.
        message: changed. alive: changed where states turn out to be impossible.

    Returns:
        False where some node has no state left: no joint state is possible.
    """
    total = np.empty(max_cardinality(factors))
    out = np.empty(max_cardinality(factors))
    state = np.empty(max_arity(factors), dtype=np.int64)
    for v in order:
        n = factors.cardinality[v]
        first = factors.state_start[v]
        n_on = 0
        top = -np.inf
        for x in range(n):
            total[x] = node_table[first + x] if alive[first + x] else -np.inf
        for t in range(factors.touch_start[v], factors.touch_start[v + 1]):
            place = factors.touch[t]
            compute_max_marginals(factors, factor_table, place, message_start, message, alive, state, out)
            for x in range(n):
                total[x] += out[x]
                message[message_start[place] + x] = out[x]
            if goes_on[place]:
                n_on += 1
        for x in range(n):
            top = max(top, total[x])
        if top == -np.inf:
            return False
        for x in range(n):
            alive[first + x] = total[x] > -np.inf
        for t in range(factors.touch_start[v], factors.touch_start[v + 1]):
            place = factors.touch[t]
            for x in range(n):
                at = message_start[place] + x
                if not alive[first + x]:
                    message[at] = 0.0
                elif goes_on[place]:
                    message[at] -= (total[x] - top) / n_on
    return True


@kernel((FACTORS, float64[::1], float64[::1], int64[::1], float64[::1], boolean[::1]))
def upper_bound(factors, node_table, factor_table, message_start, message, alive):
    """What no joint state can exceed."""
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
        place = factors.start[f]
        v = factors.node[place]
        compute_max_marginals(factors, factor_table, place, message_start, message, alive, state, out)
        top = -np.inf
        for x in range(factors.cardinality[v]):
            if alive[factors.state_start[v] + x]:
                top = max(top, out[x] - message[message_start[place] + x])
        bound += top
    return bound


@kernel((FACTORS, float64[::1], float64[::1], int64[::1], int64[::1], float64[::1], boolean[::1], int32[::1]))
def decode(factors, node_table, factor_table, order, message_start, message, alive, states):
    """Sets one node after the other, in `order` from the end, to what is best given those set and the messages.

    Args:
        alive: changed: of each node its state alone is left. states: overwritten.
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
