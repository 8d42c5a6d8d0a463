"""Parquet files."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from relcrf.data.readers.base import AbstractReader, literal


class ParquetReader(AbstractReader):
    """Columns keep the types of the file."""

    suffixes: ClassVar[tuple[str, ...]] = (".parquet",)

    def scan(self, path: Path) -> str:
        return f"read_parquet({literal(str(path))})"
