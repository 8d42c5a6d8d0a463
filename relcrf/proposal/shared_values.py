"""Relations to values that several predicted entities share, such as the households of people, which no table lists."""

from __future__ import annotations

from collections.abc import Sequence

from relcrf.data.dataset import quoted
from relcrf.proposal.manifest import ManifestBuilder
from relcrf.proposal.names import NamePool, argument_name, attribute_name, camel_case, domain_names, names_key
from relcrf.proposal.profile import MAX_ENUMERATION, TableProfile
from relcrf.proposal.schema import ProposedAttribute, ProposedRelation, ProposedSchema, RelationArgument, TableFinding
from relcrf.proposal.target import PredictionTarget


def add_shared_values(
    schema: ProposedSchema, target: PredictionTarget, tables: Sequence[TableProfile], manifest: ManifestBuilder
) -> None:
    """Replace attributes of the predicted entities that name something, such as `household_id`, by relations.

    The column must be named like a key and have more than MAX_ENUMERATION values. The model then also contains a template
    for the labels of entities with the same value.
    """
    entity = target.entity
    if entity is None or entity.sequence:
        return
    by_name = {table.name: table for table in tables}
    for attribute in list(entity.attributes):
        table = by_name.get(attribute.table)
        is_shared = attribute.type == "open" and attribute.distinct > MAX_ENUMERATION and names_key(attribute.column)
        if table is None or not is_shared or attribute in target.attributes or attribute.key is None:
            continue
        if manifest.can_query(table):
            entity.attributes.remove(attribute)
            _add_relation(schema, target, attribute, table, manifest)


def _add_relation(
    schema: ProposedSchema,
    target: PredictionTarget,
    attribute: ProposedAttribute,
    table: TableProfile,
    manifest: ManifestBuilder,
) -> None:
    """Add the relation between the predicted entities and the values of an attribute, and the query that defines it."""
    entity, names = target.entity, NamePool(schema.names)
    assert entity is not None and attribute.key is not None
    used = NamePool(["member"])
    value = used.reserve(argument_name(attribute.name))
    name = manifest.names.reserve(f"{attribute_name(table.name)}_{attribute_name(attribute.column)}")
    domain = names.reserve(*domain_names(attribute.name))
    key, cell = quoted(attribute.key), quoted(attribute.column)
    present = table.present_sql(attribute.column)
    sql = f"SELECT {key} AS member, {cell} AS {quoted(value)} FROM {manifest.query_source(table)} WHERE {present}"
    manifest.add_query(name, sql, f"the {attribute.column} of each {entity.name}")
    schema.domains.append(domain)
    reason = f"{entity.name} entities share values of {table.name}.{attribute.column}"
    arguments = [
        RelationArgument("member", entity.name, entity, "member", entity.size),
        RelationArgument(value, domain, None, value, attribute.distinct),
    ]
    rows = entity.size - attribute.missing
    relation = ProposedRelation(names.reserve(camel_case(name)), arguments, rows, reason, table.name)
    schema.relations.append(relation)
    schema.findings.append(TableFinding(table.name, f"relation {relation.name}", rows, reason))
