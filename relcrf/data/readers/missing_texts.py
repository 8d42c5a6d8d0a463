"""Texts such as `NA` that a manifest declares as missing values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import duckdb

from relcrf.data.readers.base import SourceTable
from relcrf.data.store import literal, quoted

_APPROXIMATE_TYPES = ("FLOAT", "DOUBLE")


def replace_missing_texts(
    table: SourceTable, texts: Sequence[str], connection: duckdb.DuckDBPyConnection
) -> SourceTable:
    """Return a table in which the cells with one of the texts are NULL. Numbers such as -999 are compared as numbers.

    Cells are compared without surrounding blanks. Lists, dates and truth values remain unchanged.
    """
    if not texts:
        return table
    rows = connection.execute(f"DESCRIBE SELECT * FROM {table.scan}").fetchall()
    cells = ", ".join(_cell_sql(str(name), str(column_type), texts) for name, column_type, *_ in rows)
    numbered_scan = table.numbered_scan
    if numbered_scan is not None:
        number = "row".ljust(max(len(str(row[0])) for row in rows) + 1, "_")
        names = ", ".join(quoted(name) for name in (number, *(str(row[0]) for row in rows)))
        numbered_scan = f"(SELECT {number}, {cells} FROM {numbered_scan} AS numbered({names}))"
    return replace(table, scan=f"(SELECT {cells} FROM {table.scan})", numbered_scan=numbered_scan)


def _cell_sql(column: str, column_type: str, texts: Sequence[str]) -> str:
    """Return SQL of a column's cells, NULL where the cell has one of the texts."""
    name = quoted(column)
    if column_type == "VARCHAR" or column_type.startswith("ENUM"):
        condition = f"trim(CAST({name} AS VARCHAR), E' \\t\\r\\n') IN ({', '.join(map(literal, texts))})"
    elif column_type.endswith("INT") or column_type in ("INTEGER", "UINTEGER"):
        condition = f"CAST({name} AS VARCHAR) IN ({', '.join(map(literal, texts))})"
    elif column_type in _APPROXIMATE_TYPES or (column_type.startswith("DECIMAL") and not column_type.endswith("]")):
        kind = column_type if column_type in _APPROXIMATE_TYPES else "DOUBLE"
        numbers = ", ".join(f"TRY_CAST({literal(text)} AS {kind})" for text in texts)
        condition = f"coalesce(CAST({name} AS {kind}) IN ({numbers}), false)"
    else:
        return name
    return f"CASE WHEN NOT coalesce({condition}, false) THEN {name} END AS {name}"
