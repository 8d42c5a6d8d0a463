"""Text separated by tabs with a header row, plain or compressed."""

from __future__ import annotations

from typing import ClassVar

from relcrf.data.readers.csv import CsvReader


class TsvReader(CsvReader):
    """As CSV, with a tab for the comma."""

    suffixes: ClassVar[tuple[str, ...]] = (".tsv", ".tsv.gz", ".tsv.zst")
    delimiter: ClassVar[str] = "\t"
