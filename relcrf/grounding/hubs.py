"""Hubs: values that occur in so many rows that they dominate the size of a join."""

from __future__ import annotations

import math
from functools import reduce

from relcrf.data.dataset import quoted
from relcrf.data.names import ARGUMENT_COLUMN, attribute_column, type_table
from relcrf.grounding.degrees import DegreeCache, multiply_vectors
from relcrf.grounding.plan import Plan, equivalence_classes, scans_affecting_count
from relcrf.model.spec import ModelSpec
from relcrf.model.types import Bag, DomainType


def describe_worst_hub(degrees: DegreeCache, plan: Plan) -> str:
    """Describe the worst hub of a join, such as `Page 'p17', 4,711 x 4,711 rows`; return an empty text if there is none.

    The worst hub is the join value whose rows in the joined scans have the most combinations.
    """
    bound, tables = degrees.bound, {scan.alias: scan.table for scan in scans_affecting_count(plan)}
    column, code, counts = None, 0, [0]
    for members in equivalence_classes(plan):
        columns = sorted((c for c in members if c.alias in tables), key=lambda c: (c.alias, c.name))
        columns = [c for k, c in enumerate(columns) if k == 0 or columns[k - 1].alias != c.alias]
        if len(columns) < 2 or not all(degrees.is_coded(tables[c.alias], c.name) for c in columns):
            continue
        vectors = [degrees.count_degrees(tables[c.alias], c.name) for c in columns]
        combinations = reduce(multiply_vectors, vectors)
        if not len(combinations) or not combinations.any():
            continue
        largest = int(combinations.argmax())
        row_counts = [int(vector[largest]) for vector in vectors]
        if math.prod(row_counts) > math.prod(counts):
            column, code, counts = columns[0], largest, row_counts
    if column is None:
        return ""
    description, type_name = _describe_column(bound.spec, tables[column.alias], column.name)
    value: object = code
    if type_name is not None:
        table, code_column, text_column = type_table(bound.spec, type_name)
        query = f"SELECT CAST({text_column} AS VARCHAR) FROM {quoted(table)} WHERE {code_column} = ?"
        ((value,),) = bound.connection.execute(query, [code]).fetchall()
    return f"{description} '{value}', {' x '.join(f'{count:,}' for count in counts)} rows"


def _describe_column(spec: ModelSpec, table: str, column: str) -> tuple[str, str | None]:
    """Return a description of a column of dense indices, and the entity type or domain of the indices if there is one."""
    kind, _, name = table.partition(".")
    owner, _, bag = name.rpartition(".")
    if kind == "val":
        entity = name.partition(".")[0]
        return entity, entity if column == "vid" else None
    if kind == "bag":
        declared = spec.attribute(owner, bag)
        assert declared is not None and isinstance(declared.type, Bag)
        type_name = declared.type.domain if column == "code" else owner
        return type_name, type_name
    if column in ("vid", "code"):
        return name, name if kind in ("ent", "dom") else None
    relation = spec.relation(name)
    if relation is not None and ARGUMENT_COLUMN.fullmatch(column):
        type_name = relation.parameters[int(column[1:])].type_name
        return type_name, type_name
    declared = spec.attribute(name, column.removeprefix(attribute_column("")))
    if declared is None:
        return name, None
    return f"{name}.{declared.name}", declared.type.domain if isinstance(declared.type, DomainType) else None
