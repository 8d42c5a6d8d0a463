"""Which tables are things, and which columns refer to them: by what values lie in what keys, and by names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from relcrf.data.dataset import quoted
from relcrf.proposal.names import ENDPOINT_COLUMNS, POSITION_COLUMNS, SPLIT_COLUMNS, stem_name
from relcrf.proposal.profile import ColumnProfile, TableProfile, count_unmatched_values


@dataclass
class EntityCandidate:
    """A kind of things.

    Args:
        table: the table with a row for each; None where they are only mentioned.
        key: the column that tells them apart; None where rows have none.
        references: the columns that refer to them, by table.
        sequence: of rows in sequences: the columns of the sequence and of the place in it.
    """

    name: str
    table: TableProfile | None
    key: str | None
    references: list[tuple[TableProfile, str]] = field(default_factory=list)
    sequence: tuple[str, str] | None = None

    def referring_columns(self, table: TableProfile) -> list[str]:
        """The columns of a table that refer to them."""
        return [column for one, column in self.references if one is table]

    @property
    def reason(self) -> str:
        """Why they are things."""
        named = [f"{table.name}.{column}" for table, column in self.references]
        lie = f"{', '.join(named)} lie{'s' * (len(named) == 1)} in it" if named else ""
        if self.table is None:
            return f"no table lists them; {', '.join(named)} name them"
        if self.key is None:
            order = f"; {self.sequence[1]} counts within {self.sequence[0]}" if self.sequence else ""
            return "a row is a thing, and has no key" + order
        return f"{self.table.name}.{self.key}: unique" + (f"; {lie}" if lie else "")


def find_candidates(tables: list[TableProfile]) -> list[EntityCandidate]:
    """The kinds of things in some tables, with all that refers to them."""
    things = [EntityCandidate(t.name, t, key) for t in tables if (key := _find_key(t)) is not None]
    _add_references(tables, things)
    _add_unlisted(tables, things)
    known = {id(t.table) for t in things}
    for table in tables:
        if id(table) in known or find_references(table, things):
            continue
        weak = next((c.name for c in table.columns.values() if _may_be_key(c) and c.is_unique), None)
        if weak is not None and (weak == next(iter(table.columns)) or stem_name(weak) == "id"):
            things.append(EntityCandidate(table.name, table, weak))
        elif len(table.columns) + len(table.numbered_columns) > 1:
            things.append(EntityCandidate(table.name, table, None, sequence=_find_sequence(table)))
    for thing in things:
        if thing.table is not None and thing.key is not None:
            thing.sequence = _find_sequence(thing.table)
    return things


def _may_be_key(column: ColumnProfile) -> bool:
    return column.kind in ("whole", "text") and column.name.lower() not in SPLIT_COLUMNS


def _find_key(table: TableProfile) -> str | None:
    """The column that is a key by its name and by its values."""
    unique = [c for c in table.columns.values() if c.is_unique and _may_be_key(c)]
    for wanted in ("id", stem_name(table.name), "key"):
        for column in unique:
            if column.name.lower() == wanted or stem_name(column.name) == wanted:
                return column.name
    return None


def find_references(table: TableProfile, candidates: Sequence[EntityCandidate]) -> list[tuple[str, EntityCandidate]]:
    """Return the columns of a table that refer to things, in the order of the table."""
    found = {column: thing for thing in candidates for column in thing.referring_columns(table)}
    return [(column, found[column]) for column in table.raw.columns if column in found]


def _add_references(tables: list[TableProfile], candidates: list[EntityCandidate]) -> None:
    """Finds the columns all of whose values are keys of things."""
    for table in tables:
        for column in table.columns.values():
            if not _may_be_key(column) or column.distinct < 2:
                continue
            if any(thing.table is table and thing.key == column.name for thing in candidates):
                continue
            fitting = [
                (rank, column.distinct / home.columns[key].distinct, -k)
                for k, thing in enumerate(candidates)
                if (home := thing.table) is not None
                and (key := thing.key) is not None
                and (rank := _name_affinity(column, thing, table)) > 0
                and _is_included(table, column, home, key)
            ]
            if fitting:
                candidates[-max(fitting)[2]].references.append((table, column.name))


def _name_affinity(column: ColumnProfile, candidate: EntityCandidate, table: TableProfile) -> int:
    """How much a column's name speaks for a reference to things; 0 where nothing does."""
    own = {stem_name(candidate.name), stem_name(candidate.key or "")} - {"", "id"}
    if stem_name(column.name) in own:
        return 3
    if any(
        len(name) > 2 and (stem_name(column.name).startswith(name) or stem_name(column.name).endswith(name))
        for name in own
    ):
        return 2
    # `x` and `y` of a table of things are places, and not other things of it.
    if column.name.lower() in ENDPOINT_COLUMNS and (len(column.name) > 1 or candidate.table is not table):
        return 1
    # Numbers lie in the keys of anything; texts that all are keys hardly do so by chance.
    return 1 if column.kind == "text" and column.distinct > 2 and candidate.table is not table else 0


def _is_included(table: TableProfile, column: ColumnProfile, home: TableProfile, key: str) -> bool:
    known = home.columns[key]
    if column.distinct > known.distinct or (column.low is not None and known.low is None and known.kind != "text"):
        return False
    lows, highs = (known.low, column.low), (column.high, known.high)
    if any(a is not None and b is not None and a > b for a, b in (lows, highs)):
        return False
    return count_unmatched_values(table, column.name, home, key) == 0


def _add_unlisted(tables: list[TableProfile], candidates: list[EntityCandidate]) -> None:
    """Finds things that several columns name and no table of theirs lists: each is a group of columns with common values."""
    taken = {(id(t), c) for thing in candidates for t, c in thing.references}
    taken |= {(id(thing.table), thing.key) for thing in candidates if thing.key}
    free = [
        (table, column)
        for table in tables
        for column in table.columns.values()
        if column.kind == "text"
        and column.distinct > 2
        and _may_be_key(column)
        and (id(table), column.name) not in taken
    ]
    groups: list[list[tuple[TableProfile, ColumnProfile]]] = []
    for one in free:
        joined = [g for g in groups if any(_values_overlap(one, other) for other in g)]
        groups = [g for g in groups if g not in joined] + [[one, *(member for g in joined for member in g)]]
    for group in groups:
        if len(group) < 2 or not any(c.is_unique for _, c in group):
            continue
        mentions = sorted(((t, c.name) for t, c in group), key=lambda m: (m[0].name, m[1]))
        common = Counter(c for _, c in mentions if c.lower() not in ENDPOINT_COLUMNS) or Counter(c for _, c in mentions)
        name = min(common, key=lambda c: (-common[c], c))
        candidates.append(EntityCandidate(name, None, None, mentions))


def _values_overlap(one: tuple[TableProfile, ColumnProfile], other: tuple[TableProfile, ColumnProfile]) -> bool:
    """Whether two columns have at least half of the values of the one with fewer in common."""
    (table, column), (second, known) = sorted((one, other), key=lambda m: m[1].distinct)
    missing = count_unmatched_values(table, column.name, second, known.name)
    return missing * 2 <= column.distinct


def _find_sequence(table: TableProfile) -> tuple[str, str] | None:
    """The columns of a sequence and of the place in it, which together tell all rows apart."""
    for place in table.columns.values():
        if place.kind == "whole" and place.name.lower() in POSITION_COLUMNS:
            for group in table.columns.values():
                if group.kind in ("whole", "text") and group.name != place.name and group.distinct * 1.5 < table.rows:
                    pair = f"{quoted(group.name)}, {quoted(place.name)}"
                    if table.query_number(f"SELECT count(*) FROM (SELECT DISTINCT {pair} FROM this)") == table.rows:
                        return group.name, place.name
    return None
