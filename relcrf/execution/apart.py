"""Work in processes of their own, one for each piece, so that its memory and its crashes are its own."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from relcrf.execution.environment import ONE_THREAD, environment
from relcrf.execution.pool import begin

T = TypeVar("T")


@dataclass(frozen=True)
class Done(Generic[T]):
    """What came of a piece of work.

    Args:
        number: of the piece.
        answer: None where there is none, and then `why`: the process `died`, or was `stopped` at the limit.
    """

    number: int
    answer: T | None
    why: str = ""


@dataclass(frozen=True)
class _Process:
    """One piece at work."""

    number: int
    pool: ProcessPoolExecutor
    pid: Future[int]
    limit: float
    began: list[float] = field(default_factory=list)

    @property
    def ends(self) -> float:
        """When it has had its time, which begins with its work: to start Python and its packages is none of that."""
        if not self.began and self.pid.done():
            self.began.append(time.monotonic())
        return self.began[0] + self.limit if self.began else float("inf")

    def kill(self) -> None:
        with suppress(ProcessLookupError, BrokenProcessPool):
            os.kill(self.pid.result(), signal.SIGTERM)


def each_apart(pieces: Sequence[Callable[[], T]], jobs: int, limit: float = float("inf")) -> Iterator[Done[T]]:
    """Does every piece in a fresh process (`spawn`) of one thread, and gives the answers as they come.

    Pieces and answers are pickled. Processes that are still at work are ended where nobody asks for more answers. A script that
    uses this starts its work below `if __name__ == "__main__":`, as for all of Python's `multiprocessing`.

    Args:
        jobs: processes at a time, from 1.
        limit: seconds that a piece may take, from when its process has started and imported what it is.

    Raises:
        Exception: what a piece raises comes back as itself.
    """
    waiting = list(enumerate(pieces))
    running: dict[Future[T], _Process] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                number, piece = waiting.pop(0)
                pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=begin)
                with environment(ONE_THREAD):
                    pid = pool.submit(_ready, type(piece))
                running[pool.submit(piece)] = _Process(number, pool, pid, limit)
            left = min(process.ends for process in running.values()) - time.monotonic()
            awaited: list[Future[Any]] = [*running]
            awaited += [process.pid for process in running.values() if not process.pid.done()]
            finished, _ = wait(
                awaited,
                timeout=None if left == float("inf") else max(left, 0.0),
                return_when=FIRST_COMPLETED,
            )
            done = {future for future in running if future in finished}
            late = {future for future, process in running.items() if process.ends <= time.monotonic()} - done
            for future in late:
                running[future].kill()
            for future in done | late:
                process = running.pop(future)
                try:
                    yield Done(process.number, future.result())
                except BrokenProcessPool:
                    yield Done(process.number, None, "stopped" if future in late else "died")
                finally:
                    process.pool.shutdown()
    finally:
        for process in running.values():
            process.kill()
            process.pool.shutdown(cancel_futures=True)


def _ready(kind: type) -> int:
    """The number of the process, once it has imported what the piece is."""
    return os.getpid()


def memory() -> tuple[int, int]:
    """Bytes that this process has in memory now, and that it has had at most.

    Both are 0 where the system has no `/proc`: what `getrusage` counts would begin with the memory of who started the process.
    """
    if sys.platform != "linux":
        return 0, 0
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    now, most = (int(lines[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))
    return now, most
