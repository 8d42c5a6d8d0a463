"""Tables of a PostgreSQL server. Nothing is ever written to it."""

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
"""DuckDB's types by the numbers of PostgreSQL's (catalog pg_type); all others are text, `numeric` too: it keeps its digits."""

_ARRAY_TYPES = {
    **dict.fromkeys((1009, 1015), "VARCHAR"),
    **dict.fromkeys((1005, 1007, 1016), "BIGINT"),
    **dict.fromkeys((1021, 1022), "DOUBLE"),
}
"""Of arrays: the type of their elements."""

_ALLOWED_SETTINGS = ("host", "port", "user", "password", "dbname", "sslmode", "connect_timeout")
"""What a manifest may say of a connection; other settings of libpq name files or run in the session."""


def url_problem(url: str) -> str | None:
    """What is wrong with a URL that comes from a file, or None."""
    if not url.startswith(SCHEMES):
        return f"'{mask_url(url)}' is no URL of PostgreSQL"
    psycopg = import_extra("psycopg", "postgres", "a PostgreSQL source")
    try:
        settings = psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.Error as error:
        return f"the URL cannot be read: {first_line(error)}"
    more = [name for name in settings if name not in _ALLOWED_SETTINGS]
    if more:
        return f"the URL sets {listing(more)}, which a manifest may not"
    hosts = str(settings.get("host", "")).split(",")  # libpq tries one after the other
    if any(host.startswith(("/", "@")) for host in hosts):
        return "the URL names a socket's folder, which a manifest may not"
    if not all(hosts):
        return "the URL leaves out a host, which asks for a socket of this machine; a manifest may not"
    return None


def read_server(url: str, store: Store, *, schema: str = "public", table: str | None = None) -> list[SourceTable]:
    """The tables and views of a schema, or one of them.

    Raises:
        DataError: where the server cannot be reached, or has no such table.
        UsageError: without the driver.
    """
    with _connect(url) as (connection, place):
        listed = connection.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = %s ORDER BY table_name", [schema]
        ).fetchall()
        names = [row[0] for row in listed]
        if table is not None and table not in names:
            hint = suggestion(table, names) or f"the schema '{schema}' has {listing(names) or 'none'}"
            raise DataError(Diagnostic("E235", f"there is no table '{schema}.{table}'", DataLocation(place), hint))
        return [
            SourceTable(
                t, f"{place}, table {schema}.{t}", _copy_query(connection, f"TABLE {quoted(schema)}.{quoted(t)}", store)
            )
            for t in (names if table is None else [table])
        ]


def read_query(url: str, store: Store, name: str, sql: str) -> SourceTable:
    """The rows of a query on a server. For errors see `read_server`."""
    with _connect(url) as (connection, place):
        return SourceTable(name, f"{place}, table '{name}'", _copy_query(connection, sql, store))


@contextmanager
def _connect(url: str) -> Iterator[tuple[Any, str]]:
    """A session that cannot write and sees one state of the database; and what messages call the server."""
    psycopg = import_extra("psycopg", "postgres", "a PostgreSQL source")
    place = mask_url(url)
    try:
        with psycopg.connect(url, connect_timeout=10, client_encoding="utf8") as connection:
            connection.read_only = True
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.execute("SET SESSION default_transaction_read_only = on")
            yield connection, place
    except psycopg.Error as error:
        notes = tuple(line.strip() for line in str(error).splitlines() if line.strip())[:4]
        hint = "mend the SQL, or ask for the right to read" if error.sqlstate else "psql should take the same URL"
        raise DataError(Diagnostic("E235", f"{place} cannot be read", DataLocation(place), hint, notes)) from None
    except duckdb.Error as error:
        notes = (first_line(error),)
        raise DataError(
            Diagnostic("E235", f"rows of {place} cannot be kept", DataLocation(place), notes=notes)
        ) from None


def mask_url(url: str) -> str:
    """A URL as messages show it: without user, password and settings."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('?')[0].rpartition('@')[2]}"


def _copy_query(connection: Any, sql: str, store: Store) -> str:
    """Copies the rows of a query: the server's text goes to a file in pieces, and DuckDB reads it."""
    query = f"(\n{sql.strip().rstrip(';')}\n) AS q"
    # Prepared, so that the server takes one statement only; its text then cannot close the brackets of COPY either.
    described = connection.execute(f"SELECT * FROM {query} LIMIT 0", prepare=True).description
    columns = [(column.name, column.type_code) for column in described]
    file = store.new_folder() / "rows.csv"
    selected = ", ".join(f"to_json({quoted(c)})" if kind in _ARRAY_TYPES else quoted(c) for c, kind in columns)
    copy = f"COPY (SELECT {selected} FROM {query}) TO STDOUT (FORMAT csv)"
    with file.open("wb") as out, connection.cursor() as cursor, cursor.copy(copy) as pieces:
        for piece in pieces:
            out.write(piece)
    types = ", ".join(f"c{k}: {literal(_TYPES.get(kind, 'VARCHAR'))}" for k, (_, kind) in enumerate(columns))
    values = ", ".join(
        (f"""from_json(c{k}, '["{_ARRAY_TYPES[kind]}"]')""" if kind in _ARRAY_TYPES else f"c{k}")
        + f" AS {quoted(name)}"
        for k, (name, kind) in enumerate(columns)
    )
    options = f"auto_detect = false, header = false, columns = {{{types}}}, delim = ',', quote = '\"', escape = '\"'"
    scan = f"read_csv({literal(str(file))}, {options}, nullstr = '', allow_quoted_nulls = false)"
    kept = store.add_query(f"SELECT {values} FROM {scan}")
    file.unlink()
    return kept
