"""Sums in one order: the libraries of linear algebra divide theirs by the number of threads, and so their last bits."""

from __future__ import annotations

from contextlib import ContextDecorator
from functools import cache
from threading import Lock
from typing import Any

from threadpoolctl import ThreadpoolController


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()


class SingleThreadedBlas(ContextDecorator):
    """Inside, linear algebra has one thread in this process, so that its sums have the same bits on every machine of a kind.

    What is inside may be inside again, and in several threads: the number of threads comes back when the last has left.
    """

    _lock = Lock()
    _depth = 0
    _limit: Any = None

    def __enter__(self) -> None:
        cls = SingleThreadedBlas
        with cls._lock:
            if not cls._depth:
                cls._limit = _libraries().limit(limits=1, user_api="blas")
            cls._depth += 1

    def __exit__(self, *error: object) -> None:
        cls = SingleThreadedBlas
        with cls._lock:
            cls._depth -= 1
            if not cls._depth:
                cls._limit.restore_original_limits()
