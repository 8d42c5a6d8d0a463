"""The tables with the values of expressions for all entities of a type, and the lengths of vectors.

The values of an expression such as `tfidf(p.words)` or `smooth(p)` are computed for all entities before templates are ground
(`entity_values.py`). The plan of a template refers to the table of these values by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relcrf.data.names import bag_table, mark_capitals, value_table
from relcrf.language.render import render_expression
from relcrf.model import expressions as e
from relcrf.model.spec import Feature, feature_operands
from relcrf.model.types import DomainType
from relcrf.model.typing import NameScope

ENTITY = "$"
"""The name of the entity in the names of tables; it differs from all names of the language."""


def find_values(node: e.Expression, scope: NameScope) -> tuple[str, str]:
    """Return the name of the entity on which an expression depends, and the table of the expression's values."""
    name, text = _separate_entity(node, scope)
    return name, value_table(scope.type_names[name], mark_capitals(text))


def statistics_name(node: e.Expression, scope: NameScope) -> str:
    """Return the name of the statistics of a function such as `tfidf(...)`, under which trained models contain them."""
    name, text = _separate_entity(node, scope)
    return value_table(scope.type_names[name], text)


def _separate_entity(node: e.Expression, scope: NameScope) -> tuple[str, str]:
    """Return the name of the entity on which an expression depends, and the text of the expression without this name."""
    (name,) = e.names_in(node) & set(scope.type_names)
    return name, render_expression(e.rename_names(node, {name: ENTITY}))


def find_bag(node: e.Expression, scope: NameScope) -> tuple[str, str]:
    """Return the name of the entity that owns a bag, and the table of the bag."""
    if isinstance(node, e.Attribute):
        return node.binder, bag_table(scope.type_names[node.binder], node.attribute)
    return find_values(node, scope)


def feature_value(feature: Feature) -> e.Expression:
    """Return the expression of a feature: the operand of a propagation, or the target of a learned feature."""
    return feature_operands(feature)[-1]


def component_names(
    node: e.Expression, scope: NameScope, lengths: Mapping[tuple[str, str], int], domains: Mapping[str, Sequence[str]]
) -> Sequence[str]:
    """Return the names of the components of a vector: the categories that a classifier predicts, otherwise numbers from 0.

    Args:
        lengths: length of each vector attribute, by entity type and attribute.
        domains: values of every domain.
    """
    match node:
        case e.Attribute(binder, attribute):
            kind = scope.type_of(node)
            if isinstance(kind, DomainType):
                return domains[kind.domain]
            return [str(d) for d in range(lengths[scope.type_names[binder], attribute])]
        case e.FunctionCall(_, (_, e.Number(size))):  # `quantiles` and `spline`
            return [str(d + 1) for d in range(int(size))]
        case e.FunctionCall(_, (argument,)):
            return component_names(argument, scope, lengths, domains)
        case e.Aggregate(_, (term,)):
            return component_names(term, scope.aggregate_scope(node), lengths, domains)
        case e.Atom(name) if (feature := scope.spec.feature(name)) is not None:
            inner = NameScope(scope.spec, feature.parameters, None)
            return component_names(feature_value(feature), inner, lengths, domains)
    raise AssertionError(f"{type(node).__name__} is not a vector; the checker rejects it")
