"""Plans on a PostgreSQL server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import duckdb
import numpy as np

from relcrf.data.dataset import quoted
from relcrf.errors import DataError, Diagnostic, UsageError
from relcrf.grounding.dialects.postgres import SESSION_FUNCTIONS, PostgresDialect
from relcrf.grounding.engines.base import DTYPES, AbstractEngine, Batch, engine_error
from relcrf.grounding.engines.renamed_tables import RenamedTable, find_tables, make_renamed_table, rename_plan_tables
from relcrf.grounding.plan import Plan

BATCH_ROWS = 100_000
"""Rows of a batch."""

_COPY_ROWS = 10_000
"""Rows of a table that are sent to the server at a time."""

_HEADER_BYTES = 19
"""Bytes before the first row of a binary COPY."""

_TYPES = {"BOOLEAN": "boolean", "INTEGER": "integer", "BIGINT": "bigint", "FLOAT": "real", "DOUBLE": "double precision"}
_TYPES |= {"DATE": "date", "VARCHAR": 'text COLLATE "C"'}
"""PostgreSQL's name of each of DuckDB's types; vectors, `DOUBLE[3]`, are arrays."""

_OUTPUT_TYPES = {"integer": "int4", "bigint": "int8", "double": "float8", "text": "text"}


class PostgresEngine(AbstractEngine):
    """Grounds on a server, in temporary tables, which go with the session even where this process dies.

    Each coded table is copied when the first plan reads it. The rows of one plan are read at a time.

    Args:
        connection_string: a URL, `postgresql://user@host/database`, or another text that libpq takes.
        cursor: makes a connection of its own that sees the coded tables.

    Raises:
        UsageError: without the driver.
        DataError: where the server cannot be reached, or has texts in another encoding than UTF-8.
    """

    name = "postgres"

    def __init__(self, connection_string: str, cursor: Callable[[], duckdb.DuckDBPyConnection]) -> None:
        try:
            import psycopg
        except ModuleNotFoundError:
            hint = "install it with: pip install 'relcrf[postgres]'"
            raise UsageError(Diagnostic("E371", "the engine 'postgres' needs the package psycopg", hint=hint)) from None
        self._error = psycopg.Error
        self._cursor = cursor
        self._dialect = PostgresDialect()
        self._tables: dict[str, RenamedTable] = {}
        with self._convert_errors():
            self._connection = psycopg.connect(connection_string, autocommit=True, client_encoding="utf8")
            encoding = self._connection.info.parameter_status("server_encoding")
            if encoding != "UTF8":
                self.close()
                message = f"the database's texts are in {encoding}, and the engine 'postgres' needs UTF-8"
                raise DataError(
                    Diagnostic("E371", message, hint="create a database with: createdb -E UTF8 -T template0")
                )
            for statement in ("SET DateStyle = 'ISO'", "SET check_function_bodies = off", *SESSION_FUNCTIONS):
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
        """A table of the source as a temporary table with an index for each column of vids and codes."""
        with self._cursor() as described:
            plain = make_renamed_table(described, table, len(self._tables))
        columns = zip(plain.columns.values(), plain.types, strict=True)
        declared = ", ".join(f"{name} {_postgres_type(kind)}" for name, kind in columns)
        cells = " || ',' || ".join(
            _csv_cell_sql(name, kind) for name, kind in zip(plain.columns, plain.types, strict=True)
        )
        self._connection.execute(f"CREATE TEMPORARY TABLE {plain.name} ({declared})")
        with self._cursor() as rows, self._connection.cursor() as cursor:
            rows.execute(f"SELECT {cells} || chr(10) FROM {quoted(table)}")
            with cursor.copy(f"COPY {plain.name} FROM STDIN (FORMAT csv)") as copy:
                while lines := rows.fetchmany(_COPY_ROWS):
                    copy.write("".join(line for (line,) in lines))
        for column, kind in zip(plain.columns.values(), plain.types, strict=True):
            if kind == "INTEGER":
                self._connection.execute(f"CREATE INDEX ON {plain.name} ({column})")
        self._connection.execute(f"ANALYZE {plain.name}")
        return plain

    @contextmanager
    def _convert_errors(self) -> Iterator[None]:
        """What the server refuses is a diagnostic."""
        try:
            yield
        except self._error as error:
            hint = "check the connection and your right to make temporary tables, or ground with the engine 'duckdb'"
            raise engine_error(self.name, error, hint) from None


def _postgres_type(kind: str) -> str:
    return "double precision[]" if kind.endswith("]") else _TYPES[kind]


def _csv_cell_sql(column: str, kind: str) -> str:
    """DuckDB's SQL of a cell as CSV: nothing where the value is missing, and texts always between quotes."""
    name = quoted(column)
    if kind == "VARCHAR":
        name = f"""'"' || replace({name}, '"', '""') || '"'"""
    elif kind.endswith("]"):
        name = f"""'"{{' || array_to_string({name}, ',') || '}}"'"""
    return f"coalesce(CAST({name} AS VARCHAR), '')"


def _read_fixed_width(pieces: Iterable[Any], plan: Plan) -> Iterator[Batch]:
    """Rows of a binary COPY in which all have the same width: a count of fields, and each field after its length."""
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
    while some := list(islice(rows, BATCH_ROWS)):
        columns = zip(plan.outputs, zip(*some, strict=True), strict=True)
        yield {name: np.fromiter(values, DTYPES[kind], len(some)) for (name, _, kind), values in columns}
