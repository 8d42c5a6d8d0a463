"""Portable names of the coded tables: a server may truncate long names, fold their case or reject dots in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import duckdb

from relcrf.data.dataset import quoted
from relcrf.grounding.plan import AggregateTerm, Column, Lookup, Plan, Scan
from relcrf.model.nodes import map_children, walk


@dataclass(frozen=True)
class RenamedTable:
    """The new names of a coded table and of its columns.

    Args:
        name: new name of the table.
        columns: new names of the columns, by old name.
        types: DuckDB types of the columns, in the order of `columns`.
    """

    name: str
    columns: Mapping[str, str]
    types: tuple[str, ...]


def make_renamed_table(source: duckdb.DuckDBPyConnection, table: str, number: int) -> RenamedTable:
    """Return a table renamed to `t<number>`, with columns `c0`, `c1`, ..."""
    description = source.execute(f"DESCRIBE SELECT * FROM {quoted(table)}").fetchall()
    columns = {str(row[0]): f"c{k}" for k, row in enumerate(description)}
    return RenamedTable(f"t{number}", columns, tuple(str(row[1]) for row in description))


def find_tables(plan: Plan) -> list[str]:
    """Return the tables that a plan and its subplans read, without duplicates."""
    return list(dict.fromkeys(node.table for node in walk(plan) if isinstance(node, Scan | Lookup)))


def rename_plan_tables(plan: Plan, tables: Mapping[str, RenamedTable]) -> Plan:
    """Return a plan with renamed tables and columns. Aggregates lose `outer_plan` and so become correlated subqueries."""
    renamed_plan: Plan = _rename_node(plan, tables, {})
    return renamed_plan


def _rename_node(node: Any, tables: Mapping[str, RenamedTable], scans: Mapping[str, RenamedTable]) -> Any:
    """Rename tables and columns in a node; `scans` maps each alias in this plan and the outer plans to a table."""
    match node:
        case Column(alias, name):
            return Column(alias, scans[alias].columns[name])
        case Scan(table):
            return replace(node, table=tables[table].name)
        case Lookup(table, value_column, key_column, key):
            renamed = tables[table]
            return Lookup(
                renamed.name,
                renamed.columns[value_column],
                renamed.columns[key_column],
                _rename_node(key, tables, scans),
            )
        case Plan():
            scans = {**scans, **{scan.alias: tables[scan.table] for scan in node.scans}}
        case AggregateTerm():
            inner_scans = {**scans, **{scan.alias: tables[scan.table] for scan in node.plan.scans}}
            terms = _rename_node(node.terms, tables, inner_scans)
            return AggregateTerm(node.function, terms, _rename_node(node.plan, tables, scans))
    return map_children(node, lambda part: _rename_node(part, tables, scans))
