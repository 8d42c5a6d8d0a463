"""A reader of tab-separated text with a header row, plain or compressed."""

from __future__ import annotations

from typing import ClassVar

from relcrf.data.readers.csv import CsvReader


class TsvReader(CsvReader):
    """A CSV reader with a tab as the delimiter."""

    suffixes: ClassVar[tuple[str, ...]] = (".tsv", ".tsv.gz", ".tsv.zst")
    default_delimiter: ClassVar[str | None] = "\t"
