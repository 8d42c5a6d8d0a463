"""The SQL dialect of Spark. Subplans become joins, because Spark has little support for correlated subqueries."""

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
from relcrf.grounding.dialects.functions import (
    COMMON_FUNCTIONS,
    MAX_LETTERS,
    MICROSECONDS_PER_DAY,
    MICROSECONDS_PER_HOUR,
    clamp_count,
    engine_function,
)
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
    """The Spark dialect. A subplan is evaluated once for all values of the outer columns and joined to the outer plan."""

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
    """A builder that turns subplans into left joins with at most one row for each row of the outer plan.

    The *keys* of a subplan are the columns of the outer plan to which the subplan refers. The subplan is evaluated once for
    all distinct key values of the outer rows, so that its joins are not correlated.

    Args:
        depth: nesting depth of the subplan, which makes aliases unique.

    Source: magic sets (Seshadri, Pirahesh & Leung 1996).
    """

    depth: int = 0
    _joined_columns: dict[Exists | AggregateTerm | Lookup, exp.Expr] = field(default_factory=dict)
    """The column that replaces each joined subplan or lookup."""
    _joins: list[tuple[exp.Expr, exp.Expr]] = field(default_factory=list)
    """The joined subqueries with their join conditions."""

    def select(self, columns: Sequence[exp.Expr]) -> exp.Select:
        select = super().select(columns)
        if self._joins and not self.sources and not self.plan.scans:
            select = select.from_(exp.select(exp.true().as_("one")).subquery("one_row"))
        for subquery, on in self._joins:
            select = select.join(subquery, on=on, join_type="left")
        return select

    def exists(self, plan: Plan) -> exp.Expr:
        return is_not_null(self._joined_column(Exists(plan)))

    def aggregate_subquery(self, node: AggregateTerm) -> exp.Expr:
        return self._joined_column(node)

    def lookup(self, node: Lookup) -> exp.Expr:
        return self._joined_column(node)

    def _joined_column(self, node: Exists | AggregateTerm | Lookup) -> exp.Expr:
        """Return the column that replaces a node; join the node's subplan or lookup if it is not yet joined."""
        if node not in self._joined_columns:
            alias = f"joined{self.depth}_{len(self._joined_columns)}"
            self._joined_columns[node] = column(Column(alias, "result"))
            subquery, on = self._join_lookup(node, alias) if isinstance(node, Lookup) else self._join_plan(node, alias)
            self._joins.append((subquery, on))
        return self._joined_columns[node].copy()

    def _join_lookup(self, node: Lookup, alias: str) -> tuple[exp.Expr, exp.Expr]:
        names = [
            column(Column("lookup", name)).as_(as_, quoted=True)
            for name, as_ in ((node.key_column, "k0"), (node.column, "result"))
        ]
        select = exp.select(*names).from_(table(Scan(node.table, "lookup")))
        on = exp.EQ(this=column(Column(alias, "k0")), expression=self.term(node.key))
        return select.subquery(exp.to_identifier(alias, quoted=True)), on

    def _join_plan(self, node: Exists | AggregateTerm, alias: str) -> tuple[exp.Expr, exp.Expr]:
        """Return the subquery for a subplan (the keys with rows, or the aggregate of each key) and the join condition."""
        keys = sorted(find_outer_columns(node), key=lambda c: (c.alias, c.name))
        names = [f"k{k}" for k in range(len(keys))]
        keys_alias = f"keys{self.depth}_{alias}"
        inner = substitute_columns(node, {c: Column(keys_alias, n) for c, n in zip(keys, names, strict=True)})
        sources = (
            (self._select_distinct_keys(keys, names).subquery(exp.to_identifier(keys_alias, quoted=True)),)
            if keys
            else ()
        )
        builder = _JoiningSelectBuilder(self.dialect, inner.plan, sources, self.depth + 1)
        key_columns = [column(Column(keys_alias, n)) for n in names]
        aliased_keys = [c.as_(n, quoted=True) for n, c in zip(names, key_columns, strict=True)]
        if isinstance(inner, AggregateTerm):
            select = builder.select([*aliased_keys, builder.aggregate_column(inner)])
            select = select.group_by(*(c.copy() for c in key_columns)) if key_columns else select
        else:
            select = builder.select([*aliased_keys, exp.true().as_("result", quoted=True)]).distinct()
        equal_keys = [
            exp.NullSafeEQ(this=column(Column(alias, n)), expression=column(c))
            for n, c in zip(names, keys, strict=True)
        ]
        return select.subquery(exp.to_identifier(alias, quoted=True)), exp.and_(
            *equal_keys
        ) if equal_keys else exp.true()

    def _select_distinct_keys(self, keys: Sequence[Column], names: Sequence[str]) -> exp.Select:
        """Return a SELECT of the distinct combinations of some columns in a superset of the rows of this plan."""
        simple_filters = tuple(
            f for f in self.plan.filters if not any(isinstance(n, Exists | AggregateTerm | Lookup) for n in walk(f))
        )
        builder = SelectBuilder(self.dialect, Plan(self.plan.scans, self.plan.equalities, simple_filters), self.sources)
        return builder.select([column(c).as_(n, quoted=True) for n, c in zip(names, keys, strict=True)]).distinct()


def _sql_function(pattern: str) -> CallWriter:
    """Return a writer that inserts arguments at `{0}` and `{1}` in a SQL text; functions in Spark SQL cannot be nested."""
    return lambda *arguments: exp.Var(
        this=f"({pattern.format(*(a.sql(dialect=SparkDialect.sqlglot_dialect) for a in arguments))})"
    )


_DOT = "aggregate(zip_with({0}, {1}, (x, y) -> x * y), 0D, (total, x) -> total + x)"
_SQUARES = tuple(_DOT.replace("{1}", "{0}").replace("{0}", f"{{{k}}}") for k in (0, 1))
_PREFIX = _sql_function(
    "substring({0}, 1, CAST(CASE WHEN {1} < -0.5 THEN greatest(length({0}) + rint({1}), 0D) ELSE rint({1}) END AS INT))"
)

SparkDialect.functions = COMMON_FUNCTIONS | {
    "date_of_datetime": _sql_function(
        f"date_add(DATE '1970-01-01', CAST(({{0}} - pmod({{0}}, {MICROSECONDS_PER_DAY}L)) div {MICROSECONDS_PER_DAY}L AS INT))"
    ),
    "weekday": _sql_function("weekday({0}) + 1"),
    "days": _sql_function("datediff({1}, {0})"),
    "hour": _sql_function(f"pmod({{0}}, {MICROSECONDS_PER_DAY}L) div {MICROSECONDS_PER_HOUR}L"),
    "dot": _sql_function(_DOT),
    "distance": _sql_function(
        "sqrt(aggregate(zip_with({0}, {1}, (x, y) -> (x - y) * (x - y)), 0D, (total, x) -> total + x))"
    ),
    "cosine": _sql_function(
        f"CASE WHEN {_SQUARES[0]} > 0 AND {_SQUARES[1]} > 0 "
        f"THEN least(1D, greatest(-1D, {_DOT} / sqrt({_SQUARES[0]} * {_SQUARES[1]}))) "
        f"WHEN {_DOT} IS NOT NULL THEN 0D END"
    ),
    # Convert letter by letter, because lower() of a whole word maps a final sigma differently.
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
