"""An executor that runs all shards in this process, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from relcrf.execution.base import AbstractExecutor, ShardRangeWork, T


class SerialExecutor(AbstractExecutor):
    """An executor that starts no processes."""

    def _distribute(self, work: ShardRangeWork[T], shards: Sequence[Path]) -> Iterator[T]:
        yield from work(0, shards)
