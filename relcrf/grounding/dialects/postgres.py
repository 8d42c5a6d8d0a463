"""The SQL dialect of PostgreSQL. Functions that the server lacks are defined per session (`SESSION_FUNCTIONS`)."""

from __future__ import annotations

from sqlglot import exp

from relcrf.grounding.dialects.base import AbstractDialect, as_double, call, number_literal
from relcrf.grounding.dialects.functions import (
    COMMON_FUNCTIONS,
    MAX_LETTERS,
    MICROSECONDS_PER_DAY,
    MICROSECONDS_PER_HOUR,
    clamp_count,
    engine_function,
    numeric_function,
)

_CHECKED_OPERATOR = """
CREATE FUNCTION pg_temp.wide_{name}(a float8, b float8) RETURNS float8 LANGUAGE plpgsql IMMUTABLE STRICT AS $$ BEGIN
    RETURN a {operator} b;
EXCEPTION WHEN numeric_value_out_of_range THEN RETURN {out_of_range_value};
END $$"""
_FAST_OPERATOR = """
CREATE FUNCTION pg_temp.{name}(a float8, b float8) RETURNS float8 LANGUAGE sql IMMUTABLE AS
$$ SELECT CASE WHEN {safe_range} THEN a {operator} b ELSE pg_temp.wide_{name}(a, b) END $$"""


def _overflow_safe_operator(name: str, operator: str, safe_range: str, out_of_range_value: str) -> tuple[str, str]:
    """Return SQL definitions of an operator that returns infinity or 0 instead of an overflow or underflow error."""
    wide = _CHECKED_OPERATOR.format(name=name, operator=operator, out_of_range_value=out_of_range_value)
    return wide, _FAST_OPERATOR.format(name=name, operator=operator, safe_range=safe_range)


_SAFE_FOR_SUM = "abs(a) < 8e307 AND abs(b) < 8e307"
_SAFE_FOR_PRODUCT = "abs({0}) BETWEEN 1e-150 AND 1e150"
_SIGNED_INFINITY = "'Infinity'::float8 * sign(a) * sign(b)"

SESSION_FUNCTIONS: tuple[str, ...] = (
    *_overflow_safe_operator("plus", "+", _SAFE_FOR_SUM, "'Infinity'::float8 * sign(a)"),
    *_overflow_safe_operator("minus", "-", _SAFE_FOR_SUM, "'Infinity'::float8 * sign(a)"),
    *_overflow_safe_operator(
        "times",
        "*",
        f"(a = 0 OR {_SAFE_FOR_PRODUCT.format('a')}) AND (b = 0 OR {_SAFE_FOR_PRODUCT.format('b')})",
        f"CASE WHEN ln(abs(a)) + ln(abs(b)) > 0 THEN {_SIGNED_INFINITY} ELSE 0 END",
    ),
    *_overflow_safe_operator(
        "ratio",
        "/",
        f"(a = 0 OR {_SAFE_FOR_PRODUCT.format('a')}) AND {_SAFE_FOR_PRODUCT.format('b')}",
        f"CASE WHEN ln(abs(a)) - ln(abs(b)) > 0 THEN {_SIGNED_INFINITY} ELSE 0 END",
    ),
    """
CREATE FUNCTION pg_temp.power_of_e(a float8) RETURNS float8 LANGUAGE sql IMMUTABLE AS
$$ SELECT CASE WHEN a > 709.782712893384 THEN 'Infinity' WHEN a < -745.1332191019412 THEN 0 ELSE exp(a) END $$""",
    f"""
CREATE FUNCTION pg_temp.time_of_day(a bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS
$$ SELECT (a % {MICROSECONDS_PER_DAY} + {MICROSECONDS_PER_DAY}) % {MICROSECONDS_PER_DAY} $$""",
    f"""
CREATE FUNCTION pg_temp.date_of(a bigint) RETURNS date LANGUAGE sql IMMUTABLE AS
$$ SELECT DATE '1970-01-01' + ((a - pg_temp.time_of_day(a)) / {MICROSECONDS_PER_DAY})::integer $$""",
    f"""
CREATE FUNCTION pg_temp.hour_of(a bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS
$$ SELECT pg_temp.time_of_day(a) / {MICROSECONDS_PER_HOUR} $$""",
    """
CREATE FUNCTION pg_temp.dot(a float8[], b float8[]) RETURNS float8 LANGUAGE sql IMMUTABLE STRICT AS
$$ SELECT sum(pg_temp.times(x, y)) FROM unnest(a, b) AS both_of(x, y) $$""",
    """
CREATE FUNCTION pg_temp.distance(a float8[], b float8[]) RETURNS float8 LANGUAGE sql IMMUTABLE STRICT AS
$$ SELECT sqrt(sum(pg_temp.times(x - y, x - y))) FROM unnest(a, b) AS both_of(x, y) $$""",
    """
CREATE FUNCTION pg_temp.cosine(a float8[], b float8[]) RETURNS float8 LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT CASE WHEN aa > 0 AND bb > 0 THEN least(1, greatest(-1, pg_temp.dot(a, b) / sqrt(aa * bb))) ELSE 0 END
    FROM (SELECT pg_temp.dot(a, a) AS aa, pg_temp.dot(b, b) AS bb) AS squares $$""",
    """
CREATE FUNCTION pg_temp.component(a float8[], k integer) RETURNS float8 LANGUAGE sql IMMUTABLE AS $$ SELECT a[k] $$""",
    # Convert letter by letter, because lower() of a whole word maps a final sigma differently.
    """
CREATE FUNCTION pg_temp.lower_letters(a text) RETURNS text LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT CASE WHEN octet_length(a) = length(a) THEN lower(a COLLATE "C") ELSE (
        SELECT string_agg(lower(letter COLLATE "und-x-icu"), '' ORDER BY place)
        FROM unnest(string_to_array(replace(a, 'İ', 'i'), NULL)) WITH ORDINALITY AS letters(letter, place)) END $$""",
    """
CREATE FUNCTION pg_temp.letters(a text) RETURNS text[] LANGUAGE sql IMMUTABLE STRICT AS
$$ SELECT coalesce(array_agg(DISTINCT letter COLLATE "C"), '{}') FROM unnest(string_to_array(a, NULL)) AS l(letter) $$""",
    """
CREATE FUNCTION pg_temp.jaccard(a text, b text) RETURNS float8 LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT CASE WHEN a = '' OR b = '' THEN 0 ELSE
        (SELECT count(*) FROM unnest(pg_temp.letters(a)) AS l(letter) WHERE letter = ANY(pg_temp.letters(b)))::float8
        / cardinality(pg_temp.letters(a || b)) END $$""",
    """
CREATE FUNCTION pg_temp.levenshtein(a text, b text) RETURNS integer LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
    mine text[] := string_to_array(a, NULL);
    other text[] := string_to_array(b, NULL);
    above integer[];
    below integer[];
BEGIN
    IF octet_length(a || b) > length(a || b) AND cardinality(pg_temp.letters(a || b)) > """
    f"{MAX_LETTERS} THEN RETURN NULL; END IF;"
    """
    SELECT array_agg(j ORDER BY j) INTO above FROM generate_series(0, cardinality(other)) AS j;
    FOR i IN 1 .. cardinality(mine) LOOP
        below := ARRAY[i];
        FOR j IN 1 .. cardinality(other) LOOP
            below[j + 1] := least(below[j] + 1, above[j + 1] + 1, above[j] + (mine[i] <> other[j] COLLATE "C")::integer);
        END LOOP;
        above := below;
    END LOOP;
    RETURN above[cardinality(other) + 1];
END $$""",
)
"""Statements that define the functions of a session. Execute them in this order before the first plan."""


class PostgresDialect(AbstractDialect):
    """The PostgreSQL dialect. Texts are compared by code points, whatever the locale of the server."""

    name = "postgres"
    sqlglot_dialect = "postgres"
    unsupported = frozenset({"jaro_winkler"})

    def string_literal(self, value: str) -> exp.Expr:
        return exp.Paren(
            this=exp.Collate(this=exp.Literal.string(value), expression=exp.to_identifier("C", quoted=True))
        )

    def vector_component(self, vector: exp.Expr, index: int) -> exp.Expr:
        return call("pg_temp.component", vector, number_literal(index + 1))

    def mean_column(self, value: exp.Expr) -> exp.Expr:
        """Return SUM / COUNT instead of AVG, because AVG also computes squares, which overflow for large values."""
        counted = exp.Nullif(this=exp.Count(this=value.copy()), expression=number_literal(0))
        return exp.Div(this=exp.Sum(this=value), expression=as_double(counted))


def _contains(text: exp.Expr, part: exp.Expr) -> exp.Expr:
    return exp.Paren(this=exp.GT(this=call("strpos", text, part), expression=number_literal(0)))


def _divide(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    return call("pg_temp.ratio", as_double(left), exp.Nullif(this=as_double(right), expression=number_literal(0)))


PostgresDialect.functions = COMMON_FUNCTIONS | {
    "+": numeric_function("pg_temp.plus"),
    "-": numeric_function("pg_temp.minus"),
    "*": numeric_function("pg_temp.times"),
    "/": _divide,
    "exp": numeric_function("pg_temp.power_of_e"),
    "date_of_datetime": engine_function("pg_temp.date_of"),
    "hour": engine_function("pg_temp.hour_of"),
    "cosine": engine_function("pg_temp.cosine"),
    "dot": engine_function("pg_temp.dot"),
    "distance": engine_function("pg_temp.distance"),
    "lower": engine_function("pg_temp.lower_letters"),
    "prefix": lambda text, n: call("left", text, exp.cast(clamp_count(n), "INTEGER")),
    "contains": _contains,
    "levenshtein": engine_function("pg_temp.levenshtein"),
    "jaccard": engine_function("pg_temp.jaccard"),
}
