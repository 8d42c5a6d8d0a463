"""An executor that runs shards in processes of this machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from pathlib import Path

from relcrf.errors import Diagnostic, UsageError
from relcrf.execution.base import AbstractExecutor, ShardRangeWork, T, shard_ranges
from relcrf.execution.process import WorkerProcess

MAX_DEATHS = 3
"""Maximum number of restarts of a worker in one call. A shard that needs too much memory kills every new worker."""


class PoolExecutor(AbstractExecutor):
    """A pool that always assigns the same range of shards to a process, so that the process can cache loaded shards.

    A process that dies is replaced, and the shards of the process are processed again. A script that uses this class must
    start its work below `if __name__ == "__main__":`, as with all of Python's `multiprocessing`.

    Args:
        workers: Number of processes, at least 1; they start when the first task is submitted.

    Raises:
        UsageError: The number of workers is invalid (E362), or a worker died repeatedly (E363).
    """

    def __init__(self, workers: int) -> None:
        if workers < 1:
            message = f"invalid number of worker processes: {workers}"
            raise UsageError(Diagnostic("E362", message, hint="use 1 or more; the number of cores is a good choice"))
        self._processes: list[WorkerProcess | None] = [None] * workers

    def _distribute(self, work: ShardRangeWork[T], shards: Sequence[Path]) -> Iterator[T]:
        ranges = [(r.start, shards[r.start : r.stop]) for r in shard_ranges(len(shards), len(self._processes))]
        deaths = [0] * len(ranges)
        results: list[list[T]] = [[] for _ in ranges]
        pending = {self._submit(k, work, *shard_range): k for k, shard_range in enumerate(ranges)}
        while pending:
            done, _ = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                k = pending.pop(future)
                try:
                    results[k] = future.result()
                except BrokenProcessPool:
                    deaths[k] += 1
                    if deaths[k] > MAX_DEATHS:
                        raise UsageError(_death_diagnostic(deaths[k], ranges[k][1])) from None
                    pending[self._submit(k, work, *ranges[k])] = k
        for range_results in results:
            yield from range_results

    def _submit(self, k: int, work: ShardRangeWork[T], start: int, shards: Sequence[Path]) -> Future[list[T]]:
        """Submit work to process k and return the future. Start the process if necessary; replace it if it has died."""
        if (process := self._processes[k]) is not None:
            with suppress(BrokenProcessPool):
                return process.submit(work, start, shards)
            process.close()
        self._processes[k] = process = WorkerProcess()
        return process.submit(work, start, shards)

    def close(self) -> None:
        """End the processes, even if tasks are running. The next call of `map` or `map_reduce` starts new processes."""
        for k, process in enumerate(self._processes):
            if process is not None:
                process.close()
                self._processes[k] = None


def _death_diagnostic(times: int, shards: Sequence[Path]) -> Diagnostic:
    message = f"a worker process died {times} times on {shards[0]}"
    notes = (f"the process had {len(shards)} shards; the last is {shards[-1]}",) if len(shards) > 1 else ()
    hint = "the usual cause is a lack of memory: use fewer workers, or smaller shards"
    return Diagnostic("E363", message, hint=hint, notes=notes)
