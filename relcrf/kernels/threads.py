"""Multithreaded execution of kernels over ranges of keys, and per-thread scratch memory."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

import numba
import numpy as np
import numpy.typing as npt

RUNS_PER_THREAD = 4
"""Number of ranges per thread, for load balancing: an idle thread takes the next range."""

MIN_PARALLEL_COST = 1 << 21
"""Minimum total cost, in cells read, for which several threads are used."""

MAX_CACHED_BYTES = 1 << 24
"""Maximum size of a scratch array that a thread caches for later calls."""

T = TypeVar("T")

_pools: dict[int, ThreadPoolExecutor] = {}
"""Thread pools by number of threads; they are reused, since starting threads takes as long as a small task."""

_thread_local = threading.local()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pools.clear)  # threads do not survive a fork


def map_key_ranges(costs: np.ndarray, function: Callable[[int, int], T]) -> Iterator[T]:
    """Apply a function to ranges lo..hi-1 of keys (indices) of about equal cost, on up to `NUMBA_NUM_THREADS` threads.

    Args:
        costs: cost of each key, in cells read, shape (n_keys,).

    Yields:
        The results, in the order of the ranges.
    """
    total = np.cumsum(costs)
    n_threads = numba.config.NUMBA_NUM_THREADS if len(costs) and total[-1] > MIN_PARALLEL_COST else 1
    if n_threads == 1:
        yield function(0, len(costs))
        return
    bounds = np.searchsorted(total, total[-1] * np.linspace(0, 1, n_threads * RUNS_PER_THREAD + 1)[1:-1])
    ranges = [(lo, hi) for lo, hi in pairwise((0, *bounds.tolist(), len(costs))) if lo < hi]
    if n_threads not in _pools:
        _pools[n_threads] = ThreadPoolExecutor(n_threads, "relcrf")
    pool = _pools[n_threads]
    yield from pool.map(lambda ends: function(*ends), ranges)


def thread_scratch(size: int, dtype: npt.DTypeLike) -> np.ndarray:
    """Return an uninitialised array of length >= `size`; the next call in the same thread may return the same array.

    Reuse avoids page faults on new memory, which the operating system serialises between threads.
    """
    cached: dict[str, np.ndarray] = _thread_local.__dict__
    name = np.dtype(dtype).name
    if name not in cached or len(cached[name]) < size:
        array = np.empty(size, dtype=dtype)
        if array.nbytes > MAX_CACHED_BYTES:
            return array
        cached[name] = array
    return cached[name]


def freeze(array: np.ndarray, dtype: npt.DTypeLike) -> np.ndarray:
    """Return a read-only contiguous view or copy, as kernels compiled for read-only arrays require."""
    view = np.ascontiguousarray(array, dtype=dtype).view()
    view.flags.writeable = False
    return view
