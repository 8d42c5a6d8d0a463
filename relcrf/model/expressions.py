"""Expressions of the language: conditions in `where`, formulas in `over`, features in `by`, keys in `per`.

One tree for all four; the checker says which nodes may stand where. Spans are carried for messages and
are no part of a node's identity: two expressions are equal if they say the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TypeAlias

from relcrf.errors import Span
from relcrf.model.nodes import map_children, walk


@dataclass(frozen=True)
class Spanned:
    """A part of a model, with its location in the text; equality ignores the location."""

    span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True)
class Name(Spanned):
    """A bare name: a binder, an existential variable, or a constant of an enumerated domain."""

    name: str


@dataclass(frozen=True)
class Number(Spanned):
    """A number, as written: `1` is an integer, `1.0` a real."""

    value: int | float


@dataclass(frozen=True)
class Text(Spanned):
    """A string literal."""

    value: str


@dataclass(frozen=True)
class Boolean(Spanned):
    """`true` or `false`."""

    value: bool


@dataclass(frozen=True)
class Attribute(Spanned):
    """`a.category`: an attribute of a thing."""

    binder: str
    attribute: str


@dataclass(frozen=True)
class Atom(Spanned):
    """`Link(a, b)`: a tuple is in a relation, observed or derived."""

    relation: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True)
class TupleAttribute(Spanned):
    """`Link(a, b).score`: an attribute of a tuple."""

    atom: Atom
    attribute: str


@dataclass(frozen=True)
class FunctionCall(Spanned):
    """`log(a.length)`: a built-in function; `model/functions.py` holds their types."""

    name: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True)
class Arithmetic(Spanned):
    """`left OP right`, OP one of `+ - * /`."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class UnaryMinus(Spanned):
    """`-operand`."""

    operand: Expression


@dataclass(frozen=True)
class Comparison(Spanned):
    """`left OP right`, OP one of `== != < <= > >=`."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Membership(Spanned):
    """`w in p.words`: a value is in a bag."""

    element: Expression
    bag: Attribute


@dataclass(frozen=True)
class Not(Spanned):
    """`not operand`."""

    operand: Expression


@dataclass(frozen=True)
class Connective(Spanned):
    """`left OP right`, OP one of `and or => <=>`."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Aggregate(Spanned):
    """`count { q where Link(q, p) }`: a figure over the values that names of its own can take.

    Names that `where` binds and that are unknown outside are the aggregate's own; all others are those outside.

    Args:
        function: `exists`, `count`, `sum`, `min`, `max` or `mean`.
        terms: the names that `count` counts the distinct combinations of (none: all of its own), or the one number
            that the others add up; `exists` has none.
    """

    function: str
    terms: tuple[Expression, ...]
    where: Expression


Expression: TypeAlias = (
    Name
    | Number
    | Text
    | Boolean
    | Attribute
    | Atom
    | TupleAttribute
    | FunctionCall
    | Arithmetic
    | UnaryMinus
    | Comparison
    | Membership
    | Not
    | Connective
    | Aggregate
)


def rename_names(expression: Expression, names: Mapping[str, str]) -> Expression:
    """The expression with other names for things and values."""
    match expression:
        case Name(name):
            return replace(expression, name=names.get(name, name))
        case Attribute(binder, _):
            return replace(expression, binder=names.get(binder, binder))
    return map_children(expression, lambda part: rename_names(part, names))


def substitute_constants(expression: Expression, constants: Mapping[str, Expression]) -> Expression:
    """The expression with constants in the place of some names of values."""
    if isinstance(expression, Name):
        return constants.get(expression.name, expression)
    return map_children(expression, lambda part: substitute_constants(part, constants))


def conjunction(parts: Sequence[Expression]) -> Expression:
    """Return the conjunction of some conditions, at the place of the first; `conjuncts` takes it apart."""
    return reduce(lambda left, right: Connective("and", left, right, span=left.span), parts)


def optional_conjunction(parts: Sequence[Expression]) -> Expression | None:
    """Return the conjunction of some conditions, None of none."""
    return conjunction(parts) if parts else None


def conjuncts(expression: Expression | None) -> tuple[Expression, ...]:
    """The parts of a conjunction: `a and b and c` gives three, None gives none."""
    if expression is None:
        return ()
    if isinstance(expression, Connective) and expression.operator == "and":
        return conjuncts(expression.left) + conjuncts(expression.right)
    return (expression,)


def disjuncts(expression: Expression) -> tuple[Expression, ...]:
    """The cases of a condition: `a or b or c` gives three."""
    if isinstance(expression, Connective) and expression.operator == "or":
        return disjuncts(expression.left) + disjuncts(expression.right)
    return (expression,)


def names_in(expression: Expression) -> set[str]:
    """The names that an expression mentions, with or without an attribute."""
    named = (node for node in walk(expression) if isinstance(node, Name | Attribute))
    return {node.name if isinstance(node, Name) else node.binder for node in named}
