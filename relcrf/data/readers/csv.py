"""Comma-separated text with a header row, plain or compressed."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from relcrf.data.readers.base import AbstractReader, literal


class CsvReader(AbstractReader):
    """Reads every column as text: types are the model's business, so that a bad value is found with its row."""

    suffixes: ClassVar[tuple[str, ...]] = (".csv", ".csv.gz", ".csv.zst")

    def scan(self, path: Path) -> str:
        # No sniffing: a ragged line is an error with its number, and not a reason to skip the lines above it.
        options = "all_varchar = true, header = true, delim = ',', quote = '\"', escape = '\"', skip = 0, comment = ''"
        return f"read_csv({literal(str(path))}, {options}, strict_mode = true, null_padding = false)"
