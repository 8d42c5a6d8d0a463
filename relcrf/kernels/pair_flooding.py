"""Flooding belief propagation over pairs of the same shape, with linear messages, many pairs at a time.

A *block* interleaves the data of `LANES` pairs: in each row of numbers, each pair has one *lane*. Every loop runs over
lanes and is therefore vectorised, for any cardinalities. A block and its intermediate results stay in the L1 cache, and
each table is read once for both directions. The module `messages` defines `product` and the range of linear messages.
An *agreement* is a factor with one value for equal states and one value for differing states.
"""

from __future__ import annotations

import numpy as np
from numba import boolean, float64, int32, int64

from relcrf.kernels.compile import kernel
from relcrf.kernels.prefetch import prefetch
from relcrf.kernels.vector_math import exp, log

CUBE, ENDS = float64[:, :, ::1], int32[:, :, ::1]

LANES = 128
"""Number of pairs per block."""
MIN_PREFETCHED = 1 << 15
"""Minimum length of products that are prefetched; shorter ones (256 KiB) remain in the L2 cache."""
MAX_PREFETCHED_STATES = 24
"""Maximum number of states of a pair's nodes whose products are prefetched; those of a block then fit into the L1 cache."""


@kernel(fastmath={"contract"})
def _compute_table_messages(first, second, maximum, table, cavity, new):
    """Compute both messages of each pair; `new` and `cavity` have a row for each state of the first and second node."""
    new[:] = 0.0
    for x in range(first):
        to_first, from_first = new[x], cavity[x]
        for y in range(second):
            to_second, from_second, cell = new[first + y], cavity[first + y], table[x * second + y]
            if maximum:
                for i in range(LANES):
                    a = cell[i] * from_second[i]
                    b = cell[i] * from_first[i]
                    to_first[i] = a if a > to_first[i] else to_first[i]
                    to_second[i] = b if b > to_second[i] else to_second[i]
            else:
                for i in range(LANES):
                    to_first[i] += cell[i] * from_second[i]
                    to_second[i] += cell[i] * from_first[i]


@kernel(fastmath={"contract"})
def _agreement_messages(k, maximum, table, cavity, new, total):
    """Compute both messages of each agreement. To avoid cancellation, sums over differing states use no subtraction."""
    agreeing, differing = table[0], table[1]
    for side in range(2):
        out, opposite = side * k, (1 - side) * k
        total[:] = 0.0
        for x in range(k):
            row, value = new[out + x], cavity[opposite + x]
            for i in range(LANES):
                row[i] = total[i]
                total[i] = max(total[i], value[i]) if maximum else total[i] + value[i]
        total[:] = 0.0
        for x in range(k - 1, -1, -1):
            row, value = new[out + x], cavity[opposite + x]
            for i in range(LANES):
                others = max(row[i], total[i]) if maximum else row[i] + total[i]
                same, other = agreeing[i] * value[i], differing[i] * others
                row[i] = max(same, other) if maximum else same + other
                total[i] = max(total[i], value[i]) if maximum else total[i] + value[i]


@kernel()
def _prefetch_nodes(ends, size, product, first, last):
    """Prefetch the products of the nodes of the lanes from `first` to before `last`; each node has `size` states."""
    for i in range(first, last):
        prefetch(product, ends[i])
    if size > 2:
        for i in range(first, last):
            prefetch(product, ends[i] + size - 1)


@kernel(
    (
        int64,
        int64,
        boolean,
        boolean,
        float64,
        float64[:, ::1],
        CUBE,
        ENDS,
        CUBE,
        float64[::1],
        float64[::1],
        boolean,
    ),
    fastmath={"contract"},
)
def flood(
    first, second, agreement, maximum, damping, appearance, tables, ends, message, product, next_product, in_place
):
    """Update all messages of the pairs of one shape from `product`, and multiply the new messages into `next_product`.

    In place, `next_product` is `product`: each block replaces its old messages by the new ones, which later blocks use.

    In tree-reweighted propagation, `next_product` is multiplied by the messages to the power of the appearance
    probabilities.

    Args:
        first, second: cardinalities of the first and the second node of every pair.
        agreement: whether the factors of all pairs are agreements.
        damping: weight of the old log message in the new log message.
        appearance: appearance probability of each pair, shape (n_blocks, LANES); shape (0, LANES) if all are 1.
        tables: shape (n_blocks, first * second, LANES), with largest entry 1. Agreements have 2 rows: equal, differing. A
            single block contains the tables of all blocks.
        ends: offsets of the states of each pair's nodes, shape (n_blocks, 2, LANES).
        message: messages to the first and to the second node, shape (n_blocks, first + second, LANES); overwritten.
        product, next_product: products of all nodes, flat over states; new messages are multiplied into `next_product`.

    Returns:
        The largest ratio between a new and an old entry of a message, as the larger divided by the smaller entry.
    """
    k = first + second
    cavity = np.empty((k, LANES))
    inverse = np.empty((k, LANES))
    new = np.empty((k, LANES))
    top = np.empty(LANES)
    max_ratio = np.ones(LANES)
    min_ratio = np.ones(LANES)
    prefetches = len(product) >= MIN_PREFETCHED and k <= MAX_PREFETCHED_STATES
    for block in range(len(message)):
        for row in range(k):
            old, value, inverted = message[block, row], cavity[row], inverse[row]
            start, x = (ends[block, 0], row) if row < first else (ends[block, 1], row - first)
            for i in range(LANES):
                value[i] = product[start[i] + x]
            for i in range(LANES):
                inverted[i] = 1.0 / old[i]
                value[i] *= inverted[i]
        table = tables[min(block, len(tables) - 1)]
        if agreement:
            _agreement_messages(first, maximum, table, cavity, new, top)
        else:
            _compute_table_messages(first, second, maximum, table, cavity, new)
        for side in range(2):
            lo, hi = (0, first) if side == 0 else (first, k)
            top[:] = 0.0
            for row in range(lo, hi):
                value = new[row]
                for i in range(LANES):
                    top[i] = value[i] if value[i] > top[i] else top[i]
            for i in range(LANES):
                top[i] = 1.0 / top[i]
            start = ends[block, side]
            for row in range(lo, hi):
                value, old, inverted = new[row], message[block, row], inverse[row]
                for i in range(LANES):
                    value[i] *= top[i]
                if damping > 0.0:
                    for i in range(LANES):
                        value[i] = exp(damping * log(old[i]) + (1.0 - damping) * log(value[i]))
                for i in range(LANES):
                    ratio = value[i] * inverted[i]
                    max_ratio[i] = ratio if ratio > max_ratio[i] else max_ratio[i]
                    min_ratio[i] = ratio if ratio < min_ratio[i] else min_ratio[i]
                    old[i] = value[i]
                if in_place:
                    for i in range(LANES):
                        value[i] *= inverted[i]
                if len(appearance):
                    for i in range(LANES):
                        value[i] = exp(appearance[block, i] * log(value[i]))
                for i in range(LANES):
                    next_product[start[i] + (row - lo)] *= value[i]
                # The nodes of the next block are prefetched in small portions, because a core can wait for few lines at once.
                if prefetches and block + 1 < len(message):
                    portion = row * LANES // k, (row + 1) * LANES // k
                    _prefetch_nodes(ends[block + 1, 0], first, product, *portion)
                    _prefetch_nodes(ends[block + 1, 1], second, product, *portion)
                    if not in_place:
                        _prefetch_nodes(ends[block + 1, 0], first, next_product, *portion)
                        _prefetch_nodes(ends[block + 1, 1], second, next_product, *portion)
    return max(max_ratio.max(), 1.0 / min_ratio.min())


@kernel((int64, int64, boolean, CUBE, ENDS, int64, int64[::1], CUBE, float64[::1], float64[::1]), fastmath={"contract"})
def sum_beliefs(first, second, agreement, tables, ends, n_pairs, start, message, product, out):
    """Sum the log partition functions of pairs, and add the beliefs of the pairs to flat tables.

    The belief of an agreement is the probability that both nodes have the same state.

    Args:
        first, second, agreement, tables, ends, message, product: See `flood`.
        n_pairs: Number of pairs; the last block may have more lanes.
        start: Offset of each pair's table in `out`, shape (n_pairs,), or of the table of all pairs, shape (1,); shape (0,)
            if beliefs are not needed.
        out: The beliefs are added to it.

    Returns:
        The sum over pairs of the logarithm of the sum of table * cavities.
    """
    k = first + second
    n_cells = 1 if agreement else first * second
    cavity, new = np.empty((k, LANES)), np.empty((k, LANES))
    top, belief, logs = np.empty(LANES), np.empty(LANES), np.zeros(LANES)
    sums = np.zeros((n_cells, LANES))
    for block in range(len(message)):
        n_lanes = min(LANES, n_pairs - block * LANES)
        for side in range(2):
            lo, hi = (0, first) if side == 0 else (first, k)
            node = ends[block, side]
            top[:] = 0.0
            for row in range(lo, hi):
                value, old = cavity[row], message[block, row]
                for i in range(LANES):
                    value[i] = product[node[i] + (row - lo)]
                for i in range(LANES):
                    value[i] /= old[i]
                    top[i] = value[i] if value[i] > top[i] else top[i]
            for i in range(n_lanes):
                logs[i] += log(top[i])
            for i in range(LANES):
                top[i] = 1.0 / top[i]
            for row in range(lo, hi):
                value = cavity[row]
                for i in range(LANES):
                    value[i] *= top[i]
        table = tables[min(block, len(tables) - 1)]
        if agreement:
            _agreement_messages(first, False, table, cavity, new, top)
        else:
            _compute_table_messages(first, second, False, table, cavity, new)
        top[:] = 0.0
        for row in range(first):
            value, to_first = cavity[row], new[row]
            for i in range(LANES):
                top[i] += value[i] * to_first[i]
        for i in range(n_lanes):
            logs[i] += log(top[i])
        if not len(start):
            continue
        for i in range(LANES):
            top[i] = 1.0 / top[i] if i < n_lanes else 0.0
        for row in range(first):
            value = cavity[row]
            for i in range(LANES):
                value[i] *= top[i]
        for cell in range(n_cells):
            factor = table[cell]
            belief[:] = 0.0
            for x in range(first if agreement else 1):
                one, other = (
                    cavity[x if agreement else cell // second],
                    cavity[first + (x if agreement else cell % second)],
                )
                for i in range(LANES):
                    belief[i] += one[i] * other[i] * factor[i]
            if len(start) == 1:
                total = sums[cell]
                for i in range(LANES):
                    total[i] += belief[i]
            else:
                for i in range(n_lanes):
                    out[start[block * LANES + i] + cell] += belief[i]
    if len(start) == 1:
        for cell in range(n_cells):
            for i in range(LANES):
                out[start[0] + cell] += sums[cell, i]
    return logs.sum()
