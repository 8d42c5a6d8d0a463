"""The coded tables under plain names: a server may cut long names short, fold their case, or want none with dots."""

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
    """A coded table with a new name for it and for each of its columns.

    Args:
        columns: the new names, by the old ones, in order.
        types: DuckDB's, in the same order.
    """

    name: str
    columns: Mapping[str, str]
    types: tuple[str, ...]


def make_renamed_table(source: duckdb.DuckDBPyConnection, table: str, number: int) -> RenamedTable:
    """A table as `t0`, `t1`, ... with the columns `c0`, `c1`, ..."""
    described = source.execute(f"DESCRIBE SELECT * FROM {quoted(table)}").fetchall()
    columns = {str(row[0]): f"c{k}" for k, row in enumerate(described)}
    return RenamedTable(f"t{number}", columns, tuple(str(row[1]) for row in described))


def find_tables(plan: Plan) -> list[str]:
    """The tables that a plan and all plans inside it read, each once."""
    return list(dict.fromkeys(node.table for node in walk(plan) if isinstance(node, Scan | Lookup)))


def rename_plan_tables(plan: Plan, tables: Mapping[str, RenamedTable]) -> Plan:
    """The same plan on the plain tables. Figures are subqueries, with no plan beside them that has their keys."""
    renamed: Plan = _rename_node(plan, tables, {})
    return renamed


def _rename_node(node: Any, tables: Mapping[str, RenamedTable], scans: Mapping[str, RenamedTable]) -> Any:
    """Args: scans: the table of each alias, here and around."""
    match node:
        case Column(alias, name):
            return Column(alias, scans[alias].columns[name])
        case Scan(table):
            return replace(node, table=tables[table].name)
        case Lookup(table, column, where, equals):
            plain = tables[table]
            return Lookup(plain.name, plain.columns[column], plain.columns[where], _rename_node(equals, tables, scans))
        case Plan():
            scans = {**scans, **{scan.alias: tables[scan.table] for scan in node.scans}}
        case AggregateTerm():
            inside = {**scans, **{scan.alias: tables[scan.table] for scan in node.plan.scans}}
            terms = _rename_node(node.terms, tables, inside)
            return AggregateTerm(node.function, terms, _rename_node(node.plan, tables, scans))
    return map_children(node, lambda part: _rename_node(part, tables, scans))
