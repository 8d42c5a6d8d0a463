"""Pictures of proposed schemas as SVG; see `text/type_diagram.py`."""

from __future__ import annotations

from collections.abc import Collection

from relcrf.proposal.schema import ProposedEntity, ProposedRelation, ProposedSchema
from relcrf.proposal.schema_diagram import cardinality
from relcrf.text.type_diagram import (
    MAX_CHARACTERS,
    MAX_TITLE_CHARACTERS,
    DiagramRelation,
    DiagramType,
    shorten,
    type_diagram,
)


def schema_svg(schema: ProposedSchema, predicted: Collection[str] = ()) -> str:
    """Return an SVG element with the entity types, the domains, and the relations with their cardinalities.

    Args:
        predicted: The targets, each an `Entity.attribute` or a relation, which are highlighted.
    """
    linking = [r for r in schema.relations if len({a.type_name for a in r.arguments}) > 1]
    names = [e.name for e in schema.entities] + [a.type_name for r in schema.relations for a in r.arguments]
    types = [_type(name, schema, predicted) for name in dict.fromkeys(names)]
    return type_diagram(types, [_relation(relation, predicted) for relation in linking])


def _type(name: str, schema: ProposedSchema, predicted: Collection[str]) -> DiagramType:
    entity = next((e for e in schema.entities if e.name == name), None)
    inner = [r for r in schema.relations if {a.type_name for a in r.arguments} == {name}]
    title = f"{shorten(name, MAX_TITLE_CHARACTERS - 9)} ({entity.size:,})" if entity else f"{name}: values"
    relations = [(f"{'↻' if len(r.arguments) > 1 else '•'} {r.name} ({r.rows:,})", r.name in predicted) for r in inner]
    return DiagramType(name, title, _attributes(entity, predicted), tuple(relations))


def _attributes(entity: ProposedEntity | None, predicted: Collection[str]) -> tuple[tuple[str, bool], ...]:
    """Return a text for each attribute of an entity type, and whether it is a target; targets are the first ones."""
    if entity is None:
        return ()
    texts = [(a.name, a.type) for a in entity.attributes] + [(b.name, f"bag of {b.domain}") for b in entity.bags]
    lines = [(f"{name}: {type_name}", f"{entity.name}.{name}" in predicted) for name, type_name in texts]
    return tuple(sorted(lines, key=lambda line: not line[1]))


def _relation(relation: ProposedRelation, predicted: Collection[str]) -> DiagramRelation:
    ends = tuple((argument.type_name, cardinality(argument, relation)) for argument in relation.arguments)
    label = f"{shorten(relation.name, MAX_CHARACTERS)} ({relation.rows:,})"
    return DiagramRelation(relation.name, label, ends, relation.name in predicted)
