"""The size of a plan's result, computed before the plan runs, and the budget for this size.

Rows are counted along a *join tree*, in which each node is a scan of the plan. The rows of a scan are grouped by the columns
that the scan shares with its parent, and weighted by the numbers of joined rows of the child subtrees; this takes one GROUP BY
per table instead of the join. Conditions on a single scan are applied to this scan. If the only condition between two
scans is `a != b` or `a < b`, the excluded rows are counted and subtracted. Equalities that would close a cycle and all other
conditions are ignored; the count is then an upper bound.
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
from relcrf.grounding.degrees import DegreeCache, multiply_vectors
from relcrf.grounding.hubs import describe_worst_hub
from relcrf.model.nodes import walk

DEFAULT_BUDGET = 100_000_000
"""Default maximum number of bindings per template; this many factors over two variables take about a gigabyte."""

MAX_BUDGET_RATIO = 10
"""Maximum ratio of the upper bound of a join's size to the budget; beyond it, the join is rejected without running it.

Up to this ratio, the actual size of the join may be within the budget, because the bound ignores some conditions.
"""


@dataclass(frozen=True)
class PlanSize:
    """The number of bindings of a plan, or an upper bound.

    Args:
        is_exact: False if `bindings` is an upper bound.
        join_rows: number of rows of the join before duplicates are removed, or an upper bound of this number.
    """

    bindings: int
    is_exact: bool
    join_rows: int


def estimate_size(degrees: DegreeCache, plan: p.Plan) -> PlanSize:
    """Estimate the size of a plan from the degrees of columns, without running the join."""
    rows, is_exact = _estimate_rows(degrees, plan)
    return PlanSize(rows, is_exact and not plan.is_distinct, rows)


def count_exact_size(connection: duckdb.DuckDBPyConnection, plan: p.Plan, size: PlanSize) -> PlanSize:
    """Return the exact size of a plan; run the join if the estimate `size` is not exact."""
    if size.is_exact:
        return size
    ((n,),) = connection.execute(sql.count(plan)).fetchall()
    return PlanSize(int(n), True, size.join_rows)


def resolve_size(connection: duckdb.DuckDBPyConnection, plan: p.Plan, size: PlanSize, budget: int) -> PlanSize:
    """Return a size that is certainly within the budget or certainly over the budget.

    The join runs only if the estimate `size` is inconclusive, and stops when the number of rows exceeds the budget.
    """
    if size.is_exact or size.bindings <= budget or size.bindings > MAX_BUDGET_RATIO * budget:
        return size
    ((n,),) = connection.execute(sql.count(plan, limit=budget + 1)).fetchall()
    return replace(size, bindings=int(n), is_exact=int(n) <= budget)


def check_budget(degrees: DegreeCache, plan: p.Plan, budget: int, name: str, span: Span | None) -> PlanSize:
    """Return the size of a plan if it is within the budget.

    Args:
        name: name of the template or relation, for the message.

    Raises:
        BudgetError: if the plan exceeds the budget; the error names the join value with the most rows (the worst hub).
    """
    size = resolve_size(degrees.bound.connection, plan, estimate_size(degrees, plan), budget)
    if size.bindings > budget:
        raise BudgetError(budget_diagnostic(degrees, plan, size, budget, name, span))
    return size


def budget_diagnostic(
    degrees: DegreeCache, plan: p.Plan, size: PlanSize, budget: int, name: str, span: Span | None
) -> Diagnostic:
    """Return the diagnostic of a plan that exceeds the budget."""
    if size.is_exact or size.bindings > MAX_BUDGET_RATIO * budget:
        bound = "" if size.is_exact else "up to "
        message = f"'{name}' would have {bound}{size.bindings:,} bindings, more than the budget of {budget:,}"
    else:
        message = f"'{name}' would have more bindings than the budget of {budget:,}"
    if len(_build_join_trees(plan)) > 1:
        hint = "connect the binders by a relation or an equality in 'where'"
        return Diagnostic("E320", message, span, f"{hint}, or raise the budget with --budget")
    hub = describe_worst_hub(degrees, plan)
    hint = "restrict 'where', for instance by excluding hubs"
    notes = (f"the worst hub is {hub}",) if hub else ()
    return Diagnostic("E320", message, span, f"{hint}, or raise the budget with --budget", notes)


def _estimate_rows(degrees: DegreeCache, plan: p.Plan) -> tuple[int, bool]:
    """Return the exact number of rows of a plan and True, or an upper bound and False."""
    scan_filters, join_filters = _partition_filters(plan)
    filtered = replace(plan, filters=tuple(scan_filters))
    total, is_tree = _bound_rows(degrees, filtered), _is_acyclic(filtered)
    if not join_filters:
        return total, is_tree
    if len(join_filters) > 1 or not is_tree:
        return total, False
    (condition,) = join_filters
    if not isinstance(condition, p.Compare) or condition.operator not in ("!=", "<", ">"):
        return total, False
    left, right = condition.left, condition.right
    if not isinstance(left, p.Column) or not isinstance(right, p.Column):
        return total, False
    is_symmetric = _is_symmetric(filtered, left, right)
    # A null value is neither less than, nor equal to, nor different from another value.
    not_null = [
        p.IsNotNull(column)
        for column in (left, right)
        if column.name != "vid" and not ARGUMENT_COLUMN.fullmatch(column.name)
    ]
    if not_null:
        filtered = replace(filtered, filters=(*filtered.filters, *not_null))
        total = _bound_rows(degrees, filtered)
    merged = _merge_equal_scans(
        degrees, replace(filtered, equalities=(*filtered.equalities, (left, right))), left.alias, right.alias
    )
    if not _is_acyclic(merged):
        return total, False
    remaining = total - _bound_rows(degrees, merged)
    if condition.operator == "!=":
        return remaining, True
    return (remaining // 2, True) if is_symmetric else (remaining, False)


def _partition_filters(plan: p.Plan) -> tuple[list[p.Condition], list[p.Condition]]:
    """Return the conditions on a single scan without subplans, and all other conditions."""
    scan_filters: list[p.Condition] = []
    join_filters: list[p.Condition] = []
    for condition in plan.filters:
        aliases = {c.alias for c in p.find_columns(condition)}
        has_plan = any(isinstance(node, p.Plan) for node in walk(condition))
        (scan_filters if len(aliases) == 1 and not has_plan else join_filters).append(condition)
    return scan_filters, join_filters


def _is_symmetric(plan: p.Plan, left: p.Column, right: p.Column) -> bool:
    """Return True if two columns can be swapped without changing the join."""
    tables = {s.alias: s.table for s in plan.scans}
    if plan.filters or left.name != right.name or tables[left.alias] != tables[right.alias]:
        return False
    swap = {left.alias: right.alias, right.alias: left.alias}

    def swap_column(column: p.Column) -> p.Column:
        return replace(column, alias=swap.get(column.alias, column.alias))

    classes = {frozenset(members) for members in p.equivalence_classes(plan)}
    return classes == {frozenset(swap_column(c) for c in members) for members in classes}


def _merge_equal_scans(degrees: DegreeCache, plan: p.Plan, alias: str, other: str) -> p.Plan:
    """Merge two scans of a relation if the plan equates all arguments, so that both scans read the same tuple."""
    tables = {s.alias: s.table for s in plan.scans}
    names = degrees.argument_columns(tables[alias])
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
    """A tree of scans connected by equalities; the first scan is the root.

    Args:
        scans: scans by alias, parents before children.
        parent_edges: for each scan except the root, the parent scan and the pairs of equal columns (child, parent).
        conditions: conditions on each scan, by alias.
    """

    scans: dict[str, p.Scan]
    parent_edges: dict[str, tuple[str, list[tuple[p.Column, p.Column]]]]
    conditions: dict[str, list[p.Condition]]

    def children(self, alias: str) -> list[tuple[str, list[tuple[p.Column, p.Column]]]]:
        """Return the children of a scan, each with the pairs of equal columns that join the child."""
        return [(child, pairs) for child, (parent, pairs) in self.parent_edges.items() if parent == alias]


def _build_join_trees(plan: p.Plan) -> list[_JoinTree]:
    """Return a join tree for each connected group of scans; a scan's parent shares the most columns with the scan."""
    classes = p.equivalence_classes(plan)
    scans = {scan.alias: scan for scan in p.scans_affecting_count(plan)}
    remaining, trees = list(scans), []
    while remaining:
        aliases, edges = [remaining.pop(0)], {}
        while alias := next(
            (a for a in remaining if any(_equal_column_pairs(classes, a, other) for other in aliases)), None
        ):
            shared = {other: _equal_column_pairs(classes, alias, other) for other in aliases}
            parent = max(shared, key=lambda other: len(shared[other]))
            edges[alias] = parent, shared[parent]
            aliases.append(alias)
            remaining.remove(alias)
        conditions = {a: [f for f in plan.filters if a in {c.alias for c in p.find_columns(f)}] for a in aliases}
        trees.append(_JoinTree({alias: scans[alias] for alias in aliases}, edges, conditions))
    return trees


def _equal_column_pairs(classes: Sequence[Set[p.Column]], alias: str, other: str) -> list[tuple[p.Column, p.Column]]:
    """Return the pairs of columns of two scans that the plan equates."""
    pairs = []
    for members in classes:
        own_columns, other_columns = ([c for c in members if c.alias == scan_alias] for scan_alias in (alias, other))
        if own_columns and other_columns:
            pairs.append((min(own_columns, key=lambda c: c.name), min(other_columns, key=lambda c: c.name)))
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
    """Return an upper bound of the number of rows of the join; it is exact if the equalities form a forest."""
    return math.prod(_count_tree_rows(degrees, tree) for tree in _build_join_trees(plan))


def _count_tree_rows(degrees: DegreeCache, tree: _JoinTree) -> int:
    """Count the rows of a join tree: from degrees if each edge is one pair of columns of dense indices, otherwise by SQL.

    Numbers above 2**53 are rounded, because they exceed the range of integers: a hub with 1,000 rows in 14 scans has 1e42 rows.
    """
    columns = {c for _, pairs in tree.parent_edges.values() for pair in pairs for c in pair}
    is_plain = all(len(pairs) == 1 for _, pairs in tree.parent_edges.values())
    if is_plain and all(degrees.is_coded(tree.scans[c.alias].table, c.name) for c in columns):

        def count_rows(alias: str, key: p.Column | None) -> np.ndarray:
            child_rows: dict[p.Column, np.ndarray] = {}
            for child, ((child_key, parent_key),) in tree.children(alias):
                vector = count_rows(child, child_key)
                known = child_rows.get(parent_key)
                child_rows[parent_key] = vector if known is None else multiply_vectors(known, vector)
            return degrees.count_subtree_rows(tree.scans[alias], key, child_rows, tree.conditions[alias])

        return int(count_rows(next(iter(tree.scans)), None)[0])
    ((n,),) = degrees.bound.connection.execute(_tree_count_sql(tree)).fetchall()
    return int(n or 0)


def _tree_count_sql(tree: _JoinTree) -> str:
    def subtree_sql(alias: str, keys: list[p.Column]) -> str:
        """Return SQL that counts the joined rows of the subtree of a scan, grouped by the columns `keys` of the scan."""
        joins, product = "", "1::DOUBLE"
        for child, pairs in tree.children(alias):
            on = " AND ".join(
                f"{child}.{quoted(child_key.name)} = {alias}.{quoted(parent_key.name)}"
                for child_key, parent_key in pairs
            )
            joins += f" JOIN ({subtree_sql(child, [child_key for child_key, _ in pairs])}) AS {child} ON {on}"
            product += f" * {child}.n_rows"
        columns = [f"{alias}.{quoted(c.name)}" for c in keys]
        selected = ", ".join([*columns, f"sum({product}) AS n_rows"])
        grouped = f" GROUP BY {', '.join(columns)}" if columns else ""
        conditions = [sql.condition_text(condition) for condition in tree.conditions[alias]]
        where = f" WHERE {' AND '.join(f'({c})' for c in conditions)}" if conditions else ""
        return f"SELECT {selected} FROM {quoted(tree.scans[alias].table)} AS {alias}{joins}{where}{grouped}"

    return f"SELECT n_rows FROM ({subtree_sql(next(iter(tree.scans)), [])})"
