"""Flooding belief propagation over pairs of one shape, as numbers, many pairs at a time.

`LANES` pairs stand beside each other, so that whatever their cardinalities are, every loop runs over lanes and fills the
machine's vectors; a block and what is made of it stay in the first cache, and its table is read once for both directions.
See `messages` for what `product` is and when numbers will do.
"""

from __future__ import annotations

import numpy as np
from numba import boolean, float64, int64

from relcrf.kernels.compile import kernel

CUBE = float64[:, :, ::1]

LANES = 128


@kernel(fastmath={"contract"})
def _compute_table_messages(first, second, maximum, table, cavity, new):
    """Both messages of each pair: rows of `new` and `cavity` are the first node's states, then the second's."""
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
    """The same where the nodes agree or do not; `table` has two rows. Nothing is subtracted: sums of the other states."""
    together, apart = table[0], table[1]
    for side in range(2):
        out, into = side * k, (1 - side) * k
        total[:] = 0.0
        for x in range(k):
            row, value = new[out + x], cavity[into + x]
            for i in range(LANES):
                row[i] = total[i]
                total[i] = max(total[i], value[i]) if maximum else total[i] + value[i]
        total[:] = 0.0
        for x in range(k - 1, -1, -1):
            row, value = new[out + x], cavity[into + x]
            for i in range(LANES):
                rest = max(row[i], total[i]) if maximum else row[i] + total[i]
                same, other = together[i] * value[i], apart[i] * rest
                row[i] = max(same, other) if maximum else same + other
                total[i] = max(total[i], value[i]) if maximum else total[i] + value[i]


@kernel(
    (int64, int64, boolean, boolean, float64, CUBE, int64[:, :, ::1], CUBE, float64[::1], float64[::1]),
    fastmath={"contract"},
)
def flood(first, second, agreement, maximum, keep, tables, ends, message, product, following):
    """One round over all pairs of a shape: each message anew from `product`, and into `following`.

    Args:
        first, second: cardinalities. agreement: whether the pairs are agreements.
        keep: the share of the old message's log in the new one.
        tables: shape (n_blocks, first * second, LANES), largest 1; of agreements two rows: together, apart.
        ends: where the states of each pair's nodes begin, shape (n_blocks, 2, LANES).
        message: to the first node, then to the second, shape (n_blocks, first + second, LANES); overwritten.
        product, following: flat over states; the second is multiplied by the new messages.

    Returns:
        the largest ratio of a message's entry, new to old or old to new.
    """
    k = first + second
    cavity = np.empty((k, LANES))
    inverse = np.empty((k, LANES))
    new = np.empty((k, LANES))
    top = np.empty(LANES)
    most = np.ones(LANES)
    least = np.ones(LANES)
    for block in range(len(message)):
        for row in range(k):
            old, value, inverted = message[block, row], cavity[row], inverse[row]
            start, x = (ends[block, 0], row) if row < first else (ends[block, 1], row - first)
            for i in range(LANES):
                value[i] = product[start[i] + x]
            for i in range(LANES):
                inverted[i] = 1.0 / old[i]
                value[i] *= inverted[i]
        if agreement:
            _agreement_messages(first, maximum, tables[block], cavity, new, top)
        else:
            _compute_table_messages(first, second, maximum, tables[block], cavity, new)
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
                if keep > 0.0:
                    for i in range(LANES):
                        value[i] = np.exp(keep * np.log(old[i]) + (1.0 - keep) * np.log(value[i]))
                for i in range(LANES):
                    ratio = value[i] * inverted[i]
                    most[i] = ratio if ratio > most[i] else most[i]
                    least[i] = ratio if ratio < least[i] else least[i]
                    old[i] = value[i]
                for i in range(LANES):
                    following[start[i] + (row - lo)] *= old[i]
    return max(most.max(), 1.0 / least.min())
