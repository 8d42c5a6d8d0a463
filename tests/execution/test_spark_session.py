"""Spark sessions on this machine: workers run this Python, no files remain, and failures raise one diagnostic."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import relcrf
from relcrf.errors import UsageError
from relcrf.execution import spark_session as module
from relcrf.execution.spark_session import spark_session
from relcrf.execution.temporary import LOCK_NAME, remove_stale_folders

START = """
import sys
from relcrf.errors import UsageError
from relcrf.execution.spark_session import spark_session
try:
    spark_session(sys.argv[1])
except UsageError as error:
    sys.exit(str(error))
"""


@pytest.mark.slow
def test_executors_use_this_python_and_this_relcrf(spark):
    def facts(_):
        import relcrf

        yield os.getppid(), sys.executable, relcrf.__file__, os.getcwd()

    found = spark.sparkContext.parallelize(range(8), 8).mapPartitions(facts).collect()
    assert {(python, package) for _, python, package, _ in found} == {(sys.executable, relcrf.__file__)}
    assert all("site-packages" not in folder for *_, folder in found)
    assert "SPARK_HOME" not in os.environ


@pytest.mark.slow
def test_invalid_master_raises_e361(spark_installed, tmp_path):
    command, environment = [sys.executable, "-c", START, "local[two]"], os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 1
    assert "error[E361]: Spark does not start at master 'local[two]'" in done.stderr
    assert "Could not parse Master URL" in done.stderr
    assert "Traceback" not in done.stderr


def test_missing_java_raises_e360(monkeypatch, tmp_path):
    pytest.importorskip("pyspark")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"E360.*no Java executable on the PATH(.|\n)*default-jre-headless"):
        spark_session("local[1]")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UsageError, match=r"E360.*no Java executable in JAVA_HOME"):
        spark_session("local[1]")


def test_missing_pyspark_raises_e360(monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"E360.*pyspark(.|\n)*relcrf\[spark\]"):
        spark_session("local[1]")


def test_folder_of_spark_is_locked(monkeypatch, tmp_path):
    """The lock proves that the process lives, so that the next one removes the folder of a killed process."""
    pytest.importorskip("pyspark")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = module._scratch_folder.__wrapped__()
    assert (folder / LOCK_NAME).exists() and (folder / "home" / "conf").is_dir()
    remove_stale_folders(tmp_path)
    assert folder.exists()
