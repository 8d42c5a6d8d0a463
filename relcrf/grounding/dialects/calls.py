"""The functions of the language that print alike in most dialects."""

from __future__ import annotations

from sqlglot import exp

from relcrf.grounding.dialects.base import Printed, call, number, real

WIDEST = 1_000_000_000
"""Characters that no text has; `prefix` of more takes this many, so that any number fits the engines' integers."""

LETTERS = 127
"""Different letters that two texts may have between them for `levenshtein` and `jaro_winkler`, unless all are ASCII: DuckDB
compares bytes, and so each letter becomes a byte of its own. Beyond, the functions are missing."""


def function(name: str) -> Printed:
    """A function of the engine on the same arguments."""
    return lambda *arguments: call(name, *arguments)


def of_reals(name: str) -> Printed:
    """A function of the engine on numbers."""
    return lambda *arguments: call(name, *map(real, arguments))


def binary(kind: type[exp.Binary]) -> Printed:
    """An operator on numbers."""
    return lambda left, right: exp.Paren(this=kind(this=real(left), expression=real(right)))


def case(*branches: tuple[exp.Expr, exp.Expr], default: exp.Expr | None = None) -> exp.Expr:
    """CASE WHEN ... THEN ... END of conditions and values; missing where no condition holds."""
    return exp.Case(ifs=[exp.If(this=condition, true=value) for condition, value in branches], default=default)


def divide(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    """A quotient; missing where the divisor is 0."""
    nonzero = exp.NEQ(this=real(right), expression=number(0))
    return case((nonzero, exp.Paren(this=exp.Div(this=real(left), expression=real(right.copy())))))


def negative(value: exp.Expr) -> exp.Expr:
    return exp.Paren(this=exp.Neg(this=real(value)))


def size(value: exp.Expr) -> exp.Expr:
    """A number of characters as floating point, which fits an integer."""
    wide = exp.GT(this=real(value), expression=number(WIDEST))
    narrow = exp.LT(this=real(value.copy()), expression=number(-WIDEST))
    return case((wide, real(number(WIDEST))), (narrow, real(number(-WIDEST))), default=real(value.copy()))


def _within(name: str, comparison: type[exp.Binary]) -> Printed:
    """A function of the engine on a number; missing unless the number compares so with 0."""
    return lambda value: case((comparison(this=real(value), expression=number(0)), call(name, real(value.copy()))))


def _log1p(value: exp.Expr) -> exp.Expr:
    above = exp.GT(this=real(value), expression=number(-1))
    shifted = exp.Paren(this=exp.Add(this=number(1), expression=real(value.copy())))
    return case((above, call("ln", shifted)))


def _either(kind: type[exp.Binary]) -> Printed:
    """The one of two numbers that the comparison prefers; missing where either is (SQL's own LEAST skips it)."""

    def printed(a: exp.Expr, b: exp.Expr) -> exp.Expr:
        better = kind(this=real(a), expression=real(b))
        worse = exp.Not(this=exp.Paren(this=kind(this=real(a.copy()), expression=real(b.copy()))))
        return case((better, real(a.copy())), (worse, real(b.copy())))

    return printed


COMMON: dict[str, Printed] = {
    "+": binary(exp.Add),
    "-": binary(exp.Sub),
    "*": binary(exp.Mul),
    "/": divide,
    "exp": of_reals("exp"),
    "negative": negative,
    "log": _within("ln", exp.GT),
    "log1p": _log1p,
    "sqrt": _within("sqrt", exp.GTE),
    "abs": of_reals("abs"),
    "least": _either(exp.LTE),
    "greatest": _either(exp.GTE),
    "date": lambda value: exp.cast(value, "DATE"),
    "length": function("length"),
    "contains": function("contains"),
    "starts_with": function("starts_with"),
}
