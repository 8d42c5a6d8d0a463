"""Texts such as `NA` that a manifest declares as missing values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import duckdb

from relcrf.data.readers.base import MissingTexts, SourceTable, require_columns
from relcrf.data.row_repairs import RowRepair
from relcrf.data.store import literal, quoted
from relcrf.data.toml_text import toml_value
from relcrf.errors import Span, listing

_APPROXIMATE_TYPES = ("FLOAT", "DOUBLE")


def replace_missing_texts(
    table: SourceTable,
    texts: Sequence[str] | Mapping[str, Sequence[str]],
    connection: duckdb.DuckDBPyConnection,
    location: Span | None = None,
) -> SourceTable:
    """Return a table in which the cells with one of the texts are NULL. Numbers such as -999 are compared as numbers.

    Cells are compared without surrounding blanks. Lists, dates and truth values remain unchanged.

    Args:
        texts: The texts of all columns, or those of each column.
        location: The manifest's statement of the texts.

    Raises:
        DataError: The table has no such column (E232).
    """
    if not texts:
        return table
    types = require_columns(table, texts if isinstance(texts, Mapping) else (), location, connection)
    by_column = texts if isinstance(texts, Mapping) else dict.fromkeys(types, texts)
    conditions = {name: _condition_sql(name, kind, by_column.get(name, ())) for name, kind in types.items()}
    cells = {
        name: f"CASE WHEN NOT {condition} THEN {quoted(name)} END" if condition else quoted(name)
        for name, condition in conditions.items()
    }
    found = MissingTexts(table.scan, toml_value(texts), {name: sql for name, sql in conditions.items() if sql})
    return replace(table.with_cells([*conditions], cells), missing_texts=(*table.missing_texts, found))


def count_missing_texts(
    table: str, location: str, files: Sequence[MissingTexts], connection: duckdb.DuckDBPyConnection
) -> RowRepair | None:
    """Return the number of cells of a table that were read as missing; None if there are none.

    Args:
        files: The declared texts of each file of the table.
    """
    counts: dict[str, int] = {}
    examples: list[str] = []
    for file in files:
        facts = ", ".join(
            f"count(*) FILTER ({sql}), min(trim(CAST({quoted(name)} AS VARCHAR))) FILTER ({sql})"
            for name, sql in file.conditions.items()
        )
        if not facts:
            continue
        ((*found,),) = connection.execute(f"SELECT {facts} FROM {file.scan}").fetchall()
        for name, count, example in zip(file.conditions, found[::2], found[1::2], strict=True):
            if count:
                counts[name] = counts.get(name, 0) + int(count)
                examples.append(f"{example!r} of {name}")
    if not counts:
        return None
    total = sum(counts.values())
    columns = (
        listing(f"{name} ({count:,})" for name, count in counts.items()) if len(counts) > 1 else next(iter(counts))
    )
    action = f"read {total:,} cell{'s' * (total != 1)} as missing in {columns}"
    policy = f"missing = {files[0].statement}"
    return RowRepair(table, location, policy, total, action, examples[0])


def _condition_sql(column: str, column_type: str, texts: Sequence[str]) -> str:
    """Return a SQL condition that a cell of a column has one of the texts; empty if there are none, or none of the type."""
    name = quoted(column)
    if not texts:
        return ""
    if column_type == "VARCHAR" or column_type.startswith("ENUM"):
        condition = f"trim(CAST({name} AS VARCHAR), E' \\t\\r\\n') IN ({', '.join(map(literal, texts))})"
    elif column_type.endswith("INT") or column_type in ("INTEGER", "UINTEGER"):
        condition = f"CAST({name} AS VARCHAR) IN ({', '.join(map(literal, texts))})"
    elif column_type in _APPROXIMATE_TYPES or (column_type.startswith("DECIMAL") and not column_type.endswith("]")):
        kind = column_type if column_type in _APPROXIMATE_TYPES else "DOUBLE"
        numbers = ", ".join(f"TRY_CAST({literal(text)} AS {kind})" for text in texts)
        condition = f"CAST({name} AS {kind}) IN ({numbers})"
    else:
        return ""
    return f"coalesce({condition}, false)"
