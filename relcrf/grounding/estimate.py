"""How large a plan's result is, before it runs: an upper bound from degrees, then the exact count.

The bound multiplies degrees along a join tree: each scan is grouped by the columns that it shares with the scan above
it, and carries the number of rows below. For a join of a tree's shape without filters the bound is exact, and it costs
a grouping of each table rather than the join. Equalities that would close a cycle are left out, which only raises it.
"""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

from relcrf.data.dataset import quoted
from relcrf.errors import BudgetError, Diagnostic, Span
from relcrf.grounding import sql
from relcrf.grounding.plan import Column, Plan, Scan

DEFAULT_BUDGET = 100_000_000
"""Bindings that one template may have unless the user says otherwise: about a gigabyte of pair factors."""

PATIENCE = 10
"""A join whose bound is beyond this many budgets is refused at once; below, its filters may save it, and it is counted."""


@dataclass(frozen=True)
class Size:
    """The number of bindings, or a bound on it."""

    bindings: int
    is_exact: bool = True


def measure(connection: duckdb.DuckDBPyConnection, plan: Plan, budget: int) -> Size:
    """The exact number of bindings where it can be told within the budget, else a bound above it."""
    bound = upper_bound(connection, plan)
    is_tree = _is_tree(plan)
    if is_tree and not plan.filters and not plan.is_distinct:
        return Size(bound)
    if bound > PATIENCE * budget:
        return Size(bound, is_exact=False)
    ((n,),) = connection.execute(sql.count(plan)).fetchall()
    return Size(int(n))


def require(size: Size, budget: int, name: str, span: Span | None, plan: Plan) -> None:
    """Refuses what is over the budget.

    Raises:
        BudgetError: naming the template or relation and what would help.
    """
    if size.bindings <= budget:
        return
    about = "" if size.is_exact else "up to "
    message = f"'{name}' would ground into {about}{size.bindings:,} bindings, over the budget of {budget:,}"
    is_cross = len(_components(plan)) > 1
    hint = (
        "name a relation or an equality in 'where' that ties the binders"
        if is_cross
        else "narrow 'where' (a hub may join too much)"
    )
    raise BudgetError(Diagnostic("E320", message, span, f"{hint}, or raise the budget with --budget"))


def upper_bound(connection: duckdb.DuckDBPyConnection, plan: Plan) -> int:
    """A number of rows that the join cannot exceed."""
    total = 1
    for component in _components(plan):
        ((n,),) = connection.execute(_bound_sql(plan, component)).fetchall()
        total *= int(n or 0)
    return total


def _joined(plan: Plan) -> list[Scan]:
    """Scans that can multiply rows: a lookup has exactly one row for each, unless it is itself joined by attributes."""
    used = {alias for a, b in plan.equalities for alias in (a.alias, b.alias) if _other_than_vid(a, b, alias)}
    return [s for s in plan.scans if not s.is_lookup or s.alias in used]


def _other_than_vid(a: Column, b: Column, alias: str) -> bool:
    return any(c.alias == alias and c.name != "vid" for c in (a, b))


def _components(plan: Plan) -> list[list[str]]:
    """Groups of scans that equalities connect, each in an order in which every scan follows one that it joins."""
    aliases = [s.alias for s in _joined(plan)]
    left = list(aliases)
    components = []
    while left:
        order = [left.pop(0)]
        grown = True
        while grown:
            grown = False
            for alias in left:
                if any(_connects(plan, alias, other) for other in order):
                    order.append(alias)
                    left.remove(alias)
                    grown = True
                    break
        components.append(order)
    return components


def _connects(plan: Plan, alias: str, other: str) -> bool:
    return bool(_shared(plan, alias, other))


def _classes(plan: Plan) -> list[set[Column]]:
    """Columns that are all equal."""
    classes: list[set[Column]] = []
    for a, b in plan.equalities:
        touching = [c for c in classes if a in c or b in c]
        classes = [c for c in classes if c not in touching]
        classes.append({a, b}.union(*touching))
    return classes


def _shared(plan: Plan, alias: str, other: str) -> list[tuple[Column, Column]]:
    """Pairs of equal columns of two scans."""
    pairs = []
    for members in _classes(plan):
        mine = sorted((c for c in members if c.alias == alias), key=lambda c: c.name)
        theirs = sorted((c for c in members if c.alias == other), key=lambda c: c.name)
        if mine and theirs:
            pairs.append((mine[0], theirs[0]))
    return pairs


def _parents(plan: Plan, order: list[str]) -> dict[str, str]:
    """The scan above each but the first: of those that come before, the one it shares most with."""
    return {
        alias: max(order[:k], key=lambda other, alias=alias: len(_shared(plan, alias, other)))  # type: ignore[misc]
        for k, alias in enumerate(order)
        if k > 0
    }


def _is_tree(plan: Plan) -> bool:
    """Whether the bound uses every equality of the plan."""
    joined = {s.alias for s in _joined(plan)}
    for members in _classes(plan):
        in_use = [c for c in members if c.alias in joined]
        if len({c.alias for c in in_use}) != len(in_use):
            return False
    used = 0
    for order in _components(plan):
        used += sum(len(_shared(plan, alias, parent)) for alias, parent in _parents(plan, order).items())
    needed = sum(max(0, len({c.alias for c in members} & joined) - 1) for members in _classes(plan))
    return used == needed


def _bound_sql(plan: Plan, order: list[str]) -> str:
    tables = {s.alias: s.table for s in plan.scans}
    parents = _parents(plan, order)

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
        return f"SELECT {selected} FROM {quoted(tables[alias])} AS {alias}{joins}{grouped}"

    return f"SELECT n_rows FROM ({below(order[0], [])})"
