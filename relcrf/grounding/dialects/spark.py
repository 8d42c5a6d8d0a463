"""Spark's SQL. A plan inside a plan is a join: Spark has no subqueries in most places, and few that name columns around."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from relcrf.grounding.dialects.base import AbstractDialect, Block, column, number, present, table
from relcrf.grounding.dialects.calls import COMMON, LETTERS, binary, divide, function, of_reals, size
from relcrf.grounding.plan import Column, Exists, Figure, Looked, Plan, Scan, columns_around, substituted, walk

FUNCTIONS: tuple[str, ...] = (
    """
CREATE TEMPORARY FUNCTION relcrf_dot(a ARRAY<DOUBLE>, b ARRAY<DOUBLE>) RETURNS DOUBLE RETURN
    aggregate(zip_with(a, b, (x, y) -> x * y), 0D, (total, x) -> total + x)""",
    """
CREATE TEMPORARY FUNCTION relcrf_distance(a ARRAY<DOUBLE>, b ARRAY<DOUBLE>) RETURNS DOUBLE RETURN
    sqrt(aggregate(zip_with(a, b, (x, y) -> (x - y) * (x - y)), 0D, (total, x) -> total + x))""",
    """
CREATE TEMPORARY FUNCTION relcrf_cosine(a ARRAY<DOUBLE>, b ARRAY<DOUBLE>) RETURNS DOUBLE RETURN
    CASE WHEN relcrf_dot(a, a) > 0 AND relcrf_dot(b, b) > 0
        THEN least(1D, greatest(-1D, relcrf_dot(a, b) / sqrt(relcrf_dot(a, a) * relcrf_dot(b, b))))
        WHEN relcrf_dot(a, b) IS NOT NULL THEN 0D END""",
    """
CREATE TEMPORARY FUNCTION relcrf_letters(a STRING) RETURNS ARRAY<STRING> RETURN
    CASE WHEN length(a) > 0 THEN transform(sequence(1, length(a)), place -> substring(a, place, 1)) ELSE array() END""",
    # Letter by letter, since whole words have a final sigma.
    """
CREATE TEMPORARY FUNCTION relcrf_lower(a STRING) RETURNS STRING RETURN
    CASE WHEN a IS NOT NULL
        THEN array_join(transform(relcrf_letters(replace(a, 'İ', 'i')), letter -> lower(letter)), '') END""",
    """
CREATE TEMPORARY FUNCTION relcrf_prefix(a STRING, n DOUBLE) RETURNS STRING RETURN
    substring(a, 1, CAST(CASE WHEN rint(n) < 0 THEN greatest(length(a) + rint(n), 0D) ELSE rint(n) END AS INT))""",
    f"""
CREATE TEMPORARY FUNCTION relcrf_levenshtein(a STRING, b STRING) RETURNS INT RETURN
    CASE WHEN octet_length(a || b) = length(a || b) OR size(array_distinct(relcrf_letters(a || b))) <= {LETTERS}
        THEN levenshtein(a, b) END""",
    """
CREATE TEMPORARY FUNCTION relcrf_jaccard(a STRING, b STRING) RETURNS DOUBLE RETURN
    CASE WHEN a || b IS NULL THEN NULL WHEN a = '' OR b = '' THEN 0D
        ELSE size(array_intersect(relcrf_letters(a), relcrf_letters(b)))
            / CAST(size(array_union(relcrf_letters(a), relcrf_letters(b))) AS DOUBLE) END""",
)
"""Functions that a session needs before it runs a plan, in order."""


class SparkDialect(AbstractDialect):
    """Plans inside a plan are made for all combinations of the columns around them at once, and joined."""

    name = "spark"
    writer = "spark"
    lacking = frozenset({"jaro_winkler"})

    def block(self, plan: Plan) -> Block:
        return _JoiningBlock(self, plan)

    def component(self, vector: exp.Expr, index: int) -> exp.Expr:
        return exp.Anonymous(this="element_at", expressions=[vector, number(index + 1)])

    def combination(self, terms: list[exp.Expr]) -> exp.Expr:
        return exp.Anonymous(this="struct", expressions=terms)


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


SparkDialect.calls = COMMON | {
    "+": binary(exp.Add),
    "-": binary(exp.Sub),
    "*": binary(exp.Mul),
    "/": divide,
    "exp": of_reals("exp"),
    "cosine": function("relcrf_cosine"),
    "dot": function("relcrf_dot"),
    "distance": function("relcrf_distance"),
    "lower": function("relcrf_lower"),
    "prefix": lambda text, n: exp.Anonymous(this="relcrf_prefix", expressions=[text, size(n)]),
    "contains": function("contains"),
    "starts_with": function("startswith"),
    "levenshtein": function("relcrf_levenshtein"),
    "jaccard": function("relcrf_jaccard"),
}
