"""DuckDB's SQL."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from relcrf.data.names import FOREIGN
from relcrf.grounding.dialects.base import AbstractDialect, Block, Printed, call, column, number, real
from relcrf.grounding.dialects.calls import COMMON, LETTERS, case, function, size
from relcrf.grounding.plan import Column, Figure, Plan, substituted


class DuckDbDialect(AbstractDialect):
    """Figures over several names are grouped joins, for DuckDB orders the joins of a subquery without regard to the keys."""

    name = "duckdb"
    writer = "duckdb"

    def block(self, plan: Plan) -> Block:
        return _GroupingBlock(self, plan)

    def call(self, name: str, arguments: Sequence[exp.Expr]) -> exp.Expr:
        if name.startswith(FOREIGN):
            return call(name, *arguments)
        return super().call(name, arguments)

    def component(self, vector: exp.Expr, index: int) -> exp.Expr:
        return call("array_extract", vector, number(index + 1))

    def total(self, value: exp.Expr) -> exp.Expr:
        return super().total(_ascending(value))

    def mean(self, value: exp.Expr) -> exp.Expr:
        return super().mean(_ascending(value))


def _ascending(value: exp.Expr) -> exp.Expr:
    """A column whose numbers are added in one order, so that sums do not depend on rows and threads in their last bits."""
    return exp.Order(this=value, expressions=[exp.Ordered(this=value.copy())])


class _GroupingBlock(Block):
    def figure(self, node: Figure) -> exp.Expr:
        if node.base is None:
            return super().figure(node)
        names = [f"k{k}" for k in range(len(node.keys))]
        columns = [column(c).as_(n, quoted=True) for n, c in zip(names, node.keys, strict=True)]
        keys = self.dialect.block(node.base).select(columns).distinct().subquery("keys")
        inner = substituted(node, {c: Column("keys", n) for n, c in zip(names, node.keys, strict=True)})
        block = Block(self.dialect, inner.plan, (keys,))
        own = [column(Column("keys", n)) for n in names]
        select = block.select(
            [*(c.as_(n, quoted=True) for n, c in zip(names, own, strict=True)), block.aggregate(inner)]
        )
        figures = select.group_by(*(c.copy() for c in own)).subquery("figures")
        pairs = zip(names, node.keys, strict=True)
        same = [exp.EQ(this=column(Column("figures", n)), expression=column(c)) for n, c in pairs]
        return exp.select(column(Column("figures", "found"))).from_(figures).where(*same).subquery()


def _cosine(a: exp.Expr, b: exp.Expr) -> exp.Expr:
    squares = [_DOT(v.copy(), v.copy()) for v in (a, b)]
    both = exp.and_(*(exp.GT(this=square, expression=number(0)) for square in squares))
    none = exp.or_(*(exp.EQ(this=square.copy(), expression=number(0)) for square in squares))
    return case((both, call("array_cosine_similarity", a, b)), (none, real(number(0))))


def _call(name: str, *arguments: exp.Expr) -> exp.Expr:
    return call(name, *(a.copy() for a in arguments))


def _is_ascii(*texts: exp.Expr) -> exp.Expr:
    """Whether each letter is a byte."""
    return exp.and_(*(exp.EQ(this=_call("strlen", t), expression=_call("length", t)) for t in texts))


def _letters(*texts: exp.Expr) -> exp.Expr:
    """The letters of some texts, as a list with each once."""
    joined = exp.DPipe(this=texts[0].copy(), expression=texts[1].copy()) if len(texts) > 1 else texts[0]
    return _call("list_distinct", _call("string_split", joined, exp.Literal.string("")))


def _by_letters(name: str) -> Printed:
    """A function that compares the bytes of two texts, on letters: where one is wider, each becomes a byte of its own."""
    alphabet = exp.Literal.string("".join(map(chr, range(1, LETTERS + 1))))

    def printed(a: exp.Expr, b: exp.Expr) -> exp.Expr:
        few = exp.LTE(this=_call("len", _letters(a, b)), expression=number(LETTERS))
        letters = _call("array_to_string", _letters(a, b), exp.Literal.string(""))
        coded = [_call("translate", text, letters, alphabet) for text in (a, b)]
        return case((_is_ascii(a, b), _call(name, a, b)), (few, _call(name, *coded)))

    return printed


def _jaccard(a: exp.Expr, b: exp.Expr) -> exp.Expr:
    """0 where a text is empty, which DuckDB's own refuses; on letters, where that compares bytes."""
    none = exp.or_(*(exp.EQ(this=_call("length", t), expression=number(0)) for t in (a, b)))
    known = exp.Not(this=exp.Is(this=exp.DPipe(this=a.copy(), expression=b.copy()), expression=exp.Null()))
    shared = _call("len", _call("list_intersect", _letters(a), _letters(b)))
    ratio = exp.Div(this=real(shared), expression=real(_call("len", _letters(a, b))))
    empty = exp.and_(known, none)
    return case((empty, real(number(0))), (_is_ascii(a, b), _call("jaccard", a, b)), (known.copy(), ratio))


_DOT = function("array_inner_product")

DuckDbDialect.calls = COMMON | {
    "cosine": _cosine,
    "dot": _DOT,
    "distance": function("array_distance"),
    "lower": function("lower"),
    "prefix": lambda text, n: _call("left", text, exp.cast(size(n), "BIGINT")),
    "levenshtein": _by_letters("levenshtein"),
    "jaro_winkler": _by_letters("jaro_winkler_similarity"),
    "jaccard": _jaccard,
}
