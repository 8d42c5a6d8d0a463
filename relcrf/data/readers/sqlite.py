"""A reader of SQLite databases: each table and view becomes a table."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

from relcrf.data import isolation
from relcrf.data.readers.base import AbstractReader, SourceTable
from relcrf.data.store import BATCH_ROWS, Store, TableStore, first_line, quoted, unreadable_error
from relcrf.errors import DataError, DataLocation, Diagnostic, listing, suggestion

MAGIC = b"SQLite format 3\x00"

_KINDS = ("integer", "real", "text", "blob")
"""Types of cells in SQLite, besides missing values."""


class SqliteReader(AbstractReader):
    """A reader that opens the file read-only with the standard library, in a guarded process, and copies the rows in batches."""

    suffixes: ClassVar[tuple[str, ...]] = (".sqlite", ".sqlite3", ".db")

    def accepts(self, path: Path) -> bool:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC

    def tables(self, path: Path, name: str, store: Store) -> Iterator[SourceTable]:
        yield from isolation.copy_tables("sqlite", path, name, store, table=None)


def copy_tables(
    path: Path, name: str, store: TableStore, report_step: Callable[[str], None], table: str | None
) -> list[SourceTable]:
    """Return all tables and views of a SQLite database, or only `table`.

    A view that fails, or a table whose module is missing, has a `problem`; it does not affect the others.

    Raises:
        DataError: The file is damaged or not a SQLite database (E204), or has no such table (E235).
    """
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            # Views of an untrusted file may call only functions that SQLite marks as innocuous.
            database.execute("PRAGMA trusted_schema = OFF")
            rows = database.execute(
                "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' "
                "ORDER BY name"
            ).fetchall()
            names = [row[0] for row in rows]
            if table is not None and table not in names:
                hint = suggestion(table, names) or f"its tables are {listing(names)}"
                raise DataError(Diagnostic("E235", f"'{path}' has no table '{table}'", DataLocation(str(path)), hint))
            tables = []
            for selected in names if table is None else [table]:
                report_step(f"table '{selected}'")
                location, scan, problem = f"{path}, table '{selected}'", "", None
                try:
                    scan = _copy_table(database, selected, store)
                except sqlite3.OperationalError as error:
                    rows_sql = f"CREATE TABLE {selected}_rows AS SELECT * FROM {selected}"
                    hint, notes = f"fix it, or store its rows in a table: {rows_sql}", (first_line(error),)
                    problem = Diagnostic("E204", f"{location} cannot be read", DataLocation(location), hint, notes)
                    if table is not None:
                        raise DataError(problem) from None
                tables.append(SourceTable(selected, location, scan, inner_name=selected, problem=problem))
            return tables
    except (sqlite3.Error, UnicodeDecodeError) as error:  # an error message of SQLite may not be valid UTF-8
        raise unreadable_error(str(path), notes=(first_line(error),)) from None


def _copy_table(database: sqlite3.Connection, table: str, store: TableStore) -> str:
    """Copy a table. In SQLite each cell has a type; a copied column has the common type of its cells, or is text."""
    columns = [row[0] for row in database.execute(f"SELECT * FROM {quoted(table)} LIMIT 0").description]
    types: dict[str, str] = {}
    n_kinds = len(_KINDS)
    n_columns = max(1, database.getlimit(sqlite3.SQLITE_LIMIT_COLUMN) // n_kinds)
    for start in range(0, len(columns), n_columns):
        chosen = columns[start : start + n_columns]
        flags = ", ".join(f"coalesce(max(typeof({quoted(c)}) = '{kind}'), 0)" for c in chosen for kind in _KINDS)
        found = database.execute(f"SELECT {flags} FROM {quoted(table)}").fetchone()
        types |= {c: _column_type(*found[n_kinds * k : n_kinds * (k + 1)]) for k, c in enumerate(chosen)}
    rows = database.execute(f"SELECT {', '.join(map(quoted, columns))} FROM {quoted(table)}")

    def batches() -> Iterator[list[list[Any]]]:
        while batch := rows.fetchmany(BATCH_ROWS):
            cells = zip(zip(*batch, strict=True), types.values(), strict=True)
            yield [[*map(_cell_text, column)] if kind == "VARCHAR" else list(column) for column, kind in cells]

    return store.add_rows(types, batches())


def _column_type(has_integer: int, has_real: int, has_text: int, has_blob: int) -> str:
    if has_text or (has_blob and (has_integer or has_real)):
        return "VARCHAR"
    if has_blob:
        return "BLOB"
    if has_real:
        return "DOUBLE"
    return "BIGINT" if has_integer else "VARCHAR"


def _cell_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return value.hex() if isinstance(value, bytes) else str(value)
