"""The interface of the readers of file formats."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from relcrf.data.store import Store


@dataclass(frozen=True)
class SourceTable:
    """A table of a file, server or query.

    Args:
        name: The table's name in models.
        location: The location shown in messages.
        scan: A DuckDB table expression for a FROM clause.
        numbered_scan: Like `scan`, with row numbers for messages as the first column; None if rows are numbered from 1.
    """

    name: str
    location: str
    scan: str
    numbered_scan: str | None = None


class AbstractReader(ABC):
    """The interface of a reader: the files that it accepts, and the tables in a file."""

    suffixes: ClassVar[tuple[str, ...]]
    """Suffixes of file names, with the dot, in lower case."""

    def accepts(self, path: Path) -> bool:
        """Return True if a file with one of the suffixes has this format. Readers that share a suffix override this method."""
        return True

    @abstractmethod
    def tables(self, path: Path, name: str, store: Store) -> Iterator[SourceTable]:
        """Yield the tables of a file.

        Args:
            name: The file's name without its suffix, used for a table without a name.
            store: The store for rows that DuckDB cannot scan in the file.

        Raises:
            DataError: The file does not have the format. Errors of DuckDB may be raised unchanged.
        """
