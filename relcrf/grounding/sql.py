"""The statements that grounding runs on DuckDB, where the tables are made."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from relcrf.grounding.dialects.base import TYPES, SelectBuilder, column
from relcrf.grounding.dialects.duckdb import DuckDbDialect
from relcrf.grounding.plan import Condition, Plan

DUCKDB = DuckDbDialect()


def create(plan: Plan, table: str) -> str:
    """Makes a table of the distinct bindings, its columns a0, a1, ..."""
    return create_union([plan], table)


def create_union(plans: Sequence[Plan], table: str, *, kind: str = "TABLE") -> str:
    """Makes a table or a view of the distinct bindings of several plans, its columns a0, a1, ..."""
    texts = []
    for plan in plans:
        columns = [column(c).as_(f"a{k}", quoted=True) for k, (_, c) in enumerate(plan.bindings)]
        texts.append(DUCKDB.render(DUCKDB.select_builder(plan).select(columns).distinct()))
    name = table.replace('"', '""')
    return f'CREATE OR REPLACE {kind} "{name}" AS {" UNION ".join(texts)}'


def count(plan: Plan, limit: int | None = None) -> str:
    """The number of bindings, as `n`; counted no further than a limit."""
    block = DUCKDB.select_builder(plan)
    if not plan.is_distinct and limit is None:
        return DUCKDB.render(block.select([_row_count()]))
    inner = block.select(block.binding_columns() or [exp.Literal.number(1).as_("one")])
    inner = inner.distinct() if plan.is_distinct else inner
    inner = inner.limit(limit) if limit is not None else inner
    return DUCKDB.render(exp.select(_row_count()).from_(inner.subquery("bindings")))


def distinct(plan: Plan, names: Sequence[str]) -> str:
    """The distinct combinations of some outputs."""
    block = DUCKDB.select_builder(plan)
    return DUCKDB.render(block.select(_select_outputs(block, names)).distinct())


def count_distinct(plan: Plan, names: Sequence[str]) -> str:
    """The number of distinct combinations of some outputs, as `n`."""
    block = DUCKDB.select_builder(plan)
    select = block.select(_select_outputs(block, names)).distinct()
    return DUCKDB.render(exp.select(_row_count()).from_(select.subquery("bindings")))


def count_by(plan: Plan, names: Sequence[str], output: str) -> str:
    """For each combination of some outputs: the number of distinct values of another output, and of bindings."""
    block = DUCKDB.select_builder(plan)
    inner = block.select([*_select_outputs(block, [*names, output]), *block.binding_columns()])
    inner = inner.distinct() if plan.is_distinct else inner
    by = [exp.column(name, quoted=True) for name in names]
    counted = exp.Count(this=exp.Distinct(expressions=[exp.column(output, quoted=True)])).as_("variables")
    select = exp.select(*by, counted, _row_count()).from_(inner.subquery("bindings"))
    return DUCKDB.render(select.group_by(*(column.copy() for column in by)))


def condition_text(node: Condition) -> str:
    """A condition on the aliases of its columns."""
    return DUCKDB.render(DUCKDB.select_builder(Plan(())).condition(node))


def _row_count() -> exp.Expr:
    return exp.Count(this=exp.Star()).as_("n")


def _select_outputs(block: SelectBuilder, names: Sequence[str]) -> list[exp.Expr]:
    terms = {name: (t, kind) for name, t, kind in block.plan.outputs}
    return [exp.cast(block.term(terms[n][0]), TYPES[terms[n][1]]).as_(n, quoted=True) for n in names]
