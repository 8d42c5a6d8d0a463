"""Sandboxed execution of the SQL queries of a manifest, in a database that contains only the tables of the manifest."""

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
    """Return the tables that queries compute from source tables.

    The queries run in a separate database file with copies of the source tables that the queries refer to. Files,
    extensions, other databases and Python variables are inaccessible, and the settings are locked.

    Raises:
        DataError: The SQL of a query is not a single SELECT, fails, or depends on its own result (E234).
    """
    tables = {source.name.lower(): source for source in source_tables}
    queries_by_name = {query.name.lower(): query for query in queries}
    references = {name: referenced_tables(query) for name, query in queries_by_name.items()}
    try:
        order = list(
            TopologicalSorter(
                {name: names & queries_by_name.keys() for name, names in references.items()}
            ).static_order()
        )
    except CycleError as error:
        cycle = list(error.args[1])
        query = queries_by_name[cycle[0]]
        message = f"the queries of the tables {listing(sorted(set(cycle)))} depend on each other"
        raise _query_error(query, message, "break the cycle") from None
    file, sandbox = store.new_folder() / "tables.duckdb", store.new_name("box")
    attach = f"ATTACH {literal(str(file))} AS {sandbox}"
    store.connection.execute(attach)
    for name in sorted(set().union(*references.values()) & tables.keys()):
        source = tables[name]
        try:
            store.connection.execute(
                f"CREATE TABLE {sandbox}.main.{quoted(source.name)} AS SELECT * FROM {source.scan}"
            )
        except duckdb.Error as error:
            raise unreadable_error(source.location, notes=(first_line(error),)) from None
    store.connection.execute(f"DETACH {sandbox}")
    with store.new_database(file) as connection:
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        for name in order:
            query = queries_by_name[name]
            try:
                connection.execute(f"CREATE TABLE {quoted(query.name)} AS\n{query.sql}")
            except duckdb.Error as error:
                raise _execution_error(query, error, [*tables, *queries_by_name]) from None
    store.connection.execute(f"{attach} (READ_ONLY)")
    return [
        SourceTable(q.name, f"{q.file}, table '{q.name}'", f"{sandbox}.main.{quoted(q.name)}", is_ordered=False)
        for q in queries
    ]


def referenced_tables(query: QueryEntry) -> set[str]:
    """Return the names of the tables and common table expressions that a query refers to, in lower case."""
    try:
        statements = duckdb.extract_statements(query.sql)
    except duckdb.Error as error:
        raise _query_error(query, f"the SQL of table '{query.name}' cannot be read", first_line(error)) from None
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise _query_error(
            query, f"the SQL of table '{query.name}' is not a single SELECT", "write one SELECT statement"
        )
    try:
        tree = sqlglot.parse_one(query.sql, read="duckdb")
    except (errors.SqlglotError, RecursionError) as error:
        raise _query_error(query, f"the SQL of table '{query.name}' cannot be read", first_line(error)) from None
    return {table.name.lower() for table in tree.find_all(expressions.Table)}


def _execution_error(query: QueryEntry, error: duckdb.Error, known_tables: Sequence[str]) -> DataError:
    """Return the error for SQL that DuckDB rejects, located at the SQL in the manifest."""
    if isinstance(error, duckdb.PermissionException):
        hint = "SQL can read only the manifest's tables: add a table for the file"
        return _query_error(query, f"the SQL of table '{query.name}' accesses data outside the manifest", hint)
    unknown = [
        name for name in referenced_tables(query) if f"table with name {name} does not exist" in str(error).lower()
    ]
    guess = suggestion(unknown[0], known_tables) if unknown else None
    return _query_error(query, f"the SQL of table '{query.name}' fails", guess or "fix the SQL", first_line(error))


def _query_error(query: QueryEntry, message: str, hint: str, *notes: str) -> DataError:
    return DataError(Diagnostic("E234", message, query.location, hint, notes))
