"""Spark sessions: on this machine, configured to use this Python, or on an existing cluster."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import warnings
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from relcrf.errors import Diagnostic, UsageError
from relcrf.execution.environment import SINGLE_THREAD, temporary_environment
from relcrf.execution.temporary import new_temporary_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG_SETTINGS = """\
rootLogger.level = error
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %c{1}: %maxLen{%enc{%m}{CRLF}}{300}%n%ex{0}
"""
"""Settings that log only errors, each in one line without a stack trace; a lost executor would log hundreds of lines."""


def spark_session(master: str, *, memory: str = "1g") -> SparkSession:
    """Return a session on a Spark master; an existing session is reused.

    With a local master (`local[2]`, `local-cluster[2,1,1024]`), the workers run this Python interpreter with the same import
    path, and write into a temporary folder that is removed when this process exits. Any other master is an existing cluster
    with separate Python, packages and folders, configured by the usual environment variables (`PYSPARK_PYTHON` etc.).

    Args:
        master: The master URL in Spark's syntax.
        memory: Memory of the driver and of each executor, in Spark's syntax.

    Raises:
        UsageError: pyspark or Java is missing (E360), or Spark does not start (E361).
    """
    require_spark()
    local = master.startswith("local")
    with temporary_environment(_local_variables(_scratch_folder()) if local else {}), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # about the version of pandas, which is not used here
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master(master).appName("relcrf")
        for name, value in (_settings(memory) | (_local_settings(_scratch_folder()) if local else {})).items():
            builder = builder.config(name, value)
        try:
            session = builder.getOrCreate()
        except (PySparkException, Py4JError) as error:
            hint = "check Spark's output above, the master URL and the memory; Spark 4 needs Java 17 or later"
            message = f"Spark does not start at master '{master}'"
            raise UsageError(Diagnostic("E361", message, hint=hint, notes=error_reasons(error))) from None
    session.sparkContext.setLogLevel("ERROR")
    atexit.register(_stop, session)  # runs before the folder is removed; no effect on a stopped session
    return session


def _stop(session: SparkSession) -> None:
    """Stop a session; its process may have ended, e.g. for lack of memory."""
    from py4j.protocol import Py4JError

    with suppress(Py4JError, OSError):
        session.stop()


def require_spark() -> None:
    """Check that pyspark and Java are installed.

    Raises:
        UsageError: pyspark or Java is missing (E360).
    """
    if find_spec("pyspark") is None:
        message, hint = "Spark needs the package pyspark", "install it with: pip install 'relcrf[spark]'"
        raise UsageError(Diagnostic("E360", message, hint=hint))
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=os.path.join(home, "bin") if home else None) is None:
        where = f"in JAVA_HOME ({home})" if home else "on the PATH"
        hint = "install a Java runtime, 17 or later (Debian: apt-get install default-jre-headless)"
        raise UsageError(Diagnostic("E360", f"Spark needs Java, but there is no Java executable {where}", hint=hint))


def error_reasons(error: Exception) -> tuple[str, ...]:
    """Return the lines of a Spark error that describe its cause, without call sites and stack traces."""
    skipped_prefixes = (
        "An error occurred while calling",
        "An exception was thrown from",
        "Traceback",
        "Driver stacktrace",
        " ",
        "\t",
    )
    lines = [
        line.removeprefix(": ") for line in str(error).splitlines() if line and not line.startswith(skipped_prefixes)
    ]
    return tuple(lines[:3]) or (type(error).__name__,)


def _settings(memory: str) -> dict[str, str]:
    return {
        "spark.driver.memory": memory,
        "spark.executor.memory": memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.catalogImplementation": "in-memory",
        **{f"spark.executorEnv.{name}": value for name, value in SINGLE_THREAD.items()},
    }


def _local_settings(scratch: Path) -> dict[str, str]:
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.locality.wait": "0",
        "spark.local.dir": str(scratch / "blocks"),
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
    }


def _local_variables(scratch: Path) -> dict[str, str]:
    """Return the environment variables that a local Spark reads when it starts."""
    return {
        "SPARK_HOME": str(scratch / "home"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_HOSTNAME": "localhost",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


@cache
def _scratch_folder() -> Path:
    """Return the folder of this process for the files of a local Spark; the folder is removed when this process exits or,
    if it is killed, when the next one starts.

    The subfolder `home` links to pyspark's files. Without it, the workers of `local-cluster` would write into `work` inside
    site-packages, and Spark would have no folder for its logging configuration.
    """
    scratch = new_temporary_folder(sys)
    spec = find_spec("pyspark")
    assert spec is not None and spec.submodule_search_locations
    conf = scratch / "home" / "conf"
    conf.mkdir(parents=True)
    for entry in Path(spec.submodule_search_locations[0]).iterdir():
        if entry.name not in ("conf", "work"):
            (scratch / "home" / entry.name).symlink_to(entry)
    (conf / "log4j2.properties").write_text(LOG_SETTINGS, encoding="utf-8")
    return scratch
