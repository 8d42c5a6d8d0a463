"""Functions of the modelling language with the same SQL in most dialects."""

from __future__ import annotations

from sqlglot import exp

from relcrf.grounding.dialects.base import CallWriter, as_double, call, number_literal

MAX_PREFIX = 1_000_000_000
"""Limit of the length of a `prefix`, longer than any text and within the integer range of every engine."""

MAX_LETTERS = 127
"""Maximum number of distinct letters in two non-ASCII texts for `levenshtein` and `jaro_winkler`. DuckDB compares bytes,
so each distinct letter of such texts is mapped to one byte. Above the limit, the result is null."""


def engine_function(name: str) -> CallWriter:
    """Return a writer of calls of an engine function with the same arguments."""
    return lambda *arguments: call(name, *arguments)


def numeric_function(name: str) -> CallWriter:
    """Return a writer of calls of an engine function whose arguments are cast to doubles."""
    return lambda *arguments: call(name, *map(as_double, arguments))


def binary_operator(kind: type[exp.Binary]) -> CallWriter:
    """Return a writer of a binary operator on numbers."""
    return lambda left, right: exp.Paren(this=kind(this=as_double(left), expression=as_double(right)))


def case_when(*branches: tuple[exp.Expr, exp.Expr], default: exp.Expr | None = None) -> exp.Expr:
    """Return CASE WHEN ... THEN ... END for pairs (condition, value); if no condition is true, return the default or null."""
    return exp.Case(ifs=[exp.If(this=condition, true=value) for condition, value in branches], default=default)


def divide(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    """Return a quotient; it is null if the divisor is 0."""
    nonzero = exp.NEQ(this=as_double(right), expression=number_literal(0))
    return case_when((nonzero, exp.Paren(this=exp.Div(this=as_double(left), expression=as_double(right.copy())))))


def negative(value: exp.Expr) -> exp.Expr:
    return exp.Paren(this=exp.Neg(this=as_double(value)))


def clamp_count(value: exp.Expr) -> exp.Expr:
    """Return a number of characters as a double, clamped to the integer range."""
    is_above = exp.GT(this=as_double(value), expression=number_literal(MAX_PREFIX))
    is_below = exp.LT(this=as_double(value.copy()), expression=number_literal(-MAX_PREFIX))
    return case_when(
        (is_above, as_double(number_literal(MAX_PREFIX))),
        (is_below, as_double(number_literal(-MAX_PREFIX))),
        default=as_double(value.copy()),
    )


def _guarded_function(name: str, comparison: type[exp.Binary]) -> CallWriter:
    """Return a writer of an engine function of one number; its SQL is null unless the number passes a comparison with 0."""
    return lambda value: case_when(
        (comparison(this=as_double(value), expression=number_literal(0)), call(name, as_double(value.copy())))
    )


def _log1p(value: exp.Expr) -> exp.Expr:
    is_in_domain = exp.GT(this=as_double(value), expression=number_literal(-1))
    one_plus = exp.Paren(this=exp.Add(this=number_literal(1), expression=as_double(value.copy())))
    return case_when((is_in_domain, call("ln", one_plus)))


def _extremum(kind: type[exp.Binary]) -> CallWriter:
    """Return a writer of the minimum or maximum of two numbers; unlike LEAST in SQL, it is null if either number is null."""

    def write(a: exp.Expr, b: exp.Expr) -> exp.Expr:
        first_wins = kind(this=as_double(a), expression=as_double(b))
        second_wins = exp.Not(this=exp.Paren(this=kind(this=as_double(a.copy()), expression=as_double(b.copy()))))
        return case_when((first_wins, as_double(a.copy())), (second_wins, as_double(b.copy())))

    return write


def _bin(value: exp.Expr, *thresholds: exp.Expr) -> exp.Expr:
    """Return the number of thresholds, which increase, that are less than or equal to a number."""
    reached = [
        (exp.GTE(this=as_double(value.copy()), expression=as_double(threshold)), number_literal(k))
        for k, threshold in enumerate(thresholds, 1)
    ]
    is_below = exp.LT(this=as_double(value), expression=as_double(thresholds[0].copy()))
    return case_when(*reversed(reached), (is_below, number_literal(0)))


def date_part(name: str) -> CallWriter:
    """Return a writer of a part of a date, such as the year."""
    return lambda date: call("date_part", exp.Literal.string(name), date)


def _days_between(first: exp.Expr, second: exp.Expr) -> exp.Expr:
    return exp.Paren(this=exp.Sub(this=second, expression=first))


def _elapsed_seconds(end: exp.Expr, start: exp.Expr) -> exp.Expr:
    """Return the seconds between two integers of microseconds; the difference of the integers is exact."""
    microseconds = as_double(exp.Paren(this=exp.Sub(this=end, expression=start)))
    return exp.Paren(this=exp.Div(this=microseconds, expression=as_double(number_literal(1_000_000))))


MICROSECONDS_PER_DAY, MICROSECONDS_PER_HOUR = 86_400_000_000, 3_600_000_000

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
    "default": lambda value, other: exp.Coalesce(this=as_double(value), expressions=[as_double(other)]),
    "bin": _bin,
    "year": date_part("year"),
    "month": date_part("month"),
    "weekday": date_part("isodow"),
    "days": _days_between,
    "date": lambda value: exp.cast(value, "DATE"),
    "elapsed_seconds": _elapsed_seconds,
    "length": engine_function("length"),
    "contains": engine_function("contains"),
    "starts_with": engine_function("starts_with"),
}
