"""Columns that are almost keys or references: a few invalid rows are the reason why a proposal does not use them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relcrf.data.coding import BadRows, find_bad_rows, find_duplicate_rows, text_sql
from relcrf.data.dataset import quoted
from relcrf.proposal.entity_candidates import EntityCandidate, may_be_key, name_affinity, rank_as_key
from relcrf.proposal.profile import ColumnProfile, TableProfile, count_unmatched_values

MAX_INVALID = 0.01
"""Maximum fraction of rows (for a key) or of distinct values (for a reference) that are invalid in a near miss."""

MIN_DISTINCT = 10
"""Minimum number of distinct values of a near miss; in a smaller column, one invalid row is a large fraction."""


@dataclass(frozen=True)
class NearMiss:
    """A column that would be a key or a reference if a few rows were valid.

    Args:
        column: `table.column`.
        reason: What the column would be, and the rows that prevent it.
    """

    column: str
    reason: str

    def __str__(self) -> str:
        return f"{self.column} {self.reason}"


def find_near_misses(tables: Sequence[TableProfile], candidates: Sequence[EntityCandidate]) -> list[NearMiss]:
    """Return the columns that a few invalid rows prevent from being keys of entities, or references to candidates."""
    keyed = [candidate for candidate in candidates if candidate.table is not None and candidate.key is not None]
    misses = []
    for table in tables:
        if not any(candidate.table is table for candidate in keyed):
            columns = [c for c in table.columns.values() if may_be_key(c) and _is_almost_key(c)]
            columns = [c for c in columns if rank_as_key(c.name, table.name) is not None]
            if columns:
                misses.append(_explain_key(table, min(columns, key=lambda c: rank_as_key(c.name, table.name) or 0)))
        references = {column for candidate in candidates for column in candidate.referring_columns(table)}
        for column in table.columns.values():
            if column.name in references or not may_be_key(column) or column.distinct < MIN_DISTINCT:
                continue
            targets = [c for c in keyed if c.table is not table and name_affinity(column, c, table) > 0]
            misses += filter(None, (_explain_reference(table, column, target) for target in targets))
    return misses


def _limit(count: int) -> int:
    return max(1, int(count * MAX_INVALID))


def _is_almost_key(column: ColumnProfile) -> bool:
    return column.distinct >= MIN_DISTINCT and 0 < column.rows - column.distinct <= _limit(column.rows)


def _explain_key(table: TableProfile, column: ColumnProfile) -> NearMiss:
    """Return the near miss of a column that has missing or duplicate values."""
    text = text_sql(table.raw, column.name)
    if duplicates := find_duplicate_rows(table.connection, table.raw, column.name, [text]):
        first, second = (table.raw.row_name(row or 0) for row in (duplicates.original_row, duplicates.examples[0][0]))
        problem = f"'{duplicates.value}' stands in rows {first} and {second}"
        problem += _more(duplicates)
    else:
        missing = find_bad_rows(table.connection, table.raw, column.name, f"{text} IS NULL")
        assert missing is not None
        problem = f"it is empty in row {table.raw.row_name(missing.examples[0][0])}{_more(missing)}"
    return NearMiss(
        f"{table.name}.{column.name}",
        f"would be the key of {table.name}, but {problem}; correct these rows, and run relcrf new again",
    )


def _explain_reference(table: TableProfile, column: ColumnProfile, target: EntityCandidate) -> NearMiss | None:
    """Return the near miss of a column if few of its values, and at least one, are missing in the keys of `target`."""
    assert target.table is not None and target.key is not None
    unmatched = count_unmatched_values(table, column.name, target.table, target.key)
    if not 0 < unmatched <= _limit(column.distinct):
        return None
    text, key = text_sql(table.raw, column.name), quoted(target.key)
    keys = f"SELECT {key} FROM {target.table.scan} WHERE {key} IS NOT NULL"
    orphans = find_bad_rows(table.connection, table.raw, column.name, f"{text} NOT IN ({keys})")
    assert orphans is not None
    return NearMiss(
        f"{table.name}.{column.name}",
        f"would refer to {target.table.name}.{target.key}, which has no '{orphans.value}' (row "
        f"{table.raw.row_name(orphans.examples[0][0])}{_more(orphans)}); correct these rows, and run relcrf new again",
    )


def _more(rows: BadRows) -> str:
    return f", and {rows.count - 1:,} more" if rows.count > 1 else ""
