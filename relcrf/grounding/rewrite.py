"""Simplification of plans before they run; a simplified plan has the same rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from relcrf.data.names import ARGUMENT_COLUMN, VALUE_PREFIX
from relcrf.grounding.plan import Column, Plan, Scan, equivalence_classes, find_columns
from relcrf.model.nodes import map_children


def simplify_plan(plan: Plan) -> Plan:
    """Return the plan without scans of entities and domains that only repeat a foreign key of another scan.

    A scan that is used only for its primary key (vid or code) is redundant if an equality joins the key to an argument of a
    relation or to a column of a bag. Arguments and bag columns always refer to an existing row, so the join retains every row.
    """
    for scan in plan.scans:
        name = {"ent": "vid", "dom": "code"}.get(scan.table.partition(".")[0])
        if name is None or len(plan.scans) == 1:
            continue
        key = Column(scan.alias, name)
        if {c for c in find_columns(plan) if c.alias == scan.alias} - {key}:
            continue
        members = next((m for m in equivalence_classes(plan) if key in m), set())
        others = sorted((c for c in members if c.alias != scan.alias and _is_never_missing(plan, c)), key=str)
        if others:
            return simplify_plan(_remove_scan(plan, scan, key, others[0]))
    return plan


def _is_never_missing(plan: Plan, column: Column) -> bool:
    """Return True if a column is never null and always refers to an existing entity or value."""
    scan = next((s for s in plan.scans if s.alias == column.alias), Scan("", ""))
    table = scan.table
    if table.startswith(VALUE_PREFIX) and scan.is_lookup:
        return False  # a lookup does not count as a scan of the entities
    if table.startswith("rel."):
        return ARGUMENT_COLUMN.fullmatch(column.name) is not None
    return column.name in ("vid", "code")


def _remove_scan(node: Any, scan: Scan, column: Column, replacement: Column) -> Any:
    """Remove a scan from a plan and its subplans, and replace the only column of the scan that the plan uses."""
    if node == column:
        return replacement
    changed = map_children(node, lambda part: _remove_scan(part, scan, column, replacement))
    if isinstance(changed, Plan):
        scans = tuple(s for s in changed.scans if s.alias != scan.alias)
        return replace(changed, scans=scans, equalities=tuple((a, b) for a, b in changed.equalities if a != b))
    return changed
