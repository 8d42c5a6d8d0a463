"""SQL from a manifest: it runs in a database that holds the manifest's tables and can reach nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter

import duckdb
import sqlglot
from sqlglot import errors, expressions

from relcrf.data.manifest import QueryEntry
from relcrf.data.readers.base import SourceTable
from relcrf.data.store import Store, first_line, literal, quoted, unreadable_error
from relcrf.errors import DataError, Diagnostic, listing, suggestion


def run_queries(queries: Sequence[QueryEntry], source_tables: Sequence[SourceTable], store: Store) -> list[SourceTable]:
    """The tables that queries make of given ones.

    The database is a file of its own with copies of those given tables that a query names. While queries run, it is open
    alone, without access to files, extensions, other databases and Python's variables, and its settings are locked.

    Raises:
        DataError: for SQL that is no single SELECT, that fails, or that needs its own result.
    """
    tables = {found.name.lower(): found for found in source_tables}
    named = {query.name.lower(): query for query in queries}
    needs = {name: _referenced_tables(query) for name, query in named.items()}
    try:
        order = list(TopologicalSorter({name: used & named.keys() for name, used in needs.items()}).static_order())
    except CycleError as error:
        cycle = list(error.args[1])
        query = named[cycle[0]]
        message = f"the tables {listing(sorted(set(cycle)))} are made of each other"
        raise _query_error(query, message, "a table is made of tables that are there before it") from None
    file, box = store.new_folder() / "tables.duckdb", store.new_name("box")
    attach = f"ATTACH {literal(str(file))} AS {box}"
    store.connection.execute(attach)
    for name in sorted(set().union(*needs.values()) & tables.keys()):
        found = tables[name]
        try:
            store.connection.execute(f"CREATE TABLE {box}.main.{quoted(found.name)} AS SELECT * FROM {found.scan}")
        except duckdb.Error as error:
            raise unreadable_error(found.location, notes=(first_line(error),)) from None
    store.connection.execute(f"DETACH {box}")
    with store.new_database(file) as connection:
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        for name in order:
            query = named[name]
            try:
                connection.execute(f"CREATE TABLE {quoted(query.name)} AS\n{query.sql}")
            except duckdb.Error as error:
                raise _execution_error(query, error, [*tables, *named]) from None
    store.connection.execute(f"{attach} (READ_ONLY)")
    return [SourceTable(q.name, f"{q.file}, table '{q.name}'", f"{box}.main.{quoted(q.name)}") for q in queries]


def _referenced_tables(query: QueryEntry) -> set[str]:
    """The tables that a query names, in lower case; names that it gives itself among them."""
    try:
        statements = duckdb.extract_statements(query.sql)
    except duckdb.Error as error:
        raise _query_error(query, f"the SQL of table '{query.name}' cannot be read", first_line(error)) from None
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise _query_error(
            query, f"the SQL of table '{query.name}' is no single SELECT", "write one SELECT, and nothing else"
        )
    try:
        tree = sqlglot.parse_one(query.sql, read="duckdb")
    except (errors.SqlglotError, RecursionError) as error:
        raise _query_error(query, f"the SQL of table '{query.name}' cannot be read", first_line(error)) from None
    return {table.name.lower() for table in tree.find_all(expressions.Table)}


def _execution_error(query: QueryEntry, error: duckdb.Error, known_tables: Sequence[str]) -> DataError:
    """What DuckDB refuses, as a mistake of the manifest."""
    if isinstance(error, duckdb.PermissionException):
        hint = "SQL sees the manifest's tables alone: give the file a table of its own"
        return _query_error(query, f"the SQL of table '{query.name}' reaches for what is not in the manifest", hint)
    unknown = [
        name for name in _referenced_tables(query) if f"table with name {name} does not exist" in str(error).lower()
    ]
    guess = suggestion(unknown[0], known_tables) if unknown else None
    return _query_error(query, f"the SQL of table '{query.name}' fails", guess or "mend the SQL", first_line(error))


def _query_error(query: QueryEntry, message: str, hint: str, *notes: str) -> DataError:
    return DataError(Diagnostic("E234", message, query.location, hint, notes))
