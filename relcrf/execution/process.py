"""A worker: a fresh process with one thread, which runs one call at a time and does not outlive its parent."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from typing import Any, TypeVar

from relcrf.execution.environment import SINGLE_THREAD, temporary_environment

T = TypeVar("T")


class WorkerProcess:
    """A process started by `spawn`: threads of Numba and DuckDB do not survive a fork.

    A script that uses it starts its work below `if __name__ == "__main__":`, as for all of Python's `multiprocessing`.

    Args:
        needed: Classes whose modules the process imports before it is ready.

    Attributes:
        pid: The number of the process, once it is ready.
    """

    def __init__(self, *classes: type) -> None:
        self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=_initialize_worker)
        with temporary_environment(SINGLE_THREAD):
            self.pid = self._pool.submit(_report_pid, classes)
        self._answer: Future[Any] = self.pid

    def submit(self, function: Callable[..., T], *arguments: Any) -> Future[T]:
        """Return the result to come of a call; everything is pickled.

        Raises:
            BrokenProcessPool: The process has died.
        """
        self._answer = found = self._pool.submit(function, *arguments)
        return found

    def kill(self) -> None:
        """Kill the process, once it has started; the result of its call is then a `BrokenProcessPool`."""
        with suppress(BrokenProcessPool, ProcessLookupError):
            os.kill(self.pid.result(), signal.SIGTERM)

    def close(self) -> None:
        """End the process, in the middle of its call where it has one."""
        if not self._answer.done():
            self.kill()
        self._pool.shutdown(cancel_futures=True)


def _report_pid(classes: tuple[type, ...]) -> int:
    """Return the number of the process, which has imported what it needs."""
    return os.getpid()


def _initialize_worker() -> None:
    """Leave Ctrl-C to the driver, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)
