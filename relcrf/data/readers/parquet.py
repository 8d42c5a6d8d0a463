"""A reader of Parquet files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from relcrf.data.readers.base import AbstractReader, ParquetFile, SourceTable
from relcrf.data.store import Store, quoted


class ParquetReader(AbstractReader):
    """A reader that keeps the column types of the file, except that times have no zone.

    Parquet's only zone of a time is UTC, and older versions of PyArrow declare it for all times, also for times without a zone.
    """

    suffixes: ClassVar[tuple[str, ...]] = (".parquet",)

    def tables(self, path: Path, name: str, store: Store) -> Iterator[SourceTable]:
        file = ParquetFile(path, store.file_literal(path))
        scan = file.scan
        columns = store.connection.execute(f"DESCRIBE FROM {scan}").fetchall()
        times = [quoted(column) for column, kind, *_ in columns if kind == "TIME WITH TIME ZONE"]
        if times:
            casts = ", ".join(f"{time}::TIME AS {time}" for time in times)
            scan = f"(SELECT * REPLACE ({casts}) FROM {scan})"
        # A column of this name hides the number of the row, by which row groups are selected.
        is_hidden = any(column.casefold() == "file_row_number" for column, *_ in columns)
        yield SourceTable(name, str(path), scan, parquet_files=() if is_hidden else (file,))
