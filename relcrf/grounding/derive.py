"""Materialisation of derived relations: joins, nearest neighbours, and least fixed points of recursive definitions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from relcrf.data.bound_model import BoundModel
from relcrf.data.dataset import quoted
from relcrf.data.names import relation_table
from relcrf.errors import BudgetError
from relcrf.grounding import sql
from relcrf.grounding.degrees import DegreeCache
from relcrf.grounding.dependencies import model_dependencies
from relcrf.grounding.estimate import (
    DEFAULT_BUDGET,
    MAX_BUDGET_RATIO,
    PlanSize,
    budget_diagnostic,
    check_budget,
    estimate_size,
)
from relcrf.grounding.lower import LoweringContext, lower_derived
from relcrf.grounding.nearest import find_nearest_neighbours, find_nearest_texts
from relcrf.grounding.plan import AggregateTerm, Exists, Plan
from relcrf.grounding.text_rows import TextRows, create_text_functions, has_sizes
from relcrf.language.recursion import dependency_layers, is_recursive
from relcrf.model.expansion import expand_model
from relcrf.model.expressions import Attribute, FunctionCall
from relcrf.model.functions import TEXT_SIMILARITIES
from relcrf.model.nodes import walk
from relcrf.model.spec import DerivedRelation, NearestNeighbours
from relcrf.model.text_similarity import find_text_similarity
from relcrf.model.typing import NameScope

Progress = Callable[[str], None]


def make_lowering_context(bound: BoundModel) -> LoweringContext:
    """Return the inputs of lowering (the translation of declarations to relational plans) for a bound model.

    The functions of text similarities that the plans call are created unless they exist already.
    """
    create_text_functions(bound)
    return LoweringContext(expand_model(bound.spec), bound.domains, bound.vector_lengths)


def create_derived_tables(
    bound: BoundModel, budget: int = DEFAULT_BUDGET, progress: Progress = lambda name: None
) -> None:
    """Create the tables of the derived relations that the model uses, each after the relations on which it depends.

    Raises:
        BudgetError: if a relation has more tuples than the budget.
    """
    context = make_lowering_context(bound)
    used = model_dependencies(context.spec)
    for layer in dependency_layers(context.spec):
        if not used & {d.name for d in layer}:
            continue
        progress(layer[0].name)
        if isinstance(layer[0].definition, NearestNeighbours):
            _create_neighbour_table(bound, layer[0], layer[0].definition)
        elif is_recursive(layer):
            _compute_fixed_point(bound, layer, context, budget)
        else:
            (derived,) = layer
            plans = lower_derived(derived, context)
            for plan in plans:
                check_budget(DegreeCache(bound), plan, budget, derived.name, derived.span)
            bound.connection.execute(sql.create_union(plans, relation_table(derived.name)))


def _create_neighbour_table(bound: BoundModel, derived: DerivedRelation, nearest: NearestNeighbours) -> None:
    assert isinstance(nearest.measure, FunctionCall)
    if nearest.measure.name in TEXT_SIMILARITIES:
        scope = NameScope(bound.spec, derived.parameters, None)
        similarity, _ = find_text_similarity(nearest.measure, scope)
        rows = TextRows.from_tables(bound, similarity, similarity.columns[0])
        a, b = find_nearest_texts(rows, nearest.count, has_sizes=has_sizes(similarity))
    else:
        vector = nearest.measure.arguments[0]
        assert isinstance(vector, Attribute)
        vectors = bound.vectors(derived.parameters[0].type_name, vector.attribute)
        a, b = find_nearest_neighbours(vectors, nearest.count, nearest.measure.name)
    bound.connection.register("neighbours", {"a0": a, "a1": b})
    table = quoted(relation_table(derived.name))
    bound.connection.execute(f"CREATE OR REPLACE TABLE {table} AS SELECT a0, a1 FROM neighbours")
    bound.connection.unregister("neighbours")


def _compute_fixed_point(
    bound: BoundModel, layer: list[DerivedRelation], context: LoweringContext, budget: int
) -> None:
    """Create the tables of mutually recursive relations: the least fixed point of their definitions.

    The evaluation is semi-naive: each iteration derives tuples from the tuples that the previous iteration added, until no
    tuples are added. A *recursive scan* reads one of these relations. After the first iteration, a plan is evaluated once for
    each of its recursive scans; this scan reads only the newest tuples, and the other scans read all tuples. A plan with a
    recursive scan in a subplan is evaluated on all tuples in every iteration. An iteration does not start if the join of a plan
    may have more than `MAX_BUDGET_RATIO` times as many rows as the budget.

    Raises:
        BudgetError: if a relation has more tuples than the budget, or a join is too large.

    Source: Bancilhon & Ramakrishnan 1986.
    """
    connection = bound.connection
    tables = {d.name: relation_table(d.name) for d in layer}
    newest = {name: f"new.{name}" for name in tables}
    added_tables = {name: f"add.{name}" for name in tables}
    for derived in layer:
        columns = ", ".join(f"a{k} INTEGER" for k in range(len(derived.parameters)))
        for table in (tables[derived.name], newest[derived.name]):
            connection.execute(f"CREATE OR REPLACE TABLE {quoted(table)} ({columns})")
    plans = {d.name: lower_derived(d, context) for d in layer}
    degrees, changing = DegreeCache(bound), {*tables.values(), *newest.values()}
    is_first = True
    while True:
        has_grown = False
        degrees.forget(changing)
        for derived in layer:
            delta_plans = [
                s for plan in plans[derived.name] for s in _delta_plans(plan, tables, newest, is_first=is_first)
            ]
            for plan in delta_plans:
                if math.prod(degrees.count_rows(scan.table) for scan in plan.scans) > MAX_BUDGET_RATIO * budget:
                    size = estimate_size(degrees, plan)
                    if size.bindings > MAX_BUDGET_RATIO * budget:
                        raise _budget_error(bound, derived, plans[derived.name][0], size, budget)
            empty = f"CREATE OR REPLACE TABLE {quoted(added_tables[derived.name])} AS FROM {quoted(newest[derived.name])} LIMIT 0"
            connection.execute(sql.create_union(delta_plans, added_tables[derived.name]) if delta_plans else empty)
        for derived in layer:
            table, new = quoted(tables[derived.name]), quoted(newest[derived.name])
            connection.execute(
                f"CREATE OR REPLACE TABLE {new} AS FROM {quoted(added_tables[derived.name])} EXCEPT FROM {table}"
            )
            connection.execute(f"INSERT INTO {table} FROM {new}")
            ((n_added, n_total),) = connection.execute(
                f"SELECT (SELECT count(*) FROM {new}), (SELECT count(*) FROM {table})"
            ).fetchall()
            if n_total > budget:
                size = PlanSize(int(n_total), True, int(n_total))
                raise _budget_error(bound, derived, plans[derived.name][0], size, budget)
            has_grown = has_grown or n_added > 0
        is_first = False
        if not has_grown:
            break
    for derived in layer:
        connection.execute(
            f"DROP TABLE {quoted(newest[derived.name])}; DROP TABLE {quoted(added_tables[derived.name])}"
        )
        # The result must not depend on the order in which tuples were derived.
        order = ", ".join(f"a{k}" for k in range(len(derived.parameters)))
        table = quoted(tables[derived.name])
        connection.execute(f"CREATE OR REPLACE TABLE {table} AS FROM {table} ORDER BY {order}")


def _budget_error(bound: BoundModel, derived: DerivedRelation, plan: Plan, size: PlanSize, budget: int) -> BudgetError:
    return BudgetError(budget_diagnostic(DegreeCache(bound), plan, size, budget, derived.name, derived.span))


def _delta_plans(plan: Plan, tables: dict[str, str], newest: dict[str, str], *, is_first: bool) -> list[Plan]:
    """Return the plans that replace a plan in one iteration of the semi-naive evaluation, see `_compute_fixed_point`."""
    new_of = {tables[name]: newest[name] for name in tables}
    if is_first or _has_nested_recursion(plan, set(new_of)):
        return [plan]
    delta_scans = [(k, replace(s, table=new_of[s.table])) for k, s in enumerate(plan.scans) if s.table in new_of]
    return [replace(plan, scans=(*plan.scans[:k], scan, *plan.scans[k + 1 :])) for k, scan in delta_scans]


def _has_nested_recursion(plan: Plan, tables: set[str]) -> bool:
    """Return True if a subplan in the filters reads one of the given tables."""
    subplans = [node.plan for node in walk(plan.filters) if isinstance(node, Exists | AggregateTerm)]
    return any(scan.table in tables for subplan in subplans for scan in subplan.scans)
