"""Direct and indirect dependencies of templates on the declarations of entities, relations, bags and domains."""

from __future__ import annotations

from collections.abc import Iterable

from relcrf.model.expressions import Aggregate, Atom, Attribute, Expression, Name
from relcrf.model.nodes import walk
from relcrf.model.spec import (
    AttributeDeclaration,
    DerivedRelation,
    Feature,
    FeaturePropagation,
    ModelSpec,
    NearestNeighbours,
    RandomRelation,
    Relation,
    Template,
    feature_operands,
)
from relcrf.model.types import Bag, DomainType


def template_dependencies(spec: ModelSpec, templates: Iterable[Template]) -> set[str]:
    """Return the names of all declarations that some templates depend on; a bag has the name `Entity.attribute`."""
    templates = list(templates)
    type_names = {parameter.type_name for template in templates for parameter in template.parameters}
    return type_names | _expression_dependencies(
        spec, [part for template in templates for part in _template_expressions(template)]
    )


def model_dependencies(spec: ModelSpec) -> set[str]:
    """Return the names of all declarations that expressions of templates, gates and random relations depend on."""
    read = [part for template in spec.templates for part in _template_expressions(template)]
    read += [feature for gate in spec.gates for feature in gate.by]
    return _expression_dependencies(spec, [*read, *(r.where for r in spec.random_relations if r.where is not None)])


def _template_expressions(template: Template) -> list[Expression]:
    where = [] if template.where is None else [template.where]
    return [*template.over, *template.per, *template.by, *where]


def _expression_dependencies(spec: ModelSpec, expressions: Iterable[Expression]) -> set[str]:
    """Return the names of the declarations that some expressions depend on.

    An attribute name stands for the attributes of this name of all entity types, so that no dependency is missed.
    """
    names: set[str] = set()
    pending = list(expressions)
    while pending:
        for node in walk(pending.pop()):
            if isinstance(node, Attribute):
                owners = [(e.name, spec.attribute(e.name, node.attribute)) for e in spec.entities]
                names.update(
                    *(_attribute_dependencies(owner, declared) for owner, declared in owners if declared is not None)
                )
            elif isinstance(node, Atom) and node.relation not in names:
                names.add(node.relation)
                feature = spec.feature(node.relation)
                if feature is not None:
                    names.update(parameter.type_name for parameter in feature.parameters)
                    pending += _feature_values(feature)
                    continue
                relation = spec.relation(node.relation)
                assert relation is not None
                names.update(parameter.type_name for parameter in relation.parameters)
                if isinstance(relation, Relation):
                    names.update(
                        *(_attribute_dependencies(relation.name, declared) for declared in relation.attributes)
                    )
                elif isinstance(relation, RandomRelation):
                    names.update({relation.type.domain} if isinstance(relation.type, DomainType) else ())
                    pending += [] if relation.where is None else [relation.where]
                elif isinstance(relation, DerivedRelation):
                    definition = relation.definition
                    pending.append(definition.measure if isinstance(definition, NearestNeighbours) else definition)
    return names


def _feature_values(feature: Feature) -> tuple[Expression, ...]:
    """Return the expressions on which a feature depends; the relation of a propagation becomes an atom."""
    definition = feature.definition
    if not isinstance(definition, FeaturePropagation):
        return feature_operands(feature)
    (parameter,) = feature.parameters
    links = Atom(definition.relation, (Name(parameter.name), Name("")))
    return (Aggregate("sum", (definition.operand,), links),)


def _attribute_dependencies(owner: str, attribute: AttributeDeclaration) -> set[str]:
    """Return the names that an attribute depends on: the owner and, if the attribute has them, the bag and the domain."""
    match attribute.type:
        case Bag(domain):
            return {owner, f"{owner}.{attribute.name}", domain}
        case DomainType(domain):
            return {owner, domain}
    return {owner}
