"""From raw columns to typed and coded ones: the SQL of each attribute type, and where its bad values are."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

from relcrf.data.dataset import RawTable, quoted
from relcrf.data.readers.base import literal
from relcrf.errors import DataPlace, Diagnostic
from relcrf.model.types import AttributeType, Bool, Date, Integer, Real, String

SHOWN = 3
"""Bad values of one column that are listed; the rest is counted."""


@dataclass(frozen=True)
class Conversion:
    """A raw column as SQL of the wanted type.

    Args:
        present: is there a value at all? converted: the value, NULL where it is not of the type.
        wanted: what the type takes, for messages.
    """

    present: str
    converted: str
    wanted: str


def text_of(table: RawTable, column: str) -> str:
    """A column's value as trimmed text, NULL where the cell is empty; to stand beside `FROM ... AS raw`."""
    cell = f"raw.{quoted(column)}"
    kind = table.type_of(column)
    if kind == "VARCHAR" or kind.startswith("ENUM"):
        return f"nullif(trim(CAST({cell} AS VARCHAR), E' \\t\\r\\n'), '')"
    if kind in ("DOUBLE", "FLOAT"):
        # Data frames turn whole numbers with gaps into floating point: 5 comes as 5.0, a gap as NaN.
        whole = f"CASE WHEN {cell} = floor({cell}) AND abs({cell}) < 9e15 THEN CAST(CAST({cell} AS BIGINT) AS VARCHAR) "
        return f"(CASE WHEN isnan({cell}) THEN NULL ELSE ({whole} ELSE CAST({cell} AS VARCHAR) END) END)"
    return f"CAST({cell} AS VARCHAR)"


def whole_number(text: str) -> str:
    """SQL of a text as BIGINT, NULL unless it is spelt as a whole number: a bare cast would round 2.6 to 3."""
    return f"(CASE WHEN CAST(TRY_CAST({text} AS BIGINT) AS VARCHAR) = {text} THEN TRY_CAST({text} AS BIGINT) END)"


def scalar(table: RawTable, column: str, kind: AttributeType) -> Conversion:
    """Conversion of a column to `real`, `integer`, `bool`, `string` or `date`."""
    text = text_of(table, column)
    match kind:
        case Real():
            number = f"TRY_CAST({text} AS DOUBLE)"
            present = f"({text} IS NOT NULL AND NOT coalesce(isnan({number}), false))"
            return Conversion(present, f"(CASE WHEN isfinite({number}) THEN {number} END)", "a finite number")
        case Integer():
            number = f"TRY_CAST({text} AS DOUBLE)"
            present = f"({text} IS NOT NULL AND NOT coalesce(isnan({number}), false))"
            rounded = (
                f"(CASE WHEN {number} = floor({number}) AND abs({number}) < 9e15 THEN CAST({number} AS BIGINT) END)"
            )
            return Conversion(present, f"coalesce({whole_number(text)}, {rounded})", "a whole number")
        case Bool():
            return Conversion(f"({text} IS NOT NULL)", f"TRY_CAST({text} AS BOOLEAN)", "true or false")
        case Date():
            return Conversion(f"({text} IS NOT NULL)", f"TRY_CAST({text} AS DATE)", "a date such as 2024-01-31")
        case String():
            return Conversion(f"({text} IS NOT NULL)", text, "text")
    raise AssertionError(f"{kind} is no scalar type")


def bad_rows(
    connection: duckdb.DuckDBPyConnection, table: RawTable, column: str, condition: str
) -> tuple[int, list[tuple[int, str]]]:
    """How many rows of a raw table fulfil a condition, and the first few: row number from 1 and the column's value."""
    ((count,),) = connection.execute(f"SELECT count(*) FROM {table.scan} AS raw WHERE {condition}").fetchall()
    if not count:
        return 0, []  # rows are numbered only where one has to be found
    rows = connection.execute(
        f"SELECT row, value FROM (SELECT row_number() OVER () AS row, {condition} AS bad, "
        f"CAST(raw.{quoted(column)} AS VARCHAR) AS value FROM {table.scan} AS raw) WHERE bad ORDER BY row LIMIT {SHOWN}"
    ).fetchall()
    return int(count), [(int(row), str(value)) for row, value in rows]


def bad_value(
    code: str, message: str, table: RawTable, column: str, count: int, rows: list[tuple[int, str]], hint: str | None
) -> Diagnostic:
    """A diagnostic at the first bad row that tells of the others."""
    notes = []
    if count > 1:
        listed = ", ".join(f"row {row} ('{value}')" for row, value in rows[1:])
        more = f" and {count - len(rows)} more" if count > len(rows) else ""
        notes.append(f"also {listed}{more}")
    return Diagnostic(code, message, DataPlace(table.place, rows[0][0], column), hint, tuple(notes))


def text_list(values: list[str] | tuple[str, ...]) -> str:
    """A SQL list of texts."""
    return "[" + ", ".join(literal(v) for v in values) + "]"
