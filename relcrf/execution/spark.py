"""An executor that runs shards on the executors of Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relcrf.errors import Diagnostic, RelcrfError, UsageError
from relcrf.execution.base import AbstractExecutor, ShardRangeWork, T, shard_ranges
from relcrf.execution.spark_session import error_reasons

if TYPE_CHECKING:
    from pyspark import RDD, Broadcast
    from pyspark.sql import SparkSession


class SparkExecutor(AbstractExecutor):
    """An executor that sends the task and the paths of the shards to Spark's executors, which open the shards themselves.

    The paths must therefore refer to the same folders on all machines; a cluster requires a shared file system.
    Spark reassigns the work of an executor that dies.

    Args:
        session: The session, which the caller must stop.

    Raises:
        UsageError: The work on a range of shards failed several times on Spark (E364).
    """

    def __init__(self, session: SparkSession) -> None:
        self._context = session.sparkContext
        self._shards: list[Path] = []
        self._cached_ranges: RDD[tuple[int, list[Path]]] | None = None

    def _distribute(self, work: ShardRangeWork[T], shards: Sequence[Path]) -> Iterator[T]:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            ranges = self._partition(list(shards))
            broadcast = self._context.broadcast(work)
            try:
                results = ranges.mapPartitions(partial(_run_partition, broadcast)).collect()
            finally:
                with suppress(Py4JError, OSError):  # it would replace the error of the work
                    broadcast.destroy()
        except (PySparkException, Py4JError, OSError) as error:  # OSError: Spark's process has ended
            hint = "check the log of the executors; if memory was exhausted, use more executors or smaller shards"
            message = "Spark could not process the shards"
            raise UsageError(Diagnostic("E364", message, hint=hint, notes=error_reasons(error))) from error
        for result in results:
            if isinstance(result, RelcrfError):
                raise result
            yield from result

    def _partition(self, shards: list[Path]) -> RDD[tuple[int, list[Path]]]:
        """Return a cached collection with one range of shards per core; Spark sends work to the executor that caches a range.

        An executor thus usually receives shards that it has loaded before. The ranges change if Spark adds cores.
        """
        n_cores = self._context.defaultParallelism
        if self._cached_ranges is None or self._shards != shards or n_cores > self._cached_ranges.getNumPartitions():
            ranges = [
                (shard_range.start, shards[shard_range.start : shard_range.stop])
                for shard_range in shard_ranges(len(shards), n_cores)
            ]
            self._cached_ranges, self._shards = self._context.parallelize(ranges, n_cores).cache(), shards
        return self._cached_ranges


def _run_partition(
    work: Broadcast[ShardRangeWork[Any]], ranges: Iterable[tuple[int, Sequence[Path]]]
) -> Iterator[list[Any] | RelcrfError]:
    """Yield the results of the ranges of a partition."""
    for start, shards in ranges:
        try:
            yield work.value(start, shards)
        except RelcrfError as error:  # if it were raised, Spark would retry the work, which cannot fix a user error
            yield error
