"""Raw tables: the tables of a dataset before they are coded for a model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from relcrf.data.manifest import RowPolicies, TableEntry
from relcrf.data.names import NamedColumns
from relcrf.data.readers.base import MissingTexts, ParquetFile, StoredFormat
from relcrf.data.row_repairs import row_location
from relcrf.data.store import quoted
from relcrf.errors import DataError, Diagnostic, listing, suggestion
from relcrf.model.spec import fold_name


@dataclass(frozen=True)
class RawTable(NamedColumns):
    """A raw table of a dataset.

    Args:
        name: The file name without its suffix, or the name specified by the caller or a manifest.
        location: The file, database table or argument that contains the table, as shown in messages.
        scan: A DuckDB table expression that returns the rows.
        columns: Column names.
        types: DuckDB type of each column.
        is_open: For a table of a random relation: tuples that the table does not list are query variables if True,
            and false if False.
        numbered_scan: A variant of `scan` whose first column is the row number; None if row k of `scan` has number k.
        policies: The policies for invalid rows that the manifest declares.
        reading: What else the manifest declares about reading the rows, so that content hashes depend on it.
        files: Locations of the files, if the table has several; see `row_location`.
        format, inner_name, is_ordered, missing_texts, parquet_files, csv_formats: See `SourceTable`.
        source_columns: The names in the source of the columns that the manifest renames, by new name.
    """

    name: str
    location: str
    scan: str
    columns: tuple[str, ...]
    types: tuple[str, ...]
    is_open: bool = False
    numbered_scan: str | None = None
    policies: RowPolicies = field(default_factory=RowPolicies)
    reading: str = ""
    files: tuple[str, ...] = ()
    format: str = ""
    inner_name: str | None = None
    is_ordered: bool = True
    missing_texts: tuple[MissingTexts, ...] = ()
    parquet_files: tuple[ParquetFile, ...] = ()
    csv_formats: tuple[StoredFormat, ...] = ()
    source_columns: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_csv(self) -> bool:
        """True if the reader of CSV files read the cells, so that it converted their numbers and dates."""
        return re.match(r"CSV|[\d,]+ files: CSV", self.format) is not None

    @property
    def path(self) -> Path:
        """The path of the file that contains the table."""
        location = self.location
        if self.inner_name is not None:
            location = location.removesuffix(f"'{self.inner_name}'").rpartition(", ")[0]
        return Path(location)

    def row_location(self, number: int) -> tuple[str, int]:
        """Return the file and the row in this file of a row number of `numbered_scan`."""
        return row_location(number, self.location, self.files)

    def row_name(self, number: int, location: str | None = None) -> str:
        """Return a row number of `numbered_scan` for messages: `4`, or `4 of b.csv` if that is not the file `location`."""
        file, row = self.row_location(number)
        return str(row) if not self.files or file == location else f"{row} of {file}"

    def column_type(self, column: str) -> str:
        """Return DuckDB's type of a column."""
        return self.types[self.columns.index(column)]


def rename_columns(table: RawTable, entry: TableEntry) -> RawTable:
    """Return a table with the columns renamed as the manifest entry specifies.

    Raises:
        DataError: The table lacks a column that the entry renames, or another column already has the new name.
    """
    names = {}
    for new, old in entry.columns.items():
        column = table.column(old)
        if column is None:
            hint = suggestion(old, table.columns) or f"its columns are {listing(table.columns)}"
            message = f"{table.location} has no column '{old}'"
            raise DataError(Diagnostic("E212", message, entry.columns_location, hint))
        names[column] = new
    columns = tuple(names.get(column, column) for column in table.columns)
    for new in names.values():
        if sum(fold_name(column) == fold_name(new) for column in columns) > 1:
            message = f"{table.location} already has another column '{new}'"
            raise DataError(Diagnostic("E232", message, entry.columns_location, "rename that column as well"))
    selected = ", ".join(f"{quoted(old)} AS {quoted(new)}" for old, new in zip(table.columns, columns, strict=True))
    # A location must identify one table; two manifest entries may read one file and rename columns differently.
    suffix = f", table '{table.name}'"
    location = table.location.removesuffix(suffix) + suffix
    scan, renamed = f"(SELECT {selected} FROM {table.scan})", {new: old for old, new in names.items()}
    return replace(table, location=location, scan=scan, columns=columns, source_columns=renamed)
