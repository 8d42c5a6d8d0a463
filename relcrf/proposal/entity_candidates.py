"""Candidates for entity types, and references to entities, found by comparing the values and names of columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from relcrf.data.dataset import quoted
from relcrf.proposal.names import ENDPOINT_COLUMNS, LABEL_COLUMNS, POSITION_COLUMNS, SPLIT_COLUMNS, names_key, stem_name
from relcrf.proposal.profile import ColumnProfile, TableProfile, count_unmatched_rows, count_unmatched_values

MAX_INVALID = 0.01
"""Maximum fraction of invalid rows of a column that is nevertheless proposed as a key or a reference."""

MIN_DISTINCT = 10
"""Minimum number of distinct values of a column with invalid rows; in a smaller column, one row is a large fraction."""

MIN_KEYS = 20
"""Minimum number of keys; the numbers of ratings, months or hours fit a smaller key by chance."""

MIN_COVERAGE = 0.5
"""Minimum fraction of the keys that occur in the columns together."""

MIN_HALF = 0.1
"""Minimum fraction of the rows of a column in each half of the key.

Amounts that are distributed geometrically, of which 1 % exceed the n keys, have less than 10 % above n / 2.
"""

MAX_END_GAP = 3.0
"""Maximum number of unused keys at an end of the key, as a multiple of the mean distance of the used keys.

For m values that are a uniform sample, a larger gap has a probability below exp(-3), about 5 %. Ages and counts fill a
part of the key and leave one end unused: the numbers from 1 to m of n keys pass only if n - m <= 3 n / m.
"""


@dataclass
class EntityCandidate:
    """A candidate for an entity type.

    Args:
        table: The table with one row per entity; None if the entities occur only in references.
        key: The column that identifies the entities; None if there is none.
        references: Columns that refer to the entities, as pairs (table, column).
        sequence: If the rows form sequences, the pair (column that identifies the sequence, column of the position).
    """

    name: str
    table: TableProfile | None
    key: str | None
    references: list[tuple[TableProfile, str]] = field(default_factory=list)
    sequence: tuple[str, str] | None = None

    def referring_columns(self, table: TableProfile) -> list[str]:
        """Return the columns of a table that refer to the entities."""
        return [column for one, column in self.references if one is table]

    def key_in(self, table: TableProfile) -> str | None:
        """Return the column that identifies the entities in their table or in a table that refers to them."""
        return self.key if table is self.table else self.referring_columns(table)[0]

    @property
    def reason(self) -> str:
        """The reason why the candidate is an entity type."""
        named = [f"{table.name}.{column}" for table, column in self.references]
        references = f"; referenced by {', '.join(named)}" if named else ""
        if self.table is None:
            return f"no table lists these entities{references}"
        if self.key is None:
            order = f"; ordered by {self.sequence[1]} within {self.sequence[0]}" if self.sequence else ""
            return "each row is an entity without a key" + order
        return f"{self.table.name}.{self.key}: unique{references}"


def find_candidates(tables: list[TableProfile]) -> list[EntityCandidate]:
    """Return the candidates for entity types in tables, each with the columns that refer to it."""
    candidates = [EntityCandidate(t.name, t, key) for t in tables if (key := find_key(t, tables)) is not None]
    _add_references(tables, candidates)
    _add_candidates_without_table(tables, candidates)
    candidate_tables = {id(t.table) for t in candidates}
    for table in tables:
        if id(table) in candidate_tables or find_references(table, candidates):
            continue
        key = next((c.name for c in table.columns.values() if may_be_key(c) and c.is_unique), None)
        if key is not None and (key == next(iter(table.columns)) or stem_name(key) == "id"):
            candidates.append(EntityCandidate(table.name, table, key))
        elif len(table.columns) + len(table.numbered_columns) > 1:
            candidates.append(EntityCandidate(table.name, table, None, sequence=_find_sequence(table)))
    for candidate in candidates:
        if candidate.table is not None and candidate.key is not None:
            candidate.sequence = _find_sequence(
                candidate.table, [c for c, _ in find_references(candidate.table, candidates)]
            )
    return candidates


def may_be_key(column: ColumnProfile) -> bool:
    """Return True if the values of a column can identify or refer to entities."""
    return column.kind in ("whole", "text") and column.name.lower() not in SPLIT_COLUMNS


def max_invalid_rows(rows: int) -> int:
    """Return the maximum number of invalid rows of a column that is proposed as a key or a reference."""
    return max(1, int(rows * MAX_INVALID))


def find_key(table: TableProfile, tables: Sequence[TableProfile]) -> str | None:
    """Return the column with distinct values that is most likely the key of a table; None if there is none."""
    return select_key(table, [c for c in table.columns.values() if c.is_unique and may_be_key(c)], tables)


def select_key(table: TableProfile, columns: Sequence[ColumnProfile], tables: Sequence[TableProfile]) -> str | None:
    """Return the column whose name is most typical of a key, or else one to which pairs of columns refer."""
    ranked = [(rank, c.name) for c in columns if (rank := rank_as_key(c.name, table.name)) is not None]
    if ranked:
        return min(ranked, key=lambda pair: pair[0])[1]
    return next((c.name for c in columns if _is_linked_key(table, c, tables)), None)


def _is_linked_key(table: TableProfile, key: ColumnProfile, tables: Sequence[TableProfile]) -> bool:
    """Return True if a table has two columns of texts that almost all occur in a column `key`, whatever their names.

    The table of `key` must not have such a column itself: then it would be a table of links rather than of entities.
    """
    if key.kind != "text":
        return False

    def count_references(other: TableProfile) -> int:
        columns = [c for c in other.columns.values() if c.kind == "text" and c.distinct > 2 and may_be_key(c)]
        return sum(_is_almost_included(other, c, table, key) for c in columns if c is not key)

    return not count_references(table) and any(count_references(other) > 1 for other in tables if other is not table)


def _is_almost_included(table: TableProfile, column: ColumnProfile, target: TableProfile, key: ColumnProfile) -> bool:
    limit = max_invalid_rows(column.present) if column.distinct >= MIN_DISTINCT else 0
    is_possible = column.distinct <= key.distinct + limit and not column.is_disjoint(key)
    return is_possible and count_unmatched_rows(table, column.name, target, key.name) <= limit


def rank_as_key(column: str, table: str) -> int | None:
    """Return how typical the name of a column is of a key, from 0 (most typical) to 2; None if it is not typical."""
    expected_stems = ("id", stem_name(table), "key")
    return next((k for k, stem in enumerate(expected_stems) if stem in (column.lower(), stem_name(column))), None)


def find_references(table: TableProfile, candidates: Sequence[EntityCandidate]) -> list[tuple[str, EntityCandidate]]:
    """Return pairs (column, candidate) for the columns of a table that refer to candidates, in the order of columns."""
    by_column = {column: candidate for candidate in candidates for column in candidate.referring_columns(table)}
    return [(column, by_column[column]) for column in table.raw.columns if column in by_column]


def _add_references(tables: list[TableProfile], candidates: list[EntityCandidate]) -> None:
    """Add each column whose values are all keys of a candidate to the references of that candidate.

    A reference shows by which name tables refer to a candidate, so that further columns may be found.
    """
    n_known = -1
    while (n_found := sum(len(candidate.references) for candidate in candidates)) > n_known:
        n_known = n_found
        _add_named_references(tables, candidates)


def _add_named_references(tables: list[TableProfile], candidates: list[EntityCandidate]) -> None:
    known = {(id(table), column) for candidate in candidates for table, column in candidate.references}
    for table in tables:
        links = find_number_links(table, candidates)
        for column in table.columns.values():
            if not may_be_key(column) or column.distinct < 2 or (id(table), column.name) in known:
                continue
            if any(candidate.table is table and candidate.key == column.name for candidate in candidates):
                continue
            matches = [
                (rank, column.distinct / target.columns[key].distinct, -k)
                for k, candidate in enumerate(candidates)
                if (target := candidate.table) is not None
                and (key := candidate.key) is not None
                and (rank := name_affinity(column, candidate, table) or links.get(column.name) is candidate) > 0
                and _is_included(table, column, target, key)
            ]
            if matches:
                candidates[-max(matches)[2]].references.append((table, column.name))


def name_affinity(column: ColumnProfile, candidate: EntityCandidate, table: TableProfile) -> int:
    """Return a score from 0 to 3: how strongly the name of a column suggests a reference to a candidate."""
    stems = {stem_name(candidate.name), stem_name(candidate.key or "")} - {"", "id"}
    others = [
        name for other, name in candidate.references if other is not table and name.lower() not in ENDPOINT_COLUMNS
    ]
    if stem_name(column.name) in stems | ({*map(stem_name, others)} - {"", "id"}):
        return 3
    if any(_is_qualified(column, name) for name in stems):
        return 2
    # `x` and `y` in an entity table are coordinates, not references to other rows of the table.
    if column.name.lower() in ENDPOINT_COLUMNS and (len(column.name) > 1 or candidate.table is not table):
        # A `target` with few numbers is a label.
        may_be_label = candidate.table is table or column.name.lower() in LABEL_COLUMNS
        return 1 if column.distinct >= (MIN_DISTINCT if may_be_label else 2) else 0
    # Numbers often equal unrelated keys by chance; texts hardly ever do.
    min_distinct = MIN_DISTINCT if candidate.table is table else 3
    return 1 if column.kind == "text" and column.distinct >= min_distinct else 0


def _is_qualified(column: ColumnProfile, name: str) -> bool:
    """Return True if the name of a column consists of a candidate's name and another word, such as `home_team` and `team2`.

    Small numbers equal keys by chance, and their columns are often named after an entity: `team_size` and `total_teams` are
    attributes.
    """
    stem, lower = stem_name(column.name), column.name.lower()
    if len(name) <= 2 or not (stem.startswith(name) or stem.endswith(name)):
        return False
    if column.kind == "text" or names_key(column.name):
        return True
    rest, is_plural = stem.removeprefix(name), lower.endswith("s") and not lower.endswith("ss")
    return rest.isdigit() or rest in ENDPOINT_COLUMNS or (stem.endswith(name) and not is_plural)


def find_number_links(table: TableProfile, candidates: Sequence[EntityCandidate]) -> dict[str, EntityCandidate]:
    """Return the columns of a table of links between entities with integer keys, with the candidate that they refer to.

    Small numbers equal the keys 1, 2, ... by chance. A table without a key, and without a column that is named after an
    entity type, is a table of links only if all its columns of integers, at least two, refer to the same entities: each
    may contain at most 1 % other numbers, must extend to both ends of the key and have rows in both halves of it, and
    together they must contain half of the keys. If two keys satisfy this, neither is returned. Columns with few distinct
    numbers are attributes of a link.
    """
    columns = [c for c in table.columns.values() if c.kind == "whole" and may_be_key(c) and c.distinct >= MIN_DISTINCT]
    keyed = [c for c in candidates if c.table is not None and c.key is not None]
    if len(columns) < 2 or any(c.table is table for c in keyed):
        return {}
    if any(c.is_unique and rank_as_key(c.name, table.name) is not None for c in columns):
        return {}
    if any(name_affinity(column, c, table) > 1 for column in table.columns.values() for c in keyed):
        return {}
    targets = [candidate for candidate in keyed if _are_links(table, columns, candidate)]
    return {column.name: targets[0] for column in columns} if len(targets) == 1 else {}


def _are_links(table: TableProfile, columns: Sequence[ColumnProfile], candidate: EntityCandidate) -> bool:
    """Return True if the numbers in all columns are the keys of a candidate, and represent the whole range of its keys."""
    assert candidate.table is not None and candidate.key is not None
    key = candidate.table.columns[candidate.key]
    if key.kind != "whole" or key.distinct < MIN_KEYS or rank_as_key(key.name, candidate.table.name) is None:
        return False
    if any(column.distinct > key.distinct + max_invalid_rows(column.present) for column in columns):
        return False
    cells = " UNION ALL ".join(
        f"SELECT {k} AS number, {quoted(column.name)} AS cell FROM {table.scan}" for k, column in enumerate(columns)
    )
    own = quoted(key.name)
    rank = f"dense_rank() OVER (ORDER BY TRY_CAST({own} AS DOUBLE)) AS rank"
    keys = f"SELECT DISTINCT {own} AS key, {rank} FROM {candidate.table.scan}"
    rows = table.connection.execute(
        "SELECT number, count(*), count(rank), count(*) FILTER (2 * rank > $1), count(DISTINCT rank), min(rank), max(rank) "
        f"FROM ({cells}) LEFT JOIN ({keys}) ON cell = key WHERE cell IS NOT NULL GROUP BY GROUPING SETS ((number), ())",
        [key.distinct],
    ).fetchall()
    (covered,) = [used for number, _, _, _, used, _, _ in rows if number is None]
    return covered >= MIN_COVERAGE * key.distinct and all(
        present - matched <= max_invalid_rows(present)
        and used >= MIN_DISTINCT
        and min(upper, matched - upper) >= MIN_HALF * matched
        and max(first - 1, key.distinct - last) <= MAX_END_GAP * key.distinct / used
        for number, present, matched, upper, used, first, last in rows
        if number is not None
    )


def _is_included(table: TableProfile, column: ColumnProfile, target: TableProfile, key: str) -> bool:
    keys = target.columns[key]
    if column.first < keys.first or keys.last < column.last:
        return False
    if column.distinct > keys.distinct or (column.low is not None and keys.low is None and keys.kind != "text"):
        return False
    lows, highs = (keys.low, column.low), (column.high, keys.high)
    if any(a is not None and b is not None and a > b for a, b in (lows, highs)):
        return False
    if count_unmatched_values(table, column.name, target, key) > 0:
        return False
    # A copy of the key is not a reference to other rows.
    is_other = f"SELECT count(*) FROM this WHERE {quoted(column.name)} <> {quoted(key)}"
    return target is not table or table.query_number(is_other) > 0


def _add_candidates_without_table(tables: list[TableProfile], candidates: list[EntityCandidate]) -> None:
    """Add candidates for entities that no table lists: each candidate is a group of text columns that share values.

    At least one of these columns has no repeated value. Other columns are compared only with members of a group.
    """
    taken = {(id(t), c) for candidate in candidates for t, c in candidate.references}
    taken |= {(id(candidate.table), candidate.key) for candidate in candidates if candidate.key}
    free = [
        (table, column)
        for table in tables
        for column in table.columns.values()
        if column.kind == "text"
        and column.distinct > 2
        and may_be_key(column)
        and (id(table), column.name) not in taken
    ]
    groups: list[list[int]] = []
    remaining = list(range(len(free)))
    for start, (_, column) in enumerate(free):
        if not column.is_unique or start not in remaining:
            continue
        group = [start]
        for member in group:  # the group grows
            remaining = [k for k in remaining if k not in group]
            group += [k for k in remaining if _values_overlap(free[member], free[k])]
        groups.append(sorted(group))
    for group in sorted((group for group in groups if len(group) > 1), key=max):
        references = sorted(((t, c.name) for t, c in map(free.__getitem__, group)), key=lambda m: (m[0].name, m[1]))
        common = Counter(c for _, c in references if c.lower() not in ENDPOINT_COLUMNS) or Counter(
            c for _, c in references
        )
        name = min(common, key=lambda c: (-common[c], c))
        candidates.append(EntityCandidate(name, None, None, references))


def _values_overlap(one: tuple[TableProfile, ColumnProfile], other: tuple[TableProfile, ColumnProfile]) -> bool:
    """Return True if the column with fewer distinct values shares at least half of them with the other column."""
    (table, column), (second, known) = sorted((one, other), key=lambda m: m[1].distinct)
    if column.is_disjoint(known):
        return False
    missing = count_unmatched_values(table, column.name, second, known.name)
    return missing * 2 <= column.distinct


def _find_sequence(table: TableProfile, references: Sequence[str] = ()) -> tuple[str, str] | None:
    """Return (sequence column, position column), which together identify a row; None if there are no such columns.

    Args:
        references: The columns that refer to entities, such as `order`, which are not positions.
    """
    for position in table.columns.values():
        is_position = position.name.lower() in POSITION_COLUMNS and position.name not in references
        if position.kind == "whole" and is_position:
            for group in table.columns.values():
                if (
                    group.kind in ("whole", "text")
                    and group.name != position.name
                    and group.distinct * 1.5 < table.rows
                ):
                    pair = f"{quoted(group.name)}, {quoted(position.name)}"
                    if table.query_number(f"SELECT count(*) FROM (SELECT DISTINCT {pair} FROM this)") == table.rows:
                        return group.name, position.name
    return None
