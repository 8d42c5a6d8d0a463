"""Which engine grounds: one of the names, or a function that opens an engine on a model's tables."""

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
"""Opens an engine on bound tables; who has called it closes the engine."""

NAMES = ("duckdb", "postgres", "spark")


def duckdb() -> EngineFactory:
    """The engine where the tables are: the default."""
    return lambda bound: DuckDbEngine(bound.cursor)


def postgres(url: str) -> EngineFactory:
    """A PostgreSQL server: `postgresql://user@host/database`. It gets the coded tables for as long as the engine is open."""
    return lambda bound: PostgresEngine(url, bound.cursor)


def spark(master: str = "local[*]") -> EngineFactory:
    """Spark at a master, which is started where it does not run yet, and left running.

    Tables and rows go through a temporary folder. At a master that is not of this machine all workers must see that folder
    under the same name: set `TMPDIR` to a shared one.

    Raises:
        UsageError: without pyspark or Java.
    """
    require_spark()
    return lambda bound: SparkEngine(spark_session(master), bound.cursor)


def get_engine(name: str, url: str | None = None, master: str | None = None) -> EngineFactory:
    """The engine of a name.

    Args:
        url: of the server, for `postgres` and no other.
        master: of Spark, for `spark` and no other.

    Raises:
        UsageError: for an unknown name, or where the URL is missing or means nothing to the engine.
    """
    if name not in NAMES:
        hint = suggestion(name, NAMES) or f"the engines are {listing(NAMES)}"
        raise UsageError(Diagnostic("E372", f"there is no engine '{name}'", hint=hint))
    for option, value, owner in (("URL", url, "postgres"), ("master", master, "spark")):
        if value is not None and name != owner:
            message = f"the engine '{name}' has no {option}"
            raise UsageError(Diagnostic("E372", message, hint=f"choose the engine '{owner}' with --engine {owner}"))
    if name == "postgres":
        if url is None:
            hint = 'give --url postgresql://user@host/database, or in Python engine=postgres("postgresql://...")'
            raise UsageError(Diagnostic("E372", "the engine 'postgres' needs the URL of a server", hint=hint))
        return postgres(url)
    if name == "spark":
        return spark() if master is None else spark(master)
    return duckdb()
