"""From raw columns to typed and coded ones: the SQL of each attribute type, and where its bad values are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import duckdb

from relcrf.data.dataset import RawTable, quoted
from relcrf.data.store import literal
from relcrf.errors import DataLocation, Diagnostic
from relcrf.model.types import AttributeType, Bool, Date, Integer, Real, String

MAX_SHOWN_ROWS = 3
"""Bad values of one column that are listed; the rest is counted."""


WHOLE_TYPES = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
REAL_TYPES = ("DOUBLE", "FLOAT")

MAX_EXACT_INTEGER = 9e15
"""Below it every whole number is a floating-point number of its own."""


@dataclass(frozen=True)
class Conversion:
    """A raw column as SQL of the wanted type.

    Args:
        present: is there a value at all? converted: the value, NULL where it is not of the type.
        expected: what the type takes, for messages.
    """

    present: str
    converted: str
    expected: str


def text_sql(table: RawTable, column: str) -> str:
    """A column's value as trimmed text, NULL where the cell is empty; to stand beside `FROM ... AS raw`."""
    cell = f"raw.{quoted(column)}"
    kind = table.column_type(column)
    if kind == "VARCHAR" or kind.startswith("ENUM"):
        return f"nullif(trim(CAST({cell} AS VARCHAR), E' \\t\\r\\n'), '')"
    if kind in REAL_TYPES:
        # Data frames turn whole numbers with gaps into floating point: 5 comes as 5.0, a gap as NaN.
        whole = f"CASE WHEN {cell} = floor({cell}) AND abs({cell}) < {MAX_EXACT_INTEGER} THEN CAST(CAST({cell} AS BIGINT) AS VARCHAR) "
        return f"(CASE WHEN isnan({cell}) THEN NULL ELSE ({whole} ELSE CAST({cell} AS VARCHAR) END) END)"
    return f"CAST({cell} AS VARCHAR)"


def integer_sql(text: str) -> str:
    """SQL of a text as BIGINT, NULL unless it is spelt as a whole number: a bare cast would round 2.6 to 3."""
    return f"(CASE WHEN CAST(TRY_CAST({text} AS BIGINT) AS VARCHAR) = {text} THEN TRY_CAST({text} AS BIGINT) END)"


def scalar_conversion(table: RawTable, column: str, kind: AttributeType) -> Conversion:
    """Conversion of a column to `real`, `integer`, `bool`, `string` or `date`."""
    text = text_sql(table, column)
    match kind:
        case Real():
            number = f"TRY_CAST({text} AS DOUBLE)"
            present = f"({text} IS NOT NULL AND NOT coalesce(isnan({number}), false))"
            return Conversion(present, f"(CASE WHEN isfinite({number}) THEN {number} END)", "a finite number")
        case Integer():
            number = f"TRY_CAST({text} AS DOUBLE)"
            present = f"({text} IS NOT NULL AND NOT coalesce(isnan({number}), false))"
            rounded = f"(CASE WHEN {number} = floor({number}) AND abs({number}) < {MAX_EXACT_INTEGER} THEN CAST({number} AS BIGINT) END)"
            return Conversion(present, f"coalesce({integer_sql(text)}, {rounded})", "a whole number")
        case Bool():
            return Conversion(f"({text} IS NOT NULL)", f"TRY_CAST({text} AS BOOLEAN)", "true or false")
        case Date():
            return Conversion(f"({text} IS NOT NULL)", f"TRY_CAST({text} AS DATE)", "a date such as 2024-01-31")
        case String():
            return Conversion(f"({text} IS NOT NULL)", text, "text")
    raise AssertionError(f"{kind} is no scalar type")


@dataclass(frozen=True)
class BadRows:
    """Rows of a raw table with the same mistake.

    Args:
        count: of all of them.
        examples: the first few, each its number and what stands there, None where nothing does.
        original_row: of rows that repeat another: the first one that it repeats.
    """

    count: int
    examples: list[tuple[int, str | None]]
    original_row: int | None = None

    @property
    def value(self) -> str:
        """What stands in the first of them."""
        return str(self.examples[0][1])

    def diagnostic(self, code: str, message: str, table: RawTable, column: str, hint: str) -> Diagnostic:
        """A diagnostic at the first bad row that tells of the others."""
        notes = [] if self.original_row is None else [f"it stands first in row {self.original_row}"]
        if self.count > 1:
            others = (f"row {row}" if value is None else f"row {row} ('{value}')" for row, value in self.examples[1:])
            more = f" and {self.count - len(self.examples)} more" if self.count > len(self.examples) else ""
            notes.append(f"also {', '.join(others)}{more}")
        return Diagnostic(code, message, DataLocation(table.location, self.examples[0][0], column), hint, tuple(notes))


def any_row_matches(connection: duckdb.DuckDBPyConnection, table: RawTable, condition: str) -> bool:
    """Whether some row of a raw table fulfils a condition: one count, without the numbers of rows."""
    ((count,),) = connection.execute(f"SELECT count(*) FROM {table.scan} AS raw WHERE {condition}").fetchall()
    return bool(count)


def find_bad_rows(
    connection: duckdb.DuckDBPyConnection, table: RawTable, column: str, condition: str, cell_sql: str | None = None
) -> BadRows | None:
    """The rows of a raw table that fulfil a condition, None where there are none.

    Args:
        cell_sql: SQL of what stands in a bad row; by default the cell of `column`.
    """
    if not any_row_matches(connection, table, condition):
        return None  # rows are numbered only where one has to be found
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
    """The rows of a raw table that repeat an earlier one, None where there are none.

    Args:
        column: what is shown of them.
        identity: SQL of what rows are compared by. Rows without one of these repeat nothing.
        value_sql: SQL of a value; of rows that are the same, those count whose value is not that of the first.
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
    """What `numbered` calls the column of row numbers: a name that is longer than those of the table's own columns."""
    return "row".ljust(max(map(len, table.columns)) + 1, "_")


def scan_with_row_numbers(table: RawTable) -> str:
    """A raw table and its alias `raw`, with the numbers of its rows: each before a join or a filter could move it."""
    columns = ", ".join(map(quoted, (row_number_column(table), *table.columns)))
    return f"{table.numbered_scan or f'(SELECT row_number() OVER (), * FROM {table.scan})'} AS raw({columns})"


def _fetch_bad_rows(connection: duckdb.DuckDBPyConnection, query: str) -> BadRows | None:
    """What a query finds: the number of a row, what stands in it, and the row that it repeats."""
    found = connection.execute(
        f"SELECT *, count(*) OVER () FROM ({query}) AS found(row, cell, earlier) ORDER BY row LIMIT {MAX_SHOWN_ROWS}"
    ).fetchall()
    if not found:
        return None
    _, _, earlier, count = found[0]
    return BadRows(int(count), [(int(row), cell) for row, cell, _, _ in found], earlier)


def text_list_sql(values: list[str] | tuple[str, ...]) -> str:
    """A SQL list of texts."""
    return "[" + ", ".join(literal(v) for v in values) + "]"


def is_numeric(table: RawTable, column: str) -> bool:
    """Whether a column is one of numbers; not whether its texts look like numbers."""
    kind = table.column_type(column)
    return kind in WHOLE_TYPES or kind in REAL_TYPES or kind.startswith("DECIMAL")


def number_list_sql(texts: Sequence[str]) -> str | None:
    """A SQL list of texts as numbers: NaN, which no cell is, for one that is none; None where all are so."""
    numbers = [_parse_number(text) for text in texts]
    return None if all(map(math.isnan, numbers)) else f"CAST({text_list_sql([*map(repr, numbers)])} AS DOUBLE[])"


def _parse_number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        return math.nan
    return number if abs(number) < MAX_EXACT_INTEGER else math.nan
