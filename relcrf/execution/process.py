"""Worker processes with one thread, which run one call at a time and do not outlive their parent."""

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
    """A process started by `spawn`, because the threads of Numba and DuckDB do not survive a `fork`.

    A script that uses this class must start its work below `if __name__ == "__main__":`, as always with `multiprocessing`.

    Args:
        classes: Classes whose modules the process imports before it is ready.

    Attributes:
        pid: A future of the process identifier; it is done when the process is ready.
    """

    def __init__(self, *classes: type) -> None:
        self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=_initialize_worker)
        with temporary_environment(SINGLE_THREAD):
            self.pid = self._pool.submit(_report_pid, classes)
        self._last_call: Future[Any] = self.pid

    def submit(self, function: Callable[..., T], *arguments: Any) -> Future[T]:
        """Send a call to the process and return the future of the result. Arguments and result are pickled.

        Raises:
            BrokenProcessPool: The process has died.
        """
        self._last_call = future = self._pool.submit(function, *arguments)
        return future

    def kill(self) -> None:
        """Wait until the process has started and send it SIGTERM; the running call then raises `BrokenProcessPool`."""
        with suppress(BrokenProcessPool, ProcessLookupError):
            os.kill(self.pid.result(), signal.SIGTERM)

    def close(self) -> None:
        """End the process, even if a call is running."""
        if not self._last_call.done():
            self.kill()
        self._pool.shutdown(cancel_futures=True)


def _report_pid(classes: tuple[type, ...]) -> int:
    """Return the process identifier. Unpickling the argument imports the modules of the classes."""
    return os.getpid()


def _initialize_worker() -> None:
    """Ignore the signals of the terminal, which the parent process handles, and exit when the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "SIGHUP"):  # not on Windows
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)
