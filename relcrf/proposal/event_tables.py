"""Event tables, such as payments: several rows refer to the same entities. Queries summarise the rows of each entity."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from relcrf.data.dataset import quoted
from relcrf.data.store import literal
from relcrf.model.spec import fold_name
from relcrf.proposal.entity_candidates import EntityCandidate, find_references
from relcrf.proposal.manifest import ManifestBuilder
from relcrf.proposal.names import NamePool, argument_name, attribute_name, camel_case
from relcrf.proposal.profile import TableProfile
from relcrf.proposal.schema import (
    ProposedAttribute,
    ProposedEntity,
    ProposedRelation,
    ProposedSchema,
    RelationArgument,
    TableFinding,
    detect_symmetry,
)
from relcrf.proposal.target import PredictionTarget

MAX_SHARES = 8
"""Maximum number of values of a column for which the share of each value among the events of an entity is computed."""

NIGHT_HOURS = 6
"""Number of hours after midnight that count as night."""

TIME_GUIDE = "docs/how-to/time.md"
"""The page on rows that are later than a prediction."""

_UNRELATED = ("left out", "its events do not refer to the predicted entities")


@dataclass(frozen=True)
class EventTable:
    """A table of events.

    Args:
        references: The columns that refer to entities, as pairs (column, candidate).
    """

    table: TableProfile
    references: tuple[tuple[str, EntityCandidate], ...]


def find_event_tables(
    tables: Sequence[TableProfile],
    candidates: Sequence[EntityCandidate],
    manifest: ManifestBuilder,
    predicted: str | None,
) -> list[EventTable]:
    """Return the event tables.

    An event table refers to entities, each of them in at least two rows on average, and no table refers to its rows. If it
    has a key, it has a column with times of day; otherwise, it has dates or real numbers, and rows with equal references.
    A table that may contain the target is not an event table: `predicted` names it or a column of it, or a column with few
    values has missing values.
    """
    events = []
    for table in tables:
        own = next((c for c in candidates if c.table is table), None)
        references = tuple((c, other) for c, other in find_references(table, candidates) if other is not own)
        sources = [other.table for _, other in references if other.table is not None]
        columns = [column for column, _ in references]
        owner, dot, _ = map(fold_name, (predicted or "").partition("."))
        may_be_target = owner == fold_name(table.name) or any(
            (c.values and c.present < c.rows) or (not dot and owner == fold_name(c.name))
            for c in table.columns.values()
        )
        if not references or may_be_target or not manifest.can_query(table, *sources):
            continue
        if table.rows < 2 * table.columns[columns[0]].distinct:
            continue
        if own is not None:
            is_event = not own.references and any(c.kind == "datetime" for c in table.columns.values())
        else:
            is_measured = any(c.kind in ("date", "datetime", "real") for c in table.columns.values())
            is_event = is_measured and table.count_distinct(columns) < table.rows
        if is_event:
            events.append(EventTable(table, references))
    return events


def add_events(
    schema: ProposedSchema, target: PredictionTarget, events: Sequence[EventTable], manifest: ManifestBuilder
) -> None:
    """Add what event tables tell about the predicted entities: attributes that summarise the events of each entity, and
    relations to the other entities that occur in the same events.
    """
    names, entity = NamePool(schema.names), target.entity
    for event in events:
        types = {column: schema.types.get(id(other)) for column, other in event.references}
        own = [column for column, each in types.items() if entity is not None and each is entity]
        for column in own:
            assert entity is not None
            _add_summary(entity, event, column, manifest)
            for other_column, other in types.items():
                is_added = (
                    other_column in own[: own.index(column) + 1]
                )  # as a pair of two columns of predicted entities
                if other is not None and not is_added:
                    _add_link(schema, event, (column, other_column), (entity, other), manifest, names)
        dates = find_dates(event.table)
        if own and entity is not None and dates:
            schema.warnings.append(
                f"the attributes of {entity.name} that summarise {event.table.name} read all its rows, also rows that are later "
                f"than a prediction: if there are such rows, compare column '{dates}' with the time of the prediction in the "
                f"query of {entity.name} in the manifest, or declare times ({TIME_GUIDE})"
            )
        role = ("events", f"the rows of each {entity.name} are summarised") if own and entity else _UNRELATED
        schema.findings.append(TableFinding(event.table.name, role[0], event.table.rows, role[1]))


def find_dates(table: TableProfile) -> str | None:
    """Return the first column of dates in a table; None if there is none."""
    return next((c.name for c in table.columns.values() if c.kind in ("date", "datetime")), None)


def time_warning(schema: ProposedSchema, target: PredictionTarget) -> str | None:
    """Return a warning if each predicted entity is a dated row of another entity, such as a visit of a patient.

    Its date is then probably the time of the prediction, and the model also reads later rows.
    """
    entity = target.entity
    if entity is None:
        return None
    dates = [attribute for attribute in entity.attributes if attribute.type == "datetime"]
    is_row = any(
        relation.arguments[0].entity is entity and any(x.entity not in (None, entity) for x in relation.arguments[1:])
        for relation in schema.relations
        if relation.table == entity.table
    )
    if not is_row or len(dates) != 1:
        return None
    name = dates[0].name
    return (
        f"if a prediction for {entity.name} is due at its '{name}', later rows must not be used: declare 'time {name}', add "
        f"'as of' to the templates and evaluate with --split folds=4,time={name} ({TIME_GUIDE})"
    )


def _add_link(
    schema: ProposedSchema,
    event: EventTable,
    columns: tuple[str, str],
    types: tuple[ProposedEntity, ProposedEntity],
    manifest: ManifestBuilder,
    names: NamePool,
) -> None:
    """Add a relation between the entities in two columns of an event table."""
    table = event.table
    used = NamePool()
    ends = [used.reserve(argument_name(c)) for c in columns]
    a, b = map(quoted, columns)
    name = manifest.names.reserve("_".join(attribute_name(each.table or each.name).lower() for each in types))
    selected = f"SELECT DISTINCT {a} AS {quoted(ends[0])}, {b} AS {quoted(ends[1])}"
    present = " AND ".join(map(table.present_sql, columns))
    reason = f"{' and '.join(columns)} occur in a row of {table.name}"
    references = [f"{table.name}.{column}" for column in columns]
    manifest.add_query(name, f"{selected}\nFROM {manifest.query_source(table)}\nWHERE {present}", reason, *references)
    pairs = replace(table, scan=f"({selected} FROM {table.scan} WHERE {a} IS NOT NULL AND {b} IS NOT NULL)")
    pairs = replace(pairs, rows=pairs.query_number("SELECT count(*) FROM this"))
    arguments = [
        RelationArgument(end, each.name, each if each.key else None, end, table.columns[c].distinct)
        for end, each, c in zip(ends, types, columns, strict=True)
    ]
    relation = ProposedRelation(names.reserve(camel_case(name)), arguments, pairs.rows, reason, name, profile=pairs)
    detect_symmetry(relation)
    schema.relations.append(relation)
    schema.findings.append(TableFinding(table.name, f"relation {relation.name}", pairs.rows, reason))


def _add_summary(entity: ProposedEntity, event: EventTable, column: str, manifest: ManifestBuilder) -> None:
    """Add attributes to an entity type that summarise the events of each entity, and the query that computes them."""

    def summary_sql(selected: str, scan: str) -> str:
        key = quoted(column)
        return f"SELECT {key} AS entity, {selected}\nFROM {scan}\nWHERE {key} IS NOT NULL GROUP BY 1"

    own_table = next((other.table for c, other in event.references if c == column), None)
    taken = () if own_table is None else own_table.raw.columns  # the query also selects the columns that are left out
    names = NamePool([entity.key, *taken, *(a.name for a in entity.attributes), *(bag.name for bag in entity.bags)])
    summaries = [
        (names.reserve(attribute_name(name)), type_name, sql)
        for name, type_name, sql in _summary_columns(event, column)
    ]
    selected = ",\n    ".join(f"{sql} AS {quoted(name)}" for name, _, sql in summaries)
    quick = (sql for _, _, sql in _summary_columns(event, column, is_reproducible=False))
    quickly = ", ".join(f"{sql} AS {quoted(name)}" for sql, (name, _, _) in zip(quick, summaries, strict=True))
    measured = ", ".join(
        f"count(DISTINCT {c}), count({c}), min({c}), max({c})" for c in (quoted(name) for name, _, _ in summaries)
    )
    scan = event.table.dataset.store.add_query(summary_sql(quickly, event.table.scan))
    query = f"SELECT {measured} FROM {scan}"
    (numbers,) = event.table.connection.execute(query).fetchall()
    cells = []
    for k, (name, type_name, _) in enumerate(summaries):
        distinct, present, low, high = numbers[4 * k : 4 * k + 4]
        if distinct < 2:
            continue
        missing = 0 if type_name == "integer" else entity.size - present
        attribute = ProposedAttribute(
            name, type_name, event.table.name, name, (), distinct, missing, 1, low or 0.0, high or 0.0, scan, "entity"
        )
        entity.attributes.append(attribute)
        cell = f"e.{quoted(name)}"
        cells.append(f"coalesce({cell}, 0) AS {quoted(name)}" if type_name == "integer" else cell)
    rows = summary_sql(selected, manifest.query_source(event.table))
    manifest.join_query(entity.name, own_table, entity.key, ", ".join(cells), rows)


def _summary_columns(event: EventTable, column: str, *, is_reproducible: bool = True) -> Iterator[tuple[str, str, str]]:
    """Yield the name, the type and the SQL expression of each attribute that summarises events.

    Args:
        column: The column whose entities are summarised.
        is_reproducible: Whether means have the same bits in each run. Threads add numbers in any order, and sorting them
            takes several times longer.
    """
    references = dict(event.references)
    yield f"n_{event.table.name}", "integer", "count(*)"
    for name, other in references.items():
        if name != column:
            yield f"n_{other.name}", "integer", f"count(DISTINCT {quoted(name)})"
    for profile in event.table.columns.values():
        cell, plain = quoted(profile.name), attribute_name(profile.name)
        if profile.name in references or profile.distinct < 2:
            continue
        if profile.kind == "datetime":
            is_night = f"hour(TRY_CAST({cell} AS TIMESTAMP)) < {NIGHT_HOURS}"
            yield f"share_{plain}_at_night", "real", f"avg(CAST({is_night} AS INTEGER))"
        elif profile.kind in ("real", "whole") and not profile.is_unique and not profile.is_boolean:
            number = f"TRY_CAST({cell} AS DOUBLE)"
            order = f" ORDER BY {number}" if is_reproducible else ""
            yield f"mean_{plain}", "real", f"avg({number}{order})"
            yield f"max_{plain}", "real", f"max({number})"
        elif 1 < len(profile.values) <= MAX_SHARES:
            for value in profile.values[profile.is_boolean :]:  # one share of a truth value determines the other
                share = f"avg(CAST({cell} = {literal(value)} AS INTEGER))"
                yield f"share_{plain}_{attribute_name(value, 'value')}", "real", share
