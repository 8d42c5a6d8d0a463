"""What a template reads: the entities, relations, bags and domains behind it, and behind what it is derived from."""

from __future__ import annotations

from collections.abc import Iterable

from relcrf.model.expressions import Atom, Attribute, Expression, walk
from relcrf.model.spec import (
    AttributeDeclaration,
    Derived,
    ModelSpec,
    Nearest,
    Parameter,
    RandomRelation,
    Relation,
    Template,
)
from relcrf.model.types import Bag, DomainType


def tables_read(spec: ModelSpec, templates: Iterable[Template]) -> set[str]:
    """Names of all declarations that some templates depend on; bags as `Entity.attribute`.

    An attribute is taken for that of every entity that has one of its name, so nothing is left out.
    """
    found: set[str] = set()
    waiting: list[Expression] = []

    def add_parameters(parameters: Iterable[Parameter]) -> None:
        found.update(p.sort for p in parameters)

    def add_attribute(owner: str, attribute: AttributeDeclaration) -> None:
        found.add(owner)
        if isinstance(attribute.type, Bag):
            found.add(f"{owner}.{attribute.name}")
        if isinstance(attribute.type, Bag | DomainType):
            found.add(attribute.type.domain)

    def add_relation(name: str) -> None:
        if name in found:
            return
        found.add(name)
        relation = spec.relation(name)
        if relation is None:
            return
        add_parameters(relation.parameters)
        if isinstance(relation, Relation):
            for attribute in relation.attributes:
                add_attribute(name, attribute)
        elif isinstance(relation, RandomRelation):
            found.update({relation.type.domain} if isinstance(relation.type, DomainType) else ())
            waiting.extend([relation.where] if relation.where is not None else [])
        elif isinstance(relation, Derived):
            definition = relation.definition
            waiting.append(definition.measure if isinstance(definition, Nearest) else definition)

    for template in templates:
        add_parameters(template.parameters)
        waiting += [*template.over, *template.per, *template.by]
        waiting += [template.where] if template.where is not None else []
    while waiting:
        for node in walk(waiting.pop()):
            if isinstance(node, Atom):
                add_relation(node.relation)
            elif isinstance(node, Attribute):
                for entity in spec.entities:
                    for attribute in entity.attributes:
                        if attribute.name == node.attribute:
                            add_attribute(entity.name, attribute)
    return found
