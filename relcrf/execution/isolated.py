"""Work in processes of their own, one for each piece, so that its memory and its crashes are its own."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from relcrf.execution.process import WorkerProcess

T = TypeVar("T")


@dataclass(frozen=True)
class IsolatedResult(Generic[T]):
    """What came of a piece of work.

    Args:
        number: of the piece.
        value: None where there is none, and then `failure`: the process `died`, or was `stopped` at the limit.
    """

    number: int
    value: T | None
    failure: str = ""


@dataclass
class _RunningTask:
    """A piece of work in its process.

    Args:
        started_at: When its work began, which is after Python and its packages have started.
    """

    number: int
    process: WorkerProcess
    time_limit: float
    started_at: float | None = None

    @property
    def deadline(self) -> float:
        """When its time is over."""
        if self.started_at is None and self.process.pid.done():
            self.started_at = time.monotonic()
        return float("inf") if self.started_at is None else self.started_at + self.time_limit


def run_isolated(
    tasks: Sequence[Callable[[], T]], jobs: int, time_limit: float = float("inf")
) -> Iterator[IsolatedResult[T]]:
    """Does every piece in a fresh process (`spawn`) of one thread, and gives the answers as they come.

    Pieces and answers are pickled. Processes that are still at work are ended where nobody asks for more answers. A script that
    uses this starts its work below `if __name__ == "__main__":`, as for all of Python's `multiprocessing`.

    Args:
        jobs: processes at a time, from 1.
        time_limit: seconds that a piece may take, from when its process has started and imported what it is.

    Raises:
        Exception: what a piece raises comes back as itself.
    """
    waiting = list(enumerate(tasks))
    running: dict[Future[T], _RunningTask] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                number, piece = waiting.pop(0)
                process = WorkerProcess(type(piece))
                running[process.submit(piece)] = _RunningTask(number, process, time_limit)
            left = min(each.deadline for each in running.values()) - time.monotonic()
            awaited: list[Future[Any]] = [*running]
            awaited += [each.process.pid for each in running.values() if not each.process.pid.done()]
            timeout = None if left == float("inf") else max(left, 0.0)
            finished, _ = wait(awaited, timeout, FIRST_COMPLETED)
            done = {future for future in running if future in finished}
            late = {future for future, each in running.items() if each.deadline <= time.monotonic()} - done
            for future in late:
                running[future].process.kill()
            for future in done | late:
                ended = running.pop(future)
                try:
                    yield IsolatedResult(ended.number, future.result())
                except BrokenProcessPool:
                    yield IsolatedResult(ended.number, None, "stopped" if future in late else "died")
                finally:
                    ended.process.close()
    finally:
        for each in running.values():
            each.process.close()


def memory_usage() -> tuple[int, int]:
    """Bytes that this process has in memory now, and that it has had at most.

    Both are 0 where the system has no `/proc`: what `getrusage` counts would begin with the memory of who started the process.
    """
    if sys.platform != "linux":
        return 0, 0
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    now, most = (int(lines[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))
    return now, most
