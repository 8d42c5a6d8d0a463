"""SQL that converts columns of raw tables to attribute types, and queries for bad rows (rows with invalid values)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import duckdb

from relcrf.data.cell_texts import MAX_EXACT_INTEGER, REAL_TYPES, cell_text_sql
from relcrf.data.dataset import quoted
from relcrf.data.raw_table import RawTable
from relcrf.data.store import literal, trimmed_sql
from relcrf.errors import DataLocation, Diagnostic
from relcrf.model.types import AttributeType, Bool, Date, Datetime, Integer, Real, String, Time

MAX_SHOWN_ROWS = 3
"""Maximum number of bad rows that a diagnostic lists; further bad rows are only counted."""

WHOLE_TYPES = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")

MIN_NANOSECOND_TEXT = len("1-1-1 0:0:0.0000001")
"""Length of the shortest text of a timestamp with more than six decimal places."""

MAX_MICROSECONDS = 2**62
"""Bound of datetimes, about the year 146,000; the difference of two datetimes below it fits into 64 bits."""


INVALID_CELL = "relcrf: invalid cell"
"""Message of the error by which a query stops at the first invalid cell; see `required_sql`."""


@dataclass(frozen=True)
class Conversion:
    """SQL that converts a raw column to an attribute type.

    Args:
        present: SQL condition that is true if the cell has a value.
        converted: SQL expression of the converted value; NULL if the cell cannot be converted.
        expected: Description, for messages, of the values that the type accepts.
    """

    present: str
    converted: str
    expected: str


def text_sql(table: RawTable, column: str) -> str:
    """Return a SQL expression of a cell's trimmed text, NULL if it is empty; the table's alias must be `raw`."""
    cell = f"raw.{quoted(column)}"
    column_type = table.column_type(column)
    if column_type == "VARCHAR" or column_type.startswith("ENUM"):
        return trimmed_sql(cell if column_type == "VARCHAR" else f"CAST({cell} AS VARCHAR)")
    return cell_text_sql(cell, column_type)


def required_sql(code: str, condition: str = "true") -> str:
    """Return SQL of `code` that stops the query where `code` is NULL and the condition holds, with the error INVALID_CELL."""
    return f"coalesce({code}, CASE WHEN {condition} THEN error({literal(INVALID_CELL)}) END)"


def integer_sql(text: str) -> str:
    """Return SQL that converts a text to BIGINT; NULL if it is not an integer (a plain cast would round 2.6 to 3)."""
    return f"(CASE WHEN CAST(TRY_CAST({text} AS BIGINT) AS VARCHAR) = {text} THEN TRY_CAST({text} AS BIGINT) END)"


def _instant_sql(text: str) -> str:
    """Return SQL that converts a text to a timestamp in UTC; NULL if it is not one or has nanoseconds, which are cut.

    A year must have four digits: DuckDB would read 15/06/24 as a day of the year 15.
    """
    is_exact = f"length({text}) < {MIN_NANOSECOND_TEXT} OR NOT regexp_matches({text}, '[.][0-9]{{6}}[0-9]*[1-9]')"
    has_year = f"regexp_matches({text}, '^[0-9]{{4,}}[^0-9]')"
    return f"(CASE WHEN {has_year} AND ({is_exact}) THEN TRY_CAST({text} AS TIMESTAMPTZ) END)"


def date_sql(text: str) -> str:
    """Return SQL that converts a text to DATE; NULL if it is not a date or has a time of day other than midnight."""
    day = f"TRY_CAST({text} AS DATE)"
    return f"(CASE WHEN {text} LIKE '____-__-__' THEN {day} WHEN {_instant_sql(text)} = {day} THEN {day} END)"


def time_sql(text: str) -> str:
    """Return SQL that converts a text to the microseconds since midnight; NULL if it is not a time without a zone."""
    clock = "[0-9]{1,2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6}0*)?)?"
    return f"(CASE WHEN regexp_full_match({text}, '{clock}') THEN epoch_us(TRY_CAST({text} AS TIME)) END)"


def datetime_sql(text: str) -> str:
    """Return SQL that converts a text to the microseconds since 1970-01-01 UTC; NULL if it is not a date and time."""
    microseconds = f"epoch_us({_instant_sql(text)})"
    checked = f"CASE WHEN abs({microseconds}) < {MAX_MICROSECONDS} THEN {microseconds} END"
    # Most texts are like 2024-01-31 10:30:00; without room for a zone or fractions of a second, a faster cast is exact.
    is_plain = f"{text} LIKE '____-__-_____:__:__'"
    return f"(CASE WHEN {is_plain} THEN epoch_us(TRY_CAST({text} AS TIMESTAMP)) ELSE {checked} END)"


def scalar_conversion(table: RawTable, column: str, kind: AttributeType) -> Conversion:
    """Return the conversion of a column to `real`, `integer`, `bool`, `string`, `date`, `time` or `datetime`."""
    text = text_sql(table, column)
    match kind:
        case Real():
            number = f"TRY_CAST({text} AS DOUBLE)"
            present = f"({text} IS NOT NULL AND NOT coalesce(isnan({number}), false))"
            return Conversion(
                present, f"(CASE WHEN isfinite({number}) THEN {number} END)", "a finite number such as 12.5"
            )
        case Integer():
            number = f"TRY_CAST({text} AS DOUBLE)"
            present = f"({text} IS NOT NULL AND NOT coalesce(isnan({number}), false))"
            is_whole = f"{number} = floor({number}) AND abs({number}) < {MAX_EXACT_INTEGER}"
            rounded = f"(CASE WHEN {is_whole} THEN CAST({number} AS BIGINT) END)"
            return Conversion(present, f"coalesce({integer_sql(text)}, {rounded})", "a whole number such as 12")
        case Bool():
            return Conversion(f"({text} IS NOT NULL)", f"TRY_CAST({text} AS BOOLEAN)", "true or false")
        case Date():
            return Conversion(f"({text} IS NOT NULL)", date_sql(text), "a date such as 2024-01-31")
        case Time():
            return Conversion(f"({text} IS NOT NULL)", time_sql(text), "a time such as 10:30:00, without a zone")
        case Datetime():
            expected = "a datetime such as 2024-01-31 10:30:00, with at most microseconds"
            return Conversion(f"({text} IS NOT NULL)", datetime_sql(text), expected)
        case String():
            return Conversion(f"({text} IS NOT NULL)", text, "text")
    raise AssertionError(f"{kind} is not a scalar type")


@dataclass(frozen=True)
class BadRows:
    """Rows of a raw table with the same problem.

    Args:
        count: Number of such rows.
        examples: The first of these rows, as (row number, cell text); the text of an empty cell is None.
        original_row: For duplicates, the number of the row that the first example repeats.
    """

    count: int
    examples: list[tuple[int, str | None]]
    original_row: int | None = None

    @property
    def value(self) -> str:
        """The cell text of the first bad row."""
        return str(self.examples[0][1])

    def diagnostic(self, code: str, message: str, table: RawTable, column: str, hint: str) -> Diagnostic:
        """Return a diagnostic that is located at the first bad row and lists the other rows in its notes."""
        location, first = table.row_location(self.examples[0][0])
        original = self.original_row
        notes = [] if original is None else [f"first occurrence in row {table.row_name(original, location)}"]
        if self.count > 1:
            names = ((f"row {table.row_name(row, location)}", value) for row, value in self.examples[1:])
            others = (name if value is None else f"{name} ('{value}')" for name, value in names)
            remaining = f" and {self.count - len(self.examples)} more" if self.count > len(self.examples) else ""
            notes.append(f"also {', '.join(others)}{remaining}")
        return Diagnostic(code, message, DataLocation(location, first, column), hint, tuple(notes))


def any_row_matches(connection: duckdb.DuckDBPyConnection, table: RawTable, condition: str) -> bool:
    """Return True if any row of a raw table satisfies a SQL condition, without computing row numbers."""
    ((count,),) = connection.execute(f"SELECT count(*) FROM {table.scan} AS raw WHERE {condition}").fetchall()
    return bool(count)


def find_bad_rows(
    connection: duckdb.DuckDBPyConnection, table: RawTable, column: str, condition: str, cell_sql: str | None = None
) -> BadRows | None:
    """Return the rows of a raw table that satisfy a SQL condition; None if there are none.

    Args:
        cell_sql: SQL expression of the text shown for a bad row; by default, the cell of `column`.
    """
    if not any_row_matches(connection, table, condition):
        return None  # computing row numbers is slow, so it is done only if there is a row to report
    cell = cell_sql or f"raw.{quoted(column)}"
    selected = f"raw.{row_number_column(table)}, CAST({cell} AS VARCHAR), NULL"
    return _fetch_bad_rows(connection, f"SELECT {selected} FROM {scan_with_row_numbers(table)} WHERE {condition}")


def find_duplicate_rows(
    connection: duckdb.DuckDBPyConnection,
    table: RawTable,
    column: str,
    identity: Sequence[str],
    value_sql: str | None = None,
) -> BadRows | None:
    """Return the rows of a raw table that repeat an earlier row; None if there are none.

    Args:
        column: Column whose cells are shown as examples.
        identity: SQL expressions. Rows with equal values of all of these are duplicates; a row with a NULL is skipped.
        value_sql: SQL expression; if given, a duplicate is skipped if its value equals that of the first occurrence.
    """
    row = f"raw.{row_number_column(table)}"
    present = " AND ".join(f"{part} IS NOT NULL" for part in identity)
    selected = (
        f"SELECT {row} AS row, CAST(raw.{quoted(column)} AS VARCHAR) AS cell, [{', '.join(identity)}] AS identity, "
        f"{value_sql or row} AS value FROM {scan_with_row_numbers(table)} WHERE {present}"
    )
    return _fetch_bad_rows(
        connection,
        f"SELECT row, cell, first_value(row) OVER same FROM ({selected}) WINDOW same AS (PARTITION BY identity ORDER BY row) "
        "QUALIFY value IS DISTINCT FROM first_value(value) OVER same",
    )


def row_number_column(table: RawTable) -> str:
    """Return a name for the row number column; it is unique because it is longer than all column names of the table."""
    return "row".ljust(max(map(len, table.columns)) + 1, "_")


def scan_with_row_numbers(table: RawTable) -> str:
    """Return a FROM item named `raw`: a raw table with row numbers, computed before a join or filter reorders rows."""
    columns = ", ".join(map(quoted, (row_number_column(table), *table.columns)))
    return f"{table.numbered_scan or f'(SELECT row_number() OVER (), * FROM {table.scan})'} AS raw({columns})"


def _fetch_bad_rows(connection: duckdb.DuckDBPyConnection, query: str) -> BadRows | None:
    """Summarise a query that selects bad rows: (row number, cell text, row number of the first occurrence or NULL)."""
    rows = connection.execute(
        f"SELECT *, count(*) OVER () FROM ({query}) AS found(row, cell, earlier) ORDER BY row LIMIT {MAX_SHOWN_ROWS}"
    ).fetchall()
    if not rows:
        return None
    _, _, earlier, count = rows[0]
    return BadRows(int(count), [(int(row), cell) for row, cell, _, _ in rows], earlier)


def text_list_sql(values: Sequence[str]) -> str:
    """Return a SQL list of string literals."""
    return "[" + ", ".join(literal(v) for v in values) + "]"


def is_numeric(table: RawTable, column: str) -> bool:
    """Return True if a column has a numeric type; a text column is not numeric, even if all its cells are numbers."""
    column_type = table.column_type(column)
    return column_type in WHOLE_TYPES or column_type in REAL_TYPES or column_type.startswith("DECIMAL")


def number_list_sql(texts: Sequence[str]) -> str | None:
    """Return a SQL list of texts parsed as numbers (NaN for a text that is not a number); None if all are NaN."""
    numbers = [_parse_number(text) for text in texts]
    return None if all(map(math.isnan, numbers)) else f"CAST({text_list_sql([*map(repr, numbers)])} AS DOUBLE[])"


def _parse_number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        return math.nan
    return number if abs(number) < MAX_EXACT_INTEGER else math.nan
