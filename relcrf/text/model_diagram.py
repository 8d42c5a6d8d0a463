"""Diagrams of models as SVG: their entity types, attributes and relations; see `text/type_diagram.py`."""

from __future__ import annotations

from relcrf.model.spec import DerivedRelation, Entity, ModelSpec, RandomRelation, Relation
from relcrf.text.type_diagram import (
    MAX_CHARACTERS,
    MAX_TITLE_CHARACTERS,
    DiagramRelation,
    DiagramType,
    shorten,
    type_diagram,
)

_AnyRelation = Relation | RandomRelation | DerivedRelation


def model_diagram(spec: ModelSpec) -> str:
    """Return an SVG element with the types and relations of a model; what is predicted is highlighted."""
    relations: list[_AnyRelation] = [*spec.relations, *spec.random_relations, *spec.derived_relations]
    linking = [r for r in relations if len({p.type_name for p in r.parameters}) > 1]
    names = [e.name for e in spec.entities] + [p.type_name for r in relations for p in r.parameters]
    return type_diagram([_type(name, spec, relations) for name in dict.fromkeys(names)], [*map(_relation, linking)])


def _type(name: str, spec: ModelSpec, relations: list[_AnyRelation]) -> DiagramType:
    entity = spec.entity(name)
    inner = [r for r in relations if {p.type_name for p in r.parameters} == {name}]
    lines = [(f"{'↻' if len(r.parameters) > 1 else '•'} {_relation_text(r)}", _is_random(r)) for r in inner]
    title = f"{name}: values" if entity is None else name
    return DiagramType(name, shorten(title, MAX_TITLE_CHARACTERS), _attributes(entity), tuple(lines))


def _attributes(entity: Entity | None) -> tuple[tuple[str, bool], ...]:
    """Return a text for each attribute, and whether it is predicted; predicted attributes are the first ones."""
    attributes = () if entity is None else entity.attributes
    lines = [(f"{a.role}{a.name}: {a.type}", a.is_random) for a in attributes]
    return tuple(sorted(lines, key=lambda line: not line[1]))


def _relation(relation: _AnyRelation) -> DiagramRelation:
    ends = tuple((parameter.type_name, parameter.name) for parameter in relation.parameters)
    return DiagramRelation(relation.name, shorten(_relation_text(relation), MAX_CHARACTERS), ends, _is_random(relation))


def _relation_text(relation: _AnyRelation) -> str:
    kind = {DerivedRelation: "derive ", RandomRelation: "predict "}.get(type(relation), "")
    return f"{kind}{relation.name}"


def _is_random(relation: _AnyRelation) -> bool:
    return isinstance(relation, RandomRelation)
