"""The tables with the values of expressions for all entities of a type, and the lengths of vectors.

The values of an expression such as `tfidf(p.words)` or `smooth(p)` are computed for all entities before templates are ground
(`entity_values.py`). The plan of a template refers to the table of these values by name.
"""

from __future__ import annotations

from collections.abc import Mapping

from relcrf.data.names import bag_table, value_table
from relcrf.language.render import render_expression
from relcrf.model import expressions as e
from relcrf.model.spec import Feature, FeaturePropagation
from relcrf.model.typing import NameScope

ENTITY = "$"
"""The name of the entity in the names of tables; it differs from all names of the language."""


def find_values(node: e.Expression, scope: NameScope) -> tuple[str, str]:
    """Return the name of the entity on which an expression depends, and the table of the expression's values."""
    (name,) = e.names_in(node) & set(scope.type_names)
    text = render_expression(e.rename_names(node, {name: ENTITY}))
    return name, value_table(scope.type_names[name], text)


def find_bag(node: e.Expression, scope: NameScope) -> tuple[str, str]:
    """Return the name of the entity that owns a bag, and the table of the bag."""
    if isinstance(node, e.Attribute):
        return node.binder, bag_table(scope.type_names[node.binder], node.attribute)
    return find_values(node, scope)


def feature_value(feature: Feature) -> e.Expression:
    """Return the expression of a feature or, for a propagation, the propagated expression."""
    definition = feature.definition
    return definition.operand if isinstance(definition, FeaturePropagation) else definition


def vector_length(node: e.Expression, scope: NameScope, lengths: Mapping[tuple[str, str], int]) -> int:
    """Return the number of components of a vector.

    Args:
        lengths: length of each vector attribute, by entity type and attribute.
    """
    match node:
        case e.Attribute(binder, attribute):
            return lengths[scope.type_names[binder], attribute]
        case e.FunctionCall(_, (argument,)):
            return vector_length(argument, scope, lengths)
        case e.Aggregate(_, (term,)):
            return vector_length(term, scope.aggregate_scope(node), lengths)
        case e.Atom(name) if (feature := scope.spec.feature(name)) is not None:
            return vector_length(feature_value(feature), NameScope(scope.spec, feature.parameters, None), lengths)
    raise AssertionError(f"{type(node).__name__} is not a vector; the checker rejects it")
