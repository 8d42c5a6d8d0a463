"""A reader of DuckDB databases: each table and view of the schema `main` becomes a table."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import duckdb

from relcrf.data import isolation
from relcrf.data.readers.base import AbstractReader, SourceTable
from relcrf.data.sandbox_queries import SCALAR_FUNCTIONS, TABLE_FUNCTIONS, find_forbidden_call
from relcrf.data.store import (
    DISK_FULL,
    Store,
    TableStore,
    database_error,
    first_line,
    literal,
    quoted,
    unreadable_error,
)
from relcrf.errors import DataError, DataLocation, Diagnostic, listing, suggestion

MAGIC = b"DUCK"
"""Magic bytes of the format, after a checksum of 8 bytes."""

_TABLE_FUNCTIONS = (
    "SELECT DISTINCT lower(function_name) FROM duckdb_functions() WHERE function_type LIKE 'table%' AND internal"
)

_LIST_MACROS = """
SELECT lower(function_name), string_agg(macro_definition, ' ') FROM duckdb_functions()
WHERE database_name = $1 AND macro_definition IS NOT NULL GROUP BY 1
"""

_LIST_TABLES = """
SELECT table_name, 'table' FROM duckdb_tables() WHERE database_name = $1 AND schema_name = $2
UNION ALL
SELECT view_name, 'view' FROM duckdb_views() WHERE database_name = $1 AND schema_name = $2 AND NOT internal
ORDER BY ALL
"""
"""A query for the names and kinds of the tables and views of a schema."""

_HINTS = {
    "Conflicting lock": "close the program that writes to the database, or pass a copy of the file",
    "encrypted": "copy the tables to a database that is not encrypted, with COPY FROM DATABASE",
    "newer version": "upgrade DuckDB: pip install --upgrade duckdb",
}
"""Hints for errors that a damaged file does not cause, by a part of DuckDB's message."""

_OWN_CONNECTION_HINT = (
    "close this program's other connection, or pass its relations: Dataset({'page': c.table('page')})"
)
"""Hint for a file that this process has opened for writing."""

_DESCRIPTORS = Path("/proc/self/fd")
"""Folder with a link for each open file of this process; Linux only."""


class DuckdbReader(AbstractReader):
    """A reader that copies the rows in a guarded process, with a database that has no access to other files.

    The copy is made by DuckDB and does not pass through Python objects. A table or view that cannot be read has a
    `problem`; it does not affect the others.
    """

    suffixes: ClassVar[tuple[str, ...]] = (".duckdb", ".ddb", ".db")

    def accepts(self, path: Path) -> bool:
        with path.open("rb") as file:
            return file.read(12)[8:] == MAGIC

    def tables(self, path: Path, name: str, store: Store) -> Iterator[SourceTable]:
        yield from _read_tables(path, store, "main", None)


def read_table(path: Path, store: Store, table: str, schema: str = "main") -> SourceTable:
    """Return a table or view of a DuckDB database.

    Raises:
        DataError: The file or the table cannot be read (E204), or the schema has no such table (E235).
    """
    (found,) = _read_tables(path, store, schema, table)
    if found.problem is not None:
        raise DataError(found.problem)
    return found


def _read_tables(path: Path, store: Store, schema: str, table: str | None) -> list[SourceTable]:
    """Return all tables and views of a schema, or only one.

    Raises:
        DataError: The file cannot be read, or this process has opened it for writing (E204).
    """
    if _is_open_for_writing(path):
        # Its lock is no obstacle: Linux releases a process's locks of a file when the process closes any descriptor of it.
        raise unreadable_error(str(path), _OWN_CONNECTION_HINT, ("this program has opened it for writing",))
    return isolation.copy_tables("duckdb", path, path.stem, store, schema=schema, table=table)


def _is_open_for_writing(path: Path) -> bool:
    """Return True if this process has opened a file for writing; False where this cannot be found out."""
    if not _DESCRIPTORS.exists():
        return False
    status = path.stat()
    for descriptor in _DESCRIPTORS.iterdir():
        with suppress(OSError):  # closed meanwhile
            if os.path.samestat(status, descriptor.stat()) and descriptor.lstat().st_mode & stat.S_IWUSR:
                return True
    return False


def copy_tables(
    path: Path, name: str, store: TableStore, report_step: Callable[[str], None], schema: str, table: str | None
) -> list[SourceTable]:
    """Copy all tables and views of a schema, or only one.

    Raises:
        DataError: The file cannot be read (E204), or the schema has no such table (E235).
        UsageError: The memory limit is too low (E315), or the disk of the copy is full (E314).
    """
    database = store.connection
    ((copy,),) = database.execute("SELECT current_database()").fetchall()
    try:
        source = _attach_isolated(database, path, copy)
        kinds = dict(database.execute(_LIST_TABLES, [source, schema]).fetchall())
        if table is not None and table not in kinds:
            hint = suggestion(table, kinds) or f"the schema '{schema}' has {listing(kinds) or 'none'}"
            raise DataError(Diagnostic("E235", f"'{path}' has no table '{table}'", DataLocation(str(path)), hint))
        forbidden = _forbidden_views(database, source)
        problems: dict[str, Diagnostic | None] = {}
        for selected in kinds if table is None else [table]:
            step = f"{kinds[selected]} '{selected}'"
            report_step(step)
            location, call = f"{path}, {step}", forbidden.get((schema, selected))
            old, new = (f"{quoted(d)}.{quoted(s)}.{quoted(selected)}" for d, s in ((source, schema), (copy, "main")))
            note = f"it calls {call}()" if call else _copy_table(database, old, new)
            hint = f"store the rows of a view in a table: CREATE TABLE {selected}_rows AS FROM {selected}"
            problem = Diagnostic("E204", f"{location} cannot be read", DataLocation(location), hint, (note or "",))
            problems[selected] = problem if note else None
    except duckdb.Error as error:
        advice = next((hint for text, hint in _HINTS.items() if text in str(error)), None)
        raise database_error(str(path), error, advice) from None
    return [
        SourceTable(
            name, f"{path}, table '{name}'", f"{quoted(copy)}.main.{quoted(name)}", inner_name=name, problem=problem
        )
        for name, problem in problems.items()
    ]


def _forbidden_views(database: duckdb.DuckDBPyConnection, source: str) -> dict[tuple[str, str], str]:
    """Return the views, and the tables with generated columns, that call a forbidden function, directly or in a macro.

    Returns:
        A forbidden function by schema and name.
    """
    names = {name for (name,) in database.execute(_TABLE_FUNCTIONS).fetchall()} - TABLE_FUNCTIONS | SCALAR_FUNCTIONS
    macros = dict(database.execute(_LIST_MACROS, [source]).fetchall())
    while direct := [name for name, sql in macros.items() if find_forbidden_call(sql, names)]:
        for name in direct:
            names.add(name)
            del macros[name]
    selected = "WHERE database_name = $1 AND NOT internal"
    tables = database.execute(f"SELECT schema_name, table_name, sql FROM duckdb_tables() {selected}", [source])
    calls = {
        (schema, name): call for schema, name, sql in tables.fetchall() if (call := find_forbidden_call(sql, names))
    }
    views = database.execute(f"SELECT schema_name, view_name, sql FROM duckdb_views() {selected}", [source])
    sql_by_view = {(schema, view): sql for schema, view, sql in views.fetchall()}
    while found := {
        view: call for view, sql in sql_by_view.items() if (call := find_forbidden_call(sql, names, calls))
    }:
        for view in found:
            del sql_by_view[view]
        calls |= found
    return calls


def _attach_isolated(database: duckdb.DuckDBPyConnection, path: Path, copy: str) -> str:
    """Attach a database file to an empty database, restrict this irreversibly to the file, and return the file's name in SQL.

    A view of an untrusted file can call any function of DuckDB. Here it can access no other file, network, extension,
    secret or setting. DuckDB replays a write-ahead log in memory, and modifies neither the file nor the log.

    Raises:
        DataError: The write-ahead log is a link or a pipe (E204).
        duckdb.Error: The file cannot be read.
    """
    log = path.with_name(f"{path.name}.wal")
    if os.path.lexists(log) and (log.is_symlink() or not log.is_file()):
        hint = "open the database in DuckDB and close it, which removes the log"
        raise unreadable_error(str(path), hint, (f"its write-ahead log '{log.name}' is not a regular file",))
    name = "source" if path.stem.lower() in (copy, "main", "system", "temp") else path.stem
    database.execute("SET allow_persistent_secrets = false")  # they are located in the home folder
    database.execute(f"ATTACH {literal(str(path.absolute()))} AS {quoted(name)} (READ_ONLY, TYPE duckdb)")
    database.execute("SET enable_external_access = false")
    database.execute("SET lock_configuration = true")
    return name


def _copy_table(database: duckdb.DuckDBPyConnection, old: str, new: str) -> str | None:
    """Copy a table or view, given by the quoted names of both; return the reason if it cannot be read.

    Raises:
        duckdb.Error: The memory limit is too low, the disk of the copy is full, or the database no longer responds.
    """
    try:
        database.execute(f"CREATE TABLE {new} AS FROM {old}")
    except (duckdb.OutOfMemoryException, duckdb.FatalException, duckdb.InternalException):
        raise
    except duckdb.Error as error:
        if DISK_FULL in str(error):
            raise
        return first_line(error)
    return None
