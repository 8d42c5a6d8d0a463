"""Multithreaded execution of kernels, and scratch memory of threads."""

import os
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event
from time import sleep

import numba
import numpy as np
import pytest

from relcrf.kernels import threads
from relcrf.kernels.threads import map_key_ranges, map_ranges, thread_scratch


@pytest.fixture
def two_threads(monkeypatch):
    monkeypatch.setattr(threads, "MIN_PARALLEL_COST", 0)
    monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", 2)


def test_ranges_are_ordered_and_cover_all_keys(two_threads):
    for n in (0, 1, 7, 100):
        found = list(map_key_ranges(np.ones(n), lambda lo, hi: (lo, hi)))
        assert [k for lo, hi in found for k in range(lo, hi)] == list(range(n))


def test_exception_propagates_and_threads_continue(two_threads):
    def fail(lo, hi):
        raise ValueError(f"{lo} to {hi}")

    with pytest.raises(ValueError, match="0 to"):
        list(map_key_ranges(np.ones(10), fail))
    assert sum(map_key_ranges(np.ones(10), lambda lo, hi: hi - lo)) == 10


def test_no_thread_works_after_an_interrupt(two_threads):
    """A function that fails waits until another one works, which must end before the exception reaches the caller."""
    works, finished = Event(), []

    def work(lo, hi):
        if lo == 0:
            works.wait()
            raise KeyboardInterrupt
        works.set()
        sleep(0.05)
        finished.append(lo)

    with pytest.raises(KeyboardInterrupt):
        map_ranges([0, 1, 2], work)
    assert finished == [1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="os.fork is not available")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_forked_process_starts_its_own_threads(two_threads):
    assert sum(map_key_ranges(np.ones(10), lambda lo, hi: hi - lo)) == 10
    child = os.fork()
    if child == 0:
        os._exit(sum(map_key_ranges(np.ones(10), lambda lo, hi: hi - lo)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 10


def test_scratch_is_reused_within_a_thread_only():
    both = Barrier(2)

    def allocate(_):
        first, second = thread_scratch(10, "float32"), thread_scratch(5, "float32")
        both.wait()
        return first, second

    with ThreadPoolExecutor(2) as pool:
        (a, b), (c, d) = pool.map(allocate, range(2))
    assert np.shares_memory(a, b) and np.shares_memory(c, d) and not np.shares_memory(a, c)
    assert not np.shares_memory(thread_scratch(10, "float32"), thread_scratch(10, "float64"))


def test_large_scratch_is_not_cached():
    large = threads.MAX_CACHED_BYTES // 8 + 1
    assert not np.shares_memory(thread_scratch(large, "float64"), thread_scratch(large, "float64"))


@pytest.mark.parametrize(
    ("n", "cost", "n_lanes"), [(10, threads.MIN_PARALLEL_COST + 1, 4), (3, 1 << 40, 1), (10, 1, 1)]
)
def test_lanes_are_not_empty(n, cost, n_lanes):
    ranges = threads.map_lanes(n, cost, lambda lo, hi: (lo, hi))
    assert len(ranges) == n_lanes
    assert [k for lo, hi in ranges for k in range(lo, hi)] == list(range(n))
    assert all(lo < hi for lo, hi in ranges)
