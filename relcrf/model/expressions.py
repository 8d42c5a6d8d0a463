"""Expressions of the language: conditions in `where`, formulas in `over`, features in `by`, keys in `per`.

One tree for all four; the checker says which nodes may stand where. Spans are carried for messages and
are no part of a node's identity: two expressions are equal if they say the same.
"""

# ruff: noqa: RUF009  # `_span()` makes a new `field` for each class
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import TypeAlias

from relcrf.errors import Span


def _span() -> Span | None:
    return field(default=None, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True)
class Name:
    """A bare name: a binder, an existential variable, or a constant of an enumerated domain."""

    name: str
    span: Span | None = _span()


@dataclass(frozen=True)
class Number:
    """A number, as written: `1` is an integer, `1.0` a real."""

    value: int | float
    span: Span | None = _span()


@dataclass(frozen=True)
class Text:
    """A string literal."""

    value: str
    span: Span | None = _span()


@dataclass(frozen=True)
class Truth:
    """`true` or `false`."""

    value: bool
    span: Span | None = _span()


@dataclass(frozen=True)
class Attribute:
    """`a.category`: an attribute of a thing."""

    binder: str
    attribute: str
    span: Span | None = _span()


@dataclass(frozen=True)
class Atom:
    """`Link(a, b)`: a tuple is in a relation, observed or derived."""

    relation: str
    arguments: tuple[Expression, ...]
    span: Span | None = _span()


@dataclass(frozen=True)
class TupleAttribute:
    """`Link(a, b).score`: an attribute of a tuple."""

    atom: Atom
    attribute: str
    span: Span | None = _span()


@dataclass(frozen=True)
class Function:
    """`log(a.length)`: a built-in function; `relcrf.functions` holds their types."""

    name: str
    arguments: tuple[Expression, ...]
    span: Span | None = _span()


@dataclass(frozen=True)
class Arithmetic:
    """`left OP right`, OP one of `+ - * /`."""

    operator: str
    left: Expression
    right: Expression
    span: Span | None = _span()


@dataclass(frozen=True)
class Negative:
    """`-operand`."""

    operand: Expression
    span: Span | None = _span()


@dataclass(frozen=True)
class Comparison:
    """`left OP right`, OP one of `== != < <= > >=`."""

    operator: str
    left: Expression
    right: Expression
    span: Span | None = _span()


@dataclass(frozen=True)
class Member:
    """`w in p.words`: a value is in a bag."""

    element: Expression
    bag: Attribute
    span: Span | None = _span()


@dataclass(frozen=True)
class Not:
    """`not operand`."""

    operand: Expression
    span: Span | None = _span()


@dataclass(frozen=True)
class Connective:
    """`left OP right`, OP one of `and or => <=>`."""

    operator: str
    left: Expression
    right: Expression
    span: Span | None = _span()


Expression: TypeAlias = (
    Name
    | Number
    | Text
    | Truth
    | Attribute
    | Atom
    | TupleAttribute
    | Function
    | Arithmetic
    | Negative
    | Comparison
    | Member
    | Not
    | Connective
)


def children(expression: Expression) -> Iterator[Expression]:
    """The direct sub-expressions, from left to right."""
    for each in fields(expression):
        value = getattr(expression, each.name)
        if isinstance(value, tuple):
            yield from value
        elif isinstance(value, Expression):
            yield value


def walk(expression: Expression) -> Iterator[Expression]:
    """The expression and everything below it, parents first."""
    yield expression
    for child in children(expression):
        yield from walk(child)


def conjuncts(expression: Expression | None) -> tuple[Expression, ...]:
    """The parts of a conjunction: `a and b and c` gives three, None gives none."""
    if expression is None:
        return ()
    if isinstance(expression, Connective) and expression.operator == "and":
        return conjuncts(expression.left) + conjuncts(expression.right)
    return (expression,)
