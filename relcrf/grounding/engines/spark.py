"""Plans on Spark. Tables and rows go through Parquet files, and so the driver holds neither."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from relcrf.data.dataset import quoted
from relcrf.data.store import literal
from relcrf.data.stream import stream
from relcrf.grounding.dialects.spark import SparkDialect
from relcrf.grounding.engines.base import AbstractEngine, Batch, dtypes, failed
from relcrf.grounding.engines.tables import PlainTable, in_plain_names, plain_table, tables_of
from relcrf.grounding.plan import Plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkEngine(AbstractEngine):
    """Grounds on a cluster. Each coded table is written out when the first plan reads it.

    Args:
        session: of pyspark; the engine's views and settings are in a session of its own beside it.
        cursor: makes a connection of its own that sees the coded tables.
        folder: that this process and all workers see under the same name. What the engine writes there it removes.
    """

    name = "spark"

    def __init__(self, session: SparkSession, cursor: Callable[[], duckdb.DuckDBPyConnection], folder: Path) -> None:
        self._cursor = cursor
        self._folder = folder.resolve()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._dialect = SparkDialect()
        self._tables: dict[str, PlainTable] = {}
        self._results = 0
        with _diagnosed():
            self._session = session.newSession()
            for name, value in (("spark.sql.caseSensitive", "true"), ("spark.sql.ansi.enabled", "true")):
                self._session.conf.set(name, value)

    def rows(self, plan: Plan) -> Iterator[Batch]:
        self._results += 1
        result = self._folder / f"rows{self._results}"
        try:
            with _diagnosed():
                for table in tables_of(plan):
                    if table not in self._tables:
                        self._tables[table] = self._exported(table)
                query = self._dialect.rows(in_plain_names(plan, self._tables))
                self._session.sql(query).write.parquet(result.as_uri())
            files = ", ".join(literal(str(path)) for path in sorted(result.glob("*.parquet")))
            if files:
                with self._cursor() as cursor:
                    yield from stream(cursor.sql(f"SELECT * FROM read_parquet([{files}])"), dtypes(plan))
        finally:
            shutil.rmtree(result, ignore_errors=True)

    def close(self) -> None:
        for table in self._tables.values():
            self._session.catalog.dropTempView(table.name)
            self._file(table).unlink(missing_ok=True)
        self._tables.clear()

    def _file(self, table: PlainTable) -> Path:
        return self._folder / f"{table.name}.parquet"

    def _exported(self, table: str) -> PlainTable:
        """A table of the source as a Parquet file and a view on it."""
        with self._cursor() as described:
            plain = plain_table(described, table, len(self._tables))
        columns = ", ".join(f"{quoted(old)} AS {new}" for old, new in plain.columns.items())
        with self._cursor() as cursor:
            where = literal(str(self._file(plain)))
            cursor.execute(f"COPY (SELECT {columns} FROM {quoted(table)}) TO {where} (FORMAT parquet)")
        self._session.read.parquet(self._file(plain).as_uri()).createOrReplaceTempView(plain.name)
        return plain


@contextmanager
def _diagnosed() -> Iterator[None]:
    """What Spark refuses is a diagnostic."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        hint = "look at what Spark's workers wrote, and whether they see the folder; or ground with the engine 'duckdb'"
        raise failed("spark", error, hint) from None
