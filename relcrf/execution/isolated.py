"""Execution of each task in a separate process, so that crashes and memory use do not affect other tasks."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import psutil

from relcrf.execution.process import WorkerProcess

T = TypeVar("T")


@dataclass(frozen=True)
class IsolatedResult(Generic[T]):
    """The return value or the failure of a task.

    Args:
        number: Index of the task.
        value: The task's return value; None if the task failed.
        failure: `died` if the process died, `stopped` if the task exceeded the time limit, empty if the task succeeded.
    """

    number: int
    value: T | None
    failure: str = ""


@dataclass
class _RunningTask:
    """A task and the process that runs it.

    Args:
        started_at: Start time of the task, after Python and the task's packages were loaded.
    """

    number: int
    process: WorkerProcess
    time_limit: float
    started_at: float | None = None

    @property
    def deadline(self) -> float:
        """The time at which the task is stopped."""
        if self.started_at is None and self.process.pid.done():
            self.started_at = time.monotonic()
        return float("inf") if self.started_at is None else self.started_at + self.time_limit


def run_isolated(
    tasks: Sequence[Callable[[], T]], jobs: int, time_limit: float = float("inf")
) -> Iterator[IsolatedResult[T]]:
    """Run each task in a new single-threaded process (`spawn`), and yield the results in the order of completion.

    Tasks and results are pickled. Closing the iterator ends the processes that still run. A script that uses this function
    must start its work below `if __name__ == "__main__":`, as with all of Python's `multiprocessing`.

    Args:
        jobs: Number of concurrent processes, at least 1.
        time_limit: Seconds that a task may take after its process has started and imported the task.

    Raises:
        Exception: An exception of a task is raised unchanged.
    """
    waiting = list(enumerate(tasks))
    running: dict[Future[T], _RunningTask] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                number, task = waiting.pop(0)
                process = WorkerProcess(type(task))
                running[process.submit(task)] = _RunningTask(number, process, time_limit)
            seconds_left = min(running_task.deadline for running_task in running.values()) - time.monotonic()
            awaited: list[Future[Any]] = [*running]
            awaited += [
                running_task.process.pid for running_task in running.values() if not running_task.process.pid.done()
            ]
            timeout = None if seconds_left == float("inf") else max(seconds_left, 0.0)
            finished, _ = wait(awaited, timeout, FIRST_COMPLETED)
            done = {future for future in running if future in finished}
            late = {
                future for future, running_task in running.items() if running_task.deadline <= time.monotonic()
            } - done
            for future in late:
                running[future].process.kill()
            for future in done | late:
                ended_task = running.pop(future)
                try:
                    yield IsolatedResult(ended_task.number, future.result())
                except BrokenProcessPool:
                    yield IsolatedResult(ended_task.number, None, "stopped" if future in late else "died")
                finally:
                    ended_task.process.close()
    finally:
        for running_task in running.values():
            running_task.process.close()


def memory_usage() -> tuple[int, int]:
    """Return this process's current and peak resident memory in bytes.

    The peak is 0 on macOS, where `getrusage` is no substitute: its peak includes the memory of the parent process.
    """
    if sys.platform != "linux":
        memory = psutil.Process().memory_info()
        return memory.rss, getattr(memory, "peak_wset", 0)
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    now, peak = (int(lines[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))
    return now, peak
