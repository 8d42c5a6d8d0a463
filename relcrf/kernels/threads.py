"""Multithreaded execution of kernels over ranges of keys, and per-thread scratch memory."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import pairwise
from typing import TypeVar

import numba
import numpy as np
import numpy.typing as npt

RUNS_PER_THREAD = 4
"""Number of ranges per thread, for load balancing: an idle thread takes the next range."""

MIN_PARALLEL_COST = 1 << 21
"""Minimum total cost, in cells read, for which several threads are used."""

LANES = 4
"""Number of ranges of `map_lanes`. It is independent of the number of threads, so that sums over lanes have the same bits on
any machine; more ranges would need more memory for the results."""

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
    yield from _map_on_threads(n_threads, function, ranges)


def map_lanes(n: int, cost: int, function: Callable[[int, int], T]) -> list[T]:
    """Apply a function to `LANES` ranges lo..hi-1 of the indices 0..n-1, or to one range if n or the cost is small.

    The ranges depend only on the arguments, and the results are in their order.

    Args:
        cost: the total cost, in cells read.
    """
    n_lanes = LANES if cost > MIN_PARALLEL_COST and n >= LANES else 1
    return map_ranges([n * lane // n_lanes for lane in range(n_lanes + 1)], function)


def map_ranges(bounds: Sequence[int], function: Callable[[int, int], T]) -> list[T]:
    """Apply a function to the consecutive ranges with the given bounds, on several threads, and return the results in order.

    Args:
        bounds: the first index of each range, followed by the end of the last range.
    """
    n_threads = min(numba.config.NUMBA_NUM_THREADS, len(bounds) - 1)
    if n_threads == 1:
        return [function(lo, hi) for lo, hi in pairwise(bounds)]
    return list(_map_on_threads(n_threads, function, pairwise(bounds)))


def _map_on_threads(
    n_threads: int, function: Callable[[int, int], T], ranges: Iterable[tuple[int, int]]
) -> Iterator[T]:
    """Yield the results of a function for ranges, in order. After an exception, such as Ctrl-C, no thread still works."""
    futures: list[Future[T]] = []
    try:
        for lo, hi in ranges:
            futures.append(_pool(n_threads).submit(function, lo, hi))
        for future in futures:
            yield future.result()
    finally:
        for future in futures:
            future.cancel()
        wait(futures)


def _pool(n_threads: int) -> ThreadPoolExecutor:
    if n_threads not in _pools:
        _pools[n_threads] = ThreadPoolExecutor(n_threads, "relcrf")
    return _pools[n_threads]


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
