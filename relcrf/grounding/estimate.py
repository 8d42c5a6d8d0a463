"""How large a plan's result is, told before it runs, and what makes it large.

Rows are counted along a join tree: each scan is grouped by the columns that it shares with the scan above it, and
carries the number of rows below, so that the cost is a grouping of each table and not the join. Conditions on one scan
are applied there; `a != b` and `a < b` of two scans are counted by the rows that they exclude. Equalities that would
close a cycle and all other conditions are left out: what is counted then is a bound from above.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import duckdb
import numpy as np

from relcrf.data.dataset import quoted
from relcrf.errors import BudgetError, Diagnostic, Span
from relcrf.grounding import sql
from relcrf.grounding.degrees import EXACT, Degrees, arguments, product
from relcrf.grounding.hubs import hub_text, worst_hub
from relcrf.grounding.plan import (
    Column,
    Compare,
    Condition,
    Plan,
    Present,
    Scan,
    column_classes,
    columns_in,
    substituted,
    walk,
)

DEFAULT_BUDGET = 100_000_000
"""Bindings that one template may have unless the user says otherwise: about a gigabyte of pair factors."""

PATIENCE = 10
"""A join whose bound is beyond this many budgets is refused at once; below, its other conditions may save it."""

_IN_EVERY_ROW = re.compile(r"vid|a\d+")
"""Names of columns that miss no value: a thing's number, and the arguments of a relation."""


@dataclass(frozen=True)
class Size:
    """The number of bindings, or a bound on it.

    Args:
        rows: of the join before repetitions go, or a bound on that.
    """

    bindings: int
    is_exact: bool
    rows: int


def measure(degrees: Degrees, plan: Plan) -> Size:
    """What can be told from the tables' degrees alone."""
    rows, is_exact = _rows(degrees, plan)
    return Size(rows, is_exact and not plan.is_distinct, rows)


def count(connection: duckdb.DuckDBPyConnection, plan: Plan, size: Size) -> Size:
    """The exact number of bindings, by the join itself."""
    if size.is_exact:
        return size
    ((n,),) = connection.execute(sql.count(plan)).fetchall()
    return Size(int(n), True, size.rows)


def within(connection: duckdb.DuckDBPyConnection, plan: Plan, size: Size, budget: int) -> Size:
    """A size that is known to be within the budget or over it; the join runs only where degrees cannot tell, and no longer
    than until the budget is full.
    """
    if size.is_exact or size.bindings <= budget or size.bindings > PATIENCE * budget:
        return size
    ((n,),) = connection.execute(sql.count(plan, limit=budget + 1)).fetchall()
    return replace(size, bindings=int(n), is_exact=int(n) <= budget)


def require(degrees: Degrees, plan: Plan, budget: int, name: str, span: Span | None) -> Size:
    """The size of what is within the budget.

    Raises:
        BudgetError: naming the template or relation, its worst hub, and what would help.
    """
    size = within(degrees.bound.connection, plan, measure(degrees, plan), budget)
    if size.bindings > budget:
        raise BudgetError(over_budget(degrees, plan, size, budget, name, span))
    return size


def over_budget(degrees: Degrees, plan: Plan, size: Size, budget: int, name: str, span: Span | None) -> Diagnostic:
    """What is said of a plan that is over the budget."""
    about = "" if size.is_exact else "up to " if size.bindings > PATIENCE * budget else "more than "
    shown = budget if about == "more than " else size.bindings
    message = f"'{name}' would ground into {about}{shown:,} bindings"
    message += "" if about == "more than " else f", over the budget of {budget:,}"
    if len(_components(plan)) > 1:
        hint = "name a relation or an equality in 'where' that ties the binders"
        return Diagnostic("E320", message, span, f"{hint}, or raise the budget with --budget")
    tables = {s.alias: s.table for s in multiplying(plan)}
    hub = worst_hub(degrees, tables, column_classes(plan))
    hint = "narrow 'where', for instance by leaving out hubs"
    notes = (f"the worst hub is {hub_text(degrees.bound, hub)}",) if hub is not None else ()
    return Diagnostic("E320", message, span, f"{hint}, or raise the budget with --budget", notes)


def _rows(degrees: Degrees, plan: Plan) -> tuple[int, bool]:
    """The number of rows of a plan, and whether it is exact; else it is a bound from above."""
    own, between = _divided(plan)
    simple = replace(plan, filters=tuple(own))
    total, is_tree = _tree_rows(degrees, simple), _is_tree(simple)
    if not between:
        return total, is_tree
    if len(between) > 1 or not is_tree:
        return total, False
    (condition,) = between
    if not isinstance(condition, Compare) or condition.operator not in ("!=", "<", ">"):
        return total, False
    left, right = condition.left, condition.right
    if not isinstance(left, Column) or not isinstance(right, Column):
        return total, False
    is_symmetric = _is_symmetric(simple, left, right)
    # Without a value nothing is less or other than it, nor is anything equal to it.
    known = [Present(column) for column in (left, right) if not _IN_EVERY_ROW.fullmatch(column.name)]
    if known:
        simple = replace(simple, filters=(*simple.filters, *known))
        total = _tree_rows(degrees, simple)
    same = _one_tuple(degrees, replace(simple, equalities=(*simple.equalities, (left, right))), left.alias, right.alias)
    if not _is_tree(same):
        return total, False
    apart = total - _tree_rows(degrees, same)
    if condition.operator == "!=":
        return apart, True
    return (apart // 2, True) if is_symmetric else (apart, False)


def _divided(plan: Plan) -> tuple[list[Condition], list[Condition]]:
    """The conditions that speak of one scan, and those of several or with a plan inside."""
    own: list[Condition] = []
    between: list[Condition] = []
    for condition in plan.filters:
        aliases = {c.alias for c in columns_in(condition)}
        has_plan = any(isinstance(node, Plan) for node in walk(condition))
        (own if len(aliases) == 1 and not has_plan else between).append(condition)
    return own, between


def _is_symmetric(plan: Plan, left: Column, right: Column) -> bool:
    """Whether two columns can change places without changing the join."""
    tables = {s.alias: s.table for s in plan.scans}
    if plan.filters or left.name != right.name or tables[left.alias] != tables[right.alias]:
        return False
    swap = {left.alias: right.alias, right.alias: left.alias}

    def swapped(column: Column) -> Column:
        return replace(column, alias=swap.get(column.alias, column.alias))

    classes = {frozenset(members) for members in column_classes(plan)}
    return classes == {frozenset(swapped(c) for c in members) for members in classes}


def _one_tuple(degrees: Degrees, plan: Plan, kept: str, other: str) -> Plan:
    """The plan without a scan that has the same tuple of a relation as another: a relation has each tuple once."""
    tables = {s.alias: s.table for s in plan.scans}
    names = arguments(degrees.bound.connection, tables[kept])
    classes = column_classes(plan)
    are_same = all(any({Column(kept, n), Column(other, n)} <= members for members in classes) for n in names)
    if kept == other or not names or tables[kept] != tables[other] or not are_same:
        return plan
    columns = {c: replace(c, alias=kept) for members in classes for c in members if c.alias == other}
    columns |= {c: replace(c, alias=kept) for f in plan.filters for c in columns_in(f) if c.alias == other}
    equalities = substituted(plan.equalities, columns)
    return replace(
        plan,
        scans=tuple(s for s in plan.scans if s.alias != other),
        equalities=tuple((a, b) for a, b in equalities if a != b),
        filters=substituted(plan.filters, columns),
    )


def _tree_rows(degrees: Degrees, plan: Plan) -> int:
    """A number of rows that the join cannot exceed: exact where its equalities are a tree."""
    total = 1
    for component in _components(plan):
        total *= _component_rows(degrees, plan, component)
    return total


def _component_rows(degrees: Degrees, plan: Plan, order: list[str]) -> int:
    """Rows of scans that are tied to each other, from the degrees where each tie is one coded column, else by SQL."""
    scans = {s.alias: s for s in plan.scans}
    parents = _parents(plan, order)
    ties = {child: _shared(plan, child, parent) for child, parent in parents.items()}
    conditions = _conditions(plan, order)
    columns = {c for shared in ties.values() for pair in shared for c in pair}
    is_plain = all(len(shared) == 1 for shared in ties.values())
    if is_plain and all(degrees.is_coded(scans[c.alias].table, c.name) for c in columns):

        def below(alias: str, key: Column | None) -> np.ndarray:
            hanging: dict[Column, np.ndarray] = {}
            for child, parent in parents.items():
                if parent == alias:
                    ((mine, theirs),) = ties[child]
                    vector = below(child, mine)
                    hanging[theirs] = product(hanging[theirs], vector) if theirs in hanging else vector
            return degrees.below(scans[alias], key, hanging, conditions.get(alias, []))

        rows = float(below(order[0], None)[0])
        if rows < EXACT:
            return int(rows)
    ((n,),) = degrees.bound.connection.execute(_bound_sql(plan, order)).fetchall()
    return int(n or 0)


def _conditions(plan: Plan, order: Sequence[str]) -> dict[str, list[Condition]]:
    """The conditions of a plan on each of some scans."""
    out: dict[str, list[Condition]] = {}
    for condition in plan.filters:
        for alias in {c.alias for c in columns_in(condition)} & set(order):
            out.setdefault(alias, []).append(condition)
    return out


def multiplying(plan: Plan) -> list[Scan]:
    """Scans that multiply rows or filter them. A lookup has exactly one row for each, unless something is asked of it."""
    used = {alias for a, b in plan.equalities for alias in (a.alias, b.alias) if _other_than_vid(a, b, alias)}
    used |= {c.alias for condition in plan.filters for c in columns_in(condition)}
    return [s for s in plan.scans if not s.is_lookup or s.alias in used]


def _other_than_vid(a: Column, b: Column, alias: str) -> bool:
    return any(c.alias == alias and c.name != "vid" for c in (a, b))


def _components(plan: Plan) -> list[list[str]]:
    """Groups of scans that equalities connect, each in an order in which every scan follows one that it joins."""
    aliases = [s.alias for s in multiplying(plan)]
    left = list(aliases)
    components = []
    while left:
        order = [left.pop(0)]
        grown = True
        while grown:
            grown = False
            for alias in left:
                if any(_shared(plan, alias, other) for other in order):
                    order.append(alias)
                    left.remove(alias)
                    grown = True
                    break
        components.append(order)
    return components


def _shared(plan: Plan, alias: str, other: str) -> list[tuple[Column, Column]]:
    """Pairs of equal columns of two scans."""
    pairs = []
    for members in column_classes(plan):
        mine = sorted((c for c in members if c.alias == alias), key=lambda c: c.name)
        theirs = sorted((c for c in members if c.alias == other), key=lambda c: c.name)
        if mine and theirs:
            pairs.append((mine[0], theirs[0]))
    return pairs


def _parents(plan: Plan, order: Sequence[str]) -> dict[str, str]:
    """The scan above each but the first: of those that come before, the one it shares most with."""
    parents = {}
    for k, alias in enumerate(order[1:], start=1):
        shared = {other: len(_shared(plan, alias, other)) for other in order[:k]}
        parents[alias] = max(shared, key=lambda other: shared[other])
    return parents


def _is_tree(plan: Plan) -> bool:
    """Whether the count uses every equality of the plan."""
    joined = {s.alias for s in multiplying(plan)}
    for members in column_classes(plan):
        in_use = [c for c in members if c.alias in joined]
        if len({c.alias for c in in_use}) != len(in_use):
            return False
    used = 0
    for order in _components(plan):
        used += sum(len(_shared(plan, alias, parent)) for alias, parent in _parents(plan, order).items())
    needed = sum(max(0, len({c.alias for c in members} & joined) - 1) for members in column_classes(plan))
    return used == needed


def _bound_sql(plan: Plan, order: list[str]) -> str:
    tables = {s.alias: s.table for s in plan.scans}
    parents = _parents(plan, order)
    conditions = _conditions(plan, order)

    def below(alias: str, keys: list[Column]) -> str:
        """Number of rows of the subtree under a scan, for each value of the columns that it shares with its parent."""
        joins, product = "", "1::HUGEINT"
        for child, parent in parents.items():
            if parent != alias:
                continue
            shared = _shared(plan, child, alias)
            on = " AND ".join(f"{child}.{quoted(mine.name)} = {alias}.{quoted(theirs.name)}" for mine, theirs in shared)
            joins += f" JOIN ({below(child, [mine for mine, _ in shared])}) AS {child} ON {on}"
            product += f" * {child}.n_rows"
        columns = [f"{alias}.{quoted(c.name)}" for c in keys]
        selected = ", ".join([*columns, f"sum({product}) AS n_rows"])
        grouped = f" GROUP BY {', '.join(columns)}" if columns else ""
        own = [sql.condition_text(condition) for condition in conditions.get(alias, [])]
        where = f" WHERE {' AND '.join(f'({c})' for c in own)}" if own else ""
        return f"SELECT {selected} FROM {quoted(tables[alias])} AS {alias}{joins}{where}{grouped}"

    return f"SELECT n_rows FROM ({below(order[0], [])})"
