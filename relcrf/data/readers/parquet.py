"""A reader of Parquet files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from relcrf.data.readers.base import AbstractReader, SourceTable
from relcrf.data.store import Store


class ParquetReader(AbstractReader):
    """A reader that keeps the column types of the file."""

    suffixes: ClassVar[tuple[str, ...]] = (".parquet",)

    def tables(self, path: Path, name: str, store: Store) -> Iterator[SourceTable]:
        yield SourceTable(name, str(path), f"read_parquet({store.file_literal(path)}, hive_partitioning = false)")
