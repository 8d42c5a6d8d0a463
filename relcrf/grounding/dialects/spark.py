"""Spark's SQL. A plan inside a plan is a join: Spark has no subqueries in most places, and few that name columns around."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from relcrf.grounding.dialects.base import AbstractDialect, Block, Printed, call, column, number, present, table
from relcrf.grounding.dialects.calls import COMMON, LETTERS, function, size
from relcrf.grounding.plan import Column, Exists, Figure, Looked, Plan, Scan, columns_around, substituted
from relcrf.model.nodes import walk


class SparkDialect(AbstractDialect):
    """Plans inside a plan are made for all combinations of the columns around them at once, and joined."""

    name = "spark"
    writer = "spark"
    lacking = frozenset({"jaro_winkler"})

    def block(self, plan: Plan) -> Block:
        return _JoiningBlock(self, plan)

    def component(self, vector: exp.Expr, index: int) -> exp.Expr:
        return call("element_at", vector, number(index + 1))

    def combination(self, terms: list[exp.Expr]) -> exp.Expr:
        return call("struct", *terms)


@dataclass
class _JoiningBlock(Block):
    """A SELECT in whose FROM the plans inside it are left joins, one row of each at most for a row of this one.

    What a plan inside names of the rows around it are its keys. It is evaluated on the distinct keys of those rows
    (magic sets: Seshadri, Pirahesh & Leung 1996), so that its own joins are plain.

    Args:
        depth: of the plan inside the outermost, so that the aliases of both differ.
    """

    depth: int = 0
    _joined: dict[Exists | Figure | Looked, exp.Expr] = field(default_factory=dict)
    """What stands for each plan and table that is joined."""
    _joins: list[tuple[exp.Expr, exp.Expr]] = field(default_factory=list)
    """What is joined, and on what."""

    def select(self, columns: Sequence[exp.Expr]) -> exp.Select:
        select = super().select(columns)
        if self._joins and not self.sources and not self.plan.scans:
            select = select.from_(exp.select(exp.true().as_("one")).subquery("one_row"))
        for joined, on in self._joins:
            select = select.join(joined, on=on, join_type="left")
        return select

    def exists(self, plan: Plan) -> exp.Expr:
        return present(self._once(Exists(plan)))

    def figure(self, node: Figure) -> exp.Expr:
        return self._once(node)

    def looked(self, node: Looked) -> exp.Expr:
        return self._once(node)

    def _once(self, node: Exists | Figure | Looked) -> exp.Expr:
        if node not in self._joined:
            alias = f"joined{self.depth}_{len(self._joined)}"
            self._joined[node] = column(Column(alias, "found"))
            joined, on = self._looked(node, alias) if isinstance(node, Looked) else self._nested(node, alias)
            self._joins.append((joined, on))
        return self._joined[node].copy()

    def _looked(self, node: Looked, alias: str) -> tuple[exp.Expr, exp.Expr]:
        names = [
            column(Column("looked", name)).as_(as_, quoted=True)
            for name, as_ in ((node.where, "k0"), (node.column, "found"))
        ]
        select = exp.select(*names).from_(table(Scan(node.table, "looked")))
        on = exp.EQ(this=column(Column(alias, "k0")), expression=self.term(node.equals))
        return select.subquery(exp.to_identifier(alias, quoted=True)), on

    def _nested(self, node: Exists | Figure, alias: str) -> tuple[exp.Expr, exp.Expr]:
        """The keys for which a plan has a row, or its figure for each."""
        keys = sorted(columns_around(node), key=lambda c: (c.alias, c.name))
        names = [f"k{k}" for k in range(len(keys))]
        base = f"keys{self.depth}_{alias}"
        inner = substituted(node, {c: Column(base, n) for c, n in zip(keys, names, strict=True)})
        sources = (self._distinct(keys, names).subquery(exp.to_identifier(base, quoted=True)),) if keys else ()
        block = _JoiningBlock(self.dialect, inner.plan, sources, self.depth + 1)
        own = [column(Column(base, n)) for n in names]
        named = [c.as_(n, quoted=True) for n, c in zip(names, own, strict=True)]
        if isinstance(inner, Figure):
            select = block.select([*named, block.aggregate(inner)])
            select = select.group_by(*(c.copy() for c in own)) if own else select
        else:
            select = block.select([*named, exp.true().as_("found", quoted=True)]).distinct()
        same = [
            exp.NullSafeEQ(this=column(Column(alias, n)), expression=column(c))
            for n, c in zip(names, keys, strict=True)
        ]
        return select.subquery(exp.to_identifier(alias, quoted=True)), exp.and_(*same) if same else exp.true()

    def _distinct(self, keys: Sequence[Column], names: Sequence[str]) -> exp.Select:
        """The combinations of some columns that there are in this plan's rows, and perhaps some more."""
        plain = tuple(f for f in self.plan.filters if not any(isinstance(n, Exists | Figure | Looked) for n in walk(f)))
        rows = Block(self.dialect, Plan(self.plan.scans, self.plan.equalities, plain), self.sources)
        return rows.select([column(c).as_(n, quoted=True) for n, c in zip(names, keys, strict=True)]).distinct()


def _text(pattern: str) -> Printed:
    """A function as SQL with its arguments in place of `{0}`, `{1}`; Spark's own functions in SQL cannot be nested."""
    return lambda *arguments: exp.Var(
        this=f"({pattern.format(*(a.sql(dialect=SparkDialect.writer) for a in arguments))})"
    )


_DOT = "aggregate(zip_with({0}, {1}, (x, y) -> x * y), 0D, (total, x) -> total + x)"
_SQUARES = tuple(_DOT.replace("{1}", "{0}").replace("{0}", f"{{{k}}}") for k in (0, 1))
_PREFIX = _text(
    "substring({0}, 1, CAST(CASE WHEN {1} < -0.5 THEN greatest(length({0}) + rint({1}), 0D) ELSE rint({1}) END AS INT))"
)

SparkDialect.calls = COMMON | {
    "dot": _text(_DOT),
    "distance": _text("sqrt(aggregate(zip_with({0}, {1}, (x, y) -> (x - y) * (x - y)), 0D, (total, x) -> total + x))"),
    "cosine": _text(
        f"CASE WHEN {_SQUARES[0]} > 0 AND {_SQUARES[1]} > 0 "
        f"THEN least(1D, greatest(-1D, {_DOT} / sqrt({_SQUARES[0]} * {_SQUARES[1]}))) "
        f"WHEN {_DOT} IS NOT NULL THEN 0D END"
    ),
    # Letter by letter, since whole words have a final sigma.
    "lower": _text("array_join(transform(split(replace({0}, 'İ', 'i'), ''), letter -> lower(letter)), '')"),
    "prefix": lambda text, n: _PREFIX(text, size(n)),
    "starts_with": function("startswith"),
    "levenshtein": _text(
        "CASE WHEN octet_length({0} || {1}) = length({0} || {1}) "
        f"OR size(array_distinct(split({{0}} || {{1}}, ''))) <= {LETTERS} THEN levenshtein({{0}}, {{1}}) END"
    ),
    "jaccard": _text(
        "CASE WHEN {0} = '' AND {1} IS NOT NULL OR {1} = '' AND {0} IS NOT NULL THEN 0D "
        "ELSE size(array_intersect(split({0}, ''), split({1}, ''))) "
        "/ CAST(size(array_union(split({0}, ''), split({1}, ''))) AS DOUBLE) END"
    ),
}
