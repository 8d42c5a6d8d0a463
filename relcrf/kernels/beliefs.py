"""Results computed from the messages of belief propagation: beliefs, the Bethe free energy, and a joint state."""

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


@allocation_free_kernel(NETWORK, TABLES, STATE, SCRATCH, FLAT, FLAT, FLAT, FLAT)
def compute_beliefs(net, tables, state, scratch, count, belief, nodes, factors):
    """Write the beliefs of all nodes and factors to the flat arrays `nodes` and, unless it is empty, `factors`.

    The belief of an *agreement* factor is one number: the probability that all its nodes have the same state.

    Args:
        tables: the potentials, in the form for sum-product with log messages.
        count: overwritten by the counting number of each node, shape (n_nodes,). The counting number is 1 minus the sum
            of the appearance probabilities of the node's factors.
        belief: scratch for the belief of one factor, shape (largest number of cells,).

    Returns:
        Minus the Bethe free energy: the sum over factors of appearance probability * log partition, plus the sum over
        nodes of counting number * log partition.
    """
    cavities, without, agreeing, differing, state_index = scratch[0], scratch[2], scratch[4], scratch[5], scratch[6]
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
            compute_agreement(net, tables.log, tables.maximum, weight, first, cavities, without, agreeing, differing)
            k = net.factors.cardinality[net.factors.node[first]]
            for x in range(k):
                agreeing[x] += cavities[0, x]
                differing[x] += cavities[0, x]
            log_agreeing, log_differing = normalise(agreeing[:k]), normalise(differing[:k])
            log_either = semiring_add(log_agreeing, log_differing, tables.log, tables.maximum)
            value += log_either + max(weight, 0.0)
            belief[0] = np.exp(log_agreeing - log_either)
        else:
            state_index[:] = 0
            cell = begin
            while cell >= 0:
                belief[cell - begin] = tables.logs[cell]
                for q in range(first, stop):
                    belief[cell - begin] += cavities[q - first, state_index[q - first]]
                cell = advance_cell(net.factors, first, stop, first - 1, state_index, cell)
            value += normalise(belief[: net.factors.table_start[f + 1] - begin])
        if len(factors):
            for cell in range(begin, net.factors.table_start[f + 1]):
                factors[cell] = belief[cell - begin]
        total += net.appearance[f] * value
    for v in range(len(net.factors.cardinality)):
        first, stop = net.factors.state_start[v], net.factors.state_start[v + 1]
        for x in range(first, stop):
            nodes[x] = -np.inf if state.n_impossible[x] > 0 else state.product[x]
        total += count[v] * normalise(nodes[first:stop])
    return total


@inline_kernel
def _find_best_state(net, tables, state, v, states, scratch):
    """Return the best state of a node, given decoded states (not -1) and the messages from the rest of the graph."""
    k = net.factors.cardinality[v]
    cavities, new, value = scratch[0], scratch[3][0], scratch[5]
    for x in range(k):
        value[x] = tables.nodes[net.factors.state_start[v] + x]
    for i in range(net.factors.touch_start[v], net.factors.touch_start[v + 1]):
        slot = net.factors.touch[i]
        f = net.factors.factor[slot]
        first, stop = net.factors.start[f], net.factors.start[f + 1]
        any_decoded = False
        for q in range(first, stop):
            any_decoded = any_decoded or (q != slot and states[net.factors.node[q]] >= 0)
        if any_decoded:
            for q in range(first, stop):
                w = net.factors.node[q]
                if q != slot and states[w] >= 0:
                    for x in range(net.factors.cardinality[w]):
                        cavities[q - first, x] = -np.inf
                    cavities[q - first, states[w]] = 0.0
                elif q != slot:
                    compute_cavity(net, tables, state, q, cavities[q - first])
            compute_message(net, tables, slot, scratch, new)
        else:
            m = net.message_start[slot]
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
def decode(net, tables, state, scratch, max_rounds, queue, queued, states):
    """Decode a joint state.

    The first phase visits the nodes of each component in breadth-first order and sets each node to its best state given
    the nodes visited before. The second phase consists of rounds. A round sets every node in turn to its best state
    given all other nodes. The phase ends when a round changes no state.

    Args:
        tables: the potentials, in the form for max-product with log messages.
        max_rounds: maximum number of rounds of the second phase.
        queue, queued: scratch, shape (n_nodes,), int64 and bool; `queued` must be all False on entry.
        states: overwritten by the decoded states, shape (n_nodes,), int32.
    """
    n_nodes = len(net.factors.cardinality)
    states[:] = -1
    root, tail = 0, 0
    for phase in range(max_rounds + 1):  # one loop for both phases, because `_find_best_state` is inlined at each call
        changed = phase == 0
        for step in range(n_nodes):
            v = step
            if phase == 0:
                if step == tail:
                    while queued[root]:
                        root += 1
                    queue[tail] = root
                    queued[root] = True
                    tail += 1
                v = queue[step]
            best = _find_best_state(net, tables, state, v, states, scratch)
            if best != states[v]:
                states[v] = best
                changed = True
            if phase == 0:
                for i in range(net.factors.touch_start[v], net.factors.touch_start[v + 1]):
                    f = net.factors.factor[net.factors.touch[i]]
                    for q in range(net.factors.start[f], net.factors.start[f + 1]):
                        if not queued[net.factors.node[q]]:
                            queue[tail] = net.factors.node[q]
                            queued[net.factors.node[q]] = True
                            tail += 1
        if not changed:
            break
