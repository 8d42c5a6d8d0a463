"""Single-threaded BLAS, for reproducible results: the last bits of a sum depend on the number of threads."""

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
    """A context in which BLAS uses one thread, so that sums are bitwise identical on machines of the same kind.

    Contexts can be nested and used in several threads; the number of BLAS threads is restored when the last context exits.
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
