"""What a reader of a file format is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar


class AbstractReader(ABC):
    """Says which files it reads, and how DuckDB scans one."""

    suffixes: ClassVar[tuple[str, ...]]
    """Endings of file names, with the dot, in lower case."""

    @abstractmethod
    def scan(self, path: Path) -> str:
        """A DuckDB table expression for the file, to stand after FROM."""


def literal(text: str) -> str:
    """A SQL string literal."""
    return "'" + text.replace("'", "''") + "'"
