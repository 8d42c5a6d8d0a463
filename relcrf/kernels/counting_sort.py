"""Stable sorting of integers below a known limit, in linear time."""

from __future__ import annotations

import numpy as np
from numba import int32, int64

from relcrf.kernels.compile import kernel

U = np.uint64
"""Unsigned type of loop indices; signed indices would prevent vectorisation (see `forest.py`)."""

MIN_COUNTED = 1 << 14
"""Minimum number of keys that are counted; NumPy sorts fewer keys in less time than it takes to load the kernel."""


@kernel((int32[::1], int32[::1], int64[::1], int32[::1]))
def count_order(keys, order, start, out):
    """Write the indices `order` to `out`, sorted stably by their keys.

    Args:
        keys: integers from 0.
        start: zeros, shape (largest key + 2,); overwritten.
    """
    for i in range(U(len(order))):
        start[U(keys[U(order[i])]) + U(1)] += 1
    for following in range(U(1), U(len(start))):
        start[following] += start[following - U(1)]
    for i in range(U(len(order))):
        key = U(keys[U(order[i])])
        out[U(start[key])] = order[i]
        start[key] += 1


def stable_order(*columns: np.ndarray, n_keys: int) -> np.ndarray:
    """Return the indices that sort rows stably in lexicographic order, shape (n,), int32.

    Args:
        columns: The columns of the rows, the first column first, shape (n,) each, int32; values from 0 to `n_keys - 1`.
    """
    if len(columns[0]) < MIN_COUNTED:
        return np.lexsort(columns[::-1]).astype(np.int32)
    order = np.arange(len(columns[0]), dtype=np.int32)
    for column in columns[::-1]:
        out = np.empty_like(order)
        count_order(column, order, np.zeros(n_keys + 1, dtype=np.int64), out)
        order = out
    return order
