"""SQL statements of grounding for DuckDB, which stores the tables."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from relcrf.grounding.dialects.base import TYPES, SelectBuilder, column
from relcrf.grounding.dialects.duckdb import DuckDbDialect
from relcrf.grounding.plan import Condition, Plan, Term

DUCKDB = DuckDbDialect()


def create(plan: Plan, table: str) -> str:
    """Return SQL that creates a table of the distinct bindings (binder values) of a plan, with columns a0, a1, ..."""
    return create_union([plan], table)


def create_union(plans: Sequence[Plan], table: str, *, kind: str = "TABLE") -> str:
    """Return SQL that creates a table or view of the distinct bindings of several plans, with columns a0, a1, ..."""
    texts = []
    for plan in plans:
        columns = [column(c).as_(f"a{k}", quoted=True) for k, (_, c) in enumerate(plan.bindings)]
        texts.append(DUCKDB.render(DUCKDB.select_builder(plan).select(columns).distinct()))
    name = table.replace('"', '""')
    return f'CREATE OR REPLACE {kind} "{name}" AS {" UNION ".join(texts)}'


def create_codes(plan: Plan, term: Term, table: str) -> str:
    """Return SQL that creates a table of the distinct values of a term, with columns `code` and `value`, ordered by value."""
    builder = DUCKDB.select_builder(plan)
    values = DUCKDB.render(builder.select([exp.alias_(builder.term(term), "value", quoted=True)]).distinct())
    name = table.replace('"', '""')
    columns = '(row_number() OVER (ORDER BY "value") - 1)::INTEGER AS code, "value"'
    return f'CREATE OR REPLACE TABLE "{name}" AS SELECT {columns} FROM ({values}) WHERE "value" IS NOT NULL'


def count(plan: Plan, limit: int | None = None) -> str:
    """Return SQL that selects the number of bindings as `n`; the count stops at the limit."""
    builder = DUCKDB.select_builder(plan)
    if not plan.is_distinct and limit is None:
        return DUCKDB.render(builder.select([_row_count()]))
    select = builder.select(builder.binding_columns() or [exp.Literal.number(1).as_("one")])
    select = select.distinct() if plan.is_distinct else select
    select = select.limit(limit) if limit is not None else select
    return DUCKDB.render(exp.select(_row_count()).from_(select.subquery("bindings")))


def distinct(plan: Plan, names: Sequence[str]) -> str:
    """Return SQL that selects the distinct combinations of some outputs."""
    builder = DUCKDB.select_builder(plan)
    return DUCKDB.render(builder.select(_select_outputs(builder, names)).distinct())


def count_distinct(plan: Plan, names: Sequence[str]) -> str:
    """Return SQL that selects the number of distinct combinations of some outputs as `n`."""
    builder = DUCKDB.select_builder(plan)
    select = builder.select(_select_outputs(builder, names)).distinct()
    return DUCKDB.render(exp.select(_row_count()).from_(select.subquery("bindings")))


def count_by(plan: Plan, names: Sequence[str], output: str) -> str:
    """Return SQL that counts, for each combination of the outputs `names`, bindings and distinct values of `output`."""
    builder = DUCKDB.select_builder(plan)
    bindings = builder.select([*_select_outputs(builder, [*names, output]), *builder.binding_columns()])
    bindings = bindings.distinct() if plan.is_distinct else bindings
    by = [exp.column(name, quoted=True) for name in names]
    n_variables = exp.Count(this=exp.Distinct(expressions=[exp.column(output, quoted=True)])).as_("variables")
    select = exp.select(*by, n_variables, _row_count()).from_(bindings.subquery("bindings"))
    return DUCKDB.render(select.group_by(*(column.copy() for column in by)))


def condition_text(node: Condition) -> str:
    """Return the SQL text of a condition; the columns are qualified by the aliases of their scans."""
    return DUCKDB.render(DUCKDB.select_builder(Plan(())).condition(node))


def _row_count() -> exp.Expr:
    return exp.Count(this=exp.Star()).as_("n")


def _select_outputs(builder: SelectBuilder, names: Sequence[str]) -> list[exp.Expr]:
    terms = {name: (t, kind) for name, t, kind in builder.plan.outputs}
    return [exp.cast(builder.term(terms[n][0]), TYPES[terms[n][1]]).as_(n, quoted=True) for n in names]
