"""Pieces of work for processes of their own."""

from __future__ import annotations

import os
import time

import numpy as np

from relcrf.execution.isolated import memory_usage


def identity() -> tuple[int, str | None]:
    """Who works, with how many threads."""
    return os.getpid(), os.environ.get("NUMBA_NUM_THREADS")


def sleep_for(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def take_memory(n_bytes: int) -> tuple[int, int]:
    """What there was before some bytes were taken, and the peak."""
    before, _ = memory_usage()
    np.ones(n_bytes, dtype=np.int8)
    return before, memory_usage()[1]
