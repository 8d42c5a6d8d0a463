"""Columns of structures, such as the objects of JSON: each field of a structure becomes a column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, count
from typing import Any

import duckdb

from relcrf.data.readers.base import SourceTable
from relcrf.data.store import quoted
from relcrf.errors import listing
from relcrf.model.spec import fold_name


def fields_of(kind: Any) -> list[tuple[str, Any]]:
    """Return the names and types of the fields of a DuckDB type; none if it is not a structure."""
    return list(kind.children) if kind.id == "struct" else []


def spread_structures(table: SourceTable, connection: duckdb.DuckDBPyConnection) -> SourceTable:
    """Return a table with a column for each field of a structure: `customer_id` for the field `id` of the column `customer`.

    Lists of structures remain lists. If a name is taken, the column has the name `customer.id`.
    """
    if table.problem is not None:
        return table
    rows = connection.sql(f"SELECT * FROM {table.scan}")
    if not any(map(fields_of, rows.types)):
        return table
    taken = {fold_name(name) for name in rows.columns}
    cells: dict[str, str] = {}
    spread = []
    for column, kind in zip(rows.columns, rows.types, strict=True):
        for path, _ in leaf_paths((column,), kind):
            name = column
            if len(path) > 1:
                dotted = ".".join(path)
                names = chain(("_".join(path), dotted), (f"{dotted}.{k}" for k in count(2)))
                name = next(each for each in names if fold_name(each) not in taken)
                taken.add(fold_name(name))
                spread.append(name)
            cells[name] = ".".join(map(quoted, path))
    notes = table.note, f"the fields of objects are columns: {listing(spread)}"
    return replace(table.with_cells(rows.columns, cells), note="; ".join(filter(None, notes)))


def leaf_paths(path: Sequence[str], kind: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the path and the type of each field that is not a structure itself."""
    fields = fields_of(kind)
    if not fields:
        yield tuple(path), kind
    for name, inner in fields:
        yield from leaf_paths((*path, name), inner)
