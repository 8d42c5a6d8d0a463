"""The commands without the modules, signals and calls that Windows lacks."""

import errno
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from relcrf import files
from relcrf.files import replace_folder

SUPPORT = Path(__file__).parent.parent / "support"
ROOT = SUPPORT.parent.parent

COMMANDS = """
example web --out web
check web/webkb.rcrf --data web
plan web/webkb.rcrf --data web
ground web/webkb.rcrf --data web --cache blocks
train web/webkb.rcrf --data web --out run --backend ess --time-limit 600s
train web/webkb.rcrf --data web --out other --backend pseudo --workers 2
reproduce run --data web
predict run --data web --out p.csv
predict other --data pages.sqlite
explain run Page/p001 --data web
evaluate web/webkb.rcrf --data web --split site --backend local
compare web/webkb.rcrf --data web --backend local --split hide=0.2
weights run
moments run
diff run other
report run --data web --out report.html
profile web --out tables.html
fmt web/webkb.rcrf
"""

RUN = """
import shlex, sys
from relcrf.__main__ import main
if __name__ == "__main__":
    for command in sys.argv[1].strip().splitlines():
        sys.argv[1:] = shlex.split(command)
        try:
            main()
        except SystemExit as end:
            if end.code:
                sys.exit(f"exit code {end.code}: {command}")
"""
"""A program that runs commands in one process."""


@pytest.fixture
def windows(tmp_path):
    """Run a program, as text with arguments, without what Windows lacks; return the result."""
    (tmp_path / "site").mkdir()
    shutil.copy(SUPPORT / "sitecustomize_windows.py", tmp_path / "site" / "sitecustomize.py")
    (tmp_path / "temporary").mkdir()

    def run(code, *arguments):
        program = tmp_path / "program.py"
        program.write_text(code)
        environment = {**os.environ, "PYTHONPATH": f"{tmp_path / 'site'}{os.pathsep}{ROOT}"}
        return subprocess.run(
            [sys.executable, program, *arguments],
            cwd=tmp_path,
            env={**environment, "TMPDIR": str(tmp_path / "temporary")},
            capture_output=True,
            text=True,
        )

    return run


@pytest.mark.slow
def test_commands(windows, tmp_path):
    with sqlite3.connect(tmp_path / "pages.sqlite") as database:
        database.executescript(
            "CREATE TABLE page (id TEXT, category TEXT); CREATE TABLE link (source TEXT, target TEXT);"
            "CREATE TABLE page_words (page TEXT, word TEXT); INSERT INTO page VALUES ('a', NULL)"
        )
    database.close()
    done = windows(RUN, COMMANDS)
    assert done.returncode == 0, (done.stdout[-3000:], done.stderr[-3000:])
    assert "internal error" not in done.stderr
    assert not list((tmp_path / "temporary").glob("relcrf-*")), "temporary folders are removed"


def test_time_limit_and_dropped_signals(windows):
    code = """
import _thread, signal, sys, time
from relcrf.cli import dropped_signals, time_limit
try:
    with time_limit.limit_time("0.2s"):
        while True:
            time.sleep(0.01)
except time_limit.TimeLimitReached:
    print(time_limit.time_limit_error())

class Dropping:
    def __del__(self):
        dropped_signals.send_signal(0, signal.SIGINT)
        for _ in range(1000):
            time.sleep(0.001)

try:
    with dropped_signals.resend_dropped_signals(signal.SIGINT, KeyboardInterrupt):
        Dropping()
        while True:
            time.sleep(0.01)
except KeyboardInterrupt:
    print("interrupted")
"""
    done = windows(code)
    assert done.returncode == 0, done.stderr
    assert "E436" in done.stdout and done.stdout.endswith("interrupted\n")


def test_folder_of_dead_process_is_removed(windows, tmp_path):
    code = """
import os, sys
from relcrf.execution.temporary import new_temporary_folder
folder = new_temporary_folder(sys)
(folder / "folder1").mkdir()
print(len(os.listdir(os.path.dirname(folder))), flush=True)
os._exit(9)
"""
    assert windows(code).stdout == "1\n"
    assert len(list((tmp_path / "temporary").iterdir())) == 1
    done = windows(code)
    assert done.stdout == "1\n", "the folder of the first process is removed, and not that of this one"


def test_memory_of_a_guarded_process_is_limited(windows, tmp_path):
    (tmp_path / "site" / "greedy.py").write_text(
        "import time\n"
        "from relcrf.execution.guarded import serve_requests\n\n\n"
        "def allocate(report_step, n_bytes):\n"
        "    report_step('allocating')\n"
        "    rows = b'x' * n_bytes\n"
        "    time.sleep(0.5)\n"
        "    return {'n': len(rows)}\n\n\n"
        "def main(memory_bytes, parent):\n"
        "    serve_requests({'allocate': allocate}, memory_bytes, parent)\n"
    )
    (tmp_path / "work").mkdir()
    code = """
from pathlib import Path
from relcrf.execution.guarded import GuardedProcess, ProcessDied
process = GuardedProcess("greedy", 2**28, Path("work"))
print(process.call("allocate", n_bytes=2**20))
try:
    process.call("allocate", n_bytes=2**29)
except ProcessDied as error:
    print(error.cause, error.step)
"""
    done = windows(code)
    assert done.stdout == "{'n': 1048576}\nexit code 77 allocating\n", done.stderr


def test_folders_are_replaced_without_an_atomic_exchange(tmp_path, monkeypatch):
    """The names are exchanged in two steps where the system or the file system has no exchange."""
    for step, unsupported in enumerate((False, True)):
        old, new = tmp_path / f"run{step}", tmp_path / f"run{step}.partial"
        for folder in (old, new):
            folder.mkdir()
            (folder / "run.json").write_text(folder.name)
        if unsupported:
            monkeypatch.setattr(files.ctypes, "CDLL", lambda *_, **__: object())
        else:
            monkeypatch.setattr(files, "_exchange_paths", lambda *_: False)
        replace_folder(new, old)
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith(f"run{step}")] == [f"run{step}"]
        assert (old / "run.json").read_text() == f"run{step}.partial"
        monkeypatch.undo()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run0", "run1"], "the old folders are removed"


def test_failed_replacement_keeps_the_old_folder(tmp_path, monkeypatch):
    old, new = tmp_path / "run", tmp_path / "run.partial"
    for folder in (old, new):
        folder.mkdir()
        (folder / "run.json").write_text(folder.name)

    def fail(source, target):
        raise OSError(errno.EIO, "I/O error", str(target))

    monkeypatch.setattr(files, "_exchange_paths", lambda *_: False)
    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="I/O error"):
        replace_folder(new, old)
    kept = [path for path in tmp_path.iterdir() if path.name.endswith(files.REMOVED_SUFFIX)]
    assert [(path / "run.json").read_text() for path in kept] == ["run"] and new.is_dir()
