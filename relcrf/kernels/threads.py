"""Kernels that go through keys, run on several threads."""

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
"""A thread that is done with one takes the next."""

MIN_PARALLEL_COST = 1 << 21
"""Cells that are read, below which a second thread does not pay."""

MAX_CACHED_BYTES = 1 << 24
"""Bytes of scratch that a thread keeps for its next run."""

T = TypeVar("T")

_pools: dict[int, ThreadPoolExecutor] = {}
"""By their number of threads. Threads wait for the next work: to start them anew takes as long as little work does."""

_thread_local = threading.local()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pools.clear)  # threads do not survive a fork


def map_key_ranges(costs: np.ndarray, function: Callable[[int, int], T]) -> Iterator[T]:
    """Does runs lo..hi-1 of keys of about the same work, on as many threads as Numba may use.

    Args:
        costs: of each key, in cells that are read, shape (n_keys,).

    Yields:
        what each run gives, in their order.
    """
    total = np.cumsum(costs)
    n_threads = numba.config.NUMBA_NUM_THREADS if len(costs) and total[-1] > MIN_PARALLEL_COST else 1
    if n_threads == 1:
        yield function(0, len(costs))
        return
    inner = np.searchsorted(total, total[-1] * np.linspace(0, 1, n_threads * RUNS_PER_THREAD + 1)[1:-1])
    runs = [(lo, hi) for lo, hi in pairwise((0, *inner.tolist(), len(costs))) if lo < hi]
    if n_threads not in _pools:
        _pools[n_threads] = ThreadPoolExecutor(n_threads, "relcrf")
    pool = _pools[n_threads]
    yield from pool.map(lambda ends: function(*ends), runs)


def thread_scratch(size: int, dtype: npt.DTypeLike) -> np.ndarray:
    """An array of a thread's own, shape (size,) or longer, with anything in it; the next call may give the same one.

    Fresh memory is mapped page by page by the system, in turns where several threads ask for it.
    """
    kept: dict[str, np.ndarray] = _thread_local.__dict__
    name = np.dtype(dtype).name
    if name not in kept or len(kept[name]) < size:
        array = np.empty(size, dtype=dtype)
        if array.nbytes > MAX_CACHED_BYTES:
            return array
        kept[name] = array
    return kept[name]


def freeze(array: np.ndarray, dtype: npt.DTypeLike) -> np.ndarray:
    """The same as the kernels take it, which are compiled for arrays that are not written to."""
    view = np.ascontiguousarray(array, dtype=dtype).view()
    view.flags.writeable = False
    return view
