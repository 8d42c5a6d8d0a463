"""Leading zeros of codes such as `000123`, which spreadsheets and other programs remove."""

from __future__ import annotations

from collections.abc import Mapping

import duckdb

from relcrf.data.readers.base import SourceTable, require_columns
from relcrf.data.store import quoted
from relcrf.errors import Span


def pad_with_zeros(
    table: SourceTable, digits: Mapping[str, int], location: Span | None, connection: duckdb.DuckDBPyConnection
) -> SourceTable:
    """Return a table in which the numbers of some columns are texts with a number of digits; other cells remain unchanged.

    Args:
        digits: The number of digits, by column.
        location: The manifest's statement of the digits.

    Raises:
        DataError: The table has no such column (E232).
    """
    if not digits:
        return table
    columns = [*require_columns(table, digits, location, connection)]
    cells = {name: padded_sql(quoted(name), digits[name]) if name in digits else quoted(name) for name in columns}
    return table.with_cells(columns, cells)


def padded_sql(cell: str, digits: int) -> str:
    """Return SQL of the text of a cell, with leading zeros if it is a number with fewer digits."""
    text = f"trim(CAST({cell} AS VARCHAR))"
    return (
        f"(CASE WHEN regexp_full_match({text}, '[0-9]{{1,{digits}}}') THEN lpad({text}, {digits}, '0') ELSE {text} END)"
    )
