"""Tests of data that crash, block or exhaust the process that reads them: a diagnostic names them, and relcrf goes on."""

import faulthandler
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from itertools import accumulate

import duckdb
import numpy
import pyarrow
import pyarrow.feather
import pytest

import relcrf
from relcrf.data import isolation
from relcrf.data import store as store_module
from relcrf.data.readers import arrow
from relcrf.data.readers.arrow import ArrowReader
from relcrf.data.sandbox_queries import check_query
from relcrf.data.store import Store, TableStore
from relcrf.errors import DataError, RelcrfError
from relcrf.execution.guarded import GuardedProcess, ProcessDied
from relcrf.resources import resource_path

MODEL = resource_path("models", "webkb.rcrf")
CRASH = "SELECT (repeat('[', 1000000) || repeat(']', 1000000))::JSON::VARIANT AS v"
"""SQL that overflows the stack of DuckDB."""
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) AS i FROM n"


@pytest.fixture(autouse=True)
def guard():
    """End the test run if an endless query is not stopped."""
    faulthandler.dump_traceback_later(300, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


def only_problem(call, error=DataError):
    with pytest.raises(error) as caught:
        call()
    (problem,) = caught.value.diagnostics
    return problem


def write_manifest(folder, sql):
    folder.mkdir(exist_ok=True)
    (folder / "page.csv").write_text("id,size\n1,2\n")
    text = f"[tables.page]\nfile = 'page.csv'\n[tables.found]\nsql = '''{sql}'''\n"
    (folder / "dataset.toml").write_text(text)
    return folder


# Crashes


def test_query_that_crashes_is_reported(tmp_path):
    problem = only_problem(lambda: relcrf.Dataset(write_manifest(tmp_path, f"{CRASH} FROM page")))
    assert (problem.code, problem.location.line) == ("E234", 4)
    assert "'found'" in problem.message and "SIGSEGV" in problem.notes[0]


def test_view_that_crashes_is_reported(tmp_path):
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as connection:
        connection.execute(f"CREATE TABLE page AS SELECT 1 AS id; CREATE VIEW bad AS {CRASH}")
    problem = only_problem(lambda: relcrf.Dataset(tmp_path))
    assert (problem.code, problem.location.table) == ("E204", f"{tmp_path / 'shop.duckdb'}, view 'bad'")
    assert "SIGSEGV" in problem.notes[0]
    (tmp_path / "dataset.toml").write_text("[tables.page]\nduckdb = 'shop.duckdb'\n")
    assert [*relcrf.Dataset(tmp_path).tables] == ["page"]


@pytest.mark.parametrize("number", [signal.SIGBUS, signal.SIGABRT, signal.SIGKILL])
def test_signal_that_ends_the_process_is_named(tmp_path, number):
    process = GuardedProcess("relcrf.data.reader_process", 2**32, tmp_path)
    assert process.call("check", sql="SELECT 1")["is_select"]
    process._process.send_signal(number)
    process._process.wait()
    with pytest.raises(ProcessDied) as caught:
        process.call("check", sql="SELECT 1")
    assert caught.value.cause == number.name


def test_store_starts_a_new_process_after_a_death(tmp_path):
    store = Store()
    store.guarded_process.kill()
    with closing(sqlite3.connect(tmp_path / "a.sqlite")) as database:
        database.execute("CREATE TABLE t AS SELECT 7 AS a")
    (table,) = isolation.copy_tables("sqlite", tmp_path / "a.sqlite", "a", store, table=None)
    assert store.connection.execute(f"FROM {table.scan}").fetchall() == [(7,)]


# Limits


def test_memory_of_the_process_is_limited(tmp_path):
    """SQLite has no memory limit of its own."""
    with closing(sqlite3.connect(tmp_path / "a.sqlite")) as database:
        database.execute("CREATE VIEW t AS SELECT zeroblob(900000000) AS a UNION ALL SELECT zeroblob(900000000)")
    problem = only_problem(lambda: relcrf.Dataset(tmp_path, memory="50MB"), RelcrfError)
    assert problem.code in ("E204", "E315")


def test_jsonl_list_larger_than_memory_is_not_damaged(tmp_path):
    (tmp_path / "page.jsonl").write_text(f'{{"id": 1, "words": {[*range(400_000)]}}}\n')
    assert [*relcrf.Dataset(tmp_path).tables] == ["page"]
    assert only_problem(lambda: relcrf.Dataset(tmp_path, memory="20MB"), RelcrfError).code == "E315"


LIMITS = """
import resource, sys
from relcrf.execution.guarded import serve_requests
def main(*arguments):
    def limits(report_step):
        return {"core": resource.getrlimit(resource.RLIMIT_CORE), "data": resource.getrlimit(resource.RLIMIT_DATA)}
    serve_requests({"limits": limits}, *arguments)
"""


def test_limits_of_the_process(tmp_path, monkeypatch):
    (tmp_path / "limited.py").write_text(LIMITS)
    monkeypatch.syspath_prepend(tmp_path)
    process = GuardedProcess("limited", 2**30, tmp_path)
    assert process.call("limits") == {"core": [0, 0], "data": [2**30, 2**30]}
    process.kill()


@pytest.fixture
def endless_view(tmp_path):
    with closing(sqlite3.connect(tmp_path / "page.sqlite")) as database:
        database.execute(f"CREATE VIEW page AS {ENDLESS}")
    return tmp_path


@pytest.fixture
def endless_query(tmp_path):
    return write_manifest(tmp_path, f"{ENDLESS}, page")


@pytest.mark.parametrize("kind", ["endless_view", "endless_query"])
def test_interrupt_ends_the_process(request, kind, monkeypatch):
    data, started = request.getfixturevalue(kind), []
    init = GuardedProcess.__init__
    monkeypatch.setattr(GuardedProcess, "__init__", lambda self, *a: (init(self, *a), started.append(self))[0])
    call, timers = GuardedProcess.call, [threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))]

    def interrupted(self, *arguments, **options):
        if timers:
            timers.pop().start()
        return call(self, *arguments, **options)

    monkeypatch.setattr(GuardedProcess, "call", interrupted)
    with pytest.raises(KeyboardInterrupt):
        relcrf.Dataset(data)
    assert [process.is_alive() for process in started] == [False]


ABANDONED = """
import sys, relcrf
from relcrf.execution.guarded import GuardedProcess
call = GuardedProcess.call
def reported(self, *arguments, **options):
    print(self._process.pid, flush=True)
    return call(self, *arguments, **options)
GuardedProcess.call = reported
relcrf.Dataset(sys.argv[1])
"""


def test_process_ends_with_its_parent(endless_view):
    from executor_processes import gone

    command = [sys.executable, "-c", ABANDONED, endless_view]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        parent.kill()
    assert gone([pid])


def test_script_without_main_guard_reads_in_another_process(tmp_path):
    """The processes of `multiprocessing` run such a script again."""
    with closing(sqlite3.connect(tmp_path / "a.sqlite")) as database:
        database.execute("CREATE TABLE t AS SELECT 7 AS a")
    (tmp_path / "script.py").write_text("import relcrf\nprint(*relcrf.Dataset('a.sqlite').tables)\n")
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr) == ("t\n", "")


# Arrow files


@pytest.mark.parametrize("kind", ["file", "stream"])
def test_arrow_file_cut_at_any_point_is_reported(tmp_path, kind):
    path = tmp_path / "page.arrow"
    table = pyarrow.table({"id": list(range(1000)), "name": ["x" * k for k in range(1000)]})
    with (pyarrow.ipc.new_file if kind == "file" else pyarrow.ipc.new_stream)(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=300)
    content = path.read_bytes()
    store, rows = Store(), []
    for size in (0, 8, len(content) // 2, len(content) - 1, len(content)):
        path.write_bytes(content[:size])
        try:
            (found,) = ArrowReader().tables(path, "page", store)
            rows.append(store.connection.execute(f"SELECT count(*) FROM {found.scan}").fetchall()[0][0])
        except DataError as error:
            (problem,) = error.diagnostics
            assert (problem.code, "SIG" in str(problem.notes), size < len(content)) == ("E204", False, True), problem
    assert rows[-1] == 1000


def test_arrow_file_changed_after_opening_has_old_rows(tmp_path):
    path = tmp_path / "page.feather"
    table = pyarrow.table({"id": list(range(100_000))})
    pyarrow.feather.write_feather(table, path, compression="uncompressed")
    dataset = relcrf.Dataset(tmp_path)
    with path.open("r+b") as file:
        file.truncate(1000)
    count = f"SELECT count(*), sum(id) FROM {dataset.tables['page'].scan}"
    assert dataset.connection.execute(count).fetchall() == [(100_000, 4_999_950_000)]
    assert dataset.changed_files() == [str(path)]


def test_arrow_batch_larger_than_the_memory_limit_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(store_module, "GUARDED_OVERHEAD", 250 * 1024**2)
    table = pyarrow.table({f"x{k}": numpy.arange(2_000_000) for k in range(25)})
    with pyarrow.ipc.new_file(tmp_path / "page.arrow", table.schema) as writer:
        writer.write_table(table)
    dataset = relcrf.Dataset(tmp_path, memory="60MB")
    sums = f"SELECT count(*), sum(x0), sum(x24) FROM {dataset.tables['page'].scan}"
    assert dataset.connection.execute(sums).fetchall() == [(2_000_000, 1_999_999_000_000, 1_999_999_000_000)]


def test_decompressed_batch_needs_little_more_than_its_size(tmp_path):
    """A batch of 320 MB, with a limit of 644 MB on two processors; PyArrow's default allocator needs more."""
    table = pyarrow.table({f"x{k}": numpy.arange(2_000_000) for k in range(20)})
    pyarrow.feather.write_feather(table, str(tmp_path / "page.feather"), chunksize=len(table))
    assert len(relcrf.Dataset(tmp_path, memory="100MB").find_table("page").columns) == 20


def test_guarded_process_converts_all_cells(tmp_path):
    table = pyarrow.table({"id": [1], "x": pyarrow.array([2**62], pyarrow.duration("s"))})
    pyarrow.feather.write_feather(table, str(tmp_path / "page.feather"))
    problem = only_problem(lambda: relcrf.Dataset(tmp_path))
    assert problem.code == "E204" and "Could not convert" in problem.notes[0]


@pytest.mark.parametrize("sizes", [(), (0,), (5,), (1, 0, 7, 2)])
@pytest.mark.parametrize("kind", ["file", "stream"])
def test_copy_of_arrow_file_has_all_rows_in_order(tmp_path, monkeypatch, kind, sizes):
    """Write many parts, with batches of different dictionaries."""
    monkeypatch.setattr(arrow, "PART_ROWS", 3)
    monkeypatch.setattr(arrow, "PART_BYTES", 1500)
    rows = [{"id": k, "words": ["a"] * k, "kind": "xyz"[k % 3]} for k in range(sum(sizes))]
    encoded = pyarrow.dictionary(pyarrow.int8(), pyarrow.string())
    schema = pyarrow.schema({"id": pyarrow.int64(), "words": pyarrow.list_(pyarrow.string()), "kind": encoded})
    with (pyarrow.ipc.new_file if kind == "file" else pyarrow.ipc.new_stream)(
        tmp_path / "page.arrow", schema
    ) as writer:
        starts = accumulate(sizes, initial=0)
        for start, size in zip(starts, sizes, strict=False):
            letters = ["x", "y", "z"] if kind == "file" or start else ["z", "y", "x"]
            part = rows[start : start + size]
            indices = pyarrow.array([letters.index(row["kind"]) for row in part], pyarrow.int8())
            columns = [[row["id"] for row in part], [row["words"] for row in part]]
            arrays = [pyarrow.array(c, f.type) for c, f in zip(columns, schema, strict=False)]
            arrays.append(pyarrow.DictionaryArray.from_arrays(indices, pyarrow.array(letters)))
            writer.write_batch(pyarrow.record_batch(arrays, schema=schema))
    copy = tmp_path / "copy"
    copy.mkdir()
    store = TableStore(tmp_path, "100MB", tmp_path / "tables.duckdb", "main")
    arrow.copy_tables(tmp_path / "page.arrow", "page", store, print, str(copy))
    parts = arrow.CopiedRows(pyarrow, copy)
    assert pyarrow.RecordBatchReader.from_stream(parts).read_all().to_pylist() == rows
    assert all(batch.num_rows <= 3 for batch in parts.batches())
    assert len(list(copy.iterdir())) > 1 or sum(sizes) <= 5


# Functions of DuckDB

FORBIDDEN = [
    "FROM duckdb_settings()", "FROM system.main.DUCKDB_SETTINGS()", 'FROM "duckdb_settings"()', "FROM pg_settings",
    "FROM register_external_resource('a', 'b')", "FROM destroy_external_resource('a')", "FROM duckdb_secrets()",
    "SELECT current_setting('temp_directory')", "FROM query('SELECT 1')", "FROM query_table('page')", "FROM glob('*')",
    "FROM duckdb_temporary_files()", "SELECT (SELECT max(value) FROM duckdb_settings() s)", "FROM pragma_database_size()",
    "FROM page, (FROM arrow_scan(1, 2, 3))", "WITH x AS (FROM read_text('a')) FROM x", "SELECT write_log('x')",
]  # fmt: skip
ALLOWED = [
    "FROM page", "FROM range(3)", "SELECT unnest([1, 2])", "FROM (PIVOT page ON id IN (1) USING sum(size))",
    "SELECT list_transform([1], lambda x: x + 1)", "FROM json_each('[1]')", "WITH x AS (FROM page) FROM x",
    "SELECT 'duckdb_settings()' AS text", "SUMMARIZE page", "SELECT id, row_number() OVER () FROM page",
]  # fmt: skip


def test_allowed_and_forbidden_functions():
    for sql in FORBIDDEN:
        reply = check_query(lambda step: None, sql)
        assert reply["is_select"] and (reply["forbidden"] or reply["views"]), sql
    for sql in ALLOWED:
        assert check_query(lambda step: None, sql) == {"is_select": True, "forbidden": [], "views": []}, sql


def test_table_functions_are_forbidden_unless_listed():
    """Check every table function of the installed DuckDB, so that those of later versions are forbidden."""
    from relcrf.data.sandbox_queries import TABLE_FUNCTIONS

    found = duckdb.execute("SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type LIKE 'table%'")
    names = {name for (name,) in found.fetchall()}
    sql = "SELECT * FROM " + ", ".join(f'"{name}"() AS t{k}' for k, name in enumerate(names))
    assert check_query(lambda step: None, sql)["forbidden"] == sorted(names - TABLE_FUNCTIONS)


def test_manifest_with_forbidden_function_is_rejected(tmp_path):
    problem = only_problem(lambda: relcrf.Dataset(write_manifest(tmp_path, "FROM duckdb_settings()")))
    assert (problem.code, problem.notes) == ("E234", ("it uses duckdb_settings()",))
    assert "accesses data outside the manifest" in problem.message
    assert "pg_settings" in str(only_problem(lambda: relcrf.Dataset(write_manifest(tmp_path, "FROM pg_settings"))))


def test_forbidden_functions_in_views_macros_and_nested_views(tmp_path):
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as connection:
        connection.execute("CREATE TABLE page AS SELECT 1 AS id, 'duckdb_settings()' AS text")
        connection.execute("CREATE MACRO inner_(n) AS TABLE FROM duckdb_settings()")
        connection.execute("CREATE MACRO outer_(n) AS TABLE FROM inner_(n)")
        connection.execute("CREATE SCHEMA other; CREATE VIEW other.hidden AS FROM duckdb_memory()")
        connection.execute("CREATE VIEW by_macro AS FROM outer_(1); CREATE VIEW nested AS FROM other.hidden")
        connection.execute("CREATE VIEW direct AS SELECT (SELECT count(*) FROM duckdb_settings()) AS n")
        hidden = "(SELECT count(*) FROM duckdb_settings())"
        connection.execute(f"""CREATE VIEW quoted AS SELECT 1 AS "it's", {hidden} AS "that's" """)
        connection.execute("CREATE TABLE generated (a INTEGER, b VARCHAR AS (current_setting('temp_directory')))")
        connection.execute("CREATE VIEW good AS SELECT id, 'duckdb_settings()' AS text FROM page")
    dataset = relcrf.Dataset(tmp_path)
    assert [*dataset.tables] == ["good", "page"]
    for name in ("by_macro", "nested", "direct", "quoted", "generated"):
        assert "it calls " in only_problem(lambda name=name: dataset.find_table(name)).notes[0]
