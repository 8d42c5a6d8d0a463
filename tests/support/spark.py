"""The fixture `spark`: a Spark session with two executors for the whole test run.

A test that starts its own session uses `spark_installed`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from relcrf.errors import UsageError
from relcrf.execution.spark_session import require_spark, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "local-cluster[2,1,1024]"

# A test takes Spark some seconds, in which the optimising compiler and the parallel collector of Java cost more than they save.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
os.environ.setdefault("SPARK_SUBMIT_OPTS", JAVA)
os.environ.setdefault("PYSPARK_SUBMIT_ARGS", f'--conf "spark.executor.extraJavaOptions={JAVA}" pyspark-shell')


@pytest.fixture(scope="session")
def spark_installed() -> None:
    """Skip the test if pyspark or Java is missing."""
    try:
        require_spark()
    except UsageError as error:
        pytest.skip(error.diagnostics[0].message)


@pytest.fixture(scope="session")
def spark(spark_installed: None) -> Iterator[SparkSession]:
    """Return a session with two executors, each a separate process with one core; takes 10 to 60 seconds to start."""
    handler = signal.getsignal(signal.SIGINT)
    session = spark_session(MASTER)
    signal.signal(signal.SIGINT, handler)  # pyspark replaces the handler, and later tests send Ctrl-C
    yield session
    session.stop()
