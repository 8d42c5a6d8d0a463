"""Plans on DuckDB, their rows streamed in Arrow's layout without a copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import duckdb

from relcrf.data.stream import stream
from relcrf.grounding import sql
from relcrf.grounding.engines.base import AbstractEngine, Batch, dtypes
from relcrf.grounding.plan import Plan


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
            yield from stream(cursor.sql(sql.DUCKDB.rows(plan)), dtypes(plan))

    def close(self) -> None:
        """Nothing is held."""
