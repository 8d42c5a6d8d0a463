"""Hubs: values that a join meets so often that they make it large."""

from __future__ import annotations

import math
from functools import reduce

from relcrf.data.dataset import quoted
from relcrf.data.names import ARGUMENT_COLUMN, attribute_column, sort_table
from relcrf.grounding.degrees import DegreeCache, multiply_vectors
from relcrf.grounding.plan import Plan, equivalence_classes, scans_affecting_count
from relcrf.model.spec import ModelSpec
from relcrf.model.types import Bag, DomainType


def describe_worst_hub(degrees: DegreeCache, plan: Plan) -> str:
    """Return the value that a join meets most often, as `Page 'p17', 4,711 x 4,711 rows`; empty without any.

    It is the one whose rows make the most combinations, over all coded columns on which scans are joined.
    """
    bound, tables = degrees.bound, {scan.alias: scan.table for scan in scans_affecting_count(plan)}
    column, code, counts = None, 0, [0]
    for members in equivalence_classes(plan):
        columns = sorted((c for c in members if c.alias in tables), key=lambda c: (c.alias, c.name))
        columns = [c for k, c in enumerate(columns) if k == 0 or columns[k - 1].alias != c.alias]
        if len(columns) < 2 or not all(degrees.is_coded(tables[c.alias], c.name) for c in columns):
            continue
        vectors = [degrees.count_degrees(tables[c.alias], c.name) for c in columns]
        combined = reduce(multiply_vectors, vectors)
        if not len(combined) or not combined.any():
            continue
        most = int(combined.argmax())
        found = [int(vector[most]) for vector in vectors]
        if math.prod(found) > math.prod(counts):
            column, code, counts = columns[0], most, found
    if column is None:
        return ""
    what, sort = _describe_column(bound.spec, tables[column.alias], column.name)
    value: object = code
    if sort is not None:
        table, number, text = sort_table(bound.spec, sort)
        query = f"SELECT CAST({text} AS VARCHAR) FROM {quoted(table)} WHERE {number} = ?"
        ((value,),) = bound.connection.execute(query, [code]).fetchall()
    return f"{what} '{value}', {' x '.join(f'{count:,}' for count in counts)} rows"


def _describe_column(spec: ModelSpec, table: str, column: str) -> tuple[str, str | None]:
    """Return what a column of a coded table is of, for messages, and the entity or domain whose vids or codes it holds."""
    kind, _, name = table.partition(".")
    owner, _, bag = name.rpartition(".")
    if kind == "bag":
        declared = spec.attribute(owner, bag)
        assert declared is not None and isinstance(declared.type, Bag)
        sort = declared.type.domain if column == "code" else owner
        return sort, sort
    if column in ("vid", "code"):
        return name, name if kind in ("ent", "dom") else None
    relation = spec.relation(name)
    if relation is not None and ARGUMENT_COLUMN.fullmatch(column):
        sort = relation.parameters[int(column[1:])].type_name
        return sort, sort
    declared = spec.attribute(name, column.removeprefix(attribute_column("")))
    if declared is None:
        return name, None
    return f"{name}.{declared.name}", declared.type.domain if isinstance(declared.type, DomainType) else None
