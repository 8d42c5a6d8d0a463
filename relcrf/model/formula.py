"""The `over` clause: its random terms, and what evidence its formula looks at."""

from __future__ import annotations

from collections.abc import Iterator

from relcrf.model.expressions import (
    Atom,
    Attribute,
    Comparison,
    Connective,
    Expression,
    Name,
    Negative,
    Not,
    Number,
    Text,
    Truth,
)
from relcrf.model.types import Bool
from relcrf.model.typing import Scope


def is_table(over: tuple[Expression, ...], scope: Scope) -> bool:
    """Whether `over` lists random terms, a weight for each of their joint states; else it is one formula."""
    if len(over) == 1 and isinstance(over[0], Atom) and isinstance(scope.type_of(over[0]), Bool):
        return False  # a relation that holds or not is a proposition
    return all(scope.is_random(item) for item in over)


def scope_terms(over: tuple[Expression, ...], scope: Scope) -> list[Attribute | Atom]:
    """The random terms at the places of a factor's scope: as listed, or as a formula first mentions them."""
    found = [term for item in over for term in scope.random_terms(item)]
    return list(dict.fromkeys(found))


def evidence_of(formula: Expression, scope: Scope) -> tuple[Expression, ...]:
    """The largest parts of a formula that speak of evidence alone, once each: conditions, and sides of comparisons."""
    return tuple(dict.fromkeys(_evidence(formula, scope)))


def _evidence(node: Expression, scope: Scope) -> Iterator[Expression]:
    if not scope.random_terms(node):
        if not is_constant(node, scope):
            yield node
    elif isinstance(node, Not):
        yield from _evidence(node.operand, scope)
    elif isinstance(node, Connective | Comparison):
        yield from _evidence(node.left, scope)
        yield from _evidence(node.right, scope)


def is_constant(node: Expression, scope: Scope) -> bool:
    """Whether a node is written as a value."""
    if isinstance(node, Negative):
        return isinstance(node.operand, Number)
    return isinstance(node, Number | Text | Truth) or (isinstance(node, Name) and node.name not in scope.sorts)
