"""The PostgreSQL engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import duckdb
import numpy as np

from relcrf.data.dataset import quoted
from relcrf.data.readers.postgres import parse_url
from relcrf.errors import DataError, Diagnostic, UsageError
from relcrf.grounding.dialects.postgres import SESSION_FUNCTIONS, PostgresDialect
from relcrf.grounding.engines.base import DTYPES, AbstractEngine, Batch, engine_error
from relcrf.grounding.engines.renamed_tables import RenamedTable, find_tables, make_renamed_table, rename_plan_tables
from relcrf.grounding.plan import Plan

BATCH_ROWS = 100_000
"""Number of rows per batch."""

_COPY_ROWS = 10_000
"""Number of rows of a table that are sent to the server at a time."""

_HEADER_BYTES = 19
"""Length of the header of a binary COPY, in bytes."""

_TYPES = {"BOOLEAN": "boolean", "INTEGER": "integer", "BIGINT": "bigint", "FLOAT": "real", "DOUBLE": "double precision"}
_TYPES |= {"DATE": "date", "VARCHAR": 'text COLLATE "C"'}
"""PostgreSQL type of each DuckDB type except vectors, see `_postgres_type`."""

_OUTPUT_TYPES = {"integer": "int4", "bigint": "int8", "double": "float8", "text": "text"}
"""PostgreSQL type of each output type."""


class PostgresEngine(AbstractEngine):
    """An engine that runs plans on a PostgreSQL server. Its tables are temporary: they vanish even if this process dies.

    Each coded table is copied to the server when the first plan reads the table. Only one plan can run at a time.

    Args:
        connection_string: a URL, `postgresql://user@host/database`, or another connection string of libpq.
        cursor: function that opens a separate connection to the coded tables.

    Raises:
        UsageError: if the package psycopg is missing.
        DataError: if the server cannot be reached, or the encoding of the database is not UTF-8.
    """

    name = "postgres"

    def __init__(self, connection_string: str, cursor: Callable[[], duckdb.DuckDBPyConnection]) -> None:
        try:
            import psycopg
        except ModuleNotFoundError:
            hint = "install it with: pip install 'relcrf[postgres]'"
            raise UsageError(
                Diagnostic("E371", "the engine 'postgres' requires the package psycopg", hint=hint)
            ) from None
        self._error = psycopg.Error
        self._cursor = cursor
        self._dialect = PostgresDialect()
        self._tables: dict[str, RenamedTable] = {}
        if parse_url(connection_string) is None:
            hint = "write postgresql://user@host/database; encode special characters of a password, such as %40 for @"
            raise DataError(Diagnostic("E371", "the URL of the server cannot be parsed", hint=hint))
        with self._convert_errors():
            self._connection = psycopg.connect(connection_string, autocommit=True, client_encoding="utf8")
            encoding = self._connection.info.parameter_status("server_encoding")
            if encoding != "UTF8":
                self.close()
                message = f"the encoding of the database is {encoding}; the engine 'postgres' requires UTF8"
                raise DataError(
                    Diagnostic("E371", message, hint="create a database with: createdb -E UTF8 -T template0")
                )
            for statement in (
                "SET DateStyle = 'ISO'",
                "SET timezone = 'UTC'",
                "SET check_function_bodies = off",
                *SESSION_FUNCTIONS,
            ):
                self._connection.execute(statement)

    def rows(self, plan: Plan) -> Iterator[Batch]:
        with self._convert_errors():
            for table in find_tables(plan):
                if table not in self._tables:
                    self._tables[table] = self._copy_table(table)
            query = self._dialect.rows_query(rename_plan_tables(plan, self._tables))
            with self._connection.cursor() as cursor, cursor.copy(f"COPY ({query}) TO STDOUT (FORMAT binary)") as copy:
                if any(kind == "text" for _, _, kind in plan.outputs):
                    copy.set_types([_OUTPUT_TYPES[kind] for _, _, kind in plan.outputs])
                    yield from _read_text_rows(copy.rows(), plan)
                else:
                    yield from _read_fixed_width(copy, plan)

    def close(self) -> None:
        self._connection.close()

    def _copy_table(self, table: str) -> RenamedTable:
        """Copy a coded table to a temporary table on the server, with an index on each integer column."""
        with self._cursor() as connection:
            renamed = make_renamed_table(connection, table, len(self._tables))
        columns = zip(renamed.columns.values(), renamed.types, strict=True)
        declarations = ", ".join(f"{name} {_postgres_type(duckdb_type)}" for name, duckdb_type in columns)
        cells = " || ',' || ".join(
            _csv_cell_sql(name, duckdb_type) for name, duckdb_type in zip(renamed.columns, renamed.types, strict=True)
        )
        self._connection.execute(f"CREATE TEMPORARY TABLE {renamed.name} ({declarations})")
        with self._cursor() as rows, self._connection.cursor() as cursor:
            rows.execute(f"SELECT {cells} || chr(10) FROM {quoted(table)}")
            with cursor.copy(f"COPY {renamed.name} FROM STDIN (FORMAT csv)") as copy:
                while lines := rows.fetchmany(_COPY_ROWS):
                    copy.write("".join(line for (line,) in lines))
        for column, duckdb_type in zip(renamed.columns.values(), renamed.types, strict=True):
            if duckdb_type == "INTEGER":
                self._connection.execute(f"CREATE INDEX ON {renamed.name} ({column})")
        self._connection.execute(f"ANALYZE {renamed.name}")
        return renamed

    @contextmanager
    def _convert_errors(self) -> Iterator[None]:
        """Convert errors of the server to diagnostics."""
        try:
            yield
        except self._error as error:
            hint = "check the connection and your permission to create temporary tables, or use the engine 'duckdb'"
            raise engine_error(self.name, error, hint) from None


def _postgres_type(kind: str) -> str:
    """Return the PostgreSQL type of a DuckDB type; vectors such as `DOUBLE[3]` become arrays."""
    return "double precision[]" if kind.endswith("]") else _TYPES[kind]


def _csv_cell_sql(column: str, kind: str) -> str:
    """Return DuckDB SQL that formats a table cell as CSV; a null is an empty cell, and texts are always quoted."""
    name = quoted(column)
    if kind == "VARCHAR":
        name = f"""'"' || replace({name}, '"', '""') || '"'"""
    elif kind.endswith("]"):
        name = f"""'"{{' || array_to_string({name}, ',') || '}}"'"""
    return f"coalesce(CAST({name} AS VARCHAR), '')"


def _read_fixed_width(pieces: Iterable[Any], plan: Plan) -> Iterator[Batch]:
    """Yield batches of a binary COPY in which each row is the number of fields, then the length and value of each field."""
    fields = [
        (f"length_{name}", ">i4", name, np.dtype(DTYPES[kind]).newbyteorder(">")) for name, _, kind in plan.outputs
    ]
    row = np.dtype([("fields", ">i2"), *((n, t) for f in fields for n, t in (f[:2], f[2:]))])
    data, start = bytearray(), _HEADER_BYTES
    for piece in pieces:
        data += piece
        if len(data) >= start + BATCH_ROWS * row.itemsize:
            yield _make_batch(data, start, row, plan)
            data, start = data[start + (len(data) - start) // row.itemsize * row.itemsize :], 0
    if len(data) >= start + row.itemsize:
        yield _make_batch(data, start, row, plan)


def _make_batch(data: bytearray, start: int, row: np.dtype[Any], plan: Plan) -> Batch:
    rows = np.frombuffer(data, row, (len(data) - start) // row.itemsize, start)
    assert (rows["fields"] == len(plan.outputs)).all(), "an output has a missing value"
    return {name: rows[name].astype(DTYPES[kind]) for name, _, kind in plan.outputs}


def _read_text_rows(rows: Iterator[tuple[Any, ...]], plan: Plan) -> Iterator[Batch]:
    while batch_rows := list(islice(rows, BATCH_ROWS)):
        columns = zip(plan.outputs, zip(*batch_rows, strict=True), strict=True)
        yield {name: np.fromiter(values, DTYPES[kind], len(batch_rows)) for (name, _, kind), values in columns}
