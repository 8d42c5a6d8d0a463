"""Tests of signals and time limits during queries, and of temporary folders that killed processes leave."""

import faulthandler
import fcntl
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing

import duckdb
import pytest

from relcrf.cli.signal_watcher import watch_signals
from relcrf.cli.stop_signals import TerminationSignal, stop_on_signals
from relcrf.data.store import Store
from relcrf.execution import temporary
from relcrf.execution.guarded import GuardedProcess
from relcrf.execution.interruption import register_connection
from relcrf.resources import resource_path

ENDLESS = "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers) SELECT max(n) AS n FROM numbers"
STOPS = [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, TerminationSignal), (signal.SIGHUP, TerminationSignal)]
MODEL = resource_path("models", "webkb.rcrf")


@pytest.fixture(autouse=True)
def guard():
    """End the test run if an endless query is not interrupted."""
    faulthandler.dump_traceback_later(300, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


def signal_later(number, seconds=0.2):
    timer = threading.Timer(seconds, os.kill, (os.getpid(), number))
    timer.start()
    return timer


def signal_when(condition, number):
    """Send a signal to this process as soon as a condition is true."""
    while not condition():
        time.sleep(0.05)
    os.kill(os.getpid(), number)


@pytest.mark.parametrize(("number", "exception"), STOPS)
def test_signals_stop_queries_of_duckdb(number, exception):
    store = Store()
    for connection in (store.connection, store.cursor()):
        # DuckDB converts an exception of a handler that runs within a query to a RuntimeError.
        with pytest.raises((exception, RuntimeError)), stop_on_signals() as received:
            signal_later(number)
            connection.execute(ENDLESS).fetchall()
        assert received and received.exit_code == 128 + number


class Deaf:
    """A connection that loses interruptions, as one whose query has not begun."""

    def __init__(self, connection, lost):
        self.connection, self.lost = connection, lost

    def interrupt(self):
        self.lost -= 1
        if self.lost < 0:
            self.connection.interrupt()


def test_lost_interruption_is_repeated():
    with closing(sqlite3.connect(":memory:")) as database:
        deaf = register_connection(Deaf(database, 3))
        with pytest.raises(KeyboardInterrupt), stop_on_signals():
            signal_later(signal.SIGINT)
            database.execute(ENDLESS).fetchall()
        assert deaf.lost < 0


def test_handled_signal_interrupts_no_later_query():
    counter = register_connection(Deaf(None, 10**9))
    with stop_on_signals(), duckdb.connect() as connection:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        threading.Event().wait(0.3)
        assert connection.execute("SELECT 1").fetchall() == [(1,)]
    assert counter.lost == 10**9 - 1


def test_queries_in_other_threads_work_without_watcher():
    found = []

    def work():
        with stop_on_signals(), watch_signals():
            found.append(Store().connection.execute("SELECT 1").fetchall())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [[(1,)]]


@pytest.mark.parametrize(
    ("first", "second", "exception"),
    [
        (signal.SIGHUP, signal.SIGHUP, TerminationSignal),  # of the system and of the shell, if a terminal is closed
        (signal.SIGHUP, signal.SIGTERM, TerminationSignal),
        (signal.SIGINT, signal.SIGINT, KeyboardInterrupt),  # of `timeout -s INT` and of the supervisor
    ],
)
def test_two_signals_at_once_count_as_one(first, second, exception):
    """The second signal must not interrupt the storage of the state, which the first one causes."""
    with pytest.raises(exception), stop_on_signals() as received:
        try:
            signal.raise_signal(first)
        finally:
            signal.raise_signal(second)
    assert [*received.interrupts, *received.terminations] == [first]


def test_ignored_hangup_stays_ignored():
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_on_signals() as received:
            signal.raise_signal(signal.SIGHUP)
        assert not received
    finally:
        signal.signal(signal.SIGHUP, previous)


@pytest.fixture
def endless_folder(tmp_path):
    """Return a folder with a SQLite file whose view never ends."""
    folder = tmp_path / "data"
    folder.mkdir()
    with closing(sqlite3.connect(folder / "page.sqlite")) as database:
        database.execute(f"CREATE VIEW page AS {ENDLESS}")
        database.commit()
    return folder


def test_time_limit_stops_endless_view(relcrf_, endless_folder):
    code, _, err = relcrf_("ground", MODEL, "--data", endless_folder, "--time-limit", "0.3s")
    assert (code, err.count("error["), "E436" in err) == (4, 1, True), err


def running_queries(connection):
    """Return the number of queries that clients other than a psycopg connection run on its server."""
    active = "state = 'active' AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
    return connection.execute(f"SELECT count(*) FROM pg_stat_activity WHERE {active}").fetchone()[0]


@pytest.mark.parametrize(
    ("number", "options", "expected"), [(None, ("--time-limit", "1s"), 4), (signal.SIGINT, (), 130)]
)
def test_query_of_postgres_is_cancelled(relcrf_, postgres, tmp_path, number, options, expected):
    psycopg = pytest.importorskip("psycopg")
    url = postgres.new_database()
    (tmp_path / "dataset.toml").write_text(f'[tables.page]\npostgres = "{url}"\nsql = "{ENDLESS}"\n')
    with psycopg.connect(url, autocommit=True) as connection:
        if number is not None:
            threading.Thread(
                target=signal_when, args=(lambda: running_queries(connection), number), daemon=True
            ).start()
        code, _, err = relcrf_("ground", MODEL, "--data", tmp_path, *options)
        assert (code, err.count("error["), "E436" in err) == (expected, number is None, number is None), err
        while running_queries(connection):
            time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_termination_stops_command_and_removes_folders(relcrf_, endless_folder, tmp_path, monkeypatch, number):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    call = GuardedProcess.call

    def terminated(self, *arguments, **options):
        signal_later(number)
        return call(self, *arguments, **options)

    monkeypatch.setattr(GuardedProcess, "call", terminated)
    code, _, err = relcrf_("check", MODEL, "--data", endless_folder)
    assert (code, "error" in err) == (128 + number, False), err
    assert not list(tmp_path.glob("relcrf-*"))


def test_terminated_training_saves_its_state(relcrf_, web, tmp_path, monkeypatch):
    from relcrf.backends import checkpoints

    step = checkpoints.CheckpointMonitor.step

    def terminated(self, stage, state, max_iterations):
        step(self, stage, state, max_iterations)
        if stage == "weights" and state.iteration == 3:
            signal.raise_signal(signal.SIGTERM)

    train = ("train", MODEL, "--backend", "ess", "--data", web, "--out", tmp_path / "run")
    monkeypatch.setattr(checkpoints.CheckpointMonitor, "step", terminated)
    code, _, err = relcrf_(*train)
    assert (code, "--resume" in err) == (143, True), err
    monkeypatch.undo()
    assert relcrf_(*train, "--resume")[0] == 0


# Temporary folders

OWNER = """
import os, signal, sys
from relcrf.execution.temporary import new_temporary_folder
folder = new_temporary_folder(sys)
(folder / "folder1").mkdir()
(folder / "folder1" / "tables.duckdb").write_text("rows")
print(folder, flush=True)
sys.stdin.read()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_folder_of_killed_process_is_removed(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", OWNER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as process:
        folder = tmp_path / os.path.basename(process.stdout.readline().strip())
        temporary.remove_stale_folders(tmp_path)
        assert (folder / "folder1" / "tables.duckdb").exists()
        assert folder.stat().st_mode & 0o777 == 0o700
        process.stdin.close()
        process.wait(timeout=300)
    temporary.remove_stale_folders(tmp_path)
    assert not list(tmp_path.iterdir())


FORKING = """
import os
from relcrf.execution.temporary import new_temporary_folder
class Owner: pass
owner = Owner()
folder = new_temporary_folder(owner)
if (child := os.fork()) == 0:
    del owner
    os._exit(0)
os.waitpid(child, 0)
print(os.listdir(folder))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_child_keeps_the_folders_of_its_parent(tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", FORKING], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"['{temporary.LOCK_NAME}']\n"
    assert not list(tmp_path.iterdir())


@pytest.fixture
def stale(tmp_path, monkeypatch):
    """Return a folder that a dead process of this machine seems to have left."""
    folder = tmp_path / "relcrf-stale"
    (folder / "folder1").mkdir(parents=True)
    (folder / temporary.LOCK_NAME).write_bytes(temporary._machine())
    return folder


def test_first_store_removes_stale_folders(stale, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store = Store()
    assert not stale.exists()
    (own,) = tmp_path.iterdir()
    del store
    assert not own.exists()


def test_folder_that_is_being_created_is_kept(stale, tmp_path):
    (stale / temporary.LOCK_NAME).rename(stale / temporary._UNLOCKED_NAME)
    temporary.remove_stale_folders(tmp_path)
    assert stale.exists()
    (stale / temporary._UNLOCKED_NAME).unlink()
    temporary.remove_stale_folders(tmp_path)
    assert stale.exists()


def test_locked_folder_is_kept(stale, tmp_path):
    with (stale / temporary.LOCK_NAME).open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        temporary.remove_stale_folders(tmp_path)
        assert (stale / "folder1").exists()
    temporary.remove_stale_folders(tmp_path)
    assert not stale.exists()


@pytest.mark.parametrize(("content", "is_kept"), [(b"x\nother", True), (b"", True), (b"\n", True)])
def test_folder_of_other_machine_is_kept(stale, tmp_path, content, is_kept):
    (stale / temporary.LOCK_NAME).write_bytes(content)
    temporary.remove_stale_folders(tmp_path)
    assert stale.exists() == is_kept


def test_folder_from_before_a_power_cut_is_removed(stale, tmp_path):
    node = temporary._machine().partition(b"\n")[2]
    (stale / temporary.LOCK_NAME).write_bytes(b"earlier boot\n" + node)
    temporary.remove_stale_folders(tmp_path)
    assert not stale.exists()


def test_links_files_and_folders_of_others_are_kept(stale, tmp_path, monkeypatch):
    elsewhere = stale.rename(tmp_path / "elsewhere")
    (tmp_path / "relcrf-link").symlink_to(elsewhere)
    (tmp_path / "relcrf-file").write_text("mine")
    (tmp_path / "relcrf-lock").mkdir()
    (tmp_path / "relcrf-lock" / temporary.LOCK_NAME).symlink_to(elsewhere / temporary.LOCK_NAME)
    temporary.remove_stale_folders(tmp_path)
    (tmp_path / "relcrf-link").unlink()
    elsewhere.rename(stale)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    temporary.remove_stale_folders(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["relcrf-file", "relcrf-lock", "relcrf-stale"]
    assert (stale / "folder1").exists()


def test_temporary_folder_is_removed_after_its_context(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(KeyError), temporary.temporary_folder() as folder:
        (folder / "tables.toml").write_text("x")
        raise KeyError
    assert not any(tmp_path.iterdir())
