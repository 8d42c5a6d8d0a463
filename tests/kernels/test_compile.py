"""Where compiled kernels are kept, that nobody else can put one there, and that processes do not disturb each other."""

import inspect
import os
import pickle
import subprocess
import sys
import threading

import numba
import pytest
from numba import config, int64
from numba.core.caching import FunctionCache, _CacheLocator

from relcrf.kernels import compile as subject
from relcrf.kernels.compile import CacheFolder, kernel


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A machine on which a folder `file` can never be made, and everything else is empty."""
    (tmp_path / "file").touch()
    for name in ("kernels", "xdg", "home", "temporary"):
        (tmp_path / name).mkdir(mode=0o700)
    monkeypatch.setattr(config, "CACHE_DIR", "")
    monkeypatch.setattr(subject, "PACKAGE", tmp_path / "kernels")
    monkeypatch.setattr(subject.tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


def chosen():
    return subject.cache_folder.__wrapped__()


def read_only(place):
    (place / "kernels" / "__pycache__").touch()  # so that root cannot make the folder either


def test_the_user_says_where(place, monkeypatch):
    monkeypatch.setattr(config, "CACHE_DIR", str(place / "mine"))
    assert chosen().path.parent == place / "mine"
    assert not chosen().note
    monkeypatch.setattr(config, "CACHE_DIR", str(place / "file"))
    assert chosen().path == place / "kernels" / "__pycache__"
    assert f"NUMBA_CACHE_DIR is {place / 'file'}" in chosen().note


def test_beside_the_package_or_with_the_user(place, monkeypatch):
    assert chosen() == CacheFolder(place / "kernels" / "__pycache__")
    (place / "kernels" / "__pycache__").rmdir()
    read_only(place)
    assert chosen().path.parent == place / "xdg" / "relcrf" / "kernels"
    assert not chosen().note
    assert chosen().path.stat().st_mode & 0o777 == 0o700
    for unset in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", unset)
        assert chosen().path.parent == place / "home" / ".cache" / "relcrf" / "kernels"


def test_a_temporary_folder_is_the_last(place, monkeypatch):
    read_only(place)
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "file"))
    found = chosen()
    assert found.path.parent == place / "temporary"
    assert found.path.stat().st_mode & 0o777 == 0o700
    assert f"kept in {found.path} only" in found.note
    monkeypatch.setattr(subject.tempfile, "tempdir", str(place / "file"))
    assert chosen().path is None
    assert "every process compiles its own" in chosen().note


def widen(folder):
    folder.chmod(0o777)


def move_away(folder):
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to(folder.with_name("elsewhere"))


def give_away(folder):
    if os.getuid() != 0:
        pytest.skip("only root can give a folder away")
    os.chown(folder, 12345, -1)


def open_the_parent(folder):
    folder.parent.chmod(0o777)


@pytest.mark.parametrize("change", [widen, move_away, give_away, open_the_parent])
def test_what_others_can_write_to_is_not_used(place, monkeypatch, change):
    read_only(place)
    own = chosen().path
    change(own)
    temporary = chosen()
    assert temporary.path.parent == place / "temporary"
    change(temporary.path)
    assert chosen().path is None


def test_a_sticky_parent_is_no_danger(place, monkeypatch):
    read_only(place)
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "file"))
    (place / "temporary").chmod(0o1777)
    assert chosen().path.parent == place / "temporary"


def twice(x):
    return 2 * x


def kept_in(folder, monkeypatch):
    monkeypatch.setattr(subject, "cache_folder", lambda: CacheFolder(folder))
    return kernel((int64,))(twice)


def test_numba_has_the_private_parts_that_the_cache_is_made_of():
    """Runs with the oldest and the newest version that the lock files name; another version that differs fails here."""
    cache = kernel((int64,))(twice)._cache
    for method, parameters in {
        FunctionCache.load_overload: ["self", "sig", "target_context"],
        FunctionCache.save_overload: ["self", "sig", "data"],
        FunctionCache.flush: ["self"],
        FunctionCache._index_key: ["self", "sig", "codegen"],
        type(cache._cache_file)._load_index: ["self"],
    }.items():
        assert list(inspect.signature(method).parameters) == parameters
    assert FunctionCache._impl_class is not subject._KernelCache._impl_class
    assert cache._impl._locator_classes == subject._KernelCache._Files._locator_classes
    assert _CacheLocator.__abstractmethods__ <= set(dir(subject._KernelCache._Files._Locator))


def test_without_a_folder_kernels_are_compiled_each_time(monkeypatch):
    function = kept_in(None, monkeypatch)
    assert function(4) == 8
    assert not subject.KERNELS[f"{__name__.rpartition('.')[2]}.twice"].is_cached()


def test_a_kept_kernel_is_not_compiled_again(tmp_path, monkeypatch):
    first = kept_in(tmp_path, monkeypatch)
    first(4)
    assert sum(first.stats.cache_misses.values()) == 1
    second = kept_in(tmp_path, monkeypatch)
    assert second(4) == 8
    assert not second.stats.cache_misses and sum(second.stats.cache_hits.values()) == 1


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
def test_damaged_files_are_made_anew(tmp_path, monkeypatch, ending):
    kept_in(tmp_path, monkeypatch)(4)
    (damaged,) = tmp_path.glob(f"*.{ending}")
    damaged.write_bytes(b"")
    for misses in (1, 0):
        function = kept_in(tmp_path, monkeypatch)
        assert function(4) == 8
        assert sum(function.stats.cache_misses.values()) == misses


class Moved:
    """Stands for a class of Numba that another version has elsewhere."""


def test_an_index_that_names_a_class_that_is_gone_is_made_anew(tmp_path, monkeypatch):
    kept_in(tmp_path, monkeypatch)(4)
    (index,) = tmp_path.glob("*.nbi")
    stale = pickle.dumps((subject._source_stamp(), Moved())).replace(b"Moved", b"Gone!")
    index.write_bytes(pickle.dumps(numba.__version__) + stale)
    for misses in (1, 0):
        function = kept_in(tmp_path, monkeypatch)
        assert function(4) == 8
        assert sum(function.stats.cache_misses.values()) == misses


def test_a_folder_that_was_cleared_away(tmp_path, monkeypatch):
    function = kept_in(tmp_path / "cleared", monkeypatch)
    assert function(4) == 8
    for path in (tmp_path / "cleared").iterdir():
        path.unlink()
    (tmp_path / "cleared").rmdir()
    assert function(0.5) == 1.0


def test_a_folder_that_others_have_taken_since(tmp_path, monkeypatch):
    folder = CacheFolder(tmp_path / "own", private=True)
    monkeypatch.setattr(subject, "cache_folder", lambda: folder)
    assert kernel((int64,))(twice)(4) == 8
    (tmp_path / "own").chmod(0o777)
    function = kernel((int64,))(twice)
    assert function(4) == 8
    assert not function.stats.cache_hits


def test_any_kernel_file_counts(place):
    (place / "kernels" / "a.py").write_text("1")
    stamps = {subject._source_stamp.__wrapped__()}
    (place / "kernels" / "b.py").write_text("1")
    stamps.add(subject._source_stamp.__wrapped__())
    (place / "kernels" / "b.py").write_text("2")
    stamps.add(subject._source_stamp.__wrapped__())
    assert len(stamps) == 3


def test_whoever_holds_the_folder_is_waited_for(tmp_path, monkeypatch):
    function = kept_in(tmp_path, monkeypatch)
    other = threading.Thread(target=function, args=(4,))
    with subject._lock_folder(tmp_path):
        other.start()
        other.join(timeout=2)
        assert other.is_alive()
    other.join()
    assert function.signatures


CROWD = """
import sys
from numba import types
from numba.core.caching import NullCache
from relcrf.kernels.compile import DECLARED, kernel

signatures = [(getattr(types, name),) for name in sys.argv[2:]]

@kernel(*signatures)
def twice(x):
    return 2 * x

(declared,) = DECLARED.values()
if sys.argv[1] == "compile":
    cache, twice._cache = twice._cache, NullCache()
    declared.compile()
    print("ready", flush=True)
    sys.stdin.readline()
    for signature in signatures:
        cache.save_overload(signature, twice.overloads[signature])
else:
    assert declared.is_cached()
    declared.compile()
    assert twice.signatures == signatures and not twice.stats.cache_misses
"""
TYPES = ("int8", "int16", "int32", "int64", "float32", "float64")


def test_processes_that_compile_one_kernel_at_once_lose_nothing(tmp_path):
    script = tmp_path / "crowd.py"
    script.write_text(CROWD)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    start = [sys.executable, str(script)]
    crowd = [
        subprocess.Popen(
            [*start, "compile", name], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name in TYPES
    ]
    for process in crowd:
        assert process.stdout.readline() == "ready\n"
    for process in crowd:
        process.stdin.write("\n")
        process.stdin.flush()
    for process in crowd:
        process.communicate()
        assert process.returncode == 0
    subprocess.run([*start, "look", *TYPES], env=environment, check=True)
