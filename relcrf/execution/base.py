"""The interface of executors, and the requirements on the tasks that they run on shards.

A *shard* is a folder with a part of a ground graph. Workers open a shard by its path; only the path, the task and the result
are transferred.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias, TypeVar

from relcrf.execution.summation import ShardSum, merge_nodes, sum_shards

T = TypeVar("T")


ShardTask: TypeAlias = Callable[[Path], T]
"""A task on one shard. It must be picklable and importable by name; lambdas and functions of `__main__` are not allowed.

A task can cache loaded data in its module, because an executor assigns the same shards to the same worker if possible.
Use `functools.partial` to pass arguments, such as weights, to a task.
"""

ShardRangeWork: TypeAlias = Callable[[int, Sequence[Path]], list[T]]
"""A function of consecutive shards. Its arguments are the position of the first shard and the paths of the shards."""


class AbstractExecutor(ABC):
    """An executor, which runs a task on every shard. Use it as a context manager, or call `close`.

    An exception of a task is raised unchanged, with a note that names the shard.
    """

    def map_reduce(self, task: ShardTask[T], shards: Sequence[Path]) -> T:
        """Return the sum of the task's results over the shards, bitwise identical for every executor and worker count.

        Args:
            task: Function that returns a number, an array or a tuple of these, with the same shapes for every shard. The
                task must not modify a result that it has returned.

        Raises:
            ValueError: `shards` is empty, or the shapes of the results differ.
        """
        return sum_shards(self._distribute(partial(_sum_results, task), shards))

    def map(self, task: ShardTask[T], shards: Sequence[Path]) -> list[T]:
        """Return the task's results in shard order. Results are pickled and should be small, e.g. file names."""
        return list(self._distribute(partial(_list_results, task), shards))

    @abstractmethod
    def _distribute(self, work: ShardRangeWork[T], shards: Sequence[Path]) -> Iterator[T]:
        """Divide the shards into consecutive ranges and run the work on each range; yield the results in shard order."""

    def close(self) -> None:
        """Stop all workers that the executor has started; the default implementation does nothing."""
        return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def shard_ranges(n_shards: int, n_workers: int) -> list[range]:
    """Divide shard positions into nonempty ranges of nearly equal length, at most one per worker."""
    n_ranges = min(n_shards, n_workers)
    return [range(k * n_shards // n_ranges, (k + 1) * n_shards // n_ranges) for k in range(n_ranges)]


def _list_results(task: ShardTask[T], start: int, shards: Sequence[Path]) -> list[T]:
    """Return the task's results for some shards: the `ShardRangeWork` of `map`."""
    return list(_run_task(task, shards))


def _sum_results(task: ShardTask[T], start: int, shards: Sequence[Path]) -> list[ShardSum[T]]:
    """Return the partial sums of some shards: the `ShardRangeWork` of `map_reduce`."""
    return merge_nodes(ShardSum(position, 1, result) for position, result in enumerate(_run_task(task, shards), start))


def _run_task(task: ShardTask[T], shards: Sequence[Path]) -> Iterator[T]:
    for shard in shards:
        try:
            result = task(shard)
        except BaseException as error:
            error.add_note(f"in shard {shard}")
            raise
        yield result
