"""The keys of tables and the links between them, with the rows that contradict them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relcrf.proposal.entity_candidates import EntityCandidate
from relcrf.proposal.near_misses import NearMiss
from relcrf.proposal.profile import TableProfile


@dataclass(frozen=True)
class KeyStatistics:
    """A key, or a column that would be a key without a few invalid rows.

    Args:
        column: `table.column`.
        duplicates: Number of rows that repeat the value of another row.
    """

    column: str
    rows: int
    duplicates: int = 0
    missing: int = 0


@dataclass(frozen=True)
class LinkStatistics:
    """A column that refers to entities.

    Args:
        column: `table.column`.
        target: The key `table.column`, or the name of entities that no table lists.
        cardinality: `n : 1` or, if no two rows refer to the same entity, `1 : 1`.
        matched: Number of rows that refer to a known entity.
        orphans: Number of rows that refer to an unknown entity; None if no table lists the entities.
    """

    column: str
    target: str
    cardinality: str
    rows: int
    matched: int
    missing: int
    orphans: int | None


def list_keys(candidates: Sequence[EntityCandidate], near_misses: Sequence[NearMiss]) -> list[KeyStatistics]:
    """Return the keys of tables, including those that a manifest repairs and those that a few invalid rows prevent."""
    keys = {
        f"{candidate.table.name}.{candidate.key}": candidate.table.rows
        for candidate in candidates
        if candidate.table is not None and candidate.key is not None
    }
    found = {column: KeyStatistics(column, rows) for column, rows in keys.items()}
    for miss in near_misses:
        if miss.rows and not miss.target:
            found[miss.column] = KeyStatistics(miss.column, miss.rows, miss.invalid, miss.missing)
    return list(found.values())


def list_links(
    tables: Sequence[TableProfile], candidates: Sequence[EntityCandidate], near_misses: Sequence[NearMiss]
) -> list[LinkStatistics]:
    """Return the references between tables, including those that a manifest repairs or that a few rows prevent."""
    columns = {f"{table.name}.{name}": column for table in tables for name, column in table.columns.items()}
    contradicted = {(miss.column, miss.target): miss for miss in near_misses if miss.target}
    references: dict[tuple[str, str], bool] = {}
    for candidate in candidates:
        is_listed = candidate.table is not None and candidate.key is not None
        target = f"{candidate.table.name}.{candidate.key}" if candidate.table and is_listed else candidate.name
        references |= {(f"{table.name}.{name}", target): is_listed for table, name in candidate.references}
    links = []
    for name, target in sorted({**references, **contradicted}, key=lambda link: list(columns).index(link[0])):
        column, miss = columns[name], contradicted.get((name, target))
        rows, missing, orphans = column.rows, column.rows - column.present, 0
        if miss is not None:
            rows, missing, orphans = miss.rows, miss.missing, miss.invalid
        cardinality = "1 : 1" if column.distinct == column.present else "n : 1"
        known = orphans if references.get((name, target), True) else None
        links.append(LinkStatistics(name, target, cardinality, rows, rows - missing - orphans, missing, known))
    return links
