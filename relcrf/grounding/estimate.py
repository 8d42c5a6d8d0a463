"""How large a plan's result is, told before it runs, and what makes it large.

Rows are counted along a join tree: each scan is grouped by the columns that it shares with the scan above it, and
carries the number of rows below, so that the cost is a grouping of each table and not the join. Conditions on one scan
are applied there; `a != b` and `a < b` of two scans are counted by the rows that they exclude. Equalities that would
close a cycle and all other conditions are left out: what is counted then is a bound from above.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

import duckdb
import numpy as np

from relcrf.data.dataset import quoted
from relcrf.data.names import ARGUMENT_COLUMN
from relcrf.errors import BudgetError, Diagnostic, Span
from relcrf.grounding import plan as p
from relcrf.grounding import sql
from relcrf.grounding.degrees import MAX_EXACT, DegreeCache, argument_columns, multiply_vectors
from relcrf.grounding.hubs import describe_worst_hub
from relcrf.model.nodes import walk

DEFAULT_BUDGET = 100_000_000
"""Bindings that one template may have unless the user says otherwise: about a gigabyte of pair factors."""

MAX_BUDGET_RATIO = 10
"""A join whose bound is beyond this many budgets is refused at once; below, its other conditions may save it."""


@dataclass(frozen=True)
class PlanSize:
    """The number of bindings, or a bound on it.

    Args:
        join_rows: of the join before repetitions go, or a bound on that.
    """

    bindings: int
    is_exact: bool
    join_rows: int


def estimate_size(degrees: DegreeCache, plan: p.Plan) -> PlanSize:
    """What can be told from the tables' degrees alone."""
    rows, is_exact = _estimate_rows(degrees, plan)
    return PlanSize(rows, is_exact and not plan.is_distinct, rows)


def count_exact_size(connection: duckdb.DuckDBPyConnection, plan: p.Plan, size: PlanSize) -> PlanSize:
    """The exact number of bindings, by the join itself."""
    if size.is_exact:
        return size
    ((n,),) = connection.execute(sql.count(plan)).fetchall()
    return PlanSize(int(n), True, size.join_rows)


def resolve_size(connection: duckdb.DuckDBPyConnection, plan: p.Plan, size: PlanSize, budget: int) -> PlanSize:
    """A size that is known to be within the budget or over it; the join runs only where degrees cannot tell, and no longer
    than until the budget is full.
    """
    if size.is_exact or size.bindings <= budget or size.bindings > MAX_BUDGET_RATIO * budget:
        return size
    ((n,),) = connection.execute(sql.count(plan, limit=budget + 1)).fetchall()
    return replace(size, bindings=int(n), is_exact=int(n) <= budget)


def check_budget(degrees: DegreeCache, plan: p.Plan, budget: int, name: str, span: Span | None) -> PlanSize:
    """The size of what is within the budget.

    Raises:
        BudgetError: naming the template or relation, its worst hub, and what would help.
    """
    size = resolve_size(degrees.bound.connection, plan, estimate_size(degrees, plan), budget)
    if size.bindings > budget:
        raise BudgetError(budget_diagnostic(degrees, plan, size, budget, name, span))
    return size


def budget_diagnostic(
    degrees: DegreeCache, plan: p.Plan, size: PlanSize, budget: int, name: str, span: Span | None
) -> Diagnostic:
    """What is said of a plan that is over the budget."""
    about = "" if size.is_exact else "up to " if size.bindings > MAX_BUDGET_RATIO * budget else "more than "
    shown = budget if about == "more than " else size.bindings
    message = f"'{name}' would ground into {about}{shown:,} bindings"
    message += "" if about == "more than " else f", over the budget of {budget:,}"
    if len(_build_join_trees(plan)) > 1:
        hint = "name a relation or an equality in 'where' that ties the binders"
        return Diagnostic("E320", message, span, f"{hint}, or raise the budget with --budget")
    hub = describe_worst_hub(degrees, plan)
    hint = "narrow 'where', for instance by leaving out hubs"
    notes = (f"the worst hub is {hub}",) if hub else ()
    return Diagnostic("E320", message, span, f"{hint}, or raise the budget with --budget", notes)


def _estimate_rows(degrees: DegreeCache, plan: p.Plan) -> tuple[int, bool]:
    """The number of rows of a plan, and whether it is exact; else it is a bound from above."""
    own, between = _partition_filters(plan)
    simple = replace(plan, filters=tuple(own))
    total, is_tree = _bound_rows(degrees, simple), _is_acyclic(simple)
    if not between:
        return total, is_tree
    if len(between) > 1 or not is_tree:
        return total, False
    (condition,) = between
    if not isinstance(condition, p.Compare) or condition.operator not in ("!=", "<", ">"):
        return total, False
    left, right = condition.left, condition.right
    if not isinstance(left, p.Column) or not isinstance(right, p.Column):
        return total, False
    is_symmetric = _is_symmetric(simple, left, right)
    # Without a value nothing is less or other than it, nor is anything equal to it.
    known = [
        p.IsNotNull(column)
        for column in (left, right)
        if column.name != "vid" and not ARGUMENT_COLUMN.fullmatch(column.name)
    ]
    if known:
        simple = replace(simple, filters=(*simple.filters, *known))
        total = _bound_rows(degrees, simple)
    same = _merge_equal_scans(
        degrees, replace(simple, equalities=(*simple.equalities, (left, right))), left.alias, right.alias
    )
    if not _is_acyclic(same):
        return total, False
    apart = total - _bound_rows(degrees, same)
    if condition.operator == "!=":
        return apart, True
    return (apart // 2, True) if is_symmetric else (apart, False)


def _partition_filters(plan: p.Plan) -> tuple[list[p.Condition], list[p.Condition]]:
    """The conditions that speak of one scan, and those of several or with a plan inside."""
    own: list[p.Condition] = []
    between: list[p.Condition] = []
    for condition in plan.filters:
        aliases = {c.alias for c in p.find_columns(condition)}
        has_plan = any(isinstance(node, p.Plan) for node in walk(condition))
        (own if len(aliases) == 1 and not has_plan else between).append(condition)
    return own, between


def _is_symmetric(plan: p.Plan, left: p.Column, right: p.Column) -> bool:
    """Whether two columns can change places without changing the join."""
    tables = {s.alias: s.table for s in plan.scans}
    if plan.filters or left.name != right.name or tables[left.alias] != tables[right.alias]:
        return False
    swap = {left.alias: right.alias, right.alias: left.alias}

    def swapped(column: p.Column) -> p.Column:
        return replace(column, alias=swap.get(column.alias, column.alias))

    classes = {frozenset(members) for members in p.equivalence_classes(plan)}
    return classes == {frozenset(swapped(c) for c in members) for members in classes}


def _merge_equal_scans(degrees: DegreeCache, plan: p.Plan, alias: str, other: str) -> p.Plan:
    """The plan without a scan that has the same tuple of a relation as another: a relation has each tuple once."""
    tables = {s.alias: s.table for s in plan.scans}
    names = argument_columns(degrees.bound.connection, tables[alias])
    classes = p.equivalence_classes(plan)
    are_same = all(any({p.Column(alias, n), p.Column(other, n)} <= members for members in classes) for n in names)
    if alias == other or not names or tables[alias] != tables[other] or not are_same:
        return plan
    columns = {c: replace(c, alias=alias) for members in classes for c in members if c.alias == other}
    columns |= {c: replace(c, alias=alias) for f in plan.filters for c in p.find_columns(f) if c.alias == other}
    equalities = p.substitute_columns(plan.equalities, columns)
    return replace(
        plan,
        scans=tuple(s for s in plan.scans if s.alias != other),
        equalities=tuple((a, b) for a, b in equalities if a != b),
        filters=p.substitute_columns(plan.filters, columns),
    )


@dataclass(frozen=True)
class _JoinTree:
    """Scans that equalities connect, each but the first below one that it joins.

    Args:
        scans: by alias, each after the one above it.
        parent_edges: for each scan but the first, the scan above it and the pairs of equal columns, its own first.
        conditions: on each scan.
    """

    scans: dict[str, p.Scan]
    parent_edges: dict[str, tuple[str, list[tuple[p.Column, p.Column]]]]
    conditions: dict[str, list[p.Condition]]

    def children(self, alias: str) -> list[tuple[str, list[tuple[p.Column, p.Column]]]]:
        """Return the scans right below one, with their pairs of equal columns."""
        return [(child, pairs) for child, (parent, pairs) in self.parent_edges.items() if parent == alias]


def _build_join_trees(plan: p.Plan) -> list[_JoinTree]:
    """Return a join tree for each group of scans that equalities connect; a scan is below the one it shares most with."""
    classes = p.equivalence_classes(plan)
    scans = {scan.alias: scan for scan in p.scans_affecting_count(plan)}
    left, trees = list(scans), []
    while left:
        order, ties = [left.pop(0)], {}
        while alias := next((a for a in left if any(_equal_column_pairs(classes, a, other) for other in order)), None):
            shared = {other: _equal_column_pairs(classes, alias, other) for other in order}
            parent = max(shared, key=lambda other: len(shared[other]))
            ties[alias] = parent, shared[parent]
            order.append(alias)
            left.remove(alias)
        conditions = {a: [f for f in plan.filters if a in {c.alias for c in p.find_columns(f)}] for a in order}
        trees.append(_JoinTree({alias: scans[alias] for alias in order}, ties, conditions))
    return trees


def _equal_column_pairs(classes: Sequence[Set[p.Column]], alias: str, other: str) -> list[tuple[p.Column, p.Column]]:
    """Return pairs of equal columns of two scans."""
    pairs = []
    for members in classes:
        mine, theirs = ([c for c in members if c.alias == each] for each in (alias, other))
        if mine and theirs:
            pairs.append((min(mine, key=lambda c: c.name), min(theirs, key=lambda c: c.name)))
    return pairs


def _is_acyclic(plan: p.Plan) -> bool:
    """Return True if the join trees use every equality of the plan."""
    joined = {scan.alias for scan in p.scans_affecting_count(plan)}
    needed = 0
    for members in p.equivalence_classes(plan):
        aliases = [column.alias for column in members if column.alias in joined]
        if len(set(aliases)) != len(aliases):
            return False
        needed += max(0, len(aliases) - 1)
    return needed == sum(len(pairs) for tree in _build_join_trees(plan) for _, pairs in tree.parent_edges.values())


def _bound_rows(degrees: DegreeCache, plan: p.Plan) -> int:
    """Return a number of rows that the join cannot exceed: exact where its equalities are a tree."""
    return math.prod(_count_tree_rows(degrees, tree) for tree in _build_join_trees(plan))


def _count_tree_rows(degrees: DegreeCache, tree: _JoinTree) -> int:
    """Return the rows of a join tree, from the degrees where each tie is one coded column, else by SQL."""
    columns = {c for _, pairs in tree.parent_edges.values() for pair in pairs for c in pair}
    is_plain = all(len(pairs) == 1 for _, pairs in tree.parent_edges.values())
    if is_plain and all(degrees.is_coded(tree.scans[c.alias].table, c.name) for c in columns):

        def rows(alias: str, key: p.Column | None) -> np.ndarray:
            hanging: dict[p.Column, np.ndarray] = {}
            for child, ((mine, theirs),) in tree.children(alias):
                vector = rows(child, mine)
                hanging[theirs] = multiply_vectors(hanging[theirs], vector) if theirs in hanging else vector
            return degrees.count_subtree_rows(tree.scans[alias], key, hanging, tree.conditions[alias])

        counted = float(rows(next(iter(tree.scans)), None)[0])
        if counted < MAX_EXACT:
            return int(counted)
    ((n,),) = degrees.bound.connection.execute(_tree_count_sql(tree)).fetchall()
    return int(n or 0)


def _tree_count_sql(tree: _JoinTree) -> str:
    def rows(alias: str, keys: list[p.Column]) -> str:
        """Return SQL of the rows of the subtree under a scan, for each value of the columns that it shares with its parent."""
        joins, product = "", "1::HUGEINT"
        for child, pairs in tree.children(alias):
            on = " AND ".join(f"{child}.{quoted(mine.name)} = {alias}.{quoted(theirs.name)}" for mine, theirs in pairs)
            joins += f" JOIN ({rows(child, [mine for mine, _ in pairs])}) AS {child} ON {on}"
            product += f" * {child}.n_rows"
        columns = [f"{alias}.{quoted(c.name)}" for c in keys]
        selected = ", ".join([*columns, f"sum({product}) AS n_rows"])
        grouped = f" GROUP BY {', '.join(columns)}" if columns else ""
        own = [sql.condition_text(condition) for condition in tree.conditions[alias]]
        where = f" WHERE {' AND '.join(f'({c})' for c in own)}" if own else ""
        return f"SELECT {selected} FROM {quoted(tree.scans[alias].table)} AS {alias}{joins}{where}{grouped}"

    return f"SELECT n_rows FROM ({rows(next(iter(tree.scans)), [])})"
