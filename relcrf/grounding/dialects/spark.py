"""Spark's SQL. A plan inside a plan is a join: Spark has no subqueries in most places, and few that name columns around."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from relcrf.grounding.dialects.base import (
    AbstractDialect,
    CallWriter,
    SelectBuilder,
    call,
    column,
    is_not_null,
    number_literal,
    table,
)
from relcrf.grounding.dialects.functions import COMMON_FUNCTIONS, MAX_LETTERS, clamp_count, engine_function
from relcrf.grounding.plan import (
    AggregateTerm,
    Column,
    Exists,
    Lookup,
    Plan,
    Scan,
    find_outer_columns,
    substitute_columns,
)
from relcrf.model.nodes import walk


class SparkDialect(AbstractDialect):
    """Plans inside a plan are made for all combinations of the columns around them at once, and joined."""

    name = "spark"
    sqlglot_dialect = "spark"
    unsupported = frozenset({"jaro_winkler"})

    def select_builder(self, plan: Plan) -> SelectBuilder:
        return _JoiningSelectBuilder(self, plan)

    def vector_component(self, vector: exp.Expr, index: int) -> exp.Expr:
        return call("element_at", vector, number_literal(index + 1))

    def tuple_value(self, terms: list[exp.Expr]) -> exp.Expr:
        return call("struct", *terms)


@dataclass
class _JoiningSelectBuilder(SelectBuilder):
    """A SELECT in whose FROM the plans inside it are left joins, one row of each at most for a row of this one.

    What a plan inside names of the rows around it are its keys. It is evaluated on the distinct keys of those rows
    (magic sets: Seshadri, Pirahesh & Leung 1996), so that its own joins are plain.

    Args:
        depth: of the plan inside the outermost, so that the aliases of both differ.
    """

    depth: int = 0
    _joined_columns: dict[Exists | AggregateTerm | Lookup, exp.Expr] = field(default_factory=dict)
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
        return is_not_null(self._joined_column(Exists(plan)))

    def aggregate_subquery(self, node: AggregateTerm) -> exp.Expr:
        return self._joined_column(node)

    def lookup(self, node: Lookup) -> exp.Expr:
        return self._joined_column(node)

    def _joined_column(self, node: Exists | AggregateTerm | Lookup) -> exp.Expr:
        if node not in self._joined_columns:
            alias = f"joined{self.depth}_{len(self._joined_columns)}"
            self._joined_columns[node] = column(Column(alias, "found"))
            joined, on = self._join_lookup(node, alias) if isinstance(node, Lookup) else self._join_plan(node, alias)
            self._joins.append((joined, on))
        return self._joined_columns[node].copy()

    def _join_lookup(self, node: Lookup, alias: str) -> tuple[exp.Expr, exp.Expr]:
        names = [
            column(Column("looked", name)).as_(as_, quoted=True)
            for name, as_ in ((node.key_column, "k0"), (node.column, "found"))
        ]
        select = exp.select(*names).from_(table(Scan(node.table, "looked")))
        on = exp.EQ(this=column(Column(alias, "k0")), expression=self.term(node.key))
        return select.subquery(exp.to_identifier(alias, quoted=True)), on

    def _join_plan(self, node: Exists | AggregateTerm, alias: str) -> tuple[exp.Expr, exp.Expr]:
        """The keys for which a plan has a row, or its figure for each."""
        keys = sorted(find_outer_columns(node), key=lambda c: (c.alias, c.name))
        names = [f"k{k}" for k in range(len(keys))]
        base = f"keys{self.depth}_{alias}"
        inner = substitute_columns(node, {c: Column(base, n) for c, n in zip(keys, names, strict=True)})
        sources = (
            (self._select_distinct_keys(keys, names).subquery(exp.to_identifier(base, quoted=True)),) if keys else ()
        )
        block = _JoiningSelectBuilder(self.dialect, inner.plan, sources, self.depth + 1)
        own = [column(Column(base, n)) for n in names]
        named = [c.as_(n, quoted=True) for n, c in zip(names, own, strict=True)]
        if isinstance(inner, AggregateTerm):
            select = block.select([*named, block.aggregate_column(inner)])
            select = select.group_by(*(c.copy() for c in own)) if own else select
        else:
            select = block.select([*named, exp.true().as_("found", quoted=True)]).distinct()
        same = [
            exp.NullSafeEQ(this=column(Column(alias, n)), expression=column(c))
            for n, c in zip(names, keys, strict=True)
        ]
        return select.subquery(exp.to_identifier(alias, quoted=True)), exp.and_(*same) if same else exp.true()

    def _select_distinct_keys(self, keys: Sequence[Column], names: Sequence[str]) -> exp.Select:
        """The combinations of some columns that there are in this plan's rows, and perhaps some more."""
        plain = tuple(
            f for f in self.plan.filters if not any(isinstance(n, Exists | AggregateTerm | Lookup) for n in walk(f))
        )
        rows = SelectBuilder(self.dialect, Plan(self.plan.scans, self.plan.equalities, plain), self.sources)
        return rows.select([column(c).as_(n, quoted=True) for n, c in zip(names, keys, strict=True)]).distinct()


def _sql_function(pattern: str) -> CallWriter:
    """A function as SQL with its arguments in place of `{0}`, `{1}`; Spark's own functions in SQL cannot be nested."""
    return lambda *arguments: exp.Var(
        this=f"({pattern.format(*(a.sql(dialect=SparkDialect.sqlglot_dialect) for a in arguments))})"
    )


_DOT = "aggregate(zip_with({0}, {1}, (x, y) -> x * y), 0D, (total, x) -> total + x)"
_SQUARES = tuple(_DOT.replace("{1}", "{0}").replace("{0}", f"{{{k}}}") for k in (0, 1))
_PREFIX = _sql_function(
    "substring({0}, 1, CAST(CASE WHEN {1} < -0.5 THEN greatest(length({0}) + rint({1}), 0D) ELSE rint({1}) END AS INT))"
)

SparkDialect.functions = COMMON_FUNCTIONS | {
    "dot": _sql_function(_DOT),
    "distance": _sql_function(
        "sqrt(aggregate(zip_with({0}, {1}, (x, y) -> (x - y) * (x - y)), 0D, (total, x) -> total + x))"
    ),
    "cosine": _sql_function(
        f"CASE WHEN {_SQUARES[0]} > 0 AND {_SQUARES[1]} > 0 "
        f"THEN least(1D, greatest(-1D, {_DOT} / sqrt({_SQUARES[0]} * {_SQUARES[1]}))) "
        f"WHEN {_DOT} IS NOT NULL THEN 0D END"
    ),
    # Letter by letter, since whole words have a final sigma.
    "lower": _sql_function("array_join(transform(split(replace({0}, 'İ', 'i'), ''), letter -> lower(letter)), '')"),
    "prefix": lambda text, n: _PREFIX(text, clamp_count(n)),
    "starts_with": engine_function("startswith"),
    "levenshtein": _sql_function(
        "CASE WHEN octet_length({0} || {1}) = length({0} || {1}) "
        f"OR size(array_distinct(split({{0}} || {{1}}, ''))) <= {MAX_LETTERS} THEN levenshtein({{0}}, {{1}}) END"
    ),
    "jaccard": _sql_function(
        "CASE WHEN {0} = '' AND {1} IS NOT NULL OR {1} = '' AND {0} IS NOT NULL THEN 0D "
        "ELSE size(array_intersect(split({0}, ''), split({1}, ''))) "
        "/ CAST(size(array_union(split({0}, ''), split({1}, ''))) AS DOUBLE) END"
    ),
}
