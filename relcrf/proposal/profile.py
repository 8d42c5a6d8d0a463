"""Profiles of raw tables: for each column, its type, its number of distinct values and, if they are few, the values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import duckdb

from relcrf.data.cell_texts import REAL_TYPES
from relcrf.data.coding import date_sql, datetime_sql, integer_sql, text_sql, time_sql
from relcrf.data.dataset import Dataset, quoted
from relcrf.data.raw_table import RawTable
from relcrf.data.readers.leading_zeros import padded_sql
from relcrf.data.store import report_read_errors

MAX_ENUMERATION = 30
"""Maximum number of values of an enumeration; a target with more values gets an open domain."""

MAX_SAMPLE_ROWS = 10_000
"""Number of rows that rule out the kinds of a column before all its cells are tested, which is slow."""

MAX_STORED_COLUMNS = 100
"""Maximum number of columns of a numbered group that are stored; DuckDB reserves 256 KiB for each column of a table."""

COLUMNS_PER_QUERY, NUMBERED_PER_QUERY = 50, 500
"""Number of single columns, and of numbered columns, that one query describes; DuckDB takes more than linear time for queries
with many columns."""

KINDS = ("whole", "real", "date", "time", "datetime")
"""Kinds of columns that are not texts, from the most special one; see `ColumnProfile`."""

LIST_KINDS = ("list", "numbers", "ragged", "objects", "nested")
"""Kinds of list columns, of which the distinct values are not counted; see `ColumnProfile`."""

_UNUSABLE_KINDS = {
    "nested": "its cells are lists of lists",
    "objects": "its cells are lists of objects",
    "ragged": "its lists of numbers have different lengths",
}
"""The reasons why list columns of a kind cannot be attributes."""

BOOLEAN_VALUES = ({"0", "1"}, {"true", "false"}, {"t", "f"})

MIN_VECTOR_COLUMNS = 3
"""Minimum number of numbered columns in a group; the columns of a smaller group are profiled separately."""

MIN_MISSING = 0.1
"""Minimum fraction of missing values that distinguishes labels and ratings from evidence with some empty cells."""

MAX_SEPARATE_COLUMNS = 200
"""Maximum number of numbered columns with some empty cells that are profiled separately; each becomes a template."""


@dataclass(frozen=True)
class ColumnProfile:
    """The profile of a column whose cells were read as texts.

    Args:
        kind: `whole`, `real`, `date`, `time`, `datetime` or `text`; for list columns `list` (of texts), `numbers`,
            `ragged` (numbers in lists of different lengths), `objects` or `nested`.
        present: Number of rows with a value.
        distinct: Number of distinct values.
        low, high: Minimum and maximum of a numeric column; otherwise None.
        values: The sorted distinct values; empty if there are more than MAX_ENUMERATION.
        first, last: The first and the last text in the order of the characters; empty if there is none.
    """

    name: str
    kind: str
    rows: int
    present: int
    distinct: int
    low: float | None = None
    high: float | None = None
    values: tuple[str, ...] = ()
    first: str = ""
    last: str = ""

    def is_disjoint(self, other: ColumnProfile) -> bool:
        """Return True if the order of texts shows that no cell of another column has the text of a cell of this one."""
        return self.last < other.first or other.last < self.first

    @property
    def is_unique(self) -> bool:
        """True if no two rows have the same value and no value is missing."""
        return 0 < self.rows == self.present == self.distinct

    @property
    def unusable_reason(self) -> str:
        """The reason why the column cannot be an attribute; empty if it can be one."""
        if self.kind in _UNUSABLE_KINDS:
            return _UNUSABLE_KINDS[self.kind]
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

    `n_missing` of the `n_cells` cells have no value; `is_boolean` is True if all values are 0 or 1.
    """

    prefix: str
    columns: tuple[str, ...]
    n_cells: int
    n_missing: int
    is_boolean: bool

    @property
    def has_some_gaps(self) -> bool:
        """True if the columns are separate attributes: some cells are empty, so that they are not vectors, but not ratings."""
        is_small = len(self.columns) <= MAX_SEPARATE_COLUMNS
        return is_small and 0 < self.n_missing < MIN_MISSING * self.n_cells


@dataclass(frozen=True)
class TableProfile:
    """The profile of a table.

    Args:
        dataset: The dataset of the table; its temporary files exist as long as the object.
        scan: A DuckDB table expression that returns the cells as trimmed texts, without large groups of numbered columns;
            empty cells are NULL.
        columns: Profiles of single columns by name, without the numbered columns.
    """

    raw: RawTable
    dataset: Dataset
    scan: str
    rows: int
    columns: dict[str, ColumnProfile]
    numbered_columns: tuple[NumberedColumns, ...]

    @property
    def name(self) -> str:
        return self.raw.name

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        return self.dataset.connection

    def present_sql(self, column: str) -> str:
        """Return a SQL condition that a cell of a column in the source of the table has a value; NaN is a missing value."""
        condition = f"{quoted(column)} IS NOT NULL"
        return (
            f"{condition} AND NOT isnan({quoted(column)})" if self.raw.column_type(column) in REAL_TYPES else condition
        )

    def query_number(self, sql: str) -> int:
        """Return the number that a query selects; the query refers to the profiled table as `this`."""
        ((result,),) = self.connection.execute(f"WITH this AS (FROM {self.scan}) {sql}").fetchall()
        return int(result or 0)

    def count_distinct(self, columns: Iterable[str]) -> int:
        """Return the number of distinct combinations of values in some columns."""
        return self.query_number(f"SELECT count(*) FROM (SELECT DISTINCT {', '.join(map(quoted, columns))} FROM this)")

    def count_elements(self, column: str) -> int:
        """Return the number of distinct elements of the lists in a column."""
        elements = f"SELECT unnest({quoted(column)}) AS element FROM {self.raw.scan} AS raw"
        return self.query_number(f"SELECT count(DISTINCT element) FROM ({elements})")


def count_unmatched_values(table: TableProfile, column: str, other: TableProfile, key: str) -> int:
    """Return the number of distinct values of a column that do not occur in the column `key` of another table."""
    a, b = quoted(column), quoted(key)
    return table.query_number(
        f"SELECT count(DISTINCT {a}) FROM this WHERE {a} IS NOT NULL AND {a} NOT IN "
        f"(SELECT {b} FROM {other.scan} WHERE {b} IS NOT NULL)"
    )


def count_unmatched_rows(table: TableProfile, column: str, other: TableProfile, key: str, digits: int = 0) -> int:
    """Return the number of rows with a value of a column that does not occur in the column `key` of another table.

    Args:
        digits: If set, numbers are compared as codes with this number of digits.
    """
    a, b = (padded_sql(quoted(name), digits) if digits else quoted(name) for name in (column, key))
    keys = f"SELECT {b} FROM {other.scan} WHERE {quoted(key)} IS NOT NULL"
    return table.query_number(f"SELECT count(*) FROM this WHERE {quoted(column)} IS NOT NULL AND {a} NOT IN ({keys})")


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
    connection = dataset.connection
    groups, single = [], list(scalar_columns)
    for prefix, names in _group_numbered_columns(scalar_columns):
        group = _profile_numbered(connection, table, prefix, names)
        if group is not None and not group.has_some_gaps:
            groups.append(group)
            single = [c for c in single if c not in names]
    wide = {name for group in groups if len(group.columns) > MAX_STORED_COLUMNS for name in group.columns}
    stored = [f"{text_sql(table, c)} AS {quoted(c)}" for c in scalar_columns if c not in wide]
    scan = dataset.store.add_query(f"SELECT {', '.join(stored) or '1 AS nothing'} FROM {table.scan} AS raw")
    ((rows,),) = connection.execute(f"SELECT count(*) FROM {scan}").fetchall()
    columns: dict[str, ColumnProfile] = {}
    for start in range(0, len(single), COLUMNS_PER_QUERY):
        found = _profile_columns(connection, scan, int(rows), single[start : start + COLUMNS_PER_QUERY])
        columns |= {column.name: column for column in found}
    for name in list_columns:
        columns[name] = ColumnProfile(name, _list_kind(connection, table, name), rows, rows, rows)
    return TableProfile(table, dataset, scan, int(rows), columns, tuple(groups))


def _list_kind(connection: duckdb.DuckDBPyConnection, table: RawTable, name: str) -> str:
    """Return the kind of a list column; see `ColumnProfile`."""
    element = table.column_type(name).rpartition("[")[0]
    if element.endswith("]"):
        return "nested"
    if element.startswith("STRUCT"):
        return "objects"
    if element == "VARCHAR":
        return "list"
    lengths = f"SELECT count(DISTINCT len({quoted(name)})) FROM {table.scan} AS raw"
    ((n_lengths,),) = connection.execute(lengths).fetchall()
    return "ragged" if n_lengths > 1 else "numbers"


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
    connection: duckdb.DuckDBPyConnection, table: RawTable, prefix: str, names: tuple[str, ...]
) -> NumberedColumns | None:
    """Return a group of numbered columns; None if a value is not a number or all cells are empty."""
    present = numbers = truths = rows = 0
    for start in range(0, len(names), NUMBERED_PER_QUERY):
        cells = ", ".join(text_sql(table, name) for name in names[start : start + NUMBERED_PER_QUERY])
        (counts,) = connection.execute(
            "SELECT sum(len(list_filter(c, lambda x: x IS NOT NULL))), "
            "sum(len(list_filter(c, lambda x: isfinite(TRY_CAST(x AS DOUBLE))))), "
            "sum(len(list_filter(c, lambda x: x IN ('0', '1')))), count(*) "
            f"FROM (SELECT [{cells}] AS c FROM {table.scan} AS raw)"
        ).fetchall()
        present, numbers, truths = (n + int(m or 0) for n, m in zip((present, numbers, truths), counts, strict=False))
        rows = int(counts[3])
    if not rows or present != numbers or not present:
        return None
    return NumberedColumns(prefix, names, len(names) * rows, len(names) * rows - present, truths == present)


def _profile_columns(
    connection: duckdb.DuckDBPyConnection, scan: str, rows: int, names: Sequence[str]
) -> list[ColumnProfile]:
    """Return the profiles of single columns of texts."""
    kinds = _find_kinds(connection, scan, rows, names)
    facts = [
        f"count({quoted(name)}), min({quoted(name)}), max({quoted(name)}), " + _range_sql(name, kinds[name])
        for name in names
    ]
    ((*found,),) = connection.execute(f"SELECT {', '.join(facts)} FROM {scan}").fetchall()
    profiles = []
    for name, (present, first, last, low, high) in zip(names, zip(*[iter(found)] * 5, strict=True), strict=True):
        cell = quoted(name)
        # In a query of its own, each count needs less memory.
        ((distinct,),) = connection.execute(f"SELECT count(DISTINCT {cell}) FROM {scan}").fetchall()
        values: tuple[str, ...] = ()
        if distinct <= MAX_ENUMERATION:
            order = f"TRY_CAST({cell} AS DOUBLE)" if kinds[name] in ("whole", "real") else cell
            value_rows = connection.execute(
                f"SELECT {cell} FROM {scan} WHERE {cell} IS NOT NULL GROUP BY {cell} ORDER BY {order}, {cell}"
            )
            values = tuple(row[0] for row in value_rows.fetchall())
        texts = (first or "", last or "")
        profiles.append(ColumnProfile(name, kinds[name], rows, present, distinct, low, high, values, *texts))
    return profiles


def _find_kinds(connection: duckdb.DuckDBPyConnection, scan: str, rows: int, names: Sequence[str]) -> dict[str, str]:
    """Return the kind of each column: the most special one that all its cells have, or `text`."""
    sample = f"(FROM {scan} LIMIT {MAX_SAMPLE_ROWS})"
    tests = [(name, kind) for name in names for kind in KINDS]
    for source in (sample, scan) if rows > MAX_SAMPLE_ROWS else (scan,):
        if not tests:
            break
        counts = (f"count({quoted(name)}), count({_converted_sql(quoted(name), kind)})" for name, kind in tests)
        ((*found,),) = connection.execute(f"SELECT {', '.join(counts)} FROM {source}").fetchall()
        tests = [
            test
            for test, present, converted in zip(tests, found[::2], found[1::2], strict=True)
            if present == converted and (present or source == sample)
        ]
    return {name: next((kind for other, kind in tests if other == name), "text") for name in names}


def _converted_sql(cell: str, kind: str) -> str:
    """Return SQL of the value of a cell; NULL if the cell is not of the kind."""
    match kind:
        case "whole":
            return integer_sql(cell)
        case "real":
            # A number written as 007 is a code, whose zeros matter, and so is one with more digits than a BIGINT has.
            is_code = f"regexp_full_match({cell}, '0[0-9]+|[0-9]{{20,}}')"
            return f"CASE WHEN NOT {is_code} AND isfinite(TRY_CAST({cell} AS DOUBLE)) THEN 1 END"
        case "date":
            return date_sql(cell)
        case "time":
            return time_sql(cell)
    return datetime_sql(cell)


def _range_sql(name: str, kind: str) -> str:
    """Return SQL of the minimum and the maximum of a column; NULL if the cells are not numbers."""
    number = f"TRY_CAST({quoted(name)} AS DOUBLE)"
    return f"min({number}), max({number})" if kind in ("whole", "real") else "NULL, NULL"
