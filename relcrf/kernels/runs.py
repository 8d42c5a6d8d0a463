"""Copies of runs of numbers, such as the tables of nodes and edges, from one order to another."""

from __future__ import annotations

import numpy as np
from numba import float64, int32, int64

from relcrf.kernels.compile import kernel
from relcrf.kernels.vectors import make_loader, store

FLAT, INDEX = float64[::1], int64[::1]
COPY = (int64, int64, int32[::1], INDEX, INDEX, FLAT, FLAT)

U = np.uint64
"""Unsigned type of loop indices; signed indices would prevent vectorisation (see `forest.py`)."""

_load_two, _load_four, _load_eight = make_loader(2), make_loader(4), make_loader(8)


@kernel(inline="always")
def _copy(n, values, source, out, target):
    """Copy n numbers of `values`, from index `source`, to `out`, from index `target`.

    Vectors may overlap. Few instructions per run, and no loops for short runs, allow the processor to read several runs, which
    are anywhere in memory, at the same time.
    """
    if n >= U(8):
        last = n - U(8)
        if n > U(32):
            for i in range(U(16), last - U(8), U(8)):
                store(out, target + i, _load_eight(values, source + i))
        if n > U(16):
            store(out, target + U(8), _load_eight(values, source + U(8)))
            store(out, target + last - U(8), _load_eight(values, source + last - U(8)))
        store(out, target, _load_eight(values, source))
        store(out, target + last, _load_eight(values, source + last))
    elif n >= U(4):
        last = n - U(4)
        store(out, target, _load_four(values, source))
        store(out, target + last, _load_four(values, source + last))
    elif n >= U(2):
        last = n - U(2)
        store(out, target, _load_two(values, source))
        store(out, target + last, _load_two(values, source + last))
    elif n == U(1):
        out[target] = values[source]


@kernel(COPY)
def gather(lo, hi, run, start, run_start, values, out):
    """Copy one run of `values` for each position lo..hi-1 to `out`, in the order of positions.

    Args:
        run: the run of each position, shape (n,); -1 for none.
        start: offset of the run of each position in the order of positions, shape (n + 1,). `out` contains the runs lo..hi-1.
        run_start: offset of each run in `values`.
    """
    for v in range(lo, hi):
        if run[v] >= 0:
            _copy(U(start[v + 1] - start[v]), values, U(run_start[run[v]]), out, U(start[v] - start[lo]))


@kernel(COPY)
def scatter(lo, hi, run, start, run_start, out, values):
    """Copy the runs of positions lo..hi-1 from `out` back to `values`: the inverse of `gather`."""
    for v in range(lo, hi):
        if run[v] >= 0:
            _copy(U(start[v + 1] - start[v]), out, U(start[v] - start[lo]), values, U(run_start[run[v]]))
