"""What messages, as logs, say in the end: distributions, the Bethe free energy, and a joint state."""

from __future__ import annotations

import numpy as np
from numba import boolean, int32, int64

from relcrf.kernels.compile import allocation_free_kernel, inline_kernel
from relcrf.kernels.factors import advance_cell
from relcrf.kernels.forest import normalise
from relcrf.kernels.messages import (
    FLAT,
    LONG,
    NETWORK,
    SCRATCH,
    STATE,
    TABLES,
    compute_agreement,
    compute_cavity,
    compute_message,
    semiring_add,
)


@allocation_free_kernel(NETWORK, TABLES, STATE, SCRATCH, FLAT, FLAT, FLAT)
def compute_beliefs(net, tables, state, work, count, nodes, factors):
    """Distributions of all nodes and factors, written to flat arrays; of an agreement, the probability that its nodes agree.

    Args:
        tables: whose messages are sums, in logs.
        count: overwritten, shape (n_nodes,): how often each node counts, once less than its factors appear.

    Returns:
        minus the Bethe free energy: the sum of the factors' log partitions, each as often as its appearance says, less
        those of the nodes as often as they were counted too much.
    """
    cavities, without, alike, differ, digit = work[0], work[2], work[4], work[5], work[6]
    total = 0.0
    count[:] = 1.0
    for f in range(len(net.factors.start) - 1):
        first, stop = net.factors.start[f], net.factors.start[f + 1]
        value = 0.0
        for q in range(first, stop):
            value += compute_cavity(net, tables, state, q, cavities[q - first])
            count[net.factors.node[q]] -= net.appearance[f]
        begin = net.factors.table_start[f]
        if net.factors.agreement[f]:
            weight = tables.logs[begin]
            compute_agreement(net, tables.log, tables.maximum, weight, first, cavities, without, alike, differ)
            k = net.factors.cardinality[net.factors.node[first]]
            for x in range(k):
                alike[x] += cavities[0, x]
                differ[x] += cavities[0, x]
            together, apart = normalise(alike[:k]), normalise(differ[:k])
            either = semiring_add(together, apart, tables.log, tables.maximum)
            value += either + max(weight, 0.0)
            factors[begin] = np.exp(together - either)
        else:
            digit[:] = 0
            cell = begin
            while cell >= 0:
                factors[cell] = tables.logs[cell]
                for q in range(first, stop):
                    factors[cell] += cavities[q - first, digit[q - first]]
                cell = advance_cell(net.factors, first, stop, first - 1, digit, cell)
            value += normalise(factors[begin : net.factors.table_start[f + 1]])
        total += net.appearance[f] * value
    for v in range(len(net.factors.cardinality)):
        first, stop = net.factors.state_start[v], net.factors.state_start[v + 1]
        for x in range(first, stop):
            nodes[x] = -np.inf if state.barred[x] > 0 else state.product[x]
        total += count[v] * normalise(nodes[first:stop])
    return total


@inline_kernel
def _find_best_state(net, tables, state, v, states, work):
    """The best state of a node, given the states of those that have one (not -1) and the messages of all others."""
    k = net.factors.cardinality[v]
    cavities, new, value = work[0], work[3][0], work[5]
    for x in range(k):
        value[x] = tables.nodes[net.factors.state_start[v] + x]
    for i in range(net.factors.touch_start[v], net.factors.touch_start[v + 1]):
        place = net.factors.touch[i]
        f = net.factors.factor[place]
        first, stop = net.factors.start[f], net.factors.start[f + 1]
        any_known = False
        for q in range(first, stop):
            any_known = any_known or (q != place and states[net.factors.node[q]] >= 0)
        if any_known:
            for q in range(first, stop):
                w = net.factors.node[q]
                if q != place and states[w] >= 0:
                    for x in range(net.factors.cardinality[w]):
                        cavities[q - first, x] = -np.inf
                    cavities[q - first, states[w]] = 0.0
                elif q != place:
                    compute_cavity(net, tables, state, q, cavities[q - first])
            compute_message(net, tables, place, work, new)
        else:
            m = net.message_start[place]
            for x in range(k):
                new[x] = state.message[m + x]
        for x in range(k):
            value[x] += net.appearance[f] * new[x]
    best = 0
    for x in range(1, k):
        if value[x] > value[best]:
            best = x
    if states[v] >= 0 and not value[best] > value[states[v]]:
        best = states[v]
    return best


@allocation_free_kernel(NETWORK, TABLES, STATE, SCRATCH, int64, LONG, boolean[::1], int32[::1])
def decode(net, tables, state, work, most, queue, queued, states):
    """A joint state: node by node outwards from one of each component, given those before; then each node given all others,
    as long as that betters the score.

    Args:
        tables: whose messages are maxima of logs. most: rounds of betterment.
        queue, queued: overwritten, shape (n_nodes,), int64; bool, False at first.
        states: overwritten, shape (n_nodes,), int32.
    """
    n_nodes = len(net.factors.cardinality)
    states[:] = -1
    head, tail = 0, 0
    for root in range(n_nodes):
        if not queued[root]:
            queue[tail] = root
            queued[root] = True
            tail += 1
        while head < tail:
            v = queue[head]
            head += 1
            states[v] = _find_best_state(net, tables, state, v, states, work)
            for i in range(net.factors.touch_start[v], net.factors.touch_start[v + 1]):
                f = net.factors.factor[net.factors.touch[i]]
                for q in range(net.factors.start[f], net.factors.start[f + 1]):
                    if not queued[net.factors.node[q]]:
                        queue[tail] = net.factors.node[q]
                        queued[net.factors.node[q]] = True
                        tail += 1
    for _ in range(most):
        changed = False
        for v in range(n_nodes):
            best = _find_best_state(net, tables, state, v, states, work)
            if best != states[v]:
                states[v] = best
                changed = True
        if not changed:
            break
