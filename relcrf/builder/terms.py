"""Expressions of the language as Python objects: `(Link(a, b) & (a.length > 3)) >> Spam(b)`.

Operators stand for those of the language: `== != < <= > >=`, `+ - * /`, and `& | ~ >>` for `and`, `or`, `not`, `=>`.
"""

from __future__ import annotations

import datetime
import math
import numbers
from collections.abc import Iterable
from typing import Any, NoReturn, TypeAlias

import numpy as np

from relcrf.errors import Diagnostic, UsageError, listing, suggestion
from relcrf.language.render import expression
from relcrf.model import expressions as e
from relcrf.model.functions import AGGREGATES, FUNCTIONS

Plain: TypeAlias = "Term | str | bool | int | float | datetime.date"
"""What an operator takes: a term, or a value that stands for itself."""


class Term:
    """An expression. Compare, compute and join it with other terms or with plain values."""

    def __init__(self, node: e.Expression) -> None:
        self._node = node

    def __repr__(self) -> str:
        return expression(self._node)

    __hash__ = object.__hash__

    def __contains__(self, other: object) -> NoReturn:
        raise refused("'in' has no meaning for terms in Python", "write w.isin(p.words)")

    def __bool__(self) -> NoReturn:
        message = f"'{self!r}' is a part of a model and has no truth value in Python"
        raise UsageError(Diagnostic("E346", message, hint="join conditions with & | ~ >>, and put each in brackets"))

    def __eq__(self, other: Plain) -> Term:  # type: ignore[override]
        return _compare("==", self, other)

    def __ne__(self, other: Plain) -> Term:  # type: ignore[override]
        return _compare("!=", self, other)

    def __lt__(self, other: Plain) -> Term:
        return _compare("<", self, other)

    def __le__(self, other: Plain) -> Term:
        return _compare("<=", self, other)

    def __gt__(self, other: Plain) -> Term:
        return _compare(">", self, other)

    def __ge__(self, other: Plain) -> Term:
        return _compare(">=", self, other)

    def __and__(self, other: Plain) -> Term:
        return _join("and", self, other)

    def __or__(self, other: Plain) -> Term:
        return _join("or", self, other)

    def __rshift__(self, other: Plain) -> Term:
        return _join("=>", self, other)

    def __invert__(self) -> Term:
        return Term(e.Not(self._node))

    def __add__(self, other: Plain) -> Term:
        return Term(e.Arithmetic("+", self._node, node_of(other)))

    def __sub__(self, other: Plain) -> Term:
        return Term(e.Arithmetic("-", self._node, node_of(other)))

    def __mul__(self, other: Plain) -> Term:
        return Term(e.Arithmetic("*", self._node, node_of(other)))

    def __truediv__(self, other: Plain) -> Term:
        return Term(e.Arithmetic("/", self._node, node_of(other)))

    def __radd__(self, other: Plain) -> Term:
        return Term(e.Arithmetic("+", node_of(other), self._node))

    def __rsub__(self, other: Plain) -> Term:
        return Term(e.Arithmetic("-", node_of(other), self._node))

    def __rmul__(self, other: Plain) -> Term:
        return Term(e.Arithmetic("*", node_of(other), self._node))

    def __rtruediv__(self, other: Plain) -> Term:
        return Term(e.Arithmetic("/", node_of(other), self._node))

    def __neg__(self) -> Term:
        return Term(e.Negative(self._node))

    def __abs__(self) -> Term:
        return Term(e.Function("abs", (self._node,)))

    def iff(self, other: Plain) -> Term:
        """`self <=> other`."""
        return _join("<=>", self, other)

    def isin(self, bag: Term) -> Term:
        """`self in bag`: a value is in a bag, such as `w.isin(p.words)`."""
        return Term(e.Member(self._node, _attribute(bag)))


class Thing(Term):
    """A name for a thing of an entity, or for a value of a domain. Attributes of things are its attributes.

    Args:
        known: the attributes of the entity; none of a domain.
    """

    def __init__(self, name: str, sort: str, known: Iterable[str] = ()) -> None:
        super().__init__(e.Name(name))
        self._name, self._sort, self._known = name, sort, tuple(known)

    def __getattr__(self, name: str) -> Term:
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> Term:
        """An attribute, also one that is called as a method of terms is."""
        if name not in self._known:
            message = f"unknown attribute '{name}' of {self._sort}"
            known = f"{self._sort} has {listing(self._known)}" if self._known else f"{self._sort} has none"
            raise UnknownAttribute(Diagnostic("E101", message, hint=suggestion(name, self._known) or known))
        return Term(e.Attribute(self._name, name))


class UnknownAttribute(UsageError, AttributeError):
    """A thing has no such attribute: at once, where Python asks for it."""


class Tuple(Term):
    """A tuple of a relation; attributes of the tuple are its attributes."""

    def __init__(self, atom: e.Atom, known: Iterable[str] = ()) -> None:
        super().__init__(atom)
        self._atom, self._known = atom, tuple(known)

    def __getattr__(self, name: str) -> Term:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._known:
            message = f"unknown attribute '{name}' of {self._atom.relation}"
            hint = suggestion(name, self._known) or f"it has {listing(self._known) or 'no attributes'}"
            raise UnknownAttribute(Diagnostic("E101", message, hint=hint))
        return Term(e.TupleAttribute(self._atom, name))


def node_of(value: Plain) -> e.Expression:
    """The expression that a Python value stands for.

    Raises:
        UsageError: for a value that none stands for.
    """
    match value:
        case Term():
            return value._node
        case bool() | np.bool_():
            return e.Truth(bool(value))
        case str():
            return e.Text(value)
        case datetime.date():
            return e.Text(value.isoformat()[:10])
        case numbers.Integral():
            return _number(int(value))
        case numbers.Real() if math.isfinite(value):
            return _number(float(value))
        case numbers.Real():
            raise refused(f"{value} is no number of the language", "a condition on all numbers needs none")
    message = f"a {type(value).__name__} cannot stand in an expression"
    raise refused(message, "use terms, texts, numbers, dates and truth values")


def _number(value: int | float) -> e.Expression:
    return e.Negative(e.Number(-value)) if value < 0 else e.Number(value)


def refused(message: str, hint: str) -> UsageError:
    """That Python has said what stands for nothing in the language."""
    return UsageError(Diagnostic("E346", message, hint=hint))


def joined(terms: Iterable[Plain]) -> e.Expression | None:
    """Return the conjunction of some conditions; None of none."""
    return e.conjoined([node_of(term) for term in terms])


def _compare(operator: str, left: Plain, right: Plain) -> Term:
    return Term(e.Comparison(operator, node_of(left), node_of(right)))


def _join(operator: str, left: Plain, right: Plain) -> Term:
    return Term(e.Connective(operator, node_of(left), node_of(right)))


def _attribute(bag: Term) -> e.Attribute:
    node = bag._node
    if not isinstance(node, e.Attribute):
        raise UsageError(Diagnostic("E346", f"'{bag!r}' is no bag", hint="write w.isin(p.words)"))
    return node


class _Functions:
    """The functions and figures of the language: `fn.log(a.length)`, `fn.count(q, where=Link(q, p))`."""

    def __getattr__(self, name: str) -> Any:
        if name in FUNCTIONS:
            return lambda *arguments: Term(e.Function(name, tuple(node_of(a) for a in arguments)))
        if name in AGGREGATES:
            return lambda *terms, where=None: _aggregate(name, terms, where)
        hint = suggestion(name, [*FUNCTIONS, *AGGREGATES]) or f"there is {listing([*FUNCTIONS, *AGGREGATES], 99)}"
        raise UnknownAttribute(Diagnostic("E102", f"unknown function '{name}'", hint=hint))

    def __dir__(self) -> list[str]:
        return [*FUNCTIONS, *AGGREGATES]


def _aggregate(name: str, terms: tuple[Plain, ...], where: Plain | None) -> Term:
    """`fn.exists(CONDITION)`, `fn.count(CONDITION)`, `fn.count(q, where=CONDITION)`, `fn.sum(q.x, where=CONDITION)`."""
    if where is None:
        if not terms:
            raise refused(f"'{name}' needs a condition", f"write fn.{name}(..., where=Link(q, p))")
        *terms_, where = terms
        terms = tuple(terms_)
    return Term(e.Aggregate(name, tuple(node_of(t) for t in terms), node_of(where)))


fn = _Functions()
"""The functions and figures of the language."""
