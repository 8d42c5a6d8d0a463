"""Plans made simpler without a change of their rows, before they are counted or run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from relcrf.data.names import ARGUMENT_COLUMN
from relcrf.grounding.plan import Column, Plan, Scan, equivalence_classes, find_columns
from relcrf.model.nodes import map_children


def simplify_plan(plan: Plan) -> Plan:
    """The plan without scans that only say again what another scan says: that a vid is a thing, or a code a value.

    A scan of an entity or a domain of which nothing but its vid or code is asked has one row for each row of the rest,
    where that is equal to an argument of a relation or to a column of a bag: these are never missing and name what is there.
    """
    for scan in plan.scans:
        name = {"ent": "vid", "dom": "code"}.get(scan.table.partition(".")[0])
        if name is None or len(plan.scans) == 1:
            continue
        own = Column(scan.alias, name)
        if {c for c in find_columns(plan) if c.alias == scan.alias} - {own}:
            continue
        members = next((m for m in equivalence_classes(plan) if own in m), set())
        others = sorted((c for c in members if c.alias != scan.alias and _is_never_missing(plan, c)), key=str)
        if others:
            return simplify_plan(_remove_scan(plan, scan, own, others[0]))
    return plan


def _is_never_missing(plan: Plan, column: Column) -> bool:
    """Whether a column is never missing and always names a thing or value."""
    table = next((s.table for s in plan.scans if s.alias == column.alias), "")
    if table.startswith("rel."):
        return ARGUMENT_COLUMN.fullmatch(column.name) is not None
    return column.name in ("vid", "code")


def _remove_scan(node: Any, scan: Scan, column: Column, replacement: Column) -> Any:
    """Return a plan, and all plans inside it, with another column in the place of a scan's only one."""
    if node == column:
        return replacement
    changed = map_children(node, lambda part: _remove_scan(part, scan, column, replacement))
    if isinstance(changed, Plan):
        scans = tuple(s for s in changed.scans if s.alias != scan.alias)
        return replace(changed, scans=scans, equalities=tuple((a, b) for a, b in changed.equalities if a != b))
    return changed
