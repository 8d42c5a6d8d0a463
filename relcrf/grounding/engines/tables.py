"""The coded tables under plain names: a server may cut long names short, fold their case, or want none with dots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import duckdb

from relcrf.data.dataset import quoted
from relcrf.grounding.plan import Column, Figure, Looked, Plan, Scan
from relcrf.model.nodes import rebuilt, walk


@dataclass(frozen=True)
class PlainTable:
    """A coded table with a new name for it and for each of its columns.

    Args:
        columns: the new names, by the old ones, in order.
        types: DuckDB's, in the same order.
    """

    name: str
    columns: Mapping[str, str]
    types: tuple[str, ...]


def plain_table(source: duckdb.DuckDBPyConnection, table: str, number: int) -> PlainTable:
    """A table as `t0`, `t1`, ... with the columns `c0`, `c1`, ..."""
    described = source.execute(f"DESCRIBE SELECT * FROM {quoted(table)}").fetchall()
    columns = {str(row[0]): f"c{k}" for k, row in enumerate(described)}
    return PlainTable(f"t{number}", columns, tuple(str(row[1]) for row in described))


def tables_of(plan: Plan) -> list[str]:
    """The tables that a plan and all plans inside it read, each once."""
    return list(dict.fromkeys(node.table for node in walk(plan) if isinstance(node, Scan | Looked)))


def in_plain_names(plan: Plan, tables: Mapping[str, PlainTable]) -> Plan:
    """The same plan on the plain tables. Figures are subqueries, with no plan beside them that has their keys."""
    renamed: Plan = _renamed(plan, tables, {})
    return renamed


def _renamed(node: Any, tables: Mapping[str, PlainTable], scans: Mapping[str, PlainTable]) -> Any:
    """Args: scans: the table of each alias, here and around."""
    match node:
        case Column(alias, name):
            return Column(alias, scans[alias].columns[name])
        case Scan(table):
            return replace(node, table=tables[table].name)
        case Looked(table, column, where, equals):
            plain = tables[table]
            return Looked(plain.name, plain.columns[column], plain.columns[where], _renamed(equals, tables, scans))
        case Plan():
            scans = {**scans, **{scan.alias: tables[scan.table] for scan in node.scans}}
        case Figure():
            inside = {**scans, **{scan.alias: tables[scan.table] for scan in node.plan.scans}}
            terms = _renamed(node.terms, tables, inside)
            return Figure(node.function, terms, _renamed(node.plan, tables, scans))
    return rebuilt(node, lambda part: _renamed(part, tables, scans))
