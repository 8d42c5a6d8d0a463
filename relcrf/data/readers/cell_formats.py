"""Formats that a manifest states for the texts of single columns, such as dates and decimal commas in a database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import duckdb

from relcrf.data.readers.base import SourceTable, require_columns
from relcrf.data.readers.csv_format import CsvFormat
from relcrf.data.readers.csv_values import (
    DATE_FORMAT,
    NUMBER_FORMATS,
    ColumnFormat,
    column_formats,
    date_format,
    number_format,
    open_tester,
)
from relcrf.data.store import Store, quoted
from relcrf.errors import Span, listing


def format_problem(format: object) -> str | None:
    """Return the expected value if an object is not the format of a column; None if it is one."""
    if isinstance(format, str) and (format in NUMBER_FORMATS or DATE_FORMAT.fullmatch(format)):
        return None
    return f"a date such as '%d.%m.%Y', or one of {listing(NUMBER_FORMATS)}"


def find_formats(scan: str, columns: Sequence[str], store: Store, delimiter: str = ";") -> list[ColumnFormat]:
    """Return the formats of columns of texts that are not read as numbers or dates otherwise.

    Args:
        scan: A DuckDB table expression that contains the columns.
        delimiter: The delimiter of the cells; beside commas, decimal commas are not detected.
    """
    if not columns:
        return []
    texts = f"(SELECT {', '.join(map(quoted, columns))} FROM {scan})"
    with open_tester(texts, store) as tester:
        return column_formats(tester, CsvFormat(), delimiter)


def convert_formats(
    table: SourceTable, formats: Mapping[str, str], location: Span | None, connection: duckdb.DuckDBPyConnection
) -> SourceTable:
    """Return a table in which the texts of some columns are numbers with a decimal point, or dates of ISO 8601.

    Cells that do not have the format, and columns that are not texts, remain unchanged.

    Args:
        formats: The format of each column.
        location: The manifest's statement of the formats.

    Raises:
        DataError: The table has no such column (E232).
    """
    if not formats:
        return table
    types = require_columns(table, formats, location, connection)
    cells = {name: quoted(name) for name in types}
    for name, format in formats.items():
        if types[name] == "VARCHAR":
            found = number_format(name, format) if format in NUMBER_FORMATS else date_format(name, format)
            cells[name] = f"coalesce({found.converted}, {quoted(name)})"
    return table.with_cells([*types], cells)
