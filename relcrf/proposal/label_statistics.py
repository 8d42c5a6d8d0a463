"""Statistics of the labels of a target: how often each label occurs, and how often linked entities have equal labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import duckdb

from relcrf.data.dataset import quoted
from relcrf.errors import listing
from relcrf.graph.labelled_factors import Homophily
from relcrf.proposal.draft import TableAnalysis
from relcrf.proposal.entity_candidates import EntityCandidate, find_references
from relcrf.proposal.profile import TableProfile
from relcrf.proposal.schema import ProposedAttribute, ProposedRelation
from relcrf.proposal.table_statistics import Bar
from relcrf.proposal.templates import MAX_NEIGHBOURS

MAX_SHARING_ROWS = 1_000_000
"""Approximate maximum number of rows from which pairs of entities that share a value are counted."""


@dataclass(frozen=True)
class LabelBalance:
    """The frequencies of the labels of a predicted attribute or relation.

    Args:
        labels: The number of occurrences of each label, in descending order; empty for the levels of numbers.
        missing: Number of entities or tuples without a label.
    """

    name: str
    labels: tuple[Bar, ...]
    known: int
    missing: int

    def __str__(self) -> str:
        """Return the fractions of the most frequent labels and the number of missing labels."""
        shown = [f"{bar.label} {bar.count / self.known:.1%}" for bar in self.labels if self.known]
        return f"{listing(shown)}; {self.known:,} known, {self.missing:,} missing"


def count_labels(analysis: TableAnalysis) -> list[LabelBalance]:
    """Return the frequencies of the labels of each predicted attribute, or of the predicted relation."""
    target = analysis.target
    if target.relation is not None:
        return [_count_tuples(target.relation, target.size)]
    assert target.entity is not None
    found, connection = [], analysis.tables[0].connection
    for attribute in target.attributes:
        bars = _count_values(connection, attribute.scan, attribute.column)
        known = sum(bar.count for bar in bars)
        shown = () if attribute.is_number else bars
        found.append(LabelBalance(f"{target.entity.name}.{attribute.name}", shown, known, target.entity.size - known))
    return found


def _count_values(connection: duckdb.DuckDBPyConnection, scan: str, column: str) -> tuple[Bar, ...]:
    cell = quoted(column)
    rows = connection.execute(
        f"SELECT {cell}, count(*) FROM {scan} WHERE {cell} IS NOT NULL GROUP BY 1 ORDER BY 2 DESC, 1"
    ).fetchall()
    return tuple(Bar(str(value), int(count)) for value, count in rows)


def _count_tuples(relation: ProposedRelation, size: int) -> LabelBalance:
    """Return the frequencies of the values of a relation; without values, listed tuples are true and all others false."""
    profile = relation.profile
    if relation.value_column is None:
        listed = profile.count_distinct(a.column for a in relation.arguments) if profile is not None else relation.rows
        return LabelBalance(relation.name, (Bar("listed", listed), Bar("not listed", size - listed)), size, 0)
    if profile is None:
        return LabelBalance(relation.name, (), relation.rows, size - relation.rows)
    bars = _count_values(profile.connection, profile.scan, relation.value_column)
    known = sum(bar.count for bar in bars)
    return LabelBalance(relation.name, bars, known, size - known)


def measure_links(analysis: TableAnalysis) -> list[tuple[str, str, Homophily]]:
    """Return the agreement of the labels of linked entities, as triples (attribute, link, agreement).

    Two entities are linked if a row refers to both, or if they share an entity: rows refer to each of them and to that
    entity, which at most MAX_NEIGHBOURS entities share. Numbers are not compared.
    """
    entity, candidates, found = analysis.target.entity, analysis.schema.candidates, []
    own = next((c for c in candidates if entity is not None and analysis.schema.types.get(id(c)) is entity), None)
    for attribute in analysis.target.attributes:
        if entity is None or attribute.key is None or attribute.is_number:
            continue
        for table in analysis.tables:
            ends = _list_ends(table, candidates)
            own_columns = [column for column, candidate in ends if candidate is own]
            for column in own_columns:
                for other, candidate in ends:
                    if candidate is not own:
                        n_parts = math.ceil(table.rows / MAX_SHARING_ROWS)
                        sampled = f", sample of 1/{n_parts} of the values" if n_parts > 1 else ""
                        name, agreement = (
                            f"same {table.name}.{other}{sampled}",
                            _compare_sharing(table, attribute, column, other, n_parts),
                        )
                    elif own_columns.index(other) > own_columns.index(column):
                        name, agreement = (
                            f"{table.name}: {column}, {other}",
                            _compare_rows(table, attribute, column, other),
                        )
                    else:
                        continue
                    if agreement.pairs:
                        found.append((f"{entity.name}.{attribute.name}", name, agreement))
    return found


def _list_ends(table: TableProfile, candidates: Sequence[EntityCandidate]) -> list[tuple[str, EntityCandidate]]:
    """Return the columns of a table that identify or refer to entities, with these entities."""
    keys = [(c.key, c) for c in candidates if c.table is table and c.key is not None]
    return [*keys, *find_references(table, candidates)]


def _labels_sql(attribute: ProposedAttribute) -> str:
    """Return SQL of the labelled entities `id` with their labels `y`."""
    key, label = quoted(attribute.key or ""), quoted(attribute.column)
    return f"labels AS (SELECT {key} AS id, {label} AS y FROM {attribute.scan} WHERE {key} IS NOT NULL AND {label} IS NOT NULL)"


def _compare_rows(table: TableProfile, attribute: ProposedAttribute, first: str, second: str) -> Homophily:
    """Return the agreement of the labels of the two entities to which each row refers."""
    a, b = quoted(first), quoted(second)
    rows = table.connection.execute(
        f"WITH {_labels_sql(attribute)}, pairs AS (SELECT a.y AS y, b.y AS z FROM {table.scan} AS t "
        f"JOIN labels AS a ON a.id = t.{a} JOIN labels AS b ON b.id = t.{b} WHERE a.id <> b.id), "
        "ends AS (SELECT y, y = z AS is_equal FROM pairs UNION ALL SELECT z, y = z FROM pairs) "
        "SELECT count(*), count(*) FILTER (is_equal) FROM ends GROUP BY y"
    ).fetchall()
    return _summarise(rows)


def _compare_sharing(
    table: TableProfile, attribute: ProposedAttribute, column: str, shared: str, n_parts: int
) -> Homophily:
    """Return the agreement of the labels of entities that occur in a column together with the same value of another one.

    The pairs are counted from the number of entities of each label at each shared value, without a join of pairs.

    Args:
        n_parts: Number of parts into which the shared values are divided at random; the first part is examined.
    """
    a, b = quoted(column), quoted(shared)
    rows = table.connection.execute(
        f"WITH {_labels_sql(attribute)}, "
        f"ends AS (SELECT DISTINCT {a} AS id, {b} AS shared FROM {table.scan} WHERE {a} IS NOT NULL AND {b} IS NOT NULL "
        f"AND hash({b}) % {n_parts} = 0), "
        "counts AS (SELECT e.shared, l.y, count(*) AS n FROM ends AS e LEFT JOIN labels AS l ON l.id = e.id GROUP BY ALL), "
        "sums AS (SELECT y, n, sum(n) OVER same AS n_entities, sum(n) FILTER (y IS NOT NULL) OVER same AS n_labelled "
        "FROM counts WINDOW same AS (PARTITION BY shared)) "
        "SELECT sum(n * (n_labelled - 1)), sum(n * (n - 1)) FROM sums "
        f"WHERE y IS NOT NULL AND n_labelled > 1 AND n_entities <= {MAX_NEIGHBOURS} GROUP BY y"
    ).fetchall()
    return _summarise(rows)


def _summarise(rows: Sequence[tuple[int, int]]) -> Homophily:
    """Return the agreement of pairs.

    Args:
        rows: For each label, the number of ends of pairs with this label, and how many of them have an equal other end.
    """
    n_ends = sum(int(ends) for ends, _ in rows)
    by_chance = sum((int(ends) / n_ends) ** 2 for ends, _ in rows)
    return Homophily(n_ends // 2, sum(int(equal) for _, equal in rows) // 2, by_chance)
