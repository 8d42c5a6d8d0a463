"""Expressions of the language: conditions in `where`, formulas in `over`, features in `by`, keys in `per`.

All four clauses have the same node types; the checker validates which nodes a clause contains. The *span* of a node is
its location in the text; messages contain the span, and comparisons of nodes ignore it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TypeAlias

from relcrf.errors import Span
from relcrf.model.nodes import children, map_children, walk


@dataclass(frozen=True)
class Spanned:
    """The base class of nodes with a location in the text; comparisons ignore the location."""

    span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True)
class Name(Spanned):
    """A bare name: a declared variable (*binder*), an existential variable, or a value of an enumerated domain."""

    name: str


@dataclass(frozen=True)
class Number(Spanned):
    """A numeric literal: `1` is an integer, `1.0` is a real number."""

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
    """`a.category`: an attribute of an entity."""

    binder: str
    attribute: str


@dataclass(frozen=True)
class Atom(Spanned):
    """`Link(a, b)`: an atom of a relation, true if the tuple is in the relation."""

    relation: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True)
class TupleAttribute(Spanned):
    """`Link(a, b).score`: an attribute of a tuple."""

    atom: Atom
    attribute: str


@dataclass(frozen=True)
class FunctionCall(Spanned):
    """`log(a.length)`: the call of a function; `model/functions.py` contains the signatures."""

    name: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True)
class Arithmetic(Spanned):
    """`left OP right` with the operator `+`, `-`, `*` or `/`."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class UnaryMinus(Spanned):
    """`-operand`."""

    operand: Expression


@dataclass(frozen=True)
class Comparison(Spanned):
    """`left OP right` with the operator `==`, `!=`, `<`, `<=`, `>` or `>=`."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Membership(Spanned):
    """`w in p.words`: the membership of a value in a bag."""

    element: Expression
    bag: Attribute


@dataclass(frozen=True)
class Not(Spanned):
    """`not operand`."""

    operand: Expression


@dataclass(frozen=True)
class Connective(Spanned):
    """`left OP right` with the operator `and`, `or`, `=>` or `<=>`."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Aggregate(Spanned):
    """`count { q where Link(q, p) }`: an aggregate over the bindings of its local names.

    A name is local to the aggregate if `where` binds it and the outer scope does not; other names are outer names.

    Args:
        function: `exists`, `count`, `sum`, `min`, `max` or `mean`.
        terms: for `count`, the names whose distinct combinations are counted (all local names if empty); for `exists`,
            empty; for other functions, the numeric expression to aggregate.
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
    """Return the expression with names replaced by other names."""
    match expression:
        case Name(name):
            return replace(expression, name=names.get(name, name))
        case Attribute(binder, _):
            return replace(expression, binder=names.get(binder, binder))
    return map_children(expression, lambda part: rename_names(part, names))


def substitute_constants(expression: Expression, constants: Mapping[str, Expression]) -> Expression:
    """Return the expression with names replaced by constants."""
    if isinstance(expression, Name):
        return constants.get(expression.name, expression)
    return map_children(expression, lambda part: substitute_constants(part, constants))


def conjunction(parts: Sequence[Expression]) -> Expression:
    """Return the conjunction of conditions, with the span of the first condition; the inverse of `conjuncts`."""
    return reduce(lambda left, right: Connective("and", left, right, span=left.span), parts)


def disjunction(parts: Sequence[Expression]) -> Expression:
    """Return the disjunction of conditions; the inverse of `disjuncts`."""
    return reduce(lambda left, right: Connective("or", left, right, span=left.span), parts)


def optional_conjunction(parts: Sequence[Expression]) -> Expression | None:
    """Return the conjunction of conditions; None if there are none."""
    return conjunction(parts) if parts else None


def conjuncts(expression: Expression | None) -> tuple[Expression, ...]:
    """Return the conjuncts of an expression: three for `a and b and c`, none for None."""
    if expression is None:
        return ()
    if isinstance(expression, Connective) and expression.operator == "and":
        return conjuncts(expression.left) + conjuncts(expression.right)
    return (expression,)


def disjuncts(expression: Expression) -> tuple[Expression, ...]:
    """Return the disjuncts of an expression: three for `a or b or c`."""
    if isinstance(expression, Connective) and expression.operator == "or":
        return disjuncts(expression.left) + disjuncts(expression.right)
    return (expression,)


def names_in(expression: Expression) -> set[str]:
    """Return the names in an expression, including the name before the dot of an attribute."""
    named = (node for node in walk(expression) if isinstance(node, Name | Attribute))
    return {node.name if isinstance(node, Name) else node.binder for node in named}


def positive_names(node: Expression) -> set[str]:
    """Return the names in atoms and bag memberships that no operators other than `and` and `or` enclose."""
    if isinstance(node, Connective) and node.operator in ("and", "or"):
        return positive_names(node.left) | positive_names(node.right)
    return names_in(node) if isinstance(node, Atom | Membership) else set()


def shared_names(parts: Sequence[Expression]) -> set[str]:
    """Return the names that refer to the same entity in all conjuncts `parts`, besides those of atoms and memberships.

    They are the operands, the names in aggregates, also the local ones, and the names in several conjuncts other than `not`. A
    nested `and` has its own shared names.
    """
    plain = Counter(name for part in parts if not isinstance(part, Not) for name in names_in(part))
    return {name for name, count in plain.items() if count > 1}.union(*map(_operand_names, parts))


def _operand_names(node: Expression) -> set[str]:
    """Return the names in a condition outside atoms and memberships; those inside a nested `and` are omitted."""
    match node:
        case Atom() | Membership() | Connective("and"):
            return set()
        case Name() | Attribute() | Aggregate():
            return names_in(node)
    return set[str]().union(*map(_operand_names, children(node)))
