"""Counts of the joint states of two variables, from bit planes: one instruction counts 64 samples.

A *key* is a column that has a label in some samples. Each of the key's k states has one *bit plane*, with one bit for
each sample. Plane x > 0 marks the samples with label x; plane 0 marks the samples with any label. The counts of state 0
are totals minus the counts of the other states. Plane 0 is therefore read only if some samples have no label.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import int32, int64, types, uint64
from numba.extending import intrinsic

from relcrf.kernels.compile import kernel, read_only
from relcrf.kernels.keyed_cells import CELLS

U = np.uint64
"""Unsigned type of loop indices; signed indices would prevent vectorisation (see `forest.py`)."""

ONE = U(1)
WORD = U(64)

INDEX, PLANES, TOTALS = int64[::1], uint64[:, :, ::1], int64[:, ::1]


@intrinsic  # type: ignore[untyped-decorator]
def _count_bits(typing_context: Any, word: Any) -> Any:
    """Count the set bits of a word."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


@kernel((CELLS, read_only(int32[::1]), PLANES, TOTALS))
def pack(cells, label, planes, totals):
    """Set the bits of all labelled cells, and count the bits of each plane.

    Args:
        cells: for each key, its cells: pairs of a sample and a variable.
        label: label of each variable, shape (n_variables,); -1 for variables that are not counted.
        planes: overwritten by the bit planes, zeros on entry, shape (n_keys, n_states, n_words).
        totals: overwritten by the number of bits set in each plane, zeros on entry, shape (n_keys, n_states).
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
    """Count the bits that are set in both planes."""
    total = U(0)
    for word in range(U(len(first))):
        total += _count_bits(first[word] & second[word])
    return np.int64(total)


@kernel((*[read_only(INDEX)] * 2, int64, *[read_only(PLANES), read_only(TOTALS)] * 2, int64[:, :, ::1]))
def count_pairs(first, second, n_samples, planes, totals, other_planes, other_totals, out):
    """Count the joint states of each pair of keys.

    Args:
        first, second: the two keys of each pair, shape (n,).
        planes, totals: bit planes and totals of the keys to which `first` refers, as `pack` computes them.
        other_planes, other_totals: bit planes and totals of the keys to which `second` refers.
        out: overwritten by the counts, shape (n, n_states, n_other_states).
    """
    for pair in range(len(first)):
        a, b = first[pair], second[pair]
        first_planes, second_planes, counts = planes[a], other_planes[b], out[pair]
        first_complete, second_complete = totals[a, 0] == n_samples, other_totals[b, 0] == n_samples
        for x in range(len(first_planes)):
            for y in range(len(second_planes)):
                if y == 0 and second_complete:
                    counts[x, y] = totals[a, x]
                elif x == 0 and first_complete:
                    counts[x, y] = other_totals[b, y]
                else:
                    counts[x, y] = _count_common_bits(first_planes[x], second_planes[y])
        for x in range(len(first_planes)):
            for y in range(1, len(second_planes)):
                counts[x, 0] -= counts[x, y]
        for y in range(len(second_planes)):
            for x in range(1, len(first_planes)):
                counts[0, y] -= counts[x, y]
