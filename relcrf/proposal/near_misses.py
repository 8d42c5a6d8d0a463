"""Columns that are almost keys or references: a few rows are invalid, which a manifest may repair (see `repairs.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relcrf.data.coding import BadRows, find_bad_rows, find_duplicate_rows, text_sql
from relcrf.data.raw_table import RawTable
from relcrf.data.row_policies import orphan_sql
from relcrf.proposal.entity_candidates import (
    MIN_DISTINCT,
    EntityCandidate,
    find_key,
    find_number_links,
    max_invalid_rows,
    may_be_key,
    name_affinity,
    select_key,
)
from relcrf.proposal.profile import ColumnProfile, TableProfile, count_unmatched_rows


@dataclass(frozen=True)
class NearMiss:
    """A column that is a key or a reference except for a few invalid rows.

    Args:
        column: `table.column`.
        reason: What the column is or would be, the invalid rows, and how the manifest repairs them or what to do.
        target: For a reference, the key `table.column`; otherwise empty.
        rows: Number of rows before a repair; 0 if the column is neither a key nor a reference.
        missing: Number of these rows without a value.
        invalid: Number of the rows that repeat a key, or refer to an unknown key.
    """

    column: str
    reason: str
    target: str = ""
    rows: int = 0
    missing: int = 0
    invalid: int = 0

    def __str__(self) -> str:
        return f"{self.column} {self.reason}"


def find_near_misses(tables: Sequence[TableProfile], candidates: Sequence[EntityCandidate]) -> list[NearMiss]:
    """Return the columns that a few invalid rows prevent from being keys of entities, or references to candidates."""
    keyed = [candidate for candidate in candidates if candidate.table is not None and candidate.key is not None]
    misses = []
    for table in tables:
        if (almost_key := find_almost_key(table, tables)) is not None:
            misses.append(_explain_key(table, almost_key))
        references = {column for candidate in candidates for column in candidate.referring_columns(table)}
        links = find_number_links(table, candidates)
        for column in table.columns.values():
            if column.name in references or not may_be_key(column) or column.distinct < MIN_DISTINCT:
                continue
            others = [c for c in keyed if c.table is not table]
            targets = [c for c in others if name_affinity(column, c, table) > 0 or links.get(column.name) is c]
            misses += filter(None, (_explain_reference(table, column, target) for target in targets))
    return misses


def find_almost_key(table: TableProfile, tables: Sequence[TableProfile]) -> ColumnProfile | None:
    """Return the column that would be the key of a table if a few rows were valid; None if there is a key, or none."""
    if find_key(table, tables) is not None:
        return None
    columns = [c for c in table.columns.values() if may_be_key(c) and _is_almost_unique(c)]
    name = select_key(table, columns, tables)
    return None if name is None else table.columns[name]


def _is_almost_unique(column: ColumnProfile) -> bool:
    return column.distinct >= MIN_DISTINCT and 0 < column.rows - column.distinct <= max_invalid_rows(column.rows)


def find_duplicates(table: TableProfile, column: ColumnProfile) -> BadRows | None:
    """Return the rows that repeat a value of a column; None if there are none."""
    return find_duplicate_rows(table.connection, table.raw, column.name, [text_sql(table.raw, column.name)])


def describe_duplicates(table: RawTable, duplicates: BadRows) -> str:
    """Return a clause that names the rows that repeat a value."""
    first, second = (table.row_name(row or 0) for row in (duplicates.original_row, duplicates.examples[0][0]))
    return f"'{duplicates.value}' stands in rows {first} and {second}{_more(duplicates)}"


def describe_orphans(table: RawTable, orphans: BadRows) -> str:
    """Return a clause that names the rows whose reference is invalid or missing."""
    row, value = table.row_name(orphans.examples[0][0]), orphans.examples[0][1]
    problem = (
        f"it is empty in row {row}" if value is None or not value.strip() else f"'{value}' in row {row} is unknown"
    )
    return problem + _more(orphans)


def _explain_key(table: TableProfile, column: ColumnProfile) -> NearMiss:
    """Return the near miss of a column that has missing or duplicate values."""
    if duplicates := find_duplicates(table, column):
        problem = describe_duplicates(table.raw, duplicates)
    else:
        missing = find_bad_rows(table.connection, table.raw, column.name, f"{text_sql(table.raw, column.name)} IS NULL")
        assert missing is not None
        problem = f"it is empty in row {table.raw.row_name(missing.examples[0][0])}{_more(missing)}"
    return NearMiss(
        f"{table.name}.{column.name}",
        f"would be the key of {table.name}, but {problem}; correct these rows, and run relcrf new again",
        "", column.rows, column.rows - column.present, column.present - column.distinct,
    )  # fmt: skip


def _explain_reference(table: TableProfile, column: ColumnProfile, target: EntityCandidate) -> NearMiss | None:
    """Return the near miss of a column if few of its cells, and at least one, name no key of `target`."""
    assert target.table is not None and target.key is not None
    if column.is_disjoint(target.table.columns[target.key]):
        return None
    if not 0 < count_unmatched_rows(table, column.name, target.table, target.key) <= max_invalid_rows(column.present):
        return None
    condition = orphan_sql(table.raw, column.name, target.table.raw, target.key)
    orphans = find_bad_rows(table.connection, table.raw, column.name, condition)
    assert orphans is not None
    return NearMiss(
        f"{table.name}.{column.name}",
        f"would refer to {target.table.name}.{target.key}, which has no '{orphans.value}' (row "
        f"{table.raw.row_name(orphans.examples[0][0])}{_more(orphans)}); correct these rows, and run relcrf new again",
        f"{target.table.name}.{target.key}", column.rows, column.rows - column.present, orphans.count,
    )  # fmt: skip


def _more(rows: BadRows) -> str:
    return f", and {rows.count - 1:,} more" if rows.count > 1 else ""
