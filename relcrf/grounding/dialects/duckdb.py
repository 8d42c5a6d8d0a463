"""The SQL dialect of DuckDB."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from relcrf.data.names import PLUGIN_PREFIX
from relcrf.grounding.dialects.base import (
    AbstractDialect,
    CallWriter,
    SelectBuilder,
    as_double,
    call,
    column,
    number_literal,
)
from relcrf.grounding.dialects.functions import (
    COMMON_FUNCTIONS,
    MAX_LETTERS,
    case_when,
    clamp_count,
    date_part,
    engine_function,
)
from relcrf.grounding.plan import AggregateTerm, Column, Plan, substitute_columns


class DuckDbDialect(AbstractDialect):
    """The DuckDB dialect.

    An aggregate that refers to several columns of the outer plan is rendered as a grouped join, because DuckDB orders the
    joins of a correlated subquery without regard to these columns.
    """

    name = "duckdb"
    sqlglot_dialect = "duckdb"
    has_defined_functions = True

    def select_builder(self, plan: Plan) -> SelectBuilder:
        return _GroupingSelectBuilder(self, plan)

    def function_call(self, name: str, arguments: Sequence[exp.Expr]) -> exp.Expr:
        if name.startswith(PLUGIN_PREFIX):
            return call(name, *arguments)
        return super().function_call(name, arguments)

    def vector_component(self, vector: exp.Expr, index: int) -> exp.Expr:
        return call("array_extract", vector, number_literal(index + 1))

    def sum_column(self, value: exp.Expr) -> exp.Expr:
        return super().sum_column(_order_ascending(value))

    def mean_column(self, value: exp.Expr) -> exp.Expr:
        return super().mean_column(_order_ascending(value))


def _order_ascending(value: exp.Expr) -> exp.Expr:
    """Return an aggregated column with ORDER BY, so that floating-point sums do not depend on the order of rows."""
    return exp.Order(this=value, expressions=[exp.Ordered(this=value.copy())])


class _GroupingSelectBuilder(SelectBuilder):
    """A builder that renders aggregates over several columns of the outer plan as grouped joins."""

    def aggregate_subquery(self, node: AggregateTerm) -> exp.Expr:
        if node.outer_plan is None:
            return super().aggregate_subquery(node)
        names = [f"k{k}" for k in range(len(node.outer_keys))]
        columns = [column(c).as_(n, quoted=True) for n, c in zip(names, node.outer_keys, strict=True)]
        keys = self.dialect.select_builder(node.outer_plan).select(columns).distinct().subquery("keys")
        grouped = substitute_columns(node, {c: Column("keys", n) for n, c in zip(names, node.outer_keys, strict=True)})
        builder = SelectBuilder(self.dialect, grouped.plan, (keys,))
        key_columns = [column(Column("keys", n)) for n in names]
        select = builder.select(
            [
                *(c.as_(n, quoted=True) for n, c in zip(names, key_columns, strict=True)),
                builder.aggregate_column(grouped),
            ]
        )
        aggregates = select.group_by(*(c.copy() for c in key_columns)).subquery("aggregates")
        pairs = zip(names, node.outer_keys, strict=True)
        equal_keys = [exp.EQ(this=column(Column("aggregates", n)), expression=column(c)) for n, c in pairs]
        return exp.select(column(Column("aggregates", "result"))).from_(aggregates).where(*equal_keys).subquery()


def _cosine(a: exp.Expr, b: exp.Expr) -> exp.Expr:
    squares = [_DOT(v.copy(), v.copy()) for v in (a, b)]
    are_nonzero = exp.and_(*(exp.GT(this=square, expression=number_literal(0)) for square in squares))
    is_any_zero = exp.or_(*(exp.EQ(this=square.copy(), expression=number_literal(0)) for square in squares))
    return case_when((are_nonzero, call("array_cosine_similarity", a, b)), (is_any_zero, as_double(number_literal(0))))


def _call(name: str, *arguments: exp.Expr) -> exp.Expr:
    return call(name, *(a.copy() for a in arguments))


def _is_ascii(*texts: exp.Expr) -> exp.Expr:
    """Return the condition that every letter of some texts is a single byte."""
    return exp.and_(*(exp.EQ(this=_call("strlen", t), expression=_call("length", t)) for t in texts))


def _distinct_letters(*texts: exp.Expr) -> exp.Expr:
    """Return the list of distinct letters of one or two texts."""
    joined = exp.DPipe(this=texts[0].copy(), expression=texts[1].copy()) if len(texts) > 1 else texts[0]
    return _call("list_distinct", _call("string_split", joined, exp.Literal.string("")))


def _letterwise_function(name: str) -> CallWriter:
    """Return a writer that applies a bytewise function to letters; in non-ASCII texts, letters are mapped to bytes."""
    alphabet = exp.Literal.string("".join(map(chr, range(1, MAX_LETTERS + 1))))

    def write(a: exp.Expr, b: exp.Expr) -> exp.Expr:
        has_few_letters = exp.LTE(this=_call("len", _distinct_letters(a, b)), expression=number_literal(MAX_LETTERS))
        letters = _call("array_to_string", _distinct_letters(a, b), exp.Literal.string(""))
        coded = [_call("translate", text, letters, alphabet) for text in (a, b)]
        return case_when((_is_ascii(a, b), _call(name, a, b)), (has_few_letters, _call(name, *coded)))

    return write


def _jaccard(a: exp.Expr, b: exp.Expr) -> exp.Expr:
    """Return the Jaccard similarity of the sets of letters in two texts; 0 if a text is empty.

    DuckDB's function is used only for nonempty ASCII texts, because it fails on empty texts and compares bytes.
    """
    is_any_empty = exp.or_(*(exp.EQ(this=_call("length", t), expression=number_literal(0)) for t in (a, b)))
    is_known = exp.Not(this=exp.Is(this=exp.DPipe(this=a.copy(), expression=b.copy()), expression=exp.Null()))
    shared = _call("len", _call("list_intersect", _distinct_letters(a), _distinct_letters(b)))
    ratio = exp.Div(this=as_double(shared), expression=as_double(_call("len", _distinct_letters(a, b))))
    is_known_empty = exp.and_(is_known, is_any_empty)
    return case_when(
        (is_known_empty, as_double(number_literal(0))),
        (_is_ascii(a, b), _call("jaccard", a, b)),
        (is_known.copy(), ratio),
    )


_DOT = engine_function("array_inner_product")

DuckDbDialect.functions = COMMON_FUNCTIONS | {
    "date_of_datetime": lambda value: exp.cast(call("make_timestamp", value), "DATE"),
    "hour": lambda value: date_part("hour")(call("make_timestamp", value)),
    "cosine": _cosine,
    "dot": _DOT,
    "distance": engine_function("array_distance"),
    "lower": engine_function("lower"),
    "prefix": lambda text, n: _call("left", text, exp.cast(clamp_count(n), "BIGINT")),
    "levenshtein": _letterwise_function("levenshtein"),
    "jaro_winkler": _letterwise_function("jaro_winkler_similarity"),
    "jaccard": _jaccard,
}
