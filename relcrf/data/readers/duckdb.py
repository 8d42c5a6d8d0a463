"""A reader of DuckDB databases: each table and view of the schema `main` becomes a table."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import duckdb

from relcrf.data.readers.base import AbstractReader, SourceTable
from relcrf.data.store import Store, first_line, literal, out_of_memory_error, quoted, unreadable_error
from relcrf.errors import DataError, DataLocation, Diagnostic, listing, suggestion

MAGIC = b"DUCK"
"""Magic bytes of the format, after a checksum of 8 bytes."""

_COPY = "relcrf_copy"
"""Name of the database with the copies of the rows."""

_LIST_TABLES = """
SELECT table_name, 'table' FROM duckdb_tables() WHERE database_name = $1 AND schema_name = $2
UNION ALL
SELECT view_name, 'view' FROM duckdb_views() WHERE database_name = $1 AND schema_name = $2 AND NOT internal
ORDER BY ALL
"""
"""A query for the names and kinds of the tables and views of a schema."""

_HINTS = {
    "Conflicting lock": "close the program that writes to the database, or pass a copy of the file",
    "already attached": "close this program's other connection, or pass its relations: Dataset({'page': c.table('page')})",
    "encrypted": "copy the tables to a database that is not encrypted, with COPY FROM DATABASE",
    "newer version": "upgrade DuckDB: pip install --upgrade duckdb",
}
"""Hints for errors that a damaged file does not cause, by a part of DuckDB's message."""


class DuckdbReader(AbstractReader):
    """A reader that opens the file read-only in a separate database without access to other files, and copies the rows.

    The copy is made by DuckDB and does not pass through Python objects. A table or view that cannot be read has a
    `problem`; it does not affect the others.
    """

    suffixes: ClassVar[tuple[str, ...]] = (".duckdb", ".ddb", ".db")

    def accepts(self, path: Path) -> bool:
        with path.open("rb") as file:
            return file.read(12)[8:] == MAGIC

    def tables(self, path: Path, name: str, store: Store) -> Iterator[SourceTable]:
        yield from _copy_tables(path, store, "main", None)


def read_table(path: Path, store: Store, table: str, schema: str = "main") -> SourceTable:
    """Return a table or view of a DuckDB database.

    Raises:
        DataError: The file or the table cannot be read (E204), or the schema has no such table (E235).
    """
    (found,) = _copy_tables(path, store, schema, table)
    if found.problem is not None:
        raise DataError(found.problem)
    return found


def _copy_tables(path: Path, store: Store, schema: str, table: str | None) -> list[SourceTable]:
    """Copy all tables and views of a schema, or only one, to a new database that is attached to the store."""
    file, attached = store.new_folder() / f"{_COPY}.duckdb", store.new_name("file")
    try:
        with store.new_database(file) as database:
            source = _attach_isolated(database, path)
            kinds = dict(database.execute(_LIST_TABLES, [source, schema]).fetchall())
            if table is not None and table not in kinds:
                hint = suggestion(table, kinds) or f"the schema '{schema}' has {listing(kinds) or 'none'}"
                raise DataError(Diagnostic("E235", f"'{path}' has no table '{table}'", DataLocation(str(path)), hint))
            schema_sql = f"{quoted(source)}.{quoted(schema)}"
            problems = {
                name: _copy_table(database, schema_sql, name, f"{path}, {kinds[name]} '{name}'")
                for name in (kinds if table is None else [table])
            }
        store.connection.execute(f"ATTACH {literal(str(file))} AS {attached} (READ_ONLY)")
    except duckdb.OutOfMemoryException as error:
        raise out_of_memory_error(error) from None
    except duckdb.Error as error:
        if isinstance(error, duckdb.InterruptException):
            raise
        advice = next((hint for text, hint in _HINTS.items() if text in str(error)), None)
        raise unreadable_error(str(path), advice, (first_line(error),)) from None
    return [
        SourceTable(
            name, f"{path}, table '{name}'", f"{attached}.main.{quoted(name)}", inner_name=name, problem=problem
        )
        for name, problem in problems.items()
    ]


def _attach_isolated(database: duckdb.DuckDBPyConnection, path: Path) -> str:
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
    name = "source" if path.stem.lower() in (_COPY, "main", "system", "temp") else path.stem
    database.execute("SET allow_persistent_secrets = false")  # they are located in the home folder
    database.execute(f"ATTACH {literal(str(path.absolute()))} AS {quoted(name)} (READ_ONLY, TYPE duckdb)")
    database.execute("SET enable_external_access = false")
    database.execute("SET lock_configuration = true")
    return name


def _copy_table(database: duckdb.DuckDBPyConnection, schema: str, name: str, location: str) -> Diagnostic | None:
    """Copy a table or view; return the problem if it cannot be read.

    Args:
        schema: The quoted names of the database and the schema.
        location: The location of the table, as shown in messages.

    Raises:
        duckdb.Error: The memory limit is too low, the user interrupted the program, or the database no longer responds.
    """
    try:
        database.execute(f"CREATE TABLE {_COPY}.main.{quoted(name)} AS FROM {schema}.{quoted(name)}")
    except (duckdb.OutOfMemoryException, duckdb.InterruptException, duckdb.FatalException, duckdb.InternalException):
        raise
    except duckdb.Error as error:
        hint = f"store the rows of a view in a table: CREATE TABLE {name}_rows AS FROM {name}"
        return Diagnostic("E204", f"{location} cannot be read", DataLocation(location), hint, (first_line(error),))
    return None
