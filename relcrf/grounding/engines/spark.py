"""The Spark engine. Tables and rows are exchanged as Parquet files, so that neither must fit in the driver's memory."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from relcrf.data.dataset import quoted
from relcrf.data.store import literal
from relcrf.data.stream import stream_batches
from relcrf.grounding.dialects.spark import SparkDialect
from relcrf.grounding.engines.base import AbstractEngine, Batch, engine_error, output_dtypes
from relcrf.grounding.engines.renamed_tables import RenamedTable, find_tables, make_renamed_table, rename_plan_tables
from relcrf.grounding.plan import Plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkEngine(AbstractEngine):
    """An engine that runs plans on a Spark cluster. Each coded table is exported when the first plan reads the table.

    Args:
        session: pyspark session; the views and settings of the engine are in a separate session of the same application.
        cursor: function that opens a separate connection to the coded tables. Files are exchanged in a folder, which the
            connection and all workers must be able to access under the same path; `close` removes the folder.
    """

    name = "spark"

    def __init__(self, session: SparkSession, cursor: Callable[[], duckdb.DuckDBPyConnection]) -> None:
        self._cursor = cursor
        self._folder = _exchange_folder(cursor)
        self._dialect = SparkDialect()
        self._tables: dict[str, RenamedTable] = {}
        self._n_results = 0
        with _convert_errors():
            self._session = session.newSession()
            for name, value in (("caseSensitive", "true"), ("ansi.enabled", "true"), ("session.timeZone", "UTC")):
                self._session.conf.set(f"spark.sql.{name}", value)

    def rows(self, plan: Plan) -> Iterator[Batch]:
        self._n_results += 1
        result = self._folder / f"rows{self._n_results}"
        try:
            with _convert_errors():
                for table in find_tables(plan):
                    if table not in self._tables:
                        self._tables[table] = self._export_table(table)
                query = self._dialect.rows_query(rename_plan_tables(plan, self._tables))
                self._session.sql(query).write.parquet(_uri(result))
            files = ", ".join(literal(str(path)) for path in sorted(result.glob("*.parquet")))
            if files:
                with self._cursor() as cursor:
                    yield from stream_batches(cursor.sql(f"SELECT * FROM read_parquet([{files}])"), output_dtypes(plan))
        finally:
            shutil.rmtree(result, ignore_errors=True)

    def close(self) -> None:
        for table in self._tables.values():
            self._session.catalog.dropTempView(table.name)
        self._tables.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _parquet_path(self, table: RenamedTable) -> Path:
        return self._folder / f"{table.name}.parquet"

    def _export_table(self, table: str) -> RenamedTable:
        """Export a coded table to a Parquet file and create a view of it."""
        with self._cursor() as connection:
            renamed = make_renamed_table(connection, table, len(self._tables))
        columns = ", ".join(f"{quoted(old)} AS {new}" for old, new in renamed.columns.items())
        with self._cursor() as cursor:
            path = literal(str(self._parquet_path(renamed)))
            cursor.execute(f"COPY (SELECT {columns} FROM {quoted(table)}) TO {path} (FORMAT parquet)")
        self._session.read.parquet(_uri(self._parquet_path(renamed))).createOrReplaceTempView(renamed.name)
        return renamed


def _exchange_folder(cursor: Callable[[], duckdb.DuckDBPyConnection]) -> Path:
    """Create the exchange folder; if the store restricts DuckDB's access to files, inside the allowed folder."""
    with cursor() as connection:
        setting = connection.execute("SELECT current_setting('allowed_directories')").fetchone()
    assert setting is not None
    return Path(tempfile.mkdtemp(prefix="spark-", dir=min(setting[0], default=None))).resolve()


def _uri(path: Path) -> str:
    """Return the URI that Hadoop reads as this path.

    Hadoop percent-encodes paths itself and would encode each `%` in the result of `Path.as_uri` a second time.
    """
    return f"file://{path}"


@contextmanager
def _convert_errors() -> Iterator[None]:
    """Convert errors of Spark to diagnostics."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        hint = "check the logs of the Spark workers; let all workers access the exchange folder; or use the engine 'duckdb'"
        raise engine_error("spark", error, hint) from None
