"""Flooding belief propagation over pairs of the same shape, with linear messages, many pairs at a time.

A *block* interleaves the data of `LANES` pairs: in each row of numbers, each pair has one *lane*. Every loop runs over
lanes and is therefore vectorised, for any cardinalities. A block and its intermediate results stay in the L1 cache, and
each table is read once for both directions. The module `messages` defines `product` and the range of linear messages.
An *agreement* is a factor with one value for equal states and one value for differing states.
"""

from __future__ import annotations

import numpy as np
from numba import boolean, float64, int64

from relcrf.kernels.compile import kernel
from relcrf.kernels.vector_math import exp, log

CUBE = float64[:, :, ::1]

LANES = 128
"""Number of pairs per block."""


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


@kernel(
    (
        int64,
        int64,
        boolean,
        boolean,
        float64,
        float64[:, ::1],
        CUBE,
        int64[:, :, ::1],
        CUBE,
        float64[::1],
        float64[::1],
    ),
    fastmath={"contract"},
)
def flood(first, second, agreement, maximum, damping, appearance, tables, ends, message, product, next_product):
    """Update all messages of the pairs of one shape from `product`, and multiply the new messages into `next_product`.

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
                if len(appearance):
                    for i in range(LANES):
                        value[i] = exp(appearance[block, i] * log(value[i]))
                for i in range(LANES):
                    next_product[start[i] + (row - lo)] *= value[i]
    return max(max_ratio.max(), 1.0 / min_ratio.min())
