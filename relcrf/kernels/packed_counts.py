"""How often two variables have each pair of states, from bits: 64 samples are counted by one instruction.

Of each key there is a plane of bits for each of its states but the first, and in the first's place one of the samples that it has
at all. What the first state is met with is what the others leave, so that k - 1 planes are read of a key, and of that of samples
only where some are missing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import int16, int64, types, uint64
from numba.extending import intrinsic

from relcrf.kernels.compile import kernel, read_only
from relcrf.kernels.keyed_cells import CELLS

U = np.uint64
"""Indices without a sign; see `forest.py`."""

ONE = U(1)
WORD = U(64)

INDEX, PLANES, TOTALS = int64[::1], uint64[:, :, ::1], int64[:, ::1]


@intrinsic  # type: ignore[untyped-decorator]
def _count_bits(typing_context: Any, word: Any) -> Any:
    """How many bits of a word are set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


@kernel((CELLS, read_only(int16[::1]), PLANES, TOTALS))
def pack(cells, label, planes, totals):
    """Sets the bits of cells, and counts them.

    Args:
        cells: of the keys.
        label: of each variable, shape (n_variables,); -1 where it is not counted.
        planes: zeros, shape (n_keys, n_states, n_words). totals: bits of each plane, shape (n_keys, n_states); zeros.
    """
    for key in range(len(planes)):
        for cell in range(cells.start[key], cells.start[key + 1]):
            state = label[U(cells.variable[cell])]
            if state >= 0:
                word, bit = U(cells.sample[cell]) // WORD, ONE << (U(cells.sample[cell]) % WORD)
                planes[key, 0, word] |= bit
                totals[key, 0] += 1
                if state > 0:
                    planes[key, state, word] |= bit
                    totals[key, state] += 1


@kernel()
def _count_common_bits(first, second):
    """How many bits are set in both of two planes."""
    total = U(0)
    for word in range(U(len(first))):
        total += _count_bits(first[word] & second[word])
    return np.int64(total)


@kernel((*[read_only(INDEX)] * 2, int64, *[read_only(PLANES), read_only(TOTALS)] * 2, int64[:, :, ::1]))
def count_pairs(first, second, n_samples, planes, totals, other_planes, other_totals, out):
    """Counts the joint states of pairs of keys.

    Args:
        first, second: keys of the one and the other side, shape (n,).
        planes, totals, other_planes, other_totals: of `pack`, for both sides.
        out: overwritten, shape (n, n_states, n_other_states).
    """
    for pair in range(len(first)):
        a, b = first[pair], second[pair]
        mine, its, counts = planes[a], other_planes[b], out[pair]
        mine_whole, its_whole = totals[a, 0] == n_samples, other_totals[b, 0] == n_samples
        for x in range(len(mine)):
            for y in range(len(its)):
                if y == 0 and its_whole:
                    counts[x, y] = totals[a, x]
                elif x == 0 and mine_whole:
                    counts[x, y] = other_totals[b, y]
                else:
                    counts[x, y] = _count_common_bits(mine[x], its[y])
        for x in range(len(mine)):
            for y in range(1, len(its)):
                counts[x, 0] -= counts[x, y]
        for y in range(len(its)):
            for x in range(1, len(mine)):
                counts[0, y] -= counts[x, y]
