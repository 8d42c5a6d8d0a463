"""Profiles of raw tables: for each column, its type, its number of distinct values and, if they are few, the values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import duckdb

from relcrf.data.coding import date_sql, datetime_sql, integer_sql, text_sql, time_sql
from relcrf.data.dataset import Dataset, RawTable, quoted
from relcrf.data.store import report_read_errors

MAX_ENUMERATION = 30
"""Maximum number of values of an enumeration; a target with more values gets an open domain."""

BOOLEAN_VALUES = ({"0", "1"}, {"true", "false"}, {"t", "f"})

MIN_VECTOR_COLUMNS = 3
"""Minimum number of numbered columns in a group; the columns of a smaller group are profiled separately."""


@dataclass(frozen=True)
class ColumnProfile:
    """The profile of a column whose cells were read as texts.

    Args:
        kind: `whole`, `real`, `date`, `time`, `datetime` or `text`; for list columns `list` (of texts), `numbers` or
            `nested`.
        present: Number of rows with a value.
        distinct: Number of distinct values.
        low, high: Minimum and maximum of a numeric column; otherwise None.
        values: The sorted distinct values; empty if there are more than MAX_ENUMERATION.
    """

    name: str
    kind: str
    rows: int
    present: int
    distinct: int
    low: float | None = None
    high: float | None = None
    values: tuple[str, ...] = ()

    @property
    def is_unique(self) -> bool:
        """True if no two rows have the same value and no value is missing."""
        return 0 < self.rows == self.present == self.distinct

    @property
    def unusable_reason(self) -> str:
        """The reason why the column cannot be an attribute; empty if it can be one."""
        if self.kind == "nested":
            return "its cells are lists of lists"
        if self.distinct < 2 or len(self.values) == 1:
            return "at most one distinct value" if self.distinct else "always empty"
        return ""

    @property
    def is_boolean(self) -> bool:
        """True if the distinct values are a pair in BOOLEAN_VALUES, ignoring case."""
        return self.distinct == 2 and {v.lower() for v in self.values} in BOOLEAN_VALUES


@dataclass(frozen=True)
class NumberedColumns:
    """A group of columns whose names differ only in numbers: `x0, x1, ...` or `p0_0, p0_1, ...`.

    `n_missing` is the number of cells without a value; `is_boolean` is True if all values are 0 or 1.
    """

    prefix: str
    columns: tuple[str, ...]
    n_missing: int
    is_boolean: bool


@dataclass(frozen=True)
class TableProfile:
    """The profile of a table.

    Args:
        scan: A DuckDB table expression that returns the cells as trimmed texts; empty cells are NULL.
        columns: Profiles of single columns by name, without the numbered columns.
    """

    raw: RawTable
    connection: duckdb.DuckDBPyConnection
    scan: str
    rows: int
    columns: dict[str, ColumnProfile]
    numbered_columns: tuple[NumberedColumns, ...]

    @property
    def name(self) -> str:
        return self.raw.name

    def query_number(self, sql: str) -> int:
        """Return the number that a query selects; the query refers to the profiled table as `this`."""
        ((result,),) = self.connection.execute(f"WITH this AS (FROM {self.scan}) {sql}").fetchall()
        return int(result or 0)

    def count_distinct(self, columns: Iterable[str]) -> int:
        """Return the number of distinct combinations of values in some columns."""
        return self.query_number(f"SELECT count(*) FROM (SELECT DISTINCT {', '.join(map(quoted, columns))} FROM this)")


def count_unmatched_values(table: TableProfile, column: str, other: TableProfile, key: str) -> int:
    """Return the number of distinct values of a column that do not occur in the column `key` of another table."""
    a, b = quoted(column), quoted(key)
    return table.query_number(
        f"SELECT count(DISTINCT {a}) FROM this WHERE {a} IS NOT NULL AND {a} NOT IN "
        f"(SELECT {b} FROM {other.scan} WHERE {b} IS NOT NULL)"
    )


def count_unmatched_rows(table: TableProfile, column: str, other: TableProfile, key: str) -> int:
    """Return the number of rows with a value of a column that does not occur in the column `key` of another table."""
    a, b = quoted(column), quoted(key)
    keys = f"SELECT {b} FROM {other.scan} WHERE {b} IS NOT NULL"
    return table.query_number(f"SELECT count(*) FROM this WHERE {a} IS NOT NULL AND {a} NOT IN ({keys})")


def profile_tables(dataset: Dataset) -> list[TableProfile]:
    """Return the profiles of all tables of a dataset that have rows.

    Raises:
        DataError: A table cannot be read.
    """
    dataset.read_all_tables()
    tables = []
    for table in dataset.tables.values():
        with report_read_errors(table.location):
            tables.append(profile_table(dataset, table))
    return [profile for profile in tables if profile.rows]


def profile_table(dataset: Dataset, table: RawTable) -> TableProfile:
    """Return the profile of a table."""
    list_columns = [c for c in table.columns if table.column_type(c).endswith("]")]
    scalar_columns = [c for c in table.columns if c not in list_columns]
    texts = ", ".join(f"{text_sql(table, c)} AS {quoted(c)}" for c in scalar_columns) or "1 AS nothing"
    scan = dataset.store.add_query(f"SELECT {texts} FROM {table.scan} AS raw")
    connection = dataset.connection
    groups, single = [], list(scalar_columns)
    for prefix, names in _group_numbered_columns(scalar_columns):
        group = _profile_numbered(connection, scan, prefix, names)
        if group is not None:
            groups.append(group)
            single = [c for c in single if c not in names]
    columns = {c: column for c in single if (column := _profile_column(connection, scan, c))}
    ((rows,),) = connection.execute(f"SELECT count(*) FROM {scan}").fetchall()
    for name in list_columns:
        element = table.column_type(name).rpartition("[")[0]
        kind = "nested" if element.endswith("]") else "list" if element == "VARCHAR" else "numbers"
        columns[name] = ColumnProfile(name, kind, rows, rows, rows)
    return TableProfile(table, connection, scan, int(rows), columns, tuple(groups))


def _group_numbered_columns(columns: Sequence[str]) -> list[tuple[str, tuple[str, ...]]]:
    """Return a pair (prefix, names in numeric order) for each group of columns whose names differ only in numbers."""
    groups: dict[str, list[tuple[tuple[int, int], str]]] = {}
    for name in columns:
        match = re.fullmatch(r"(\D*?)_?(\d{1,9})(?:[_x.](\d{1,9}))?", name)
        if match:
            groups.setdefault(match[1], []).append(((int(match[2]), int(match[3] or 0)), name))
    return [
        (prefix, tuple(n for _, n in sorted(group)))
        for prefix, group in groups.items()
        if len(group) >= MIN_VECTOR_COLUMNS
    ]


def _profile_numbered(
    connection: duckdb.DuckDBPyConnection, scan: str, prefix: str, names: tuple[str, ...]
) -> NumberedColumns | None:
    """Return a group of numbered columns; None if a value is not a number or all cells are empty."""
    cells = ", ".join(map(quoted, names))
    ((present, numbers, truths, rows),) = connection.execute(
        "SELECT sum(len(list_filter(c, lambda x: x IS NOT NULL))), "
        "sum(len(list_filter(c, lambda x: isfinite(TRY_CAST(x AS DOUBLE))))), "
        "sum(len(list_filter(c, lambda x: x IN ('0', '1')))), count(*) "
        f"FROM (SELECT [{cells}] AS c FROM {scan})"
    ).fetchall()
    if not rows or present != numbers or not present:
        return None
    return NumberedColumns(prefix, names, len(names) * int(rows) - int(present), truths == present)


def _profile_column(connection: duckdb.DuckDBPyConnection, scan: str, name: str) -> ColumnProfile:
    c = quoted(name)
    number = f"TRY_CAST({c} AS DOUBLE)"
    ((rows, present, distinct, low, high, *counts),) = connection.execute(
        f"SELECT count(*), count({c}), count(DISTINCT {c}), min({number}), max({number}), count({integer_sql(c)}), "
        f"count(*) FILTER (isfinite({number})), count({date_sql(c)}), count({time_sql(c)}), count({datetime_sql(c)}) "
        f"FROM {scan}"
    ).fetchall()
    kinds = zip(counts, ("whole", "real", "date", "time", "datetime"), strict=True)
    kind = next((k for count, k in kinds if 0 < present == count), "text")
    values: tuple[str, ...] = ()
    if distinct <= MAX_ENUMERATION:
        order = number if kind in ("whole", "real") else c
        value_rows = connection.execute(
            f"SELECT {c} FROM {scan} WHERE {c} IS NOT NULL GROUP BY {c} ORDER BY {order}, {c}"
        )
        values = tuple(row[0] for row in value_rows.fetchall())
    is_number = kind in ("whole", "real")
    return ColumnProfile(
        name, kind, rows, present, distinct, low if is_number else None, high if is_number else None, values
    )
