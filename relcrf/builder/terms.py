"""Expressions of the language as Python objects: `(Link(a, b) & (a.length > 3)) >> Spam(b)`.

The operators `== != < <= > >= + - * /` mean the same as in the language; `& | ~ >>` mean `and`, `or`, `not` and `=>`.
"""

from __future__ import annotations

import datetime
import math
import numbers
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NoReturn, TypeAlias

import numpy as np

from relcrf.errors import Diagnostic, UsageError, listing, suggestion
from relcrf.language.render import render_expression
from relcrf.model import expressions as e
from relcrf.model.functions import AGGREGATES, FUNCTIONS

TermLike: TypeAlias = "Term | str | bool | int | float | datetime.date | datetime.time"
"""The operands of operators: a term, or a Python value that is converted to a constant."""


def _operator(make: Callable[..., e.Expression], symbol: str, *, is_reflected: bool = False) -> Any:
    """Return the special method that implements an operator between a term and another operand.

    Args:
        make: a function that constructs the expression from the symbol and the two operands.
        is_reflected: whether the term is the right operand, as in `1 - p.length`.
    """

    def method(self: Term, other: TermLike) -> Term:
        operands = (to_expression(other), self._node) if is_reflected else (self._node, to_expression(other))
        return Term(make(symbol, *operands))

    return method


class Term:
    """An expression that operators can combine with other terms and with Python values."""

    def __init__(self, node: e.Expression) -> None:
        self._node = node

    def __repr__(self) -> str:
        return render_expression(self._node)

    __hash__ = object.__hash__

    def __contains__(self, other: object) -> NoReturn:
        raise builder_error("'in' is not supported for terms", "write w.isin(p.words)")

    def __bool__(self) -> NoReturn:
        message = f"the term '{self!r}' has no truth value in Python"
        raise builder_error(message, "combine conditions with & | ~ >>, and put each condition in brackets")

    __eq__ = _operator(e.Comparison, "==")
    __ne__ = _operator(e.Comparison, "!=")
    __lt__ = _operator(e.Comparison, "<")
    __le__ = _operator(e.Comparison, "<=")
    __gt__ = _operator(e.Comparison, ">")
    __ge__ = _operator(e.Comparison, ">=")
    __and__ = _operator(e.Connective, "and")
    __or__ = _operator(e.Connective, "or")
    __rshift__ = _operator(e.Connective, "=>")
    __add__ = _operator(e.Arithmetic, "+")
    __sub__ = _operator(e.Arithmetic, "-")
    __mul__ = _operator(e.Arithmetic, "*")
    __truediv__ = _operator(e.Arithmetic, "/")
    __radd__ = _operator(e.Arithmetic, "+", is_reflected=True)
    __rsub__ = _operator(e.Arithmetic, "-", is_reflected=True)
    __rmul__ = _operator(e.Arithmetic, "*", is_reflected=True)
    __rtruediv__ = _operator(e.Arithmetic, "/", is_reflected=True)

    def __invert__(self) -> Term:
        return Term(e.Not(self._node))

    def __neg__(self) -> Term:
        return Term(e.UnaryMinus(self._node))

    def __abs__(self) -> Term:
        return Term(e.FunctionCall("abs", (self._node,)))

    def iff(self, other: TermLike) -> Term:
        """Return the term `self <=> other`."""
        return Term(e.Connective("<=>", self._node, to_expression(other)))

    def isin(self, bag: Term) -> Term:
        """Return the term `self in bag`, such as `w.isin(p.words)`."""
        if not isinstance(bag._node, e.Attribute):
            raise builder_error(f"'{bag!r}' is not a bag", "write w.isin(p.words)")
        return Term(e.Membership(self._node, bag._node))


class AttributedTerm(Term):
    """A term with attributes: a binder of an entity type, or an atom of a relation.

    Args:
        owner: the name of the entity type, domain or relation that the term refers to.
        attributes: the names of the attributes of the owner.
        make_attribute: function from the name of an attribute to its expression.
    """

    def __init__(
        self, node: e.Expression, owner: str, attributes: Iterable[str], make_attribute: Callable[[str], e.Expression]
    ) -> None:
        super().__init__(node)
        self._owner, self._attributes, self._make_attribute = owner, tuple(attributes), make_attribute

    def __getattr__(self, name: str) -> Term:
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> Term:
        """Return the term of an attribute; unlike `a.name`, this works if the attribute has the name of a method."""
        if name not in self._attributes:
            message = f"unknown attribute '{name}' of {self._owner}"
            hint = (
                suggestion(name, self._attributes)
                or f"{self._owner} has {listing(self._attributes) or 'no attributes'}"
            )
            raise UnknownAttribute(Diagnostic("E101", message, hint=hint))
        return Term(self._make_attribute(name))


class BinderTerm(AttributedTerm):
    """A binder: a variable that ranges over the entities of a type or over the values of a domain.

    Args:
        type_name: the name of the entity type or domain.
        attributes: the names of the attributes of the entity type; empty for a domain.
    """

    def __init__(self, name: str, type_name: str, attributes: Iterable[str] = ()) -> None:
        super().__init__(e.Name(name), type_name, attributes, partial(e.Attribute, name))
        self._name = name


class UnknownAttribute(UsageError, AttributeError):
    """An unknown attribute or function; an AttributeError, so that `hasattr` works."""


def to_expression(value: TermLike) -> e.Expression:
    """Convert a term or a Python value to an expression.

    Raises:
        UsageError: if the value cannot be converted.
    """
    match value:
        case Term():
            return value._node
        case bool() | np.bool_():
            return e.Boolean(bool(value))
        case str():
            return e.Text(value)
        case datetime.date() | datetime.time():
            # A moment at midnight may be compared with a date; any other moment only with a datetime.
            return e.Text(value.isoformat().removesuffix("T00:00:00"))
        case numbers.Real() if math.isfinite(value):
            number = int(value) if isinstance(value, numbers.Integral) else float(value)
            return e.UnaryMinus(e.Number(-number)) if number < 0 else e.Number(number)
        case numbers.Real():
            raise builder_error(
                f"{value} is not a finite number", "use a finite number; comparisons with infinity can be omitted"
            )
    message = f"a value of type {type(value).__name__} is not allowed in an expression"
    raise builder_error(message, "use terms, strings, numbers, dates and booleans")


def builder_error(message: str, hint: str) -> UsageError:
    """Return the error for Python code that has no equivalent in the language."""
    return UsageError(Diagnostic("E346", message, hint=hint))


def conjoin_terms(terms: Iterable[TermLike]) -> e.Expression | None:
    """Return the conjunction of conditions; None if there are none."""
    return e.optional_conjunction([to_expression(term) for term in terms])


class _FunctionNamespace:
    """The functions and aggregates of the language: `fn.log(a.length)`, `fn.count(q, where=Link(q, p))`."""

    def __getattr__(self, name: str) -> Any:
        if name in FUNCTIONS:
            return lambda *arguments: Term(e.FunctionCall(name, tuple(to_expression(a) for a in arguments)))
        if name in AGGREGATES:
            return lambda *terms, where=None: _aggregate(name, terms, where)
        hint = (
            suggestion(name, [*FUNCTIONS, *AGGREGATES]) or f"the functions are {listing([*FUNCTIONS, *AGGREGATES], 99)}"
        )
        raise UnknownAttribute(Diagnostic("E102", f"unknown function '{name}'", hint=hint))

    def __dir__(self) -> list[str]:
        return [*FUNCTIONS, *AGGREGATES]


def _aggregate(name: str, terms: tuple[TermLike, ...], where: TermLike | None) -> Term:
    """Return the term of `fn.exists(CONDITION)`, `fn.count(CONDITION)`, `fn.count(q, where=CONDITION)` and similar calls."""
    if where is None:
        if not terms:
            raise builder_error(f"'{name}' requires a condition", f"write fn.{name}(..., where=Link(q, p))")
        terms, where = terms[:-1], terms[-1]
    return Term(e.Aggregate(name, tuple(to_expression(t) for t in terms), to_expression(where)))


fn = _FunctionNamespace()
"""The functions and aggregates of the language."""
