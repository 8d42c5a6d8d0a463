"""All shards in this process, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from relcrf.execution.base import AbstractExecutor, ShardRangeWork, T


class SerialExecutor(AbstractExecutor):
    """Needs nothing and starts nothing."""

    def _distribute(self, work: ShardRangeWork[T], shards: Sequence[Path]) -> Iterator[T]:
        yield from work(0, shards)
