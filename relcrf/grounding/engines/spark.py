"""Plans on Spark. Tables and rows go through Parquet files, and so the driver holds neither."""

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
    """Grounds on a cluster. Each coded table is written out when the first plan reads it.

    Args:
        session: of pyspark; the engine's views and settings are in a session of its own beside it.
        cursor: makes a connection of its own that sees the coded tables. The engine exchanges files with the workers in a
            folder that this connection may access, which the workers must see under the same name; `close` removes it.
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
            for name, value in (("spark.sql.caseSensitive", "true"), ("spark.sql.ansi.enabled", "true")):
                self._session.conf.set(name, value)

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
        """A table of the source as a Parquet file and a view on it."""
        with self._cursor() as described:
            plain = make_renamed_table(described, table, len(self._tables))
        columns = ", ".join(f"{quoted(old)} AS {new}" for old, new in plain.columns.items())
        with self._cursor() as cursor:
            where = literal(str(self._parquet_path(plain)))
            cursor.execute(f"COPY (SELECT {columns} FROM {quoted(table)}) TO {where} (FORMAT parquet)")
        self._session.read.parquet(_uri(self._parquet_path(plain))).createOrReplaceTempView(plain.name)
        return plain


def _exchange_folder(cursor: Callable[[], duckdb.DuckDBPyConnection]) -> Path:
    """Create a folder for files that DuckDB may write: anywhere, or inside what the lock of a store allows."""
    with cursor() as connection:
        setting = connection.execute("SELECT current_setting('allowed_directories')").fetchone()
    assert setting is not None
    return Path(tempfile.mkdtemp(prefix="spark-", dir=min(setting[0], default=None))).resolve()


def _uri(path: Path) -> str:
    """Return the URI that Hadoop reads as this path.

    Hadoop encodes a path by itself: of one that is encoded already, as by `Path.as_uri`, it would encode each `%` again.
    """
    return f"file://{path}"


@contextmanager
def _convert_errors() -> Iterator[None]:
    """What Spark refuses is a diagnostic."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        hint = "look at what Spark's workers wrote, and whether they see the folder; or ground with the engine 'duckdb'"
        raise engine_error("spark", error, hint) from None
