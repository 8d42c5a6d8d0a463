"""One Spark of two executors for the whole test run: the fixture `spark`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from relcrf.errors import UsageError
from relcrf.execution.spark_session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "local-cluster[2,1,1024]"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session with two executors, each a process of its own with one core. Starts in 10 to 60 seconds."""
    try:
        session = spark_session(MASTER)
    except UsageError as error:
        if error.diagnostics[0].code != "E360":
            raise
        pytest.skip(error.diagnostics[0].message)
    yield session
    session.stop()
