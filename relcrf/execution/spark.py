"""Shards on the executors of Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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
    """Sends paths and the task to the executors of a session, and nothing else; each opens the shards itself.

    So the paths must mean the same folders everywhere: on a cluster that is a file system that all its machines have. What an
    executor that dies has had is done again by another; that is Spark's own work.

    Args:
        session: stays the caller's, who stops it.

    Raises:
        UsageError: Spark gave up, since the same work failed several times (E364).
    """

    def __init__(self, session: SparkSession) -> None:
        self._context = session.sparkContext
        self._shards: list[Path] = []
        self._runs: RDD[tuple[int, list[Path]]] | None = None

    def _distribute(self, work: ShardRangeWork[T], shards: Sequence[Path]) -> Iterator[T]:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        runs = self._partition(list(shards))
        broadcast = self._context.broadcast(work)
        try:
            answers = runs.mapPartitions(partial(_run_partition, broadcast)).collect()
        except (PySparkException, Py4JError) as error:
            hint = "look at the log of the executors; out of memory, more executors or smaller shards help"
            raise UsageError(Diagnostic("E364", "Spark gave up", hint=hint, notes=error_reasons(error))) from error
        finally:
            broadcast.destroy()
        for answer in answers:
            if isinstance(answer, RelcrfError):
                raise answer
            yield from answer

    def _partition(self, shards: list[Path]) -> RDD[tuple[int, list[Path]]]:
        """A run of shards for each core, as a collection that the executors keep: Spark sends work to where its data is.

        So an executor mostly has the shards that it has loaded before. They are dealt anew when cores have come.
        """
        n_cores = self._context.defaultParallelism
        if self._runs is None or self._shards != shards or n_cores > self._runs.getNumPartitions():
            runs = [(run.start, shards[run.start : run.stop]) for run in shard_ranges(len(shards), n_cores)]
            self._runs, self._shards = self._context.parallelize(runs, n_cores).cache(), shards
        return self._runs


def _run_partition(
    work: Broadcast[ShardRangeWork[Any]], runs: Iterable[tuple[int, Sequence[Path]]]
) -> Iterator[list[Any] | RelcrfError]:
    """Yield the answers of the runs of a partition."""
    for start, shards in runs:
        try:
            yield work.value(start, shards)
        except RelcrfError as error:  # Spark does again what fails, which mends no mistake of a user's
            yield error
