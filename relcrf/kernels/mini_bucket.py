"""Weighted mini-bucket elimination: the passes in both directions, the optimisation of the bound, and decoding.

The nodes of a mini-bucket's table are in order of elimination, so that the eliminated node is axis 0, and the message has one
entry per column. Each message is an input of one later mini-bucket. The mini-buckets therefore form a forest, in which the
passes are those of a junction tree with powers. Impossible states have log potential -inf.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import boolean, float64, int32

from relcrf.kernels.bucket_partition import FLAT, INT, LONG, MINI_BUCKETS, count_cells, table_cells
from relcrf.kernels.compile import inline_kernel, kernel
from relcrf.kernels.vector_math import exp, log

BLOCK_CELLS = 256
"""Number of cells in a block whose offsets in a smaller table are computed once; the offsets then stay in the L1 cache."""

MIN_BELIEF = 1e-30
"""Lower limit of a belief in moment matching; smaller values are dominated by underflow."""

MIN_MARGINAL = 1e-300
"""Lower limit of a marginal in a geometric mean, so that mini-buckets that exclude different states have a mean."""

MIN_WEIGHT = 1e-3
"""Lower limit of a weight before normalisation; power sums divide log potentials by weights."""

ADD, COLLECT, COLLECT_MAXIMUM = 0, 1, 2
"""Directions of `_transfer`."""


class Scratch(NamedTuple):
    """Scratch arrays of the passes.

    Args:
        table: the tables of the mini-buckets of one bucket.
        belief: a belief or table of one mini-bucket.
        offset: offsets of the cells of a block in a smaller table.
        counter: loop counters of the axes.
        total: sums of a block of columns.
    """

    table: np.ndarray
    belief: np.ndarray
    offset: np.ndarray
    counter: np.ndarray
    total: np.ndarray


@kernel()
def _allocate(minis, n_table):
    """Allocate the scratch arrays, with `n_table` cells for tables."""
    _, _, largest = count_cells(minis)
    max_axes = max_size = 1
    for c in range(len(minis.message)):
        max_axes = max(max_axes, minis.start[c + 1] - minis.start[c])
    for size in minis.size:
        max_size = max(max_size, size)
    offset = np.empty(max(BLOCK_CELLS, max_size), dtype=np.int64)
    counter = np.empty(max_axes, dtype=np.int64)
    return Scratch(np.empty(n_table), np.empty(largest), offset, counter, np.empty(BLOCK_CELLS))


@inline_kernel
def _transfer(direction, small, begin, table, origin, size, stride, scratch):
    """Add a smaller table to a table (`ADD`), or the table to the smaller table, or take the maximum of both.

    Args:
        begin, origin: offsets of the smaller table in `small`, and of the table in `table`.
        size, stride: cardinalities of the axes of the table, and strides of the smaller table along these axes.
    """
    offset, counter = scratch.offset, scratch.counter
    axis, length = len(size), 1
    offset[0] = 0
    is_constant = is_equal = True
    while axis > 0 and (length == 1 or length * size[axis - 1] <= BLOCK_CELLS):
        axis -= 1
        if size[axis] > 1:
            is_constant &= stride[axis] == 0
            is_equal &= stride[axis] == length
        for x in range(1, size[axis]):
            for k in range(length):
                offset[x * length + k] = offset[k] + x * stride[axis]
        length *= size[axis]
    for i in range(axis):
        counter[i] = 0
    s, t = begin, origin
    while True:
        if is_constant:
            if direction == ADD:
                value = small[s]
                for k in range(length):
                    table[t + k] += value
            elif direction == COLLECT:
                total = 0.0
                for k in range(length):
                    total += table[t + k]
                small[s] += total
            else:
                top = small[s]
                for k in range(length):
                    top = max(top, table[t + k])
                small[s] = top
        elif direction == ADD:
            if is_equal:
                for k in range(length):
                    table[t + k] += small[s + k]
            else:
                for k in range(length):
                    table[t + k] += small[s + offset[k]]
        elif direction == COLLECT:
            if is_equal:
                for k in range(length):
                    small[s + k] += table[t + k]
            else:
                for k in range(length):
                    small[s + offset[k]] += table[t + k]
        else:
            for k in range(length):
                small[s + offset[k]] = max(small[s + offset[k]], table[t + k])
        t += length
        i = axis - 1
        while i >= 0:
            counter[i] += 1
            s += stride[i]
            if counter[i] < size[i]:
                break
            s -= stride[i] * size[i]
            counter[i] = 0
            i -= 1
        if i < 0:
            break


@kernel()
def _transfer_input(direction, minis, c, k, small, begin, table, origin, scratch):
    """Transfer between the table of mini-bucket `c` and a smaller table in the layout of the mini-bucket's input `k`."""
    size = minis.size[minis.start[c] : minis.start[c + 1]]
    stride = minis.stride[minis.stride_start[k] : minis.stride_start[k + 1]]
    if direction == ADD:
        _transfer(ADD, small, begin, table, origin, size, stride, scratch)
    elif direction == COLLECT:
        _transfer(COLLECT, small, begin, table, origin, size, stride, scratch)
    else:
        _transfer(COLLECT_MAXIMUM, small, begin, table, origin, size, stride, scratch)


@kernel()
def _fill_table(minis, c, values, table, origin, scratch):
    """Write the sum of the inputs of a mini-bucket to its table; return the number of cells."""
    cells = table_cells(minis, c)
    for t in range(origin, origin + cells):
        table[t] = 0.0
    for k in range(minis.input_start[c], minis.input_start[c + 1]):
        _transfer_input(ADD, minis, c, k, values, minis.input[k], table, origin, scratch)
    return cells


@kernel()
def _send_message(minis, c, weight, maximum, values, table, origin, total):
    """Eliminate axis 0 of a mini-bucket's table by a power sum or, if `maximum`, by the maximum."""
    size, at = minis.size[minis.start[c]], minis.message[c]
    columns = table_cells(minis, c) // size
    inverse = 1.0 / weight
    for first in range(0, columns, BLOCK_CELLS):
        n = min(BLOCK_CELLS, columns - first)
        message = values[at + first : at + first + n]
        for j in range(n):
            message[j] = -np.inf
        for x in range(size):
            cells = table[origin + x * columns + first : origin + x * columns + first + n]
            for j in range(n):
                message[j] = max(message[j], cells[j])
        if maximum:
            continue
        for j in range(n):
            total[j] = 0.0
        for x in range(size):
            cells = table[origin + x * columns + first : origin + x * columns + first + n]
            for j in range(n):
                total[j] += exp((cells[j] - max(message[j], -1e308)) * inverse)
        for j in range(n):
            message[j] += weight * log(max(total[j], 1.0))


@kernel()
def _collect_belief(minis, c, weight, maximum, returned, table, origin, belief, collected, scratch):
    """Write the belief of a mini-bucket, collected to its shift table's nodes, to `collected`.

    Args:
        returned: messages that the mini-buckets receive from their parents, in the layout of the flat tables.
    """
    cells, size = table_cells(minis, c), minis.size[minis.start[c]]
    columns = cells // size
    at = minis.message[c]
    top = -np.inf
    for x in range(size):
        for j in range(columns):
            value = table[origin + x * columns + j] + returned[at + j]
            belief[x * columns + j] = value
            top = max(top, value)
    if not maximum:
        inverse = 1.0 / weight
        top = max(top, -1e308)
        for t in range(cells):
            belief[t] = exp((belief[t] - top) * inverse)
    last = minis.input_start[c + 1] - 1
    direction = COLLECT_MAXIMUM if maximum else COLLECT
    _transfer_input(direction, minis, c, last, collected, minis.shift[c], belief, 0, scratch)


@kernel()
def _match(minis, b, weight, maximum, step, changes):
    """Replace the beliefs of a bucket's mini-buckets in `changes` by the changes of their shifts.

    Each belief is moved towards the weighted geometric mean of the beliefs, for `maximum` their weighted mean.
    """
    first, last, n = minis.bucket_start[b], minis.bucket_start[b + 1], minis.shift_size[b]
    if not maximum:
        for c in range(first, last):
            mass = 0.0
            for s in range(minis.shift[c], minis.shift[c] + n):
                mass += changes[s]
            for s in range(minis.shift[c], minis.shift[c] + n):
                changes[s] = np.log(max(changes[s] / mass, MIN_BELIEF)) if mass > 0.0 else 0.0
    for s in range(n):
        mean = 0.0
        for c in range(first, last):
            mean += weight[c] * changes[minis.shift[c] + s]
        for c in range(first, last):
            at = minis.shift[c] + s
            changes[at] = step * weight[c] * (mean - changes[at]) if mean > -np.inf else 0.0


@kernel()
def _find_impossible(minis, b, changes):
    """Replace the maxima of a bucket's mini-buckets in `changes` by -inf where one of them is -inf, otherwise by 0."""
    first, last = minis.bucket_start[b], minis.bucket_start[b + 1]
    for s in range(minis.shift_size[b]):
        lowest = np.inf
        for c in range(first, last):
            lowest = min(lowest, changes[minis.shift[c] + s])
        for c in range(first, last):
            changes[minis.shift[c] + s] = lowest if lowest == -np.inf else 0.0


@kernel((MINI_BUCKETS, FLAT, boolean, float64, boolean, FLAT, FLAT))
def eliminate(minis, weight, maximum, step, first_pass, values, returned):
    """Pass messages in order of elimination, and return an upper bound of the log partition function or best score.

    Args:
        weight: weight of each mini-bucket; the weights of a bucket sum to 1.
        maximum: True for max-product.
        step: step size of the matching of shifts; 0 leaves the shifts unchanged, 1 matches the beliefs of a bucket.
        first_pass: whether to set the shifts of impossible states to -inf.
        values: the flat tables; shifts and messages are overwritten.
        returned: messages from the parents, in the layout of the flat tables; shift tables are overwritten.
    """
    _, largest_bucket, _ = count_cells(minis)
    scratch = _allocate(minis, largest_bucket)
    bound = 0.0
    for b in range(len(minis.shift_size)):
        first, last = minis.bucket_start[b], minis.bucket_start[b + 1]
        origin = 0
        for c in range(first, last):
            origin += _fill_table(minis, c, values, scratch.table, origin, scratch)
        if last - first > 1:
            for phase in range(2):
                is_search = phase == 0
                if (is_search and not first_pass) or (not is_search and step == 0.0):
                    continue
                origin = 0
                for c in range(first, last):
                    start = -np.inf if is_search or maximum else 0.0
                    for s in range(minis.shift[c], minis.shift[c] + minis.shift_size[b]):
                        returned[s] = start
                    if is_search:
                        k = minis.input_start[c + 1] - 1
                        _transfer_input(
                            COLLECT_MAXIMUM, minis, c, k, returned, minis.shift[c], scratch.table, origin, scratch
                        )
                    else:
                        _collect_belief(
                            minis,
                            c,
                            weight[c],
                            maximum,
                            returned,
                            scratch.table,
                            origin,
                            scratch.belief,
                            returned,
                            scratch,
                        )
                    origin += table_cells(minis, c)
                if is_search:
                    _find_impossible(minis, b, returned)
                else:
                    _match(minis, b, weight, maximum, step, returned)
                origin = 0
                for c in range(first, last):
                    for s in range(minis.shift[c], minis.shift[c] + minis.shift_size[b]):
                        values[s] += returned[s]
                    k = minis.input_start[c + 1] - 1
                    _transfer_input(ADD, minis, c, k, returned, minis.shift[c], scratch.table, origin, scratch)
                    origin += table_cells(minis, c)
        origin = 0
        for c in range(first, last):
            _send_message(minis, c, weight[c], maximum, values, scratch.table, origin, scratch.total)
            if minis.start[c + 1] - minis.start[c] == 1:
                bound += values[minis.message[c]]
            origin += table_cells(minis, c)
    return bound


@kernel((MINI_BUCKETS, FLAT, boolean, FLAT, FLAT, FLAT))
def return_messages(minis, weight, maximum, values, marginal, entropy):
    """Pass messages in reverse order of elimination, after `eliminate` with a finite bound.

    Args:
        values: the flat tables.
        marginal: overwritten by the pseudo-marginals of all inputs (or the max-marginals), in the layout of the flat tables.
            The entries of the messages of split buckets are overwritten by the messages that they receive.
        entropy: overwritten by the conditional entropy of the eliminated node, for each mini-bucket of a split bucket.
    """
    _, _, largest = count_cells(minis)
    scratch = _allocate(minis, largest)
    table = scratch.table
    for s in range(len(marginal)):
        marginal[s] = -np.inf if maximum else 0.0
    direction = COLLECT_MAXIMUM if maximum else COLLECT
    for b in range(len(minis.shift_size) - 1, -1, -1):
        is_split = minis.bucket_start[b + 1] - minis.bucket_start[b] > 1
        for c in range(minis.bucket_start[b], minis.bucket_start[b + 1]):
            cells, size, at = (
                _fill_table(minis, c, values, table, 0, scratch),
                minis.size[minis.start[c]],
                minis.message[c],
            )
            columns = cells // size
            if minis.start[c + 1] - minis.start[c] == 1:
                marginal[at] = values[at] if maximum else 1.0
            inverse = 1.0 / weight[c]
            entropy[c] = 0.0
            for x in range(size):
                for j in range(columns):
                    t = x * columns + j
                    difference = table[t] - max(values[at + j], -1e308)
                    if maximum:
                        table[t] = marginal[at + j] + difference if table[t] > -np.inf else -np.inf
                    else:
                        table[t] = marginal[at + j] * exp(difference * inverse)
                if is_split and not maximum:
                    for j in range(columns):
                        p = table[x * columns + j]
                        if p > 0.0:
                            entropy[c] -= p * np.log(p / marginal[at + j])
            for k in range(minis.input_start[c], minis.input_start[c + 1]):
                _transfer_input(direction, minis, c, k, marginal, minis.input[k], table, 0, scratch)
            if is_split:
                for j in range(columns):
                    if maximum:
                        parent = marginal[at + j]
                    else:
                        parent = weight[c] * np.log(marginal[at + j]) if marginal[at + j] > 0.0 else -np.inf
                    marginal[at + j] = parent - values[at + j] if parent > -np.inf else -np.inf


@kernel((MINI_BUCKETS, FLAT, FLAT, LONG, FLAT))
def combine_marginals(minis, weight, marginal, state_start, nodes):
    """Overwrite the tables of split nodes by weighted geometric means of the mini-buckets' marginals, with maximum 1.

    Args:
        marginal: as returned by `return_messages`.
        state_start: offset of each node's states, shape (n_nodes + 1,).
        nodes: flat node tables.
    """
    for b in range(len(minis.shift_size)):
        first, last = minis.bucket_start[b], minis.bucket_start[b + 1]
        if last - first == 1:
            continue
        node = minis.node[minis.start[first]]
        out = nodes[state_start[node] : state_start[node + 1]]
        rest = minis.shift_size[b] // len(out)
        for x in range(len(out)):
            mean = mass = 0.0
            for c in range(first, last):
                p = 0.0
                for s in range(minis.shift[c] + x * rest, minis.shift[c] + (x + 1) * rest):
                    p += marginal[s]
                mean += weight[c] * np.log(max(p, MIN_MARGINAL))
                mass += p
            out[x] = mean if mass > 0.0 else -np.inf
        out[:] = np.exp(out - out.max())


@kernel((MINI_BUCKETS, FLAT, float64, FLAT))
def update_weights(minis, entropy, step, weight):
    """Shift the weights of each split bucket towards mini-buckets of low conditional entropy (Liu & Ihler 2011)."""
    for b in range(len(minis.shift_size)):
        first, last = minis.bucket_start[b], minis.bucket_start[b + 1]
        if last - first == 1:
            continue
        mean = 0.0
        for c in range(first, last):
            mean += weight[c] * entropy[c]
        total = 0.0
        for c in range(first, last):
            weight[c] = max(weight[c] * np.exp(-step * weight[c] * (entropy[c] - mean)), MIN_WEIGHT)
            total += weight[c]
        for c in range(first, last):
            weight[c] /= total


@kernel()
def _input_offset(minis, c, k, states):
    """Return the offset of input `k` of mini-bucket `c`, given the states of all nodes but the eliminated one."""
    first, begin = minis.start[c], minis.stride_start[k]
    at = minis.input[k]
    for i in range(1, minis.start[c + 1] - first):
        at += minis.stride[begin + i] * states[minis.node[first + i]]
    return at


@kernel((MINI_BUCKETS, INT, FLAT))
def decode(minis, cardinality, values):
    """Return a joint state, int32: each node's best state given the nodes that are eliminated later."""
    states = np.zeros(len(cardinality), dtype=np.int32)
    for b in range(len(minis.shift_size) - 1, -1, -1):
        node = minis.node[minis.start[minis.bucket_start[b]]]
        score = np.zeros(cardinality[node])
        for c in range(minis.bucket_start[b], minis.bucket_start[b + 1]):
            for k in range(minis.input_start[c], minis.input_start[c + 1]):
                at = _input_offset(minis, c, k, states)
                for x in range(len(score)):
                    score[x] += values[at + x * minis.stride[minis.stride_start[k]]]
        states[node] = np.argmax(score)
    return states


@kernel((MINI_BUCKETS, FLAT, FLAT, float64[:, :, ::1], int32[:, ::1], FLAT))
def draw_states(minis, weight, values, uniform, out, log_weight):
    """Draw joint states from the mini-bucket proposal, after `eliminate` with a finite bound (Liu, Fisher & Ihler 2015).

    The proposal of a node, given the nodes that are eliminated later, is the mixture of its conditional distributions in the
    mini-buckets, whose mixture weights are their weights.

    Args:
        uniform: random numbers in [0, 1), shape (n, n_nodes, 2).
        out: overwritten by the joint states, shape (n, n_nodes), int32.
        log_weight: overwritten by score minus log probability of each joint state, shape (n,); -inf for impossible states.
    """
    largest = 1
    for size in minis.size:
        largest = max(largest, size)
    table, proposal, conditional = np.empty(largest), np.empty(largest), np.empty(largest)
    for n in range(len(uniform)):
        states = out[n]
        states[:] = 0
        log_weight[n] = 0.0
        for b in range(len(minis.shift_size) - 1, -1, -1):
            first, last = minis.bucket_start[b], minis.bucket_start[b + 1]
            node, size = minis.node[minis.start[first]], minis.size[minis.start[first]]
            proposal[:size] = 0.0
            choice = uniform[n, b, 0]
            is_chosen = False
            for c in range(first, last):
                table[:size] = 0.0
                for k in range(minis.input_start[c], minis.input_start[c + 1]):
                    at = _input_offset(minis, c, k, states)
                    for x in range(size):
                        table[x] += values[at + x * minis.stride[minis.stride_start[k]]]
                top = max(table[:size].max(), -1e308)
                mass = 0.0
                for x in range(size):
                    table[x] = exp((table[x] - top) / weight[c])
                    mass += table[x]
                if mass == 0.0:  # the states of the other nodes are impossible
                    log_weight[n] = -np.inf
                    break
                for x in range(size):
                    proposal[x] += weight[c] * table[x] / mass
                choice -= weight[c]
                if not is_chosen and (choice < 0.0 or c == last - 1):
                    is_chosen = True
                    for x in range(size):
                        conditional[x] = table[x] / mass
            if log_weight[n] == -np.inf:
                break
            remaining = uniform[n, b, 1]
            for x in range(size):
                if conditional[x] > 0.0:
                    states[node] = x
                    remaining -= conditional[x]
                    if remaining < 0.0:
                        break
            log_weight[n] -= np.log(proposal[states[node]])
            for c in range(first, last):
                for k in range(minis.input_start[c], minis.input_start[c + 1]):
                    if minis.input[k] < minis.region[1]:
                        at = _input_offset(minis, c, k, states)
                        log_weight[n] += values[at + states[node] * minis.stride[minis.stride_start[k]]]


@kernel((MINI_BUCKETS, int32[:, ::1], FLAT, FLAT))
def count_states(minis, states, weight, counts):
    """Add the weights of joint states to the entries of the flat node and factor tables that the states select.

    Args:
        states: joint states, shape (n, n_nodes).
        weight: weight of each joint state, shape (n,).
        counts: tables of nodes and factors in the layout of the flat tables, updated in place.
    """
    for n in range(len(states)):
        if weight[n] == 0.0:
            continue
        for c in range(len(minis.message)):
            state = states[n, minis.node[minis.start[c]]]
            for k in range(minis.input_start[c], minis.input_start[c + 1]):
                if minis.input[k] < minis.region[1]:
                    at = _input_offset(minis, c, k, states[n])
                    counts[at + state * minis.stride[minis.stride_start[k]]] += weight[n]
