"""A reader of comma-separated text with a header row, plain or compressed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from relcrf.data.readers.base import AbstractReader, SourceTable
from relcrf.data.store import Store, literal


class CsvReader(AbstractReader):
    """A reader that reads every column as text. Binding to a model converts the texts and reports invalid rows."""

    suffixes: ClassVar[tuple[str, ...]] = (".csv", ".csv.gz", ".csv.zst")
    delimiter: ClassVar[str] = ","

    def tables(self, path: Path, name: str, store: Store) -> Iterator[SourceTable]:
        # Format detection is off: it would skip the lines above a ragged line instead of reporting the ragged line.
        options = f"all_varchar = true, header = true, delim = {literal(self.delimiter)}, quote = '\"', escape = '\"'"
        strict = "skip = 0, comment = '', strict_mode = true, null_padding = false, hive_partitioning = false"
        yield SourceTable(name, str(path), f"read_csv({store.file_literal(path)}, {options}, {strict})")
