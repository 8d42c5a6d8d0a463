"""Functions that tests run in separate processes."""

from __future__ import annotations

import os
import time

import numpy as np

from relcrf.execution.isolated import memory_usage


def identity() -> tuple[int, str | None]:
    """Return the process ID and the number of threads."""
    return os.getpid(), os.environ.get("NUMBA_NUM_THREADS")


def sleep_for(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def take_memory(n_bytes: int) -> tuple[int, int]:
    """Return the memory in use before an allocation, and the peak after it."""
    before, _ = memory_usage()
    np.ones(n_bytes, dtype=np.int8)
    return before, memory_usage()[1]
