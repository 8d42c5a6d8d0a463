"""What a reader of a file format is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from relcrf.data.store import Store


@dataclass(frozen=True)
class SourceTable:
    """A table that a reader found.

    Args:
        name: what the model calls it.
        location: what messages call it.
        scan: a DuckDB table expression, to stand after FROM.
        numbered_scan: as `scan` with a column more in front, the numbers of rows for messages; None where they are counted from 1.
    """

    name: str
    location: str
    scan: str
    numbered_scan: str | None = None


class AbstractReader(ABC):
    """Says which files it reads, and which tables one holds."""

    suffixes: ClassVar[tuple[str, ...]]
    """Endings of file names, with the dot, in lower case."""

    def accepts(self, path: Path) -> bool:
        """Whether a file with such an ending is of this format, where several formats share the ending."""
        return True

    @abstractmethod
    def tables(self, path: Path, name: str, store: Store) -> Iterator[SourceTable]:
        """The tables of a file.

        Args:
            name: the file's name without its ending; the name of a table that has no other.
            store: where rows are put that DuckDB cannot scan in the file.

        Raises:
            DataError: where the file is not of the format. What DuckDB says of it may be raised as it is.
        """
