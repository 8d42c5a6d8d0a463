"""Choice of the grounding engine: factories that open an engine on the tables of a model, selected by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from relcrf.data.bound_model import BoundModel
from relcrf.errors import Diagnostic, UsageError, listing, suggestion
from relcrf.execution.spark_session import require_spark, spark_session
from relcrf.grounding.engines.base import AbstractEngine
from relcrf.grounding.engines.duckdb import DuckDbEngine
from relcrf.grounding.engines.postgres import PostgresEngine
from relcrf.grounding.engines.spark import SparkEngine

EngineFactory: TypeAlias = Callable[[BoundModel], AbstractEngine]
"""Function that opens an engine on a bound model; the caller closes the engine."""

NAMES = ("duckdb", "postgres", "spark")


def duckdb() -> EngineFactory:
    """Return a factory of the default engine, DuckDB, which already stores the tables."""
    return lambda bound: DuckDbEngine(bound.cursor)


def postgres(url: str) -> EngineFactory:
    """Return a factory of engines on the PostgreSQL server with a URL such as `postgresql://user@host/database`.

    The server stores the coded tables while the engine is open.
    """
    return lambda bound: PostgresEngine(url, bound.cursor)


def spark(master: str = "local[*]") -> EngineFactory:
    """Return a factory of engines on a Spark master. The master is started if necessary and keeps running.

    Tables and rows are exchanged through a temporary folder. If the master is on another machine, all workers must have
    access to that folder under the same path: set `TMPDIR` to a shared folder.

    Raises:
        UsageError: if pyspark or Java is missing.
    """
    require_spark()
    return lambda bound: SparkEngine(spark_session(master), bound.cursor)


def get_engine(name: str, url: str | None = None, master: str | None = None) -> EngineFactory:
    """Return the factory of an engine by name.

    Args:
        url: URL of the server, for `postgres` only.
        master: Spark master, for `spark` only.

    Raises:
        UsageError: if the name is unknown, or an option is missing or does not apply to the engine.
    """
    if name not in NAMES:
        hint = suggestion(name, NAMES) or f"the engines are {listing(NAMES)}"
        raise UsageError(Diagnostic("E372", f"unknown engine '{name}'", hint=hint))
    for option, value, owner in (("URL", url, "postgres"), ("master", master, "spark")):
        if value is not None and name != owner:
            message = f"the engine '{name}' does not accept a {option}"
            raise UsageError(Diagnostic("E372", message, hint=f"select the engine '{owner}' with --engine {owner}"))
    if name == "postgres":
        if url is None:
            hint = 'add --url postgresql://user@host/database, or in Python use engine=postgres("postgresql://...")'
            raise UsageError(Diagnostic("E372", "the engine 'postgres' requires the URL of a server", hint=hint))
        return postgres(url)
    if name == "spark":
        return spark() if master is None else spark(master)
    return duckdb()
