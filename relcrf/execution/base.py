"""What every executor does with shards, and what is asked of the work.

A shard is a folder that the worker opens itself: what travels is its path, the task, and the answer.
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
"""Work on one shard: picklable, and importable by name where it is to run, so no lambda and nothing of `__main__`.

A task may keep what it has loaded in a cache of its module: an executor gives the same shards to the same worker where it can.
`functools.partial` gives it arguments, such as weights.
"""

ShardRangeWork: TypeAlias = Callable[[int, Sequence[Path]], list[T]]
"""Work on a run of consecutive shards, of which the first has a position among all shards."""


class AbstractExecutor(ABC):
    """Does a task on every shard, somewhere. Use it as a context manager, or `close` it.

    A task's exception comes back as itself, with a note that names the shard.
    """

    def map_reduce(self, task: ShardTask[T], shards: Sequence[Path]) -> T:
        """Return the sum of the task's results over the shards: the same bits for every executor and number of workers.

        Args:
            task: returns a number, an array or a tuple of them, of the same shapes for every shard, and does not change it
                afterwards.

        Raises:
            ValueError: where there is no shard, or shapes differ.
        """
        return sum_shards(self._distribute(partial(_sum_results, task), shards))

    def map(self, task: ShardTask[T], shards: Sequence[Path]) -> list[T]:
        """Return the task's results in the order of the shards; they are pickled, so small ones, such as a file's name."""
        return list(self._distribute(partial(_list_results, task), shards))

    @abstractmethod
    def _distribute(self, work: ShardRangeWork[T], shards: Sequence[Path]) -> Iterator[T]:
        """Does the work on consecutive runs of shards, of any lengths; the answers in the order of the shards."""

    def close(self) -> None:
        """Ends what the executor has started. The default is for those that start nothing."""
        return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def shard_ranges(n_shards: int, n_workers: int) -> list[range]:
    """Positions for each worker, as even as can be; fewer runs than workers where there are fewer shards."""
    n_runs = min(n_shards, n_workers)
    return [range(k * n_shards // n_runs, (k + 1) * n_shards // n_runs) for k in range(n_runs)]


def _list_results(task: ShardTask[T], start: int, shards: Sequence[Path]) -> list[T]:
    """Return the results of some shards: the work of `map`."""
    return list(_run_task(task, shards))


def _sum_results(task: ShardTask[T], start: int, shards: Sequence[Path]) -> list[ShardSum[T]]:
    """Return the sums of some shards: the work of `map_reduce`."""
    return merge_nodes(ShardSum(position, 1, result) for position, result in enumerate(_run_task(task, shards), start))


def _run_task(task: ShardTask[T], shards: Sequence[Path]) -> Iterator[T]:
    for shard in shards:
        try:
            result = task(shard)
        except BaseException as error:
            error.add_note(f"in shard {shard}")
            raise
        yield result
