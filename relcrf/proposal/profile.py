"""What a raw table has: of each column its type, how many values, and which where they are few."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import duckdb

from relcrf.data.coding import integer_sql, text_sql
from relcrf.data.dataset import Dataset, RawTable, quoted
from relcrf.data.store import report_read_errors

MAX_ENUMERATION = 30
"""Most values of an enumeration."""

BOOLEAN_VALUES = ({"0", "1"}, {"true", "false"}, {"t", "f"})

MIN_VECTOR_COLUMNS = 3
"""Numbered columns from here on are one vector."""


@dataclass(frozen=True)
class ColumnProfile:
    """One column as texts.

    Args:
        kind: `whole`, `real`, `date` or `text`; `list` and `numbers` of lists.
        present: rows with a value. distinct: different values.
        low, high: of numbers. values: sorted, where they are at most FEW.
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
        """Whether every row has a value of its own."""
        return 0 < self.rows == self.present == self.distinct

    @property
    def is_boolean(self) -> bool:
        """Whether the values are true and false, in one spelling."""
        return self.distinct == 2 and {v.lower() for v in self.values} in BOOLEAN_VALUES


@dataclass(frozen=True)
class NumberedColumns:
    """Columns that differ in numbers alone: `x0, x1, ...` or `p0_0, p0_1, ...`.

    Args:
        n_missing: cells without a value. is_truth: whether all cells are 0 or 1.
    """

    prefix: str
    columns: tuple[str, ...]
    n_missing: int
    is_boolean: bool


@dataclass(frozen=True)
class TableProfile:
    """A table that was looked at.

    Args:
        scan: a table expression of its cells as trimmed texts, NULL where empty; columns by their names.
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
        """The one number of a query over the texts, the table `this` in it."""
        ((found,),) = self.connection.execute(f"WITH this AS (FROM {self.scan}) {sql}").fetchall()
        return int(found or 0)

    def count_distinct(self, columns: Iterable[str]) -> int:
        """How many different combinations of values some columns have."""
        return self.query_number(f"SELECT count(*) FROM (SELECT DISTINCT {', '.join(map(quoted, columns))} FROM this)")


def count_unmatched_values(table: TableProfile, column: str, other: TableProfile, key: str) -> int:
    """How many different values of a column are no values of another."""
    a, b = quoted(column), quoted(key)
    return table.query_number(
        f"SELECT count(DISTINCT {a}) FROM this WHERE {a} IS NOT NULL AND {a} NOT IN "
        f"(SELECT {b} FROM {other.scan} WHERE {b} IS NOT NULL)"
    )


def profile_tables(dataset: Dataset) -> list[TableProfile]:
    """All tables of a dataset that have rows.

    Raises:
        DataError: where one cannot be read.
    """
    found = []
    for table in dataset.tables.values():
        with report_read_errors(table.location):
            found.append(_profile_table(dataset, table))
    return [profile for profile in found if profile.rows]


def _profile_table(dataset: Dataset, table: RawTable) -> TableProfile:
    lists = [c for c in table.columns if table.column_type(c).endswith("]")]
    plain = [c for c in table.columns if c not in lists]
    texts = ", ".join(f"{text_sql(table, c)} AS {quoted(c)}" for c in plain) or "1 AS nothing"
    scan = dataset.store.add_query(f"SELECT {texts} FROM {table.scan} AS raw")
    connection = dataset.connection
    blocks, single = [], list(plain)
    for prefix, names in _group_numbered_columns(plain):
        block = _profile_numbered(connection, scan, prefix, names)
        if block is not None:
            blocks.append(block)
            single = [c for c in single if c not in names]
    columns = {c: column for c in single if (column := _profile_column(connection, scan, c))}
    ((rows,),) = connection.execute(f"SELECT count(*) FROM {scan}").fetchall()
    for name in lists:
        is_text = table.column_type(name).startswith("VARCHAR")
        columns[name] = ColumnProfile(name, "list" if is_text else "numbers", rows, rows, rows)
    return TableProfile(table, connection, scan, int(rows), columns, tuple(blocks))


def _group_numbered_columns(columns: Sequence[str]) -> list[tuple[str, tuple[str, ...]]]:
    """Groups of columns that differ in their numbers alone, in the order of these."""
    groups: dict[str, list[tuple[tuple[int, int], str]]] = {}
    for name in columns:
        found = re.fullmatch(r"(\D*?)_?(\d{1,9})(?:[_x.](\d{1,9}))?", name)
        if found:
            groups.setdefault(found[1], []).append(((int(found[2]), int(found[3] or 0)), name))
    return [
        (prefix, tuple(n for _, n in sorted(group)))
        for prefix, group in groups.items()
        if len(group) >= MIN_VECTOR_COLUMNS
    ]


def _profile_numbered(
    connection: duckdb.DuckDBPyConnection, scan: str, prefix: str, names: tuple[str, ...]
) -> NumberedColumns | None:
    """A group of numbered columns, all of whose cells are numbers or empty."""
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
    ((rows, present, distinct, whole, real, dates, low, high),) = connection.execute(
        f"SELECT count(*), count({c}), count(DISTINCT {c}), count({integer_sql(c)}), "
        f"count(*) FILTER (isfinite({number})), count(TRY_CAST({c} AS DATE)), min({number}), max({number}) FROM {scan}"
    ).fetchall()
    kinds = ((whole, "whole"), (real, "real"), (dates, "date"))
    kind = next((k for count, k in kinds if 0 < present == count), "text")
    values: tuple[str, ...] = ()
    if distinct <= MAX_ENUMERATION:
        order = number if kind in ("whole", "real") else c
        found = connection.execute(f"SELECT {c} FROM {scan} WHERE {c} IS NOT NULL GROUP BY {c} ORDER BY {order}, {c}")
        values = tuple(row[0] for row in found.fetchall())
    is_number = kind in ("whole", "real")
    return ColumnProfile(
        name, kind, rows, present, distinct, low if is_number else None, high if is_number else None, values
    )
