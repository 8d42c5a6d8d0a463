"""Read-only access to the tables of a PostgreSQL server."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import duckdb

from relcrf.data.extras import import_extra
from relcrf.data.readers.base import SourceTable
from relcrf.data.store import Store, first_line, literal, quoted
from relcrf.errors import DataError, DataLocation, Diagnostic, listing, suggestion

SCHEMES = ("postgresql://", "postgres://")

_TYPES = {16: "BOOLEAN", 20: "BIGINT", 21: "BIGINT", 23: "BIGINT", 700: "DOUBLE", 701: "DOUBLE"}
"""DuckDB's types by PostgreSQL's type OIDs (catalog pg_type). Other types become text (`numeric` keeps all digits)."""

_ARRAY_TYPES = {
    **dict.fromkeys((1009, 1015), "VARCHAR"),
    **dict.fromkeys((1005, 1007, 1016), "BIGINT"),
    **dict.fromkeys((1021, 1022), "DOUBLE"),
}
"""DuckDB's types of array elements, by the PostgreSQL OID of the array type."""

_TEXT_SETTINGS = {
    "datestyle": "ISO, YMD",
    "intervalstyle": "postgres",
    "timezone": "UTC",
    "extra_float_digits": "1",
    "bytea_output": "hex",
}
"""Settings of a session that determine the texts of values; the defaults of a database or user would change values."""

_ALLOWED_SETTINGS = ("host", "port", "user", "password", "dbname", "sslmode", "connect_timeout")
"""Connection settings allowed in a manifest; other settings of libpq can refer to files or affect the session."""


def parse_url(url: str) -> dict[str, Any] | None:
    """Return the settings in a URL or connection string; None if it is invalid.

    Often the reason is a character such as `@` in a password, so that the driver's message would show a part of it.
    """
    psycopg = import_extra("psycopg", "postgres", "a PostgreSQL source")
    try:
        settings: dict[str, Any] = psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.Error:
        return None
    host, port = str(settings.get("host", "")), str(settings.get("port", ""))
    # A host that starts with @ is an abstract socket.
    return None if re.search("[^,]@", host) or not re.fullmatch("[0-9,]*", port) else settings


def url_problem(url: str) -> str | None:
    """Return an error message if a manifest must not contain a URL; None if the URL is allowed."""
    if not url.startswith(SCHEMES):
        return f"'{mask_url(url)}' is not a PostgreSQL URL"
    settings = parse_url(url)
    if settings is None:
        return f"the URL of {mask_url(url)} cannot be parsed"
    forbidden = [name for name in settings if name not in _ALLOWED_SETTINGS]
    if forbidden:
        return f"the URL sets {listing(forbidden)}, which is not allowed in a manifest"
    hosts = str(settings.get("host", "")).split(",")  # libpq tries the hosts in this order
    if any(host.startswith(("/", "@")) for host in hosts):
        return "the URL names a socket folder, which is not allowed in a manifest"
    if not all(hosts):
        return "the URL has no host and so selects a local socket, which is not allowed in a manifest"
    return None


def list_tables(url: str, schema: str = "public") -> list[str]:
    """Return the names of the tables and views of a schema, whether or not they can be read.

    Raises:
        DataError: The server cannot be reached (E235).
        UsageError: The driver is not installed (E351).
    """
    with _connect(url) as (connection, _):
        rows = connection.execute(
            "SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = %s AND c.relkind IN ('r', 'v', 'm', 'p', 'f') ORDER BY c.relname",
            [schema],
        ).fetchall()
        return [row[0] for row in rows]


def read_tables(
    url: str, store: Store, tables: Iterable[str], *, schema: str = "public"
) -> tuple[list[SourceTable], list[Diagnostic]]:
    """Read tables and views in one snapshot; return those that can be read, and the problems of the others.

    Raises:
        DataError: The server cannot be reached (E235).
        UsageError: The driver is not installed (E351).
    """
    psycopg = import_extra("psycopg", "postgres", "a PostgreSQL source")
    found, problems = [], []
    with _connect(url) as (connection, server):
        for table in tables:
            location = f"{server}, table {schema}.{table}"
            try:
                with connection.transaction():  # a savepoint: after an error, the other tables can still be read
                    scan = _copy_query(connection, f"TABLE {quoted(schema)}.{quoted(table)}", store, location)
                found.append(SourceTable(table, location, scan, is_ordered=False))
            except psycopg.errors.InsufficientPrivilege as error:
                message = f"no right to read the table '{schema}.{table}'"
                hint = f"ask its owner for: GRANT SELECT ON {schema}.{table} TO {connection.info.user}"
                problems.append(Diagnostic("E235", message, DataLocation(location), hint, (first_line(error),)))
            except psycopg.errors.UndefinedTable as error:
                names = list_tables(url, schema)
                hint = suggestion(table, names) or f"the schema '{schema}' has {listing(names) or 'none'}"
                message = f"the table '{schema}.{table}' does not exist"
                if table in names:  # a view whose function refers to a missing table
                    message, hint = f"the table '{schema}.{table}' cannot be read", first_line(error)
                problems.append(Diagnostic("E235", message, DataLocation(location), hint))
            except psycopg.Error as error:
                message = f"the table '{schema}.{table}' cannot be read"
                problems.append(Diagnostic("E235", message, DataLocation(location), first_line(error)))
            except DataError as error:
                problems += error.diagnostics
    return found, problems


def read_query(url: str, store: Store, name: str, sql: str) -> SourceTable:
    """Return the result of a query that runs on a server.

    Raises:
        DataError: The server cannot be reached, or rejects the query (E235).
        UsageError: The driver is not installed (E351).
    """
    with _connect(url) as (connection, server):
        location = f"{server}, table '{name}'"
        return SourceTable(name, location, _copy_query(connection, sql, store, location), is_ordered=False)


@contextmanager
def _connect(url: str) -> Iterator[tuple[Any, str]]:
    """Open a read-only session on one snapshot of the database; yield (connection, server location for messages)."""
    psycopg = import_extra("psycopg", "postgres", "a PostgreSQL source")
    location = mask_url(url)
    if parse_url(url) is None:
        hint = "write postgresql://user@host/database; in a password, write @ as %40, / as %2F and ? as %3F"
        raise DataError(Diagnostic("E235", f"the URL of {location} cannot be parsed", DataLocation(location), hint))
    try:
        with psycopg.connect(url, connect_timeout=10, client_encoding="utf8") as connection:
            connection.read_only = True
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.execute("SET SESSION default_transaction_read_only = on")
            for name, value in _TEXT_SETTINGS.items():
                connection.execute(f"SET {name} = {literal(value)}")
            yield connection, location
    except psycopg.Error as error:
        notes = tuple(line.strip() for line in str(error).splitlines() if line.strip())[:4]
        hint = "fix the SQL, or request read access" if error.sqlstate else "check that psql accepts the same URL"
        raise DataError(Diagnostic("E235", f"{location} cannot be read", DataLocation(location), hint, notes)) from None
    except duckdb.Error as error:
        notes = (first_line(error),)
        raise DataError(
            Diagnostic("E235", f"rows of {location} cannot be stored", DataLocation(location), notes=notes)
        ) from None


def mask_url(url: str) -> str:
    """Return a URL for messages, without user, password and settings."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"


def _copy_query(connection: Any, sql: str, store: Store, location: str) -> str:
    """Copy the rows of a query to a table, through a temporary CSV file, and return the name of the table.

    Args:
        location: The table's location, as shown in messages.

    Raises:
        DataError: The arrays of a column have different numbers of dimensions (E215).
    """
    query = f"(\n{sql.strip().rstrip(';')}\n) AS q"
    # Injection is impossible: only a single statement can be prepared, so the SQL cannot close the parenthesis of COPY.
    description = connection.execute(f"SELECT * FROM {query} LIMIT 0", prepare=True).description
    columns = [(column.name, column.type_code) for column in description]
    file = store.new_folder() / "rows.csv"
    selected = ", ".join(f"to_json({quoted(c)})" if kind in _ARRAY_TYPES else quoted(c) for c, kind in columns)
    copy = f"COPY (SELECT {selected} FROM {query}) TO STDOUT (FORMAT csv)"
    with file.open("wb") as output, connection.cursor() as cursor, cursor.copy(copy) as chunks:
        for chunk in chunks:
            output.write(chunk)
    types = ", ".join(f"c{k}: {literal(_TYPES.get(kind, 'VARCHAR'))}" for k, (_, kind) in enumerate(columns))
    options = f"auto_detect = false, header = false, columns = {{{types}}}, delim = ',', quote = '\"', escape = '\"'"
    scan = f"read_csv({literal(str(file))}, {options}, nullstr = '', allow_quoted_nulls = false)"
    values = []
    for k, (name, kind) in enumerate(columns):
        value = f"c{k}"
        if kind in _ARRAY_TYPES:
            depth = _array_depth(store, scan, value, DataLocation(location, column=name))
            value = f"from_json(c{k}, '{'[' * depth}\"{_ARRAY_TYPES[kind]}\"{']' * depth}')"
        values.append(f"{value} AS {quoted(name)}")
    table = store.add_query(f"SELECT {', '.join(values)} FROM {scan}")
    file.unlink()
    return table


def _array_depth(store: Store, scan: str, column: str, location: DataLocation) -> int:
    """Return the number of dimensions of the arrays in a column, written as JSON; PostgreSQL does not declare it.

    Raises:
        DataError: The arrays have different numbers of dimensions (E215).
    """
    rows = store.connection.execute(
        f"SELECT length(regexp_extract({column}, '^\\[+')) AS depth, any_value({column}) FROM {scan} "
        f"WHERE {column} <> '[]' GROUP BY depth ORDER BY depth"
    ).fetchall()
    if len(rows) > 1:
        message = f"column '{location.column}' has arrays of different depth, such as {rows[0][1]} and {rows[-1][1]}"
        raise DataError(Diagnostic("E215", message, location, "select single values in a query: sql = ..."))
    return rows[0][0] if rows else 1
