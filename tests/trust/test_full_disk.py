"""Tests of full disks: there is one clear error, and complete files remain complete."""

import errno
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import duckdb
import numpy as np
import pyarrow
import pytest
from numba import int64
from pyarrow import feather, parquet
from tables import small_web

from relcrf.columns.storage import Storage
from relcrf.kernels import compile
from relcrf.resources import resource_path

sys.path.insert(0, str(Path(__file__).parents[2] / "datasets"))

from web import make_web

MODEL = resource_path("models", "webkb.rcrf")


@pytest.fixture
def small_disk(tmp_path):
    """Provide a file system of one megabyte."""
    mount_point = tmp_path / "disk"
    mount_point.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mount_point)], capture_output=True)
    if mounted.returncode:
        pytest.skip("file systems cannot be mounted here")
    yield mount_point
    subprocess.run(["umount", str(mount_point)], check=True)


def fill(folder, left):
    """Fill a file system except for `left` bytes."""
    free = os.statvfs(folder)
    with (folder / "ballast").open("wb") as file:
        file.write(b"x" * (free.f_bavail * free.f_bsize - left))


@pytest.mark.parametrize("left", [0, 4 << 10, 16 << 10])
def test_training_on_a_full_disk_keeps_the_old_run(relcrf_, tmp_path, small_disk, left):
    data = small_web(tmp_path / "web")
    train = ("train", MODEL, "--backend", "ess", "--data", data, "--out", small_disk / "run")
    assert relcrf_(*train)[0] == 0
    before = {path.name: path.read_bytes() for path in (small_disk / "run").iterdir()}
    fill(small_disk, left)
    code, _, err = relcrf_(*train, "--force")
    assert (code, err.count("error["), "no space left" in err, "Traceback" in err) == (2, 1, True, False), err
    assert {path.name: path.read_bytes() for path in (small_disk / "run").iterdir()} == before
    (small_disk / "ballast").unlink()
    option = "--resume" if (small_disk / "run.partial").exists() else "--force"
    assert relcrf_(*train, "--force", option)[0] == 0


def test_prediction_on_a_full_disk_keeps_the_old_file(relcrf_, tmp_path, small_disk):
    data = small_web(tmp_path / "web")
    assert relcrf_("train", MODEL, "--backend", "ess", "--data", data, "--out", tmp_path / "run")[0] == 0
    for ending in ("csv", "parquet", "jsonl", "arrow"):
        out = small_disk / f"found.{ending}"
        out.write_text("old")
        fill(small_disk, 0)
        code, _, err = relcrf_("predict", tmp_path / "run", "--data", data, "--out", out)
        assert (code, err.count("error["), "Traceback" in err) == (2, 1, False), err
        assert "space" in err and out.read_text() == "old"
        assert sorted(path.name for path in small_disk.iterdir()) == ["ballast", out.name]
        out.unlink()
        (small_disk / "ballast").unlink()


@pytest.mark.parametrize("memory", ["40MB", "60MB"])
def test_full_temporary_folder_raises_one_error(tmp_path, small_disk, memory):
    """DuckDB's temporary files: its write-ahead log, and data beyond the memory limit."""
    make_web(tmp_path, pages=6000)
    command = [sys.executable, "-m", "relcrf", "ground", MODEL, "--data", tmp_path, "--memory", memory]
    environment = {**os.environ, "TMPDIR": str(small_disk)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    err = done.stderr
    assert (done.returncode, err.count("error["), "space" in err, "Traceback" in err) == (2, 1, True, False), err
    assert list(small_disk.iterdir()) == []


def write_sqlite(folder, table):
    with closing(sqlite3.connect(folder / "all.sqlite")) as database:
        table.to_pandas().to_sql("page", database, index=False)


def write_duckdb(folder, table):
    with duckdb.connect(str(folder / "all.duckdb")) as database:
        database.register("rows", table)
        database.execute("CREATE TABLE page AS FROM rows")


def write_arrow(folder, table):
    feather.write_feather(table, str(folder / "page.feather"))


def write_queries(folder, table):
    parquet.write_table(table, folder / "page.parquet")
    (folder / "dataset.toml").write_text(
        '[tables.page]\nfile = "page.parquet"\n[tables.more]\nsql = "SELECT x + i AS y FROM page, range(9) AS r(i)"\n'
    )


def write_latin_csv(folder, table):
    text = table.to_pandas().assign(name="Zo\xeb").to_csv(index=False)
    (folder / "page.csv").write_text(text, encoding="cp1252")


READ_EACH = """
import sys
import relcrf
for folder in sys.argv[1:]:
    try:
        relcrf.Dataset(folder)
    except relcrf.UsageError as error:
        print(*(f"{d.code} {d.message} {d.hint}" for d in error.diagnostics))
"""


def test_full_disk_during_a_copy_is_not_blamed_on_the_file(tmp_path, small_disk):
    table = pyarrow.table({"id": range(100_000), "x": np.random.default_rng(0).random(100_000)})
    folders = []
    for write in (write_sqlite, write_duckdb, write_arrow, write_queries, write_latin_csv):
        folders.append(tmp_path / write.__name__)
        folders[-1].mkdir()
        write(folders[-1], table)
    environment = {**os.environ, "TMPDIR": str(small_disk)}
    command = [sys.executable, "-c", READ_EACH, *folders]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    lines = done.stdout.splitlines()
    assert len(lines) == len(folders), done.stderr
    assert all(line.startswith("E314") and "no space left" in line and "TMPDIR" in line for line in lines), lines


def test_full_cache_disk_causes_a_note(small_disk, monkeypatch, caplog):
    monkeypatch.setattr(compile, "cache_folder", lambda: compile.CacheFolder(small_disk / "kernels"))
    compile._log_save_error.cache_clear()
    fill(small_disk, 0)
    assert compile.kernel((int64,))(lambda x: 2 * x)(4) == 8
    assert caplog.text.count("compiled kernels are not cached") == 1 and "no space left on device" in caplog.text


def test_full_disk_raises_enospc_for_columns(small_disk):
    """The columns of a ground graph beyond the memory limit are files."""
    column = Storage(small_disk, 0).column(np.float64)
    with pytest.raises(OSError) as caught:
        for _ in range(100):
            column.append(np.zeros(10_000))
    assert caught.value.errno == errno.ENOSPC
