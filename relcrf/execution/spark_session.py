"""Starts Spark: on this machine with all that it needs to find this Python, or on a cluster that stands already."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from relcrf.errors import Diagnostic, UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = """\
rootLogger.level = error
logger.repl.name = org.apache.spark.repl.Main
logger.repl.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %c{1}: %maxLen{%enc{%m}{CRLF}}{300}%n%ex{0}
"""
"""Errors alone, a line each and without stack traces: one lost executor is worth hundreds of lines otherwise."""


def spark_session(master: str, *, memory: str = "1g") -> SparkSession:
    """The session at a master; the one that runs already, where there is one.

    At a master of this machine (`local[2]`, `local-cluster[2,1,1024]`) the workers run this Python, import what this
    process can import, and write into a temporary folder that is removed at the end. Any other master is a cluster that
    somebody keeps: its Python, packages and folders are its own, and the usual variables (`PYSPARK_PYTHON` and so
    on) speak for them.

    Args:
        master: as Spark has it.
        memory: of the driver and of each executor, as Spark has it.

    Raises:
        UsageError: pyspark or Java is missing (E360), or Spark does not start (E361).
    """
    _demand_packages()
    local = master.startswith("local")
    with _environment(_local_variables(_scratch()) if local else {}):
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master(master).appName("relcrf")
        for name, value in (_settings(memory) | (_local_settings(_scratch()) if local else {})).items():
            builder = builder.config(name, value)
        try:
            session = builder.getOrCreate()
        except (PySparkException, Py4JError) as error:
            hint = "look at what Spark wrote above, at the master's spelling, and at the memory; Spark 4 needs Java 17 or later"
            message = f"Spark does not start at master '{master}'"
            raise UsageError(Diagnostic("E361", message, hint=hint, notes=(_reason(error),))) from None
    session.sparkContext.setLogLevel("ERROR")
    return session


def _demand_packages() -> None:
    if find_spec("pyspark") is None:
        message, hint = "Spark needs the package pyspark", "install it with: pip install 'relcrf[spark]'"
        raise UsageError(Diagnostic("E360", message, hint=hint))
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=os.path.join(home, "bin") if home else None) is None:
        where = f"none in JAVA_HOME, {home}" if home else "none on the PATH"
        hint = "install a Java runtime, 17 or later (Debian: apt-get install default-jre-headless)"
        raise UsageError(Diagnostic("E360", f"Spark needs Java, and there is {where}", hint=hint))


def _reason(error: Exception) -> str:
    """The line that says what went wrong; py4j's own first line only says where it was called."""
    lines = [line.lstrip(": ") for line in str(error).splitlines() if line.strip()]
    return next(
        (line for line in lines if not line.startswith("An error occurred while calling")), type(error).__name__
    )


def _settings(memory: str) -> dict[str, str]:
    return {
        "spark.driver.memory": memory,
        "spark.executor.memory": memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.catalogImplementation": "in-memory",
    }


def _local_settings(scratch: Path) -> dict[str, str]:
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.locality.wait": "0",
        "spark.local.dir": str(scratch / "blocks"),
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }


def _local_variables(scratch: Path) -> dict[str, str]:
    """What a Spark of this machine reads from the environment as it starts."""
    return {
        "SPARK_HOME": str(scratch / "home"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_HOSTNAME": "localhost",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """The variables are set within, and are as before afterwards."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@cache
def _scratch() -> Path:
    """The folder of this process for what Spark writes on this machine; removed at the end.

    Its `home` links to what pyspark brings. Without it the workers of `local-cluster` would write into `work` inside
    site-packages, and Spark would have no place for the settings of its log.
    """
    scratch = Path(tempfile.mkdtemp(prefix="relcrf-spark-"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    spec = find_spec("pyspark")
    assert spec is not None and spec.submodule_search_locations
    conf = scratch / "home" / "conf"
    conf.mkdir(parents=True)
    for entry in Path(spec.submodule_search_locations[0]).iterdir():
        if entry.name not in ("conf", "work"):
            (scratch / "home" / entry.name).symlink_to(entry)
    (conf / "log4j2.properties").write_text(LOG, encoding="utf-8")
    return scratch
