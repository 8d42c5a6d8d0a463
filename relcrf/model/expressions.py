"""Expressions of the language: conditions in `where`, formulas in `over`, features in `by`, keys in `per`.

One tree for all four; the checker says which nodes may stand where. Spans are carried for messages and
are no part of a node's identity: two expressions are equal if they say the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache, reduce
from typing import Any, TypeAlias, get_args

from relcrf.errors import Span


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
class Truth(Spanned):
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
class Function(Spanned):
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
class Negative(Spanned):
    """`-operand`."""

    operand: Expression


@dataclass(frozen=True)
class Comparison(Spanned):
    """`left OP right`, OP one of `== != < <= > >=`."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Member(Spanned):
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
    | Aggregate
)


def children(expression: Expression) -> Iterator[Expression]:
    """The direct sub-expressions, from left to right; those of an aggregate may speak of its own names."""
    kind: type = type(expression)
    for name in _parts(kind):
        value = getattr(expression, name)
        if isinstance(value, tuple):
            yield from value
        elif isinstance(value, _NODES):
            yield value


@cache
def _parts(kind: type) -> tuple[str, ...]:
    """The fields of a node that may hold expressions."""
    return tuple(f.name for f in fields(kind) if f.name != "span")


_NODES = get_args(Expression)


def walk(expression: Expression, into: Callable[[Expression], bool] = lambda node: True) -> Iterator[Expression]:
    """Yield the expression and everything below it, parents first.

    Args:
        into: Whether the sub-expressions of a node are visited.
    """
    yield expression
    if into(expression):
        for child in children(expression):
            yield from walk(child, into)


def renamed(expression: Expression, names: Mapping[str, str]) -> Expression:
    """The expression with other names for things and values."""
    match expression:
        case Name(name):
            return replace(expression, name=names.get(name, name))
        case Attribute(binder, _):
            return replace(expression, binder=names.get(binder, binder))
    return _rebuilt(expression, lambda part: renamed(part, names))


def with_constants(expression: Expression, constants: Mapping[str, Expression]) -> Expression:
    """The expression with constants in the place of some names of values."""
    if isinstance(expression, Name):
        return constants.get(expression.name, expression)
    return _rebuilt(expression, lambda part: with_constants(part, constants))


def _rebuilt(expression: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """The expression with each of its direct sub-expressions changed."""
    changed: dict[str, Any] = {}
    for each in fields(expression):
        value = getattr(expression, each.name)
        if isinstance(value, tuple):
            changed[each.name] = tuple(change(v) for v in value)
        elif isinstance(value, Expression):
            changed[each.name] = change(value)
    return replace(expression, **changed)


def conjunction(parts: Sequence[Expression]) -> Expression:
    """Return the conjunction of some conditions, at the place of the first; `conjuncts` takes it apart."""
    return reduce(lambda left, right: Connective("and", left, right, span=left.span), parts)


def conjoined(parts: Sequence[Expression]) -> Expression | None:
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
    names = {node.name for node in walk(expression) if isinstance(node, Name)}
    return names | {node.binder for node in walk(expression) if isinstance(node, Attribute)}
