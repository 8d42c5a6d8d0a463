"""The functions of the language that print alike in most dialects."""

from __future__ import annotations

from sqlglot import exp

from relcrf.grounding.dialects.base import CallWriter, as_double, call, number_literal

MAX_PREFIX = 1_000_000_000
"""Characters that no text has; `prefix` of more takes this many, so that any number fits the engines' integers."""

MAX_LETTERS = 127
"""Different letters that two texts may have between them for `levenshtein` and `jaro_winkler`, unless all are ASCII: DuckDB
compares bytes, and so each letter becomes a byte of its own. Beyond, the functions are missing."""


def engine_function(name: str) -> CallWriter:
    """A function of the engine on the same arguments."""
    return lambda *arguments: call(name, *arguments)


def numeric_function(name: str) -> CallWriter:
    """A function of the engine on numbers."""
    return lambda *arguments: call(name, *map(as_double, arguments))


def binary_operator(kind: type[exp.Binary]) -> CallWriter:
    """An operator on numbers."""
    return lambda left, right: exp.Paren(this=kind(this=as_double(left), expression=as_double(right)))


def case_when(*branches: tuple[exp.Expr, exp.Expr], default: exp.Expr | None = None) -> exp.Expr:
    """CASE WHEN ... THEN ... END of conditions and values; missing where no condition holds."""
    return exp.Case(ifs=[exp.If(this=condition, true=value) for condition, value in branches], default=default)


def divide(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    """A quotient; missing where the divisor is 0."""
    nonzero = exp.NEQ(this=as_double(right), expression=number_literal(0))
    return case_when((nonzero, exp.Paren(this=exp.Div(this=as_double(left), expression=as_double(right.copy())))))


def negative(value: exp.Expr) -> exp.Expr:
    return exp.Paren(this=exp.Neg(this=as_double(value)))


def clamp_count(value: exp.Expr) -> exp.Expr:
    """A number of characters as floating point, which fits an integer."""
    wide = exp.GT(this=as_double(value), expression=number_literal(MAX_PREFIX))
    narrow = exp.LT(this=as_double(value.copy()), expression=number_literal(-MAX_PREFIX))
    return case_when(
        (wide, as_double(number_literal(MAX_PREFIX))),
        (narrow, as_double(number_literal(-MAX_PREFIX))),
        default=as_double(value.copy()),
    )


def _guarded_function(name: str, comparison: type[exp.Binary]) -> CallWriter:
    """A function of the engine on a number; missing unless the number compares so with 0."""
    return lambda value: case_when(
        (comparison(this=as_double(value), expression=number_literal(0)), call(name, as_double(value.copy())))
    )


def _log1p(value: exp.Expr) -> exp.Expr:
    above = exp.GT(this=as_double(value), expression=number_literal(-1))
    shifted = exp.Paren(this=exp.Add(this=number_literal(1), expression=as_double(value.copy())))
    return case_when((above, call("ln", shifted)))


def _extremum(kind: type[exp.Binary]) -> CallWriter:
    """The one of two numbers that the comparison prefers; missing where either is (SQL's own LEAST skips it)."""

    def printed(a: exp.Expr, b: exp.Expr) -> exp.Expr:
        better = kind(this=as_double(a), expression=as_double(b))
        worse = exp.Not(this=exp.Paren(this=kind(this=as_double(a.copy()), expression=as_double(b.copy()))))
        return case_when((better, as_double(a.copy())), (worse, as_double(b.copy())))

    return printed


COMMON_FUNCTIONS: dict[str, CallWriter] = {
    "+": binary_operator(exp.Add),
    "-": binary_operator(exp.Sub),
    "*": binary_operator(exp.Mul),
    "/": divide,
    "exp": numeric_function("exp"),
    "negative": negative,
    "log": _guarded_function("ln", exp.GT),
    "log1p": _log1p,
    "sqrt": _guarded_function("sqrt", exp.GTE),
    "abs": numeric_function("abs"),
    "least": _extremum(exp.LTE),
    "greatest": _extremum(exp.GTE),
    "date": lambda value: exp.cast(value, "DATE"),
    "length": engine_function("length"),
    "contains": engine_function("contains"),
    "starts_with": engine_function("starts_with"),
}
