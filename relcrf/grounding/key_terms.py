"""Lowering of the items of `per`: their terms in the plan of the template, and the conditions that they are not missing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from relcrf.grounding import plan as p
from relcrf.model import expressions as e
from relcrf.model.bins import bin_labels
from relcrf.model.types import Bool, DomainType, EntityType, Integer, ValueType
from relcrf.model.typing import NameScope


@dataclass(frozen=True)
class KeyColumn:
    """An item of `per`: the name of the plan output that contains the item, and the type of the item.

    Args:
        labels: texts of the codes if the item is a call of `bin`.
    """

    output: str
    value_type: ValueType
    labels: tuple[str, ...] = ()


class TermBuilder(Protocol):
    """The builder of the plan of a template."""

    scope: NameScope
    filters: list[p.Condition]

    def term(self, node: e.Expression) -> p.Term:
        """Lower a term."""

    def condition(self, node: e.Expression) -> p.Condition:
        """Lower a condition."""

    def operand(self, node: e.Expression, other: e.Expression) -> p.Term:
        """Lower one side of a comparison."""


def lower_key(builder: TermBuilder, key: e.Expression, output: str) -> tuple[KeyColumn, tuple[str, p.Term, str]]:
    """Lower an item of `per`; return its description and the output of the plan.

    The plan gets filters that exclude bindings for which the item, or an operand of a comparison in it, is missing: such a
    binding has no weight and therefore no factor.
    """
    kind, labels = builder.scope.type_of(key), bin_labels(key)
    if _is_computed_condition(builder, key):
        builder.filters += [p.IsNotNull(term) for term in _required_terms(builder, key)]
        return KeyColumn(output, kind), (output, p.Indicator(builder.condition(key)), "integer")
    term = builder.term(key)
    if not isinstance(key, e.Name):
        # The index of an interval is missing if the number is, which takes less time to test.
        builder.filters.append(p.IsNotNull(term.arguments[0] if labels and isinstance(term, p.Call) else term))
    is_coded = bool(labels) or isinstance(kind, EntityType | DomainType | Bool)
    number = "bigint" if isinstance(term, p.Column) else "double"
    return KeyColumn(output, kind, labels), (
        output,
        term,
        "integer" if is_coded else number if isinstance(kind, Integer) else "text",
    )


def _is_computed_condition(builder: TermBuilder, node: e.Expression) -> bool:
    stored = e.Attribute | e.TupleAttribute
    return isinstance(builder.scope.type_of(node), Bool) and not isinstance(node, stored)


def _required_terms(builder: TermBuilder, node: e.Expression) -> Iterator[p.Term]:
    """Yield the terms of a condition that may be missing; atoms, memberships and aggregates in it are true or false."""
    match node:
        case e.Not(operand):
            yield from _required_terms(builder, operand)
        case e.Connective(_, left, right):
            yield from _required_terms(builder, left)
            yield from _required_terms(builder, right)
        case e.Comparison(_, left, right):
            for side, other in ((left, right), (right, left)):
                if isinstance(side, e.Comparison | e.Connective | e.Not):
                    yield from _required_terms(builder, side)
                elif not _is_never_missing(builder, side):
                    yield builder.operand(side, other)
        case e.Attribute() | e.TupleAttribute() | e.FunctionCall() if not _is_never_missing(builder, node):
            yield builder.term(node)


def _is_never_missing(builder: TermBuilder, node: e.Expression) -> bool:
    match node:
        case e.Aggregate("exists") | e.FunctionCall("missing") | e.Name() | e.Atom() | e.Membership():
            return True
    return builder.scope.is_constant(node)
