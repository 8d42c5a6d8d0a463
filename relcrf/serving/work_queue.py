"""A bounded queue between the event loop of a server and a thread that processes waiting jobs in batches."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

GATHER_SECONDS, MAX_GATHERINGS = 0.002, 8
"""Length and maximum number of the pauses in which the thread waits for further jobs between two batches."""

JOIN_SECONDS = 5.0
"""Seconds that `close` waits for the batch in process; the jobs of a longer batch have reached their time limit."""


class QueueFullError(Exception):
    """The exception raised if the queue has no room for the items of a request."""


@dataclass(frozen=True, eq=False)
class _Job(Generic[Item, Result]):
    item: Item
    future: asyncio.Future[Result]


class WorkQueue(Generic[Item, Result]):
    """A queue that starts its thread with the first job. All methods are called in the event loop.

    Args:
        process: Function that returns a result for each item of a batch; it runs in the thread. If it raises an exception, all
            callers of the batch receive it.
        capacity: Maximum number of jobs that wait or are processed.
        batch_size: Maximum number of jobs per batch. A batch consists of the jobs that wait when the previous one ends.
    """

    def __init__(
        self, name: str, process: Callable[[Sequence[Item]], Sequence[Result]], capacity: int, batch_size: int
    ) -> None:
        self._name, self._process = name, process
        self.capacity, self.batch_size = capacity, batch_size
        self.n_jobs = 0
        """Number of jobs that wait or are processed."""
        self._waiting: SimpleQueue[_Job[Item, Result] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, items: Sequence[Item], seconds: float) -> list[Result]:
        """Process items and return their results.

        Raises:
            QueueFullError: The queue has no room for all items.
            TimeoutError: The results were not available within `seconds`; items that still wait are dropped.
        """
        if self.n_jobs + len(items) > self.capacity:
            raise QueueFullError
        loop = asyncio.get_running_loop()
        if self._thread is None or self._loop is not loop:
            self._loop = loop
            self._thread = threading.Thread(target=self._work, args=(loop,), name=self._name, daemon=True)
            self._thread.start()
        jobs = [_Job[Item, Result](item, loop.create_future()) for item in items]
        self.n_jobs += len(jobs)
        for job in jobs:
            self._waiting.put(job)
        async with asyncio.timeout(seconds):  # cancels the futures of jobs that still wait
            return await asyncio.gather(*(job.future for job in jobs))

    async def close(self) -> None:
        """Stop the thread after the batch in process."""
        if self._thread is not None:
            self._waiting.put(None)
            await asyncio.to_thread(self._thread.join, JOIN_SECONDS)
            self._thread = None

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        while (job := self._waiting.get()) is not None:
            jobs = [job]
            is_closed = False
            while len(jobs) < self.batch_size and not is_closed:
                try:
                    following = self._waiting.get_nowait()
                except Empty:
                    break
                if following is None:
                    is_closed = True
                else:
                    jobs.append(following)
            active = [job for job in jobs if not job.future.cancelled()]
            try:
                results: Sequence[Result] | Exception = self._process([job.item for job in active]) if active else []
            except Exception as error:
                results = error
            loop.call_soon_threadsafe(self._deliver, len(jobs), active, results)
            if len(jobs) > 1:
                self._gather()
            if is_closed:
                return

    def _gather(self) -> None:
        """Wait while jobs arrive: the event loop sends the answers of a batch, and receives the next requests of the clients.

        Without a pause, the clients divide into two groups that alternate, and batches have half the size.
        """
        n_before = -1
        for _ in range(MAX_GATHERINGS):
            n_waiting = self._waiting.qsize()
            if n_waiting == n_before or n_waiting >= self.batch_size:
                break
            n_before = n_waiting
            time.sleep(GATHER_SECONDS)

    def _deliver(
        self, n_jobs: int, active: Sequence[_Job[Item, Result]], results: Sequence[Result] | Exception
    ) -> None:
        self.n_jobs -= n_jobs
        if isinstance(results, Exception):
            for job in active:
                if not job.future.cancelled():
                    job.future.set_exception(results)
            return
        for job, result in zip(active, results, strict=True):
            if not job.future.cancelled():
                job.future.set_result(result)
