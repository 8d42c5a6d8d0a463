"""The cache folder of compiled kernels: its choice, its protection from other users, and its use by several processes."""

import inspect
import os
import subprocess
import sys

import pytest
from numba import config, int64
from numba.core.caching import FunctionCache, IndexDataCacheFile, _CacheLocator
from numba.core.errors import NumbaWarning

from relcrf.kernels import compile as subject
from relcrf.kernels.compile import PORTABLE_CPU, PORTABLE_FOLDER, CacheFolder, kernel


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Return a folder with empty home, cache and temporary folders, and a file `file` that cannot become a folder."""
    (tmp_path / "file").touch()
    for name in ("kernels", "xdg", "home", "temporary"):
        (tmp_path / name).mkdir(mode=0o700)
    monkeypatch.setattr(config, "CACHE_DIR", "")
    monkeypatch.setattr(subject, "PACKAGE", tmp_path / "kernels")
    monkeypatch.setattr(subject.tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


def choose_folder():
    return subject.cache_folder.__wrapped__()


def block_package_folder(machine):
    (machine / "kernels" / "__pycache__").touch()  # so that root cannot make the folder either


def test_numba_cache_dir_is_used_if_possible(machine, monkeypatch):
    monkeypatch.setattr(config, "CACHE_DIR", str(machine / "mine"))
    assert choose_folder().path.parent == machine / "mine"
    assert not choose_folder().note
    monkeypatch.setattr(config, "CACHE_DIR", str(machine / "file"))
    assert choose_folder().path == machine / "kernels" / "__pycache__"
    assert f"NUMBA_CACHE_DIR is {machine / 'file'}" in choose_folder().note


def test_package_folder_precedes_user_cache_folder(machine, monkeypatch):
    assert choose_folder() == CacheFolder(machine / "kernels" / "__pycache__")
    (machine / "kernels" / "__pycache__").rmdir()
    block_package_folder(machine)
    assert choose_folder().path.parent == machine / "xdg" / "relcrf" / "kernels"
    assert not choose_folder().note
    assert choose_folder().path.stat().st_mode & 0o777 == 0o700
    for unset in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", unset)
        assert choose_folder().path.parent == machine / "home" / ".cache" / "relcrf" / "kernels"


def test_temporary_folder_is_the_last_resort(machine, monkeypatch):
    block_package_folder(machine)
    monkeypatch.setenv("XDG_CACHE_HOME", str(machine / "file"))
    folder = choose_folder()
    assert folder.path.parent == machine / "temporary"
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert f"cached in {folder.path} only" in folder.note
    monkeypatch.setattr(subject.tempfile, "tempdir", str(machine / "file"))
    assert choose_folder().path is None
    assert "every process compiles its own" in choose_folder().note


def make_writable(folder):
    folder.chmod(0o777)


def replace_by_link(folder):
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to(folder.with_name("elsewhere"))


def change_owner(folder):
    if os.getuid() != 0:
        pytest.skip("only root can give a folder away")
    os.chown(folder, 12345, -1)


def make_parent_writable(folder):
    folder.parent.chmod(0o777)


@pytest.mark.parametrize("change", [make_writable, replace_by_link, change_owner, make_parent_writable])
def test_folder_writable_for_others_is_rejected(machine, monkeypatch, change):
    block_package_folder(machine)
    own = choose_folder().path
    change(own)
    temporary = choose_folder()
    assert temporary.path.parent == machine / "temporary"
    change(temporary.path)
    assert choose_folder().path is None


def test_folder_with_sticky_parent_is_accepted(machine, monkeypatch):
    block_package_folder(machine)
    monkeypatch.setenv("XDG_CACHE_HOME", str(machine / "file"))
    (machine / "temporary").chmod(0o1777)
    assert choose_folder().path.parent == machine / "temporary"


def twice(x):
    return 2 * x


def compile_in(folder, monkeypatch):
    monkeypatch.setattr(subject, "cache_folder", lambda: CacheFolder(folder))
    return kernel((int64,))(twice)


def test_private_api_of_numba_is_as_expected():
    """Fail on Numba versions with another private API; CI runs it with the oldest and newest locked version."""
    cache = kernel((int64,))(twice)._cache
    for method, parameters in {
        FunctionCache.load_overload: ["self", "sig", "target_context"],
        FunctionCache.save_overload: ["self", "sig", "data"],
        FunctionCache.flush: ["self"],
        FunctionCache._index_key: ["self", "sig", "codegen"],
        IndexDataCacheFile.load: ["self", "key"],
        IndexDataCacheFile.save: ["self", "key", "data"],
        IndexDataCacheFile.flush: ["self"],
    }.items():
        assert list(inspect.signature(method).parameters) == parameters
    assert FunctionCache._impl_class is not subject._KernelCache._impl_class
    assert cache._impl._locator_classes == subject._KernelCache._KernelFiles._locator_classes
    assert _CacheLocator.__abstractmethods__ <= set(dir(subject._KernelCache._KernelFiles._KernelLocator))


def test_kernels_are_not_cached_without_folder(monkeypatch):
    function = compile_in(None, monkeypatch)
    assert function(4) == 8
    assert not subject.KERNELS[f"{__name__.rpartition('.')[2]}.twice"].is_cached()


def test_cached_kernel_is_not_recompiled(tmp_path, monkeypatch):
    first = compile_in(tmp_path, monkeypatch)
    first(4)
    assert sum(first.stats.cache_misses.values()) == 1
    second = compile_in(tmp_path, monkeypatch)
    assert second(4) == 8
    assert not second.stats.cache_misses and sum(second.stats.cache_hits.values()) == 1


@pytest.mark.parametrize(("option", "value"), [("OPT", 1), ("BOUNDSCHECK", 1), ("DEBUGINFO_DEFAULT", 1)])
def test_code_for_debugging_is_not_reused(option, value, tmp_path, monkeypatch):
    with monkeypatch.context() as changed:
        changed.setattr(config, option, value)
        assert compile_in(tmp_path, monkeypatch)(4) == 8
    ordinary = compile_in(tmp_path, monkeypatch)
    assert ordinary(4) == 8
    assert sum(ordinary.stats.cache_misses.values()) == 1


def test_code_that_cannot_be_cached_is_used(tmp_path, monkeypatch):
    function = compile_in(tmp_path, monkeypatch)
    library = function.targetctx.codegen().create_library("empty")
    monkeypatch.setattr(type(library), "has_dynamic_globals", True)
    with pytest.warns(NumbaWarning, match="Cannot cache"):
        assert function(4) == 8


def test_deleted_folder_is_recreated(tmp_path, monkeypatch):
    function = compile_in(tmp_path / "cleared", monkeypatch)
    assert function(4) == 8
    for path in (tmp_path / "cleared").iterdir():
        path.unlink()
    (tmp_path / "cleared").rmdir()
    assert function(0.5) == 1.0


def test_folder_that_became_writable_is_ignored(tmp_path, monkeypatch):
    folder = CacheFolder(tmp_path / "own", private=True)
    monkeypatch.setattr(subject, "cache_folder", lambda: folder)
    assert kernel((int64,))(twice)(4) == 8
    (tmp_path / "own").chmod(0o777)
    function = kernel((int64,))(twice)
    assert function(4) == 8
    assert not function.stats.cache_hits


@pytest.mark.parametrize("runs", [True, False])
def test_kernels_of_a_wheel_are_used_on_suitable_processors(tmp_path, monkeypatch, runs):
    function = compile_in(tmp_path / "cache", monkeypatch)
    assert function(4) == 8
    key = function._cache._index_key((int64,), function.targetctx.codegen())
    portable = key._replace(target=(key.target[0], PORTABLE_CPU, ""))
    code = function._cache._cache_file.load(key)
    (tmp_path / PORTABLE_FOLDER).mkdir()
    monkeypatch.setattr(subject, "cache_folder", lambda: CacheFolder(tmp_path / PORTABLE_FOLDER))
    function._cache._cache_file.save(portable, code)
    monkeypatch.setattr(subject, "PACKAGE", tmp_path)
    monkeypatch.setattr(subject, "runs_portable_kernels", lambda: runs)
    again = compile_in(None, monkeypatch)
    assert again(4) == 8
    assert bool(again.stats.cache_hits) == runs == (not again.stats.cache_misses)


@pytest.mark.parametrize("missing", ["", "fma"])
def test_processors_without_the_instructions_of_wheels(missing, monkeypatch):
    features = {name: name != missing for name in ("avx2", "fma")}
    monkeypatch.setattr(subject, "PORTABLE_FEATURES", tuple(features))
    monkeypatch.setattr(subject.llvmlite.binding, "get_host_cpu_features", lambda: features)
    assert subject.runs_portable_kernels.__wrapped__() == (not missing)
    monkeypatch.setattr(config, "CPU_NAME", "generic")
    assert not subject.runs_portable_kernels.__wrapped__() or PORTABLE_CPU == "generic"


def test_source_stamp_depends_on_every_kernel_file(machine):
    (machine / "kernels" / "a.py").write_text("1")
    stamps = {subject._source_stamp.__wrapped__()}
    (machine / "kernels" / "b.py").write_text("1")
    stamps.add(subject._source_stamp.__wrapped__())
    (machine / "kernels" / "b.py").write_text("2")
    stamps.add(subject._source_stamp.__wrapped__())
    assert len(stamps) == 3


CONCURRENT_SCRIPT = """
import sys
from numba import types
from numba.core.caching import NullCache
from relcrf.kernels.compile import KERNELS, kernel

signatures = [(getattr(types, name),) for name in sys.argv[2:]]

@kernel(*signatures)
def twice(x):
    return 2 * x

(declared,) = KERNELS.values()
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


def test_concurrent_processes_cache_all_signatures(tmp_path):
    script = tmp_path / "compile_kernel.py"
    script.write_text(CONCURRENT_SCRIPT)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    start = [sys.executable, str(script)]
    processes = [
        subprocess.Popen(
            [*start, "compile", name], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name in TYPES
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    subprocess.run([*start, "load", *TYPES], env=environment, check=True)
