"""The interface of the readers of file formats."""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import duckdb

from relcrf.data.store import Store, quoted
from relcrf.errors import DataError, Diagnostic, Span, listing, suggestion


@dataclass(frozen=True)
class MissingTexts:
    """The texts of a file that are read as missing.

    Args:
        scan: A DuckDB table expression whose cells have the texts.
        statement: The texts that the manifest declares, as TOML.
        conditions: SQL conditions that a cell has one of the texts, by column.
    """

    scan: str
    statement: str
    conditions: Mapping[str, str]


@dataclass(frozen=True)
class ParquetFile:
    """A Parquet file of a table.

    Args:
        path: The file.
        literal: SQL literal of the file.
        constants: The values that the table adds to each row of the file, as text.
    """

    path: Path
    literal: str
    constants: str = ""

    @property
    def scan(self) -> str:
        """The DuckDB table expression of the file."""
        return f"read_parquet({self.literal}, hive_partitioning = false)"


@dataclass(frozen=True)
class StoredFormat:
    """The format with which a column of a CSV file was read; runs store those of the training data.

    Args:
        table: The folded name of the table.
        key: The key of `[tables.NAME.csv]` that states the format: `decimal`, `thousands`, `dates` or `units`.
        format: The format as the key `formats` of a table states it, or the unit.
    """

    table: str
    column: str
    key: str
    format: str


@dataclass(frozen=True)
class SourceTable:
    """A table that a reader found in a file or on a server, or the result of a manifest's query.

    Args:
        name: The table's name in models.
        location: The file or server, and the table if there are several, as shown in messages.
        scan: A DuckDB table expression for a FROM clause.
        numbered_scan: A variant of `scan` whose first column is the row number; None if row k of `scan` has number k.
        format: The format of the file, such as `CSV, delimiter ';'`, as `relcrf check` prints it.
        note: What the reader assumed about the format, for the user; empty if it assumed nothing unusual.
        files: Locations of the files of a table that has several.
        is_ordered: Whether the rows have an order, so that row numbers identify them; False for results of queries.
        missing_texts: What was read as missing, for each file.
        parquet_files: The files of which `scan` reads each row separately, if these are all its rows; otherwise empty.
        inner_name: The name of the table within a file of several tables, with which `location` then ends, in quotes.
        csv_formats: The formats of the columns of a CSV file.
        problem: Why the table cannot be read, e.g. a view that fails; None if it can. `scan` is then invalid, and the error
            is raised only if a model or a manifest names the table.
    """

    name: str
    location: str
    scan: str
    numbered_scan: str | None = None
    format: str = ""
    note: str = ""
    inner_name: str | None = None
    files: tuple[str, ...] = ()
    is_ordered: bool = True
    missing_texts: tuple[MissingTexts, ...] = ()
    parquet_files: tuple[ParquetFile, ...] = ()
    csv_formats: tuple[StoredFormat, ...] = ()
    problem: Diagnostic | None = None

    def with_cells(self, columns: Sequence[str], cells: Mapping[str, str]) -> SourceTable:
        """Return the table with other columns.

        Args:
            columns: The names of the columns.
            cells: The SQL of the cell of each new column, by name.
        """
        selected, numbered_scan = (
            ", ".join(f"{sql} AS {quoted(name)}" for name, sql in cells.items()),
            self.numbered_scan,
        )
        if numbered_scan is not None:
            number = "row".ljust(max(map(len, columns)) + 1, "_")
            names = ", ".join(map(quoted, (number, *columns)))
            numbered_scan = f"(SELECT {number}, {selected} FROM {numbered_scan} AS numbered({names}))"
        return replace(self, scan=f"(SELECT {selected} FROM {self.scan} AS plain)", numbered_scan=numbered_scan)


def require_columns(
    table: SourceTable, names: Iterable[str], location: Span | None, connection: duckdb.DuckDBPyConnection
) -> dict[str, str]:
    """Return DuckDB's types of all columns of a table, by name.

    Args:
        names: The columns that a manifest names.
        location: The manifest's statement of these columns.

    Raises:
        DataError: The table lacks one of these columns (E232).
    """
    rows = connection.execute(f"DESCRIBE SELECT * FROM {table.scan}").fetchall()
    types = {str(name): str(column_type) for name, column_type, *_ in rows}
    for name in names:
        if name not in types:
            hint = suggestion(name, types) or f"its columns are {listing(types)}"
            raise DataError(Diagnostic("E232", f"{table.location} has no column '{name}'", location, hint))
    return types


class AbstractReader(ABC):
    """The interface of a reader: the files that it accepts, and the tables in a file."""

    suffixes: ClassVar[tuple[str, ...]]
    """Suffixes of file names, with the dot, in lower case."""

    def accepts(self, path: Path) -> bool:
        """Return True if a file has the reader's format. Override this method if another reader has the same suffix."""
        return True

    @abstractmethod
    def tables(self, path: Path, name: str, store: Store) -> Iterator[SourceTable]:
        """Yield the tables of a file.

        Args:
            name: The file's name without its suffix; a reader uses it if the file contains no names of tables.
            store: The database, in which a reader stores rows that DuckDB cannot read from the file.

        Raises:
            DataError: The file does not have the format. Errors of DuckDB may be raised unchanged.
        """


def reader_problem(reader: object) -> str | None:
    """Return an error message for an invalid reader of a plugin; None if the reader is valid."""
    if not (isinstance(reader, type) and issubclass(reader, AbstractReader)):
        return "it is not a subclass of relcrf.data.readers.base.AbstractReader"
    if inspect.isabstract(reader):
        return "it has no method 'tables'"
    suffixes = getattr(reader, "suffixes", None)
    if not isinstance(suffixes, tuple) or not all(
        isinstance(s, str) and re.fullmatch(r"\.[^A-Z]+", s) for s in suffixes
    ):
        return f"'suffixes' is not a tuple of lower-case suffixes that start with a dot: {suffixes!r}"
    return None
