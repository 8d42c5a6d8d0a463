"""Shards in processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from pathlib import Path
from typing import Any

from relcrf.errors import Diagnostic, UsageError
from relcrf.execution.base import AbstractExecutor, T, Work, consecutive
from relcrf.execution.environment import ONE_THREAD, environment

MAX_DEATHS = 3
"""Deaths of a worker in one call that are taken for chance. A shard that needs too much memory kills every one."""


class PoolExecutor(AbstractExecutor):
    """Deals the shards to processes: each has the same consecutive run every time, so that its caches hold.

    The processes are fresh ones (`spawn`: threads of Numba and DuckDB do not survive a fork) of one thread each. One that
    dies is replaced, and does its shards again. A script that uses them starts its work below
    `if __name__ == "__main__":`, as for all of Python's `multiprocessing`.

    Args:
        workers: number of processes, from 1. They start with the first work.

    Raises:
        UsageError: there is no such number of workers (E362), or a worker died again and again (E363).
    """

    def __init__(self, workers: int) -> None:
        if workers < 1:
            message = f"there cannot be {workers} worker processes"
            raise UsageError(Diagnostic("E362", message, hint="give 1 or more; the number of cores is a good choice"))
        self._workers = [_Worker() for _ in range(workers)]

    def _spread(self, work: Work[T], shards: Sequence[Path]) -> Iterator[T]:
        runs = [(run.start, shards[run.start : run.stop]) for run in consecutive(len(shards), len(self._workers))]
        deaths = [0] * len(runs)
        answers: list[list[T]] = [[] for _ in runs]
        pending = {self._workers[k].submit(work, *run): k for k, run in enumerate(runs)}
        while pending:
            done, _ = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                k = pending.pop(future)
                try:
                    answers[k] = future.result()
                except BrokenProcessPool:
                    deaths[k] += 1
                    self._workers[k].close()
                    if deaths[k] > MAX_DEATHS:
                        raise UsageError(_deaths(deaths[k], runs[k][1])) from None
                    pending[self._workers[k].submit(work, *runs[k])] = k
        for answer in answers:
            yield from answer

    def close(self) -> None:
        """Ends the processes, in the middle of their work where they have some. They start anew with new work."""
        for worker in self._workers:
            worker.close()


class _Worker:
    """One process, which starts with its first work."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None
        self._pid: Future[int] = Future()
        self._answer: Future[Any] = Future()

    def submit(self, work: Work[T], start: int, shards: Sequence[Path]) -> Future[list[T]]:
        """The answer to come. A process that has died since its last work is replaced."""
        try:
            self._answer = self._running().submit(work, start, shards)
        except BrokenProcessPool:
            self.close()
            self._answer = self._running().submit(work, start, shards)
        return self._answer

    def _running(self) -> ProcessPoolExecutor:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=begin)
            with environment(ONE_THREAD):
                self._pid = self._pool.submit(os.getpid)
        return self._pool

    def close(self) -> None:
        """Ends the process; it is killed where it still works."""
        if self._pool is None:
            return
        if not self._answer.done():
            with suppress(BrokenProcessPool, ProcessLookupError):
                os.kill(self._pid.result(), signal.SIGTERM)
        self._pool.shutdown(cancel_futures=True)
        self._pool = None


def begin() -> None:
    """Runs first in a worker: Ctrl-C is for the driver, and a worker does not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


def _deaths(times: int, shards: Sequence[Path]) -> Diagnostic:
    message = f"a worker process died {times} times over {shards[0]}"
    notes = (f"it had {len(shards)} shards, the last of which is {shards[-1]}",) if len(shards) > 1 else ()
    hint = "most often the system is out of memory: use fewer workers, or smaller shards"
    return Diagnostic("E363", message, hint=hint, notes=notes)
