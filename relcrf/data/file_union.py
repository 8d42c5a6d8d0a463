"""The union of the files that match a pattern of a manifest, as one table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import duckdb

from relcrf.data.cell_texts import cell_text_sql
from relcrf.data.readers.base import ParquetFile, SourceTable, StoredFormat
from relcrf.data.row_repairs import MAX_FILE_ROWS
from relcrf.data.store import literal, quoted
from relcrf.errors import DataError, DataLocation, Diagnostic, listing


def union_files(
    name: str,
    pattern: Path,
    partitions: Sequence[Mapping[str, str | None]],
    tables: Sequence[SourceTable],
    connection: duckdb.DuckDBPyConnection,
) -> SourceTable:
    """Return the union of the files that match a pattern, with a column for each folder such as `year=2024`.

    A column that has texts in some of the files has texts in all of them, as in tables with columns of one type.

    Args:
        partitions: The values in the names of folders, for each file.
        tables: The table of each file.

    Raises:
        DataError: Two files have different columns (E212).
    """
    columns: list[str] = []
    parquet_files: list[ParquetFile] = []
    scans = []
    types = [_column_types(table.scan, connection) for table in tables]
    kinds = {name: {each.get(name) for each in types} for name in types[0]}
    texts = {name for name, found in kinds.items() if "VARCHAR" in found and len(found) > 1}
    for number, (table, partition, names) in enumerate(zip(tables, partitions, types, strict=True)):
        values = {key: value for key, value in partition.items() if key not in names}
        cells = [f"{'NULL::VARCHAR' if v is None else literal(v)} AS {quoted(key)}" for key, v in values.items()]
        parquet_files += [replace(file, constants=json.dumps(values)) for file in table.parquet_files]
        columns = columns or [*names, *values]
        row_column = "row".ljust(max(map(len, columns)) + 1, "_")
        if unequal := sorted({*columns} ^ {*names, *values}):
            message = f"the file has other columns than '{tables[0].location}'"
            verb = "lacks" if unequal[0] in columns else "has"
            notes = (f"only one of the files has {listing(unequal)}",)
            hint = f"it {verb} the column '{unequal[0]}'; use a pattern that leaves the file out"
            raise DataError(Diagnostic("E212", message, DataLocation(table.location), hint, notes))
        row = f"{number * MAX_FILE_ROWS} + row_number() OVER () AS {row_column}"
        converted = ", ".join(f"{cell_text_sql(quoted(c), names[c])} AS {quoted(c)}" for c in names if c in texts)
        own_cells = f"* REPLACE ({converted})" if converted else "*"
        inner = f"(SELECT {', '.join([row, own_cells, *cells])} FROM {table.scan})"
        scans.append((inner, f"(SELECT {', '.join([own_cells, *cells])} FROM {table.scan})"))
    selected = ", ".join(map(quoted, columns))
    numbered = " UNION ALL ".join(f"SELECT {row_column}, {selected} FROM {s}" for s, _ in scans)
    plain = " UNION ALL ".join(f"SELECT {selected} FROM {scan}" for _, scan in scans)
    counts = Counter(t.note for t in tables if t.note)
    note = "; ".join(f"{note} in {count:,} of {len(tables):,} files" for note, count in counts.items())
    formats = listing(dict.fromkeys(t.format for t in tables))
    return SourceTable(
        name,
        str(pattern),
        f"({plain})",
        f"({numbered})",
        format=f"{len(tables):,} files: {formats}",
        note=note,
        files=tuple(t.location for t in tables),
        missing_texts=tuple(chain.from_iterable(t.missing_texts for t in tables)),
        csv_formats=_common_formats(tables),
        parquet_files=tuple(parquet_files) if all(t.parquet_files for t in tables) else (),
    )


def _column_types(scan: str, connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """Return DuckDB's type of each column of a table expression."""
    return {str(name): str(kind) for name, kind, *_ in connection.execute(f"DESCRIBE FROM {scan}").fetchall()}


def _common_formats(tables: Sequence[SourceTable]) -> tuple[StoredFormat, ...]:
    """Return the formats of columns that do not have different formats in different files."""
    formats = dict.fromkeys(chain.from_iterable(table.csv_formats for table in tables))
    counts = Counter((each.column, each.key == "units") for each in formats)
    return tuple(each for each in formats if counts[each.column, each.key == "units"] == 1)
