"""Plans on DuckDB: streamed in Arrow's layout without a copy, or as parsed statements whose results are small."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import duckdb

from relcrf.data.stream import stream_batches
from relcrf.grounding import sql
from relcrf.grounding.engines.base import AbstractEngine, Batch, output_dtypes
from relcrf.grounding.plan import Plan

Statements: TypeAlias = dict[Plan, duckdb.Statement]
"""Parsed statements of plans."""


class DuckDbEngine(AbstractEngine):
    """Grounds where the tables are made.

    Args:
        cursor: makes a connection of its own that sees the coded tables, for an unfinished result owns its connection.
    """

    name = "duckdb"

    def __init__(self, cursor: Callable[[], duckdb.DuckDBPyConnection]) -> None:
        self._cursor = cursor

    def rows(self, plan: Plan) -> Iterator[Batch]:
        with self._cursor() as cursor:
            yield from stream_batches(cursor.sql(sql.DUCKDB.rows_query(plan)), output_dtypes(plan))


class StatementEngine(AbstractEngine):
    """DuckDB with parsed statements, for results of a few rows, which take half the time of a stream.

    Args:
        statements: a cache for the plans of one model; missing statements are added.
    """

    name = "duckdb"

    def __init__(self, connection: duckdb.DuckDBPyConnection, statements: Statements) -> None:
        self._connection, self._statements = connection, statements

    def rows(self, plan: Plan) -> Iterator[Batch]:
        if plan not in self._statements:
            (self._statements[plan],) = self._connection.extract_statements(sql.DUCKDB.rows_query(plan))
        found = self._connection.execute(self._statements[plan]).fetchnumpy()
        batch: Batch = {name: found[name].astype(dtype, copy=False) for name, dtype in output_dtypes(plan).items()}
        if len(next(iter(batch.values()))):
            yield batch
