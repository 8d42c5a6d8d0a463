"""Tests that `relcrf warmup` compiles all kernels that users need, in separate processes with the cache of the other tests."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command import relcrf_command
from tables import small_web, write_tables

from relcrf.cli import warmup
from relcrf.kernels import compile
from relcrf.kernels.compile import CacheFolder
from relcrf.resources import resource_path

FOLDER = "from relcrf.kernels.compile import cache_folder; print(cache_folder().path)"

CHECK_CACHE = """
import sys
from pathlib import Path
from numba.core.dispatcher import Dispatcher
from relcrf.kernels.compile import cache_folder
from relcrf.kernels.warmup import load_kernels, missing_kernels

assert not missing_kernels()
declared = {id(kernel.dispatcher) for kernel in load_kernels().values()}
n = 0
for name, module in list(sys.modules.items()):
    if name.startswith("relcrf.kernels."):
        for function in vars(module).values():
            if isinstance(function, Dispatcher) and function.__module__ == name:
                n += 1
                name_in_file = function.py_func.__qualname__.replace("<", "").replace(">", "")
                base = f"{name.rpartition('.')[2]}.{name_in_file}"
                assert id(function) in declared, f"{base} is not declared by @kernel"
                if function.targetoptions.get("inline") == "always":
                    continue  # inlined functions have no compiled code
                assert list(cache_folder().path.glob(f"{base}-*.nbc")), f"no warmup compiles {base}"
assert n >= 10
"""

WORK = """
import sys
from pathlib import Path
from relcrf.cli.main import run
from relcrf.kernels.compile import KERNELS

def relcrf(*arguments):
    sys.argv = ["relcrf", *map(str, arguments)]
    try:
        run()
    except SystemExit as end:
        assert not end.code

folder, web, model = map(Path, sys.argv[1:])
keyed = folder / "keyed.rcrf"
keyed.write_text(
    "domain S = { a, b }\\nentity E { predict d : S school : string }\\nrelation R(x: E, y: E)\\n"
    "template prior(e: E) over e.d per e.school\\n"
    "template linked(x: E, y: E) where R(x, y) over x.d, y.d per x.school\\n"
)
for name, (text, data) in {"web": (model, web), "keyed": (keyed, folder / "keyed_tables")}.items():
    for backend in ("ess", "pseudo", "local"):
        for again in range(2):
            out = folder / f"{name}_{backend}_{again}"
            cache = ["--cache", folder / f"{name}_blocks"] if backend == "ess" or again else []
            relcrf("train", text, "--data", data, "--out", out, "--backend", backend, *cache)
            relcrf("predict", out, "--data", data, "--out", out / "found.csv")
relcrf("train", model, "--data", web, "--out", folder / "shards", "--workers", 1)
found = {name: [str(s) for s in k.dispatcher.stats.cache_misses] for name, k in KERNELS.items()}
assert sum(len(k.dispatcher.signatures) for k in KERNELS.values()) >= 5
assert not any(found.values()), {name: s for name, s in found.items() if s}
"""


def python(*arguments, cache=None):
    environment = os.environ | ({"NUMBA_CACHE_DIR": str(cache)} if cache else {})
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def copy_of_cache(folder, cache):
    """Copy the compiled kernels, so that concurrent tests cannot add to them; return the folder of the copy."""
    copy = Path(python("-c", FOLDER, cache=cache).strip())
    for file in folder.glob("*.nbc"):
        shutil.copy(file, copy)
    return copy


@pytest.fixture(scope="module")
def warm():
    return json.loads(python("-m", "relcrf.cli.main", "warmup", "--json"))


def test_every_kernel_is_compiled_once(warm):
    assert all(
        seconds > 0 for seconds in warm["compiled"].values()
    )  # includes only kernels that no earlier test compiled
    python("-c", CHECK_CACHE)
    again = json.loads(python("-m", "relcrf.cli.main", "warmup", "--json"))
    assert again["compiled"] == {}
    assert again["folder"] == warm["folder"]
    assert "all kernels are already compiled" in python("-m", "relcrf.cli.main", "warmup")


def test_no_compilation_after_warmup(warm, tmp_path):
    web = small_web(tmp_path / "web_tables", pages=30)
    people = [{"id": f"e{k}", "d": None if k % 5 == 0 else "ab"[k % 2], "school": f"s{k % 3}"} for k in range(20)]
    links = [{"x": f"e{k}", "y": f"e{(k * 7 + 2) % 20}"} for k in range(20)]
    write_tables(tmp_path / "keyed_tables", e=people, r=links)
    copy = copy_of_cache(Path(warm["folder"]), tmp_path / "kernels")
    before = sorted(copy.iterdir())
    python("-c", WORK, tmp_path, web, resource_path("models", "webkb.rcrf"), cache=tmp_path / "kernels")
    assert sorted(copy.iterdir()) == before  # worker processes do not compile either


@pytest.mark.skipif(sys.platform == "win32", reason="there, a process cannot send Ctrl-C to another one")
def test_ctrl_c_prints_no_traceback_of_a_worker():
    command = [sys.executable, "-m", "relcrf.kernels.warmup", '[["vector_math.exp_in_place"]]']
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, **pipes) as worker:
        worker.stdin.write(bytes(1))
        worker.stdin.flush()
        assert b"exp_in_place" in worker.stdout.readline()  # the worker waits for the next task
        worker.send_signal(signal.SIGINT)
        assert worker.communicate()[1] == b""
    assert worker.returncode == -signal.SIGINT


def test_help(capsys, monkeypatch):
    code, out, _ = relcrf_command(capsys, monkeypatch, "warmup", "--help")
    assert code == 0 and "Example: relcrf warmup" in out


def test_missing_cache_folder_raises_e314(capsys, monkeypatch):
    monkeypatch.setattr(warmup, "cache_folder", lambda: CacheFolder(None, note="no folder can keep compiled kernels"))
    monkeypatch.setattr(warmup, "missing_kernels", lambda: ["forest.up"])
    code, _, err = relcrf_command(capsys, monkeypatch, "warmup")
    assert code == 2
    assert "E314" in err and "NUMBA_CACHE_DIR" in err


def test_unexpected_cache_folder_prints_note(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(compile, "cache_folder", lambda: CacheFolder(tmp_path, note="kernels are elsewhere"))
    _, _, err = relcrf_command(capsys, monkeypatch, "check", resource_path("models", "webkb.rcrf"))
    assert "note: kernels are elsewhere" in err
