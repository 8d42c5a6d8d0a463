"""Statistics of tables without a model: for each column, the distribution of its values."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from relcrf.data.dataset import quoted
from relcrf.proposal.profile import LIST_KINDS, ColumnProfile, TableProfile

N_BARS = 24
"""Number of bars of the histogram of a numeric column or a column of times."""

N_VALUES = 8
"""Number of the most frequent texts that are shown."""

MOSTLY_MISSING = 0.5
"""Fraction of missing values from which a column has a remark."""


@dataclass(frozen=True)
class Bar:
    """A bar of a histogram: a value or the lower end of an interval, and the number of rows."""

    label: str
    count: int


@dataclass(frozen=True)
class ColumnStatistics:
    """The distribution of the values of a column.

    Args:
        low, median, high: For numbers and times, as texts; otherwise empty.
        bars: A histogram of numbers and times, or the most frequent texts.
        remarks: What is unusual about the column.
    """

    name: str
    kind: str
    rows: int
    present: int
    distinct: int
    low: str = ""
    median: str = ""
    high: str = ""
    bars: tuple[Bar, ...] = ()
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class TableStatistics:
    """The statistics of a table; several numbered columns, such as `p0`, `p1`, ..., are one entry of `columns`."""

    name: str
    location: str
    format: str
    rows: int
    n_columns: int
    columns: tuple[ColumnStatistics, ...]


def describe_table(table: TableProfile) -> TableStatistics:
    """Return the statistics of a profiled table."""
    columns = [_describe_column(table, column) for column in table.columns.values()]
    columns += [
        ColumnStatistics(
            f"{group.prefix}...", f"{len(group.columns)} numbers", table.rows, table.rows, table.rows,
            remarks=(f"{group.n_missing:,} cells are empty",) if group.n_missing else (),
        )
        for group in table.numbered_columns
    ]  # fmt: skip
    raw = table.raw
    return TableStatistics(table.name, raw.location, raw.format, table.rows, len(raw.columns), tuple(columns))


def _describe_column(table: TableProfile, column: ColumnProfile) -> ColumnStatistics:
    cell = quoted(column.name)
    remarks = [column.unusable_reason] if column.unusable_reason else []
    if column.present < (1 - MOSTLY_MISSING) * column.rows:
        remarks.append(f"missing in {1 - column.present / column.rows:.0%} of the rows")
    if column.is_unique:
        remarks.append("a different value in each row")
    found = ColumnStatistics(column.name, column.kind, column.rows, column.present, column.distinct)
    if not column.distinct or (column.is_unique and column.kind == "text") or column.kind in LIST_KINDS:
        return ColumnStatistics(*_head(found), remarks=tuple(remarks))
    if column.kind == "text" or column.values:
        rows = table.connection.execute(
            f"SELECT {cell}, count(*) FROM {table.scan} WHERE {cell} IS NOT NULL GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {N_VALUES}"
        ).fetchall()
        bars = tuple(Bar(str(value), int(count)) for value, count in rows)
        return ColumnStatistics(*_head(found), bars=bars, remarks=tuple(remarks))
    number, shown = {
        "date": (
            f"epoch(TRY_CAST({cell} AS TIMESTAMP))",
            "strftime(make_timestamp(CAST({} * 1e6 AS BIGINT)), '%Y-%m-%d')",
        ),
        "datetime": (
            f"epoch(TRY_CAST({cell} AS TIMESTAMPTZ))",
            "strftime(make_timestamp(CAST({} * 1e6 AS BIGINT)), '%Y-%m-%d %H:%M')",
        ),
        "time": (f"epoch(TRY_CAST({cell} AS TIME))", "strftime(make_timestamp(CAST({} * 1e6 AS BIGINT)), '%H:%M')"),
    }.get(column.kind, (f"TRY_CAST({cell} AS DOUBLE)", "format('{{:.6g}}', {})"))
    rows = table.connection.execute(
        f"WITH n AS (SELECT {number} AS x FROM {table.scan}), "
        "ends AS (SELECT min(x) AS low, median(x) AS middle, max(x) AS high FROM n WHERE isfinite(x)), "
        f"bins AS (SELECT least({N_BARS - 1}, floor({N_BARS} * (x - low) / (high - low)))::INTEGER AS bin, count(*) AS c "
        "FROM n, ends WHERE isfinite(x) AND high > low GROUP BY 1) "
        f"SELECT {shown.format('low')}, {shown.format('middle')}, {shown.format('high')}, bin, c, "
        f"{shown.format(f'(low + bin * (high - low) / {N_BARS})')} FROM ends LEFT JOIN bins ON true ORDER BY bin"
    ).fetchall()
    low, median, high, *_ = rows[0]
    counts = {int(row[3]): Bar(str(row[5]), int(row[4])) for row in rows if row[3] is not None}
    bars = tuple(counts.get(k, Bar("", 0)) for k in range(N_BARS)) if counts else ()
    return ColumnStatistics(*_head(found), str(low), str(median), str(high), bars, tuple(remarks))


def _head(column: ColumnStatistics) -> tuple[str, str, int, int, int]:
    return column.name, column.kind, column.rows, column.present, column.distinct


def remarks_on(tables: Sequence[TableStatistics], keys: Collection[str]) -> list[str]:
    """Return the remarks on all columns except the keys `table.column`, as texts for a list."""
    return [
        f"{table.name}.{column.name}: {remark}"
        for table in tables
        for column in table.columns
        for remark in column.remarks
        if f"{table.name}.{column.name}" not in keys
    ]
