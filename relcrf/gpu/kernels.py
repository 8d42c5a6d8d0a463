"""CUDA kernels of belief propagation on pairwise graphs and its adjoint, and of conditionals of single nodes.

Sums have a fixed order, and no kernel uses atomic operations, so that all runs have the same results.

A *slot* is a node in the scope of a factor: factor f has the slots 2 f and 2 f + 1. The message of a slot goes from the
factor to the node and has an *entry* for each state. `product` is the product of a node's potential and incoming
messages. The *cavity* of a slot is the product without the slot's message. All of them are in logs. Impossible states are
counted as in `kernels.messages`. An *agreement* is a factor with one log potential, for equal states of its nodes.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from numba import cuda, float64

from relcrf.gpu.device import THREADS
from relcrf.kernels.messages import IMPOSSIBLE_CHANGE, MIN_RELIABLE_SUM


class PairGraph(NamedTuple):
    """The structure of a pairwise graph, in arrays on the GPU.

    Args:
        slot: slot of each entry.
        message_start: offset of the entries of each slot, shape (n_slots + 1,).
        first_state: offset of the states of each slot's node.
        table_start: offset of each factor's table; for flooding, also the end of the last table.
        agreement: whether each factor is an agreement, shape (n_factors,).
        node: node of each state.
        state_start: offset of the states of each node, shape (n_nodes + 1,).
        incoming_start, incoming: offsets of the messages to each node, in CSR form.
    """

    slot: Any
    message_start: Any
    first_state: Any
    table_start: Any
    agreement: Any
    node: Any
    state_start: Any
    incoming_start: Any
    incoming: Any


class PairState(NamedTuple):
    """Potentials and messages, in arrays on the GPU.

    Args:
        nodes: log potentials of the nodes.
        scale: largest log potential of each factor.
        logs: log potentials of the factors minus `scale`; those of agreements are not scaled.
        linear: exponentials of `logs`.
        message: log messages with largest entry 0.
        product, n_impossible: product of each state without the terms of -inf, and the number of these terms.
        cavity, linear_cavity: cavity of each entry with largest entry 0, and its exponential.
        new: new log messages, not normalised.
        change: change of each entry in the last round.
    """

    nodes: Any
    scale: Any
    logs: Any
    linear: Any
    message: Any
    product: Any
    n_impossible: Any
    cavity: Any
    linear_cavity: Any
    new: Any
    change: Any


@cuda.jit
def scale_tables(graph, state):
    """Subtract the largest log potential from the table of each factor."""
    f = cuda.grid(1)
    if f >= len(state.scale):
        return
    first, stop = graph.table_start[f], graph.table_start[f + 1]
    if graph.agreement[f]:
        state.scale[f] = max(state.logs[first], 0.0)
        return
    top = -math.inf
    for cell in range(first, stop):
        top = max(top, state.logs[cell])
    top = top if top > -math.inf else 0.0
    state.scale[f] = top
    for cell in range(first, stop):
        state.logs[cell] -= top
        state.linear[cell] = math.exp(state.logs[cell])


@cuda.jit
def combine_messages(graph, state):
    """Compute the product of each state."""
    i = cuda.grid(1)
    if i >= len(state.product):
        return
    v = graph.node[i]
    x = i - graph.state_start[v]
    total, n_impossible = 0.0, 0
    if state.nodes[i] == -math.inf:
        n_impossible = 1
    else:
        total = state.nodes[i]
    for t in range(graph.incoming_start[v], graph.incoming_start[v + 1]):
        value = state.message[graph.incoming[t] + x]
        if value == -math.inf:
            n_impossible += 1
        else:
            total += value
    state.product[i], state.n_impossible[i] = total, n_impossible


@cuda.jit(device=True)
def _product_without(state, entry, i):
    """Return the product of state i without the message entry."""
    value, n_impossible = state.message[entry], state.n_impossible[i]
    if value == -math.inf:
        return state.product[i] if n_impossible == 1 else -math.inf
    return state.product[i] - value if n_impossible == 0 else -math.inf


@cuda.jit
def compute_cavities(graph, state):
    """Compute the cavity of each entry."""
    entry = cuda.grid(1)
    if entry >= len(state.message):
        return
    slot = graph.slot[entry]
    first = graph.message_start[slot]
    top = -math.inf
    for each in range(first, graph.message_start[slot + 1]):
        top = max(top, _product_without(state, each, graph.first_state[slot] + each - first))
    value = _product_without(state, entry, graph.first_state[slot] + entry - first)
    value = value - top if top > -math.inf else math.nan
    state.cavity[entry], state.linear_cavity[entry] = value, math.exp(value)


@cuda.jit(device=True)
def _locate_row(graph, entry):
    """Return the location of the row of a factor's table that belongs to an entry; the cells of an agreement do not exist.

    Returns:
        The slot and the state of the entry; the first entry of the factor's other slot, and the number of its entries; and
        the first cell of the row, and the distance of its cells.
    """
    slot = graph.slot[entry]
    own, first = graph.message_start[slot], graph.message_start[slot ^ 1]
    n = graph.message_start[(slot ^ 1) + 1] - first
    x, cell = entry - own, graph.table_start[slot >> 1]
    if slot & 1 == 0:
        return slot, x, first, n, cell + x * n, 1
    return slot, x, first, n, cell + x, graph.message_start[slot + 1] - own


@cuda.jit
def compute_messages(graph, state, maximum):
    """Compute each entry of the new messages by the sum-product, or the max-product, of a row of the table and a cavity."""
    entry = cuda.grid(1)
    if entry >= len(state.message):
        return
    slot, x, first, n, begin, step = _locate_row(graph, entry)
    is_agreement = graph.agreement[slot >> 1]
    agreeing, differing = 0.0, 0.0
    if is_agreement:
        weight = state.logs[graph.table_start[slot >> 1]]
        agreeing, differing = min(weight, 0.0), min(-weight, 0.0)
    if not maximum:
        total = 0.0
        if is_agreement:
            for y in range(n):
                if y != x:
                    total += state.linear_cavity[first + y]
            total = math.exp(differing) * total + math.exp(agreeing) * state.linear_cavity[first + x]
        else:
            for y in range(n):
                total += state.linear[begin + y * step] * state.linear_cavity[first + y]
        if total >= MIN_RELIABLE_SUM:
            state.new[entry] = math.log(total)
            return
    top, total = -math.inf, 0.0
    for accumulate in range(1 if maximum else 2):
        for y in range(n):
            if is_agreement:
                value = state.cavity[first + y] + (agreeing if y == x else differing)
            else:
                value = state.cavity[first + y] + state.logs[begin + y * step]
            if accumulate == 0:
                top = value if value > top else top
            elif value > -math.inf:
                total += math.exp(value - top)
    state.new[entry] = top if maximum or top == -math.inf else top + math.log(total)


@cuda.jit
def update_messages(graph, state, damping):
    """Normalise and damp the new messages, and store the change of each entry; it is nan if no state is possible."""
    entry = cuda.grid(1)
    if entry >= len(state.message):
        return
    slot = graph.slot[entry]
    top = -math.inf
    for each in range(graph.message_start[slot], graph.message_start[slot + 1]):
        top = max(top, state.new[each])
    value = state.new[entry] - top if top > -math.inf else math.nan
    previous = state.message[entry]
    if damping > 0.0 and previous > -math.inf and value > -math.inf:
        value = damping * previous + (1.0 - damping) * value
    state.message[entry] = value
    if value == -math.inf or previous == -math.inf:
        state.change[entry] = 0.0 if value == previous else IMPOSSIBLE_CHANGE
    else:
        state.change[entry] = abs(value - previous)


@cuda.jit
def find_largest(values, out):
    """Compute the largest of every len(out)-th value, or nan if one of them is nan; the host compares the results."""
    first = cuda.grid(1)
    if first >= len(out):
        return
    top = -math.inf
    for i in range(first, len(values), len(out)):
        top = values[i] if values[i] > top or values[i] != values[i] else top
    out[first] = top


@cuda.jit(device=True)
def _log_belief(graph, state, slot, begin, x, y):
    """Return the log belief, not normalised, of a factor with the first slot `slot` in states x and y."""
    second = graph.message_start[slot + 1]
    value = _product_without(state, graph.message_start[slot] + x, graph.first_state[slot] + x)
    value += _product_without(state, second + y, graph.first_state[slot + 1] + y)
    if graph.agreement[slot >> 1]:
        return value + (min(state.logs[begin], 0.0) if x == y else min(-state.logs[begin], 0.0))
    return value + state.logs[begin + x * (graph.message_start[slot + 2] - second) + y]


@cuda.jit
def compute_factor_beliefs(graph, state, beliefs, log_partition):
    """Compute the belief of each factor and its log partition; the belief of an agreement is the probability of agreement."""
    f = cuda.grid(1)
    if f >= len(log_partition):
        return
    slot, begin = 2 * f, graph.table_start[f]
    k = graph.message_start[slot + 1] - graph.message_start[slot]
    n = graph.message_start[slot + 2] - graph.message_start[slot + 1]
    top, total, agreeing = -math.inf, 0.0, 0.0
    for accumulate in range(2):
        for x in range(k):
            for y in range(n):
                value = _log_belief(graph, state, slot, begin, x, y)
                if accumulate == 0:
                    top = max(top, value)
                    continue
                value = math.exp(value - top) if top > -math.inf else math.nan
                total += value
                if not graph.agreement[f]:
                    beliefs[begin + x * n + y] = value
                elif x == y:
                    agreeing += value
    if graph.agreement[f]:
        beliefs[begin] = agreeing / total
    else:
        for cell in range(begin, graph.table_start[f + 1]):
            beliefs[cell] /= total
    log_partition[f] = top + math.log(total) + state.scale[f] if top > -math.inf else -math.inf


@cuda.jit
def compute_node_beliefs(graph, state, beliefs):
    """Compute the log belief, not normalised, of each state."""
    i = cuda.grid(1)
    if i < len(beliefs):
        beliefs[i] = state.product[i] if state.n_impossible[i] == 0 else -math.inf


@cuda.jit
def add_messages(graph, nodes, message, total):
    """Compute, for each state, the sum of `nodes` and the entries of all messages to the state; `total` may be `nodes`."""
    i = cuda.grid(1)
    if i >= len(total):
        return
    v = graph.node[i]
    x, value = i - graph.state_start[v], nodes[i]
    for t in range(graph.incoming_start[v], graph.incoming_start[v + 1]):
        value += message[graph.incoming[t] + x]
    total[i] = value


@cuda.jit
def compute_gated_messages(graph, gate, tables, total, message, new):
    """Compute the new messages, not normalised, of pairs whose log potentials are gate * table; see `kernels.gated_tables`."""
    entry = cuda.grid(1)
    if entry >= len(new):
        return
    slot, _, first, n, cell, step = _locate_row(graph, entry)
    state, g = graph.first_state[slot ^ 1], gate[slot >> 1]
    top, result = -math.inf, 0.0
    for y in range(n):
        top = max(top, total[state + y] - message[first + y] + g * tables[cell + y * step])
    for y in range(n):
        result += math.exp(total[state + y] - message[first + y] + g * tables[cell + y * step] - top)
    new[entry] = top + math.log(result)


@cuda.jit
def normalise_messages(graph, new, message):
    """Subtract the largest entry of each message."""
    entry = cuda.grid(1)
    if entry >= len(new):
        return
    slot, top = graph.slot[entry], -math.inf
    for each in range(graph.message_start[slot], graph.message_start[slot + 1]):
        top = max(top, new[each])
    message[entry] = new[entry] - top


@cuda.jit
def differentiate_messages(graph, d_total, d_cavity, d_message):
    """Compute the derivative of each entry of the messages: that of the total minus that of the cavity."""
    entry = cuda.grid(1)
    if entry < len(d_message):
        slot = graph.slot[entry]
        state = graph.first_state[slot] + entry - graph.message_start[slot]
        d_message[entry] = d_total[state] - d_cavity[entry]


@cuda.jit
def differentiate_cavities(graph, gate, tables, total, message, new, d_message, d_cavity):
    """Compute the derivative of each entry of the cavities, from which `new` was computed."""
    entry = cuda.grid(1)
    if entry >= len(d_cavity):
        return
    slot, x, first, n, cell, step = _locate_row(graph, entry)
    cavity, g = total[graph.first_state[slot] + x] - message[entry], gate[slot >> 1]
    result = 0.0
    for y in range(n):
        result += d_message[first + y] * math.exp(cavity + g * tables[cell + y * step] - new[first + y])
    d_cavity[entry] = result


@cuda.jit
def differentiate_tables(graph, pair, cell_start, gate, tables, total, message, new, d_message, d_cells):
    """Add, for each cell of each pair, the derivative with respect to gate * table.

    Args:
        pair: pair of each cell.
        cell_start: offset of the cells of each pair, shape (n_pairs + 1,).
    """
    cell = cuda.grid(1)
    if cell >= len(d_cells):
        return
    p = pair[cell]
    first, second, stop = (
        graph.message_start[2 * p],
        graph.message_start[2 * p + 1],
        graph.message_start[2 * p + 2],
    )
    n, within = stop - second, cell - cell_start[p]
    x, y = within // n, within % n
    log = gate[p] * tables[graph.table_start[p] + within]
    by_first = total[graph.first_state[2 * p] + x] - message[first + x] + log - new[second + y]
    by_second = total[graph.first_state[2 * p + 1] + y] - message[second + y] + log - new[first + x]
    d_cells[cell] += d_message[second + y] * math.exp(by_first) + d_message[first + x] * math.exp(by_second)


@cuda.jit
def differentiate_gates(graph, cell_start, gate, tables, d_cells, d_gate):
    """Compute the derivative with respect to each gate, and multiply `d_cells` by the gates."""
    p = cuda.grid(1)
    if p >= len(d_gate):
        return
    total = 0.0
    for cell in range(cell_start[p], cell_start[p + 1]):
        total += d_cells[cell] * tables[graph.table_start[p] + cell - cell_start[p]]
        d_cells[cell] *= gate[p]
    d_gate[p] = total


@cuda.jit
def normalise(start, tables, log_partition):
    """Convert the log potentials of each node to probabilities, in place, and compute their log partitions.

    Args:
        start: offset of each node's states, shape (n_nodes + 1,).
    """
    v = cuda.grid(1)
    if v >= len(log_partition):
        return
    top, total = -math.inf, 0.0
    for i in range(start[v], start[v + 1]):
        top = max(top, tables[i])
    for i in range(start[v], start[v + 1]):
        tables[i] = math.exp(tables[i] - top) if top > -math.inf else math.nan
        total += tables[i]
    for i in range(start[v], start[v + 1]):
        tables[i] /= total
    log_partition[v] = top + math.log(total) if top > -math.inf else -math.inf


@cuda.jit
def multiply(start, column, value, vector, added, out):
    """Compute the product of a sparse matrix in CSR form and a vector, plus `added`; one thread per row."""
    row = cuda.grid(1)
    if row >= len(out):
        return
    total = added[row]
    for i in range(start[row], start[row + 1]):
        total += value[i] * vector[column[i]]
    out[row] = total


@cuda.jit
def sum_chunks(start, column, value, vector, out):
    """Compute the sum of `value * vector[column]` over each chunk of entries; one block per chunk, which sums in a tree.

    Args:
        start: offset of each chunk's entries, shape (n_chunks + 1,).
    """
    sums = cuda.shared.array(THREADS, float64)
    chunk, thread = cuda.blockIdx.x, cuda.threadIdx.x
    total = 0.0
    for i in range(start[chunk] + thread, start[chunk + 1], THREADS):
        total += value[i] * vector[column[i]]
    sums[thread] = total
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if thread < half:
            sums[thread] += sums[thread + half]
        cuda.syncthreads()
        half //= 2
    if thread == 0:
        out[chunk] = sums[0]


@cuda.jit
def sum_runs(start, values, out):
    """Compute the sum of each run of values, in order.

    Args:
        start: offset of each run, shape (n_runs + 1,).
    """
    run = cuda.grid(1)
    if run >= len(out):
        return
    total = 0.0
    for i in range(start[run], start[run + 1]):
        total += values[i]
    out[run] = total
