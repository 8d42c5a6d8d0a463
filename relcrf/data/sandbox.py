"""Sandboxed execution of the SQL queries of a manifest, in a database that contains only the tables of the manifest."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

import duckdb
import sqlglot
from sqlglot import errors, expressions

from relcrf.data.isolation import death_notes
from relcrf.data.manifest import QueryEntry
from relcrf.data.readers.base import SourceTable
from relcrf.data.store import (
    DISK_FULL,
    Store,
    database_error,
    file_access_error,
    first_line,
    literal,
    out_of_memory_error,
    quoted,
    trimmed_sql,
)
from relcrf.errors import DataError, Diagnostic, listing, suggestion
from relcrf.execution.guarded import ProcessDied


def run_queries(
    queries: Sequence[QueryEntry], source_tables: Sequence[SourceTable], store: Store
) -> tuple[list[SourceTable], frozenset[str]]:
    """Return the tables that queries compute from source tables, and the lower-case names of the tables that they read.

    The queries run in a guarded process, in a separate database file with copies of the source tables that the queries
    refer to. Texts are copied without surrounding blanks, which comparisons of keys ignore elsewhere, too. Files, extensions,
    other databases and Python variables are inaccessible, and the settings are locked.

    Raises:
        DataError: The SQL of a query is not a single SELECT, fails, ends its process, or depends on its own result (E234).
        UsageError: The memory limit is too low (E315), or the disk of the temporary files is full (E314).
    """
    tables = {source.name.lower(): source for source in source_tables}
    queries_by_name = {query.name.lower(): query for query in queries}
    known_names = tables.keys() | queries_by_name.keys()
    references = {name: _referenced_tables(query, known_names, store) for name, query in queries_by_name.items()}
    read_names = frozenset[str]().union(*references.values())
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
    for name in sorted(read_names & tables.keys()):
        source = tables[name]
        try:
            described = store.connection.execute(f"DESCRIBE SELECT * FROM {source.scan}").fetchall()
            texts = [quoted(str(name)) for name, kind, *_ in described if kind == "VARCHAR"]
            trimmed = ", ".join(f"{trimmed_sql(text)} AS {text}" for text in texts)
            cells = f"* REPLACE ({trimmed})" if texts else "*"
            store.connection.execute(
                f"CREATE TABLE {sandbox}.main.{quoted(source.name)} AS SELECT {cells} FROM {source.scan}"
            )
        except duckdb.Error as error:
            raise database_error(source.location, error) from None
    store.connection.execute(f"DETACH {sandbox}")
    folder, ordered = str(store.new_folder()), [queries_by_name[name] for name in order]
    try:
        reply = store.guarded_process.call(
            "run",
            folder=folder,
            file=str(file),
            memory_limit=store.memory_limit,
            queries=[(query.name, query.sql) for query in ordered],
        )
    except ProcessDied as death:
        query = next((query for query in ordered if query.name == death.step), ordered[0])
        raise _death_error(query, death) from None
    if reply:
        if reply["error"] in ("OutOfMemoryException", "MemoryError"):
            raise out_of_memory_error(reply["note"])
        if DISK_FULL in reply["text"]:
            raise file_access_error(reply["text"])
        query = queries_by_name[reply["query"].lower()]
        raise _execution_error(query, reply, references[query.name.lower()], [*tables, *queries_by_name])
    store.connection.execute(f"{attach} (READ_ONLY)")
    results = [
        SourceTable(q.name, f"{q.file}, table '{q.name}'", f"{sandbox}.main.{quoted(q.name)}", is_ordered=False)
        for q in queries
    ]
    return results, read_names


def _referenced_tables(query: QueryEntry, known_names: Collection[str], store: Store) -> set[str]:
    """Return the names of the tables and common table expressions that a query refers to, in lower case.

    Args:
        known_names: The names of the tables of the manifest.

    Raises:
        DataError: The SQL is not a single SELECT, or calls a forbidden function (E234).
    """
    try:
        reply = store.guarded_process.call("check", sql=query.sql)
    except ProcessDied as death:
        raise _death_error(query, death) from None
    if "error" in reply:
        raise _query_error(query, f"the SQL of table '{query.name}' cannot be read", reply["error"])
    if not reply["is_select"]:
        raise _query_error(
            query, f"the SQL of table '{query.name}' is not a single SELECT", "write one SELECT statement"
        )
    if forbidden := [f"{name}()" for name in reply["forbidden"]] + sorted(set(reply["views"]) - {*known_names}):
        raise _outside_error(query, f"it uses {listing(forbidden)}")
    try:
        tree = sqlglot.parse_one(query.sql, read="duckdb")
    except (errors.SqlglotError, RecursionError) as error:
        raise _query_error(query, f"the SQL of table '{query.name}' cannot be read", first_line(error)) from None
    return {table.name.lower() for table in tree.find_all(expressions.Table)}


def _execution_error(
    query: QueryEntry, reply: Mapping[str, str], references: Collection[str], known_tables: Sequence[str]
) -> DataError:
    """Return the error for SQL that DuckDB rejects, located at the SQL in the manifest."""
    if reply["error"] == "PermissionException":
        return _outside_error(query)
    unknown = [name for name in references if f"table with name {name} does not exist" in reply["text"].lower()]
    guess = suggestion(unknown[0], known_tables) if unknown else None
    return _query_error(query, f"the SQL of table '{query.name}' fails", guess or "fix the SQL", reply["note"])


def _outside_error(query: QueryEntry, *notes: str) -> DataError:
    hint = "SQL can read only the manifest's tables: add a table for the file"
    return _query_error(query, f"the SQL of table '{query.name}' accesses data outside the manifest", hint, *notes)


def _death_error(query: QueryEntry, death: ProcessDied) -> DataError:
    """Return the error for SQL that ended its process."""
    hint = "remove deep nesting from the SQL and its data, and raise --memory if the tables are large"
    return _query_error(query, f"the SQL of table '{query.name}' crashes DuckDB", hint, *death_notes(death))


def _query_error(query: QueryEntry, message: str, hint: str, *notes: str) -> DataError:
    return DataError(Diagnostic("E234", message, query.location, hint, notes))
