"""Read-only access to the tables of a PostgreSQL server."""

from __future__ import annotations

from collections.abc import Iterator
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


def url_problem(url: str) -> str | None:
    """Return an error message if a manifest must not contain a URL; None if the URL is allowed."""
    if not url.startswith(SCHEMES):
        return f"'{mask_url(url)}' is not a PostgreSQL URL"
    psycopg = import_extra("psycopg", "postgres", "a PostgreSQL source")
    try:
        settings = psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.Error as error:
        return f"the URL cannot be parsed: {first_line(error)}"
    forbidden = [name for name in settings if name not in _ALLOWED_SETTINGS]
    if forbidden:
        return f"the URL sets {listing(forbidden)}, which is not allowed in a manifest"
    hosts = str(settings.get("host", "")).split(",")  # libpq tries the hosts in this order
    if any(host.startswith(("/", "@")) for host in hosts):
        return "the URL names a socket folder, which is not allowed in a manifest"
    if not all(hosts):
        return "the URL has no host and so selects a local socket, which is not allowed in a manifest"
    return None


def read_server(url: str, store: Store, *, schema: str = "public", table: str | None = None) -> list[SourceTable]:
    """Return all tables and views of a schema, or only `table`.

    Raises:
        DataError: The server cannot be reached, or has no such table (E235).
        UsageError: The driver is not installed (E351).
    """
    with _connect(url) as (connection, server):
        rows = connection.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = %s ORDER BY table_name", [schema]
        ).fetchall()
        names = [row[0] for row in rows]
        if table is not None and table not in names:
            hint = suggestion(table, names) or f"the schema '{schema}' has {listing(names) or 'none'}"
            raise DataError(
                Diagnostic("E235", f"the table '{schema}.{table}' does not exist", DataLocation(server), hint)
            )
        return [
            SourceTable(
                t,
                f"{server}, table {schema}.{t}",
                _copy_query(connection, f"TABLE {quoted(schema)}.{quoted(t)}", store),
            )
            for t in (names if table is None else [table])
        ]


def read_query(url: str, store: Store, name: str, sql: str) -> SourceTable:
    """Return the result of a query that runs on a server. For errors see `read_server`."""
    with _connect(url) as (connection, server):
        return SourceTable(name, f"{server}, table '{name}'", _copy_query(connection, sql, store))


@contextmanager
def _connect(url: str) -> Iterator[tuple[Any, str]]:
    """Open a read-only session on one snapshot of the database; yield (connection, server location for messages)."""
    psycopg = import_extra("psycopg", "postgres", "a PostgreSQL source")
    location = mask_url(url)
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
    return f"{scheme}://{rest.partition('?')[0].rpartition('@')[2]}"


def _copy_query(connection: Any, sql: str, store: Store) -> str:
    """Copy the rows of a query to a table, through a temporary CSV file, and return the name of the table."""
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
    values = ", ".join(
        (f"""from_json(c{k}, '["{_ARRAY_TYPES[kind]}"]')""" if kind in _ARRAY_TYPES else f"c{k}")
        + f" AS {quoted(name)}"
        for k, (name, kind) in enumerate(columns)
    )
    options = f"auto_detect = false, header = false, columns = {{{types}}}, delim = ',', quote = '\"', escape = '\"'"
    scan = f"read_csv({literal(str(file))}, {options}, nullstr = '', allow_quoted_nulls = false)"
    table = store.add_query(f"SELECT {values} FROM {scan}")
    file.unlink()
    return table
