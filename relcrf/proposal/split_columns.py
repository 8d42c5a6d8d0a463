"""Columns that divide linked entities into parts, such as universities: few values, which are equal at both ends of all links."""

from __future__ import annotations

from collections.abc import Sequence

from relcrf.data.dataset import quoted
from relcrf.model.spec import fold_name
from relcrf.proposal.profile import MAX_ENUMERATION, TableProfile
from relcrf.proposal.schema import ProposedEntity, ProposedRelation, ProposedSchema


def exclude_split_columns(schema: ProposedSchema, tables: Sequence[TableProfile], predicted: str | None) -> None:
    """Find split columns (few values, equal at both ends of every link), and exclude them from the evidence.

    Args:
        predicted: The requested target, which is not excluded; see `choose_target`.
    """
    requested = fold_name((predicted or "").rpartition(".")[2])
    for entity in schema.entities:
        table = next((t for t in tables if t.name == entity.table), None)
        binary = [
            relation
            for relation in schema.relations
            if len(relation.arguments_of(entity)) == 2 == len(relation.arguments)
        ]
        links = [relation for relation in binary if relation.profile and relation.value_column is None]
        if table is None or not links or entity.key not in table.columns:
            continue
        for attribute in list(entity.attributes):
            if (
                attribute.type not in ("enumeration", "open")
                or attribute.missing
                or attribute.distinct > MAX_ENUMERATION
            ):
                continue
            if requested in (fold_name(attribute.name), fold_name(attribute.column)):
                continue
            if all(_is_equal_along(table, entity.key, attribute.column, link, entity) for link in links):
                entity.attributes.remove(attribute)
                entity.split_column = entity.split_column or attribute.name
                reason = "no link connects different values: use it with --split"
                schema.excluded_columns.append((f"{table.name}.{attribute.column}", reason))


def _is_equal_along(
    own_table: TableProfile, key: str, column: str, relation: ProposedRelation, entity: ProposedEntity
) -> bool:
    assert relation.profile is not None
    a, b = (quoted(x.column) for x in relation.arguments_of(entity))
    k, c = quoted(key), quoted(column)
    crossing = (
        f"SELECT count(*) FROM {relation.profile.scan} AS l JOIN this AS x ON x.{k} = l.{a} "
        f"JOIN this AS y ON y.{k} = l.{b} WHERE x.{c} <> y.{c}"
    )
    return own_table.query_number(crossing) == 0
