"""Queries of a manifest in the guarded process: their validation, and their execution in a database without access to others."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from relcrf.data.store import TableStore, first_line, quoted

TABLE_FUNCTIONS = frozenset(
    (
        "generate_series",
        "histogram",
        "histogram_values",
        "json_each",
        "json_tree",
        "range",
        "repeat",
        "repeat_row",
        "unnest",
    )
)
"""The table functions that strangers' SQL may call. Others read files, settings or memory of the process, change it, or run
SQL that is given as a text."""

SCALAR_FUNCTIONS = frozenset(
    ("current_query", "current_setting", "current_user", "getenv", "getvariable", "session_user", "user", "write_log")
)
"""The scalar functions that strangers' SQL must not call, because they reveal or change the process."""

_SYSTEM_VIEWS = "SELECT lower(view_name) FROM duckdb_views() WHERE internal AND schema_name <> 'information_schema'"


def check_query(report_step: Callable[[str], None], sql: str) -> dict[str, Any]:
    """Return a key `error` if the SQL is invalid, and whether it `is_select`, with the `forbidden` functions that it calls."""
    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        return {"error": first_line(error)}
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        return {"is_select": False}
    with duckdb.connect() as connection:
        ((text,),) = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchall()
        views = {name for (name,) in connection.execute(_SYSTEM_VIEWS).fetchall()}
    try:
        tree = json.loads(text)
    except RecursionError as error:
        return {"error": first_line(error)}
    if tree["error"]:
        return {"is_select": False}
    return {"is_select": True, "forbidden": sorted(_forbidden_calls(tree)), "views": sorted(views & _table_names(tree))}


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects of a syntax tree in JSON."""
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            yield node
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)


def _forbidden_calls(tree: Any) -> set[str]:
    """Return the names of the forbidden functions in a syntax tree."""
    tables = {
        node["function"]["function_name"].lower() for node in _nodes(tree) if node.get("type") == "TABLE_FUNCTION"
    }
    names = {node["function_name"].lower() for node in _nodes(tree) if "function_name" in node}
    return (tables - TABLE_FUNCTIONS) | (names & SCALAR_FUNCTIONS)


def _table_names(tree: Any) -> set[str]:
    return {node["table_name"].lower() for node in _nodes(tree) if node.get("type") == "BASE_TABLE"}


def find_forbidden_call(
    sql: str, functions: Iterable[str], views: Mapping[tuple[str, str], str] | None = None
) -> str | None:
    """Return a forbidden function that the SQL of a view or macro, as DuckDB formats it, calls; None if there is none.

    Args:
        functions: The names of the forbidden functions.
        views: The forbidden function that each view (schema, name) calls.
    """
    # Only texts are removed: an apostrophe in a quoted name does not start one.
    code = re.sub(r"""("(?:[^"]|"")*")|'(?:[^']|'')*'""", lambda match: match[1] or "''", sql)
    if call := re.search(rf'(?i)(?<![\w$])"?({"|".join(map(re.escape, functions))})"?\s*\(', code):
        return call[1].lower()
    for (_, view), function in (views or {}).items():
        if re.search(rf"(?i)(?<![\w$]){re.escape(view.replace(chr(34), chr(34) * 2))}(?![\w$])", code):
            return function
    return None


def run_queries(
    report_step: Callable[[str], None],
    folder: str,
    file: str,
    memory_limit: str,
    queries: Sequence[tuple[str, str]],
) -> dict[str, Any]:
    """Store the rows of queries (name, SQL) in tables of a database file; return the first error, or an empty mapping."""
    with TableStore(Path(folder), memory_limit, Path(file), "main").connection as connection:
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        for name, sql in queries:
            report_step(name)
            try:
                connection.execute(f"CREATE TABLE {quoted(name)} AS\n{sql}")
            except (duckdb.Error, MemoryError) as error:
                return {"query": name, "error": type(error).__name__, "text": str(error), "note": first_line(error)}
    return {}
