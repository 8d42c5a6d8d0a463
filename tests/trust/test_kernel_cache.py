"""Tests of damaged caches of compiled kernels: a kernel is compiled again, and its file is replaced."""

import errno
import pickle

import numba
import numpy as np
import pytest
from numba import float64, int64

from relcrf.kernels import compile as subject
from relcrf.kernels.compile import CHECKSUM_BYTES, CacheFolder, kernel


def twice(x):
    return 2 * x


def thrice(x):
    return 3 * x


def load(function):
    """Return a new dispatcher of a function, as a new process has it."""
    return kernel((int64,), (float64,))(function)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return an empty cache folder."""
    monkeypatch.setattr(subject, "cache_folder", lambda: CacheFolder(tmp_path))
    subject._log_save_error.cache_clear()
    return tmp_path


def cached_file(function, argument):
    """Return the cache file for the type of an argument; compile it if it is missing."""
    dispatcher = load(function)
    assert dispatcher(argument) == function(argument)
    files = dispatcher._cache._cache_file
    key = dispatcher._cache._index_key(dispatcher.signatures[0], dispatcher.targetctx.codegen())
    return files, files._path(key), key


def rewrite(change):
    """Return a damage that replaces the content of a file by a function of this content."""
    return lambda path, files, key: path.write_bytes(change(path.read_bytes()))


def flip(position):
    def change(content):
        k = int(position * (len(content) - 1)) if isinstance(position, float) else position
        return content[:k] + bytes([content[k] ^ 0x41]) + content[k + 1 :]

    return change


def with_checksum(content):
    """Return a damage that writes a wrong content with the right checksum."""
    return lambda path, files, key: path.write_bytes(files._checksum(path, content) + content)


def write_with_another_version(path, files, key):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numba, "__version__", "0.1")
        checksum = files._checksum(path, content := path.read_bytes()[CHECKSUM_BYTES:])
    path.write_bytes(checksum + content)


def write_code_of_another_key(path, files, key):
    stored_key, code = pickle.loads(path.read_bytes()[CHECKSUM_BYTES:])
    with_checksum(subject.dumps((stored_key[::-1], code)))(path, files, key)


def put_folder(path, files, key):
    path.unlink()
    path.mkdir()
    (path / "file").touch()


def put_link(target):
    def damage(path, files, key):
        path.unlink()
        path.symlink_to(target)

    return damage


DAMAGES = {
    **{f"truncated to {n}": rewrite(lambda c, n=n: c[:n]) for n in (0, 1, 31, 32, 33, 64, 1000)},
    **{f"truncated by {n}": rewrite(lambda c, n=n: c[:-n]) for n in (1, 100, 3000)},
    **{f"byte {n} flipped": rewrite(flip(n)) for n in (0, 31, 32, 33, 34, 100)},
    **{f"byte at {n} % flipped": rewrite(flip(n / 100)) for n in range(5, 101, 5)},
    "bytes appended": rewrite(lambda c: c + b"\0"),
    "zeros": rewrite(lambda c: bytes(len(c))),
    "zeros after the checksum": rewrite(lambda c: c[:32] + bytes(len(c) - 32)),
    "second half of zeros": rewrite(lambda c: c[: len(c) // 2] + bytes(len(c) - len(c) // 2)),
    "a block of zeros": rewrite(lambda c: c[:512] + bytes(512) + c[1024:]),
    "random bytes": rewrite(lambda c: np.random.default_rng(1).bytes(len(c))),
    "no checksum": rewrite(lambda c: c[CHECKSUM_BYTES:]),
    "a pickle": rewrite(lambda c: pickle.dumps({})),
    "checksum of a pickle": with_checksum(pickle.dumps({})),
    "checksum of a pickled pair": with_checksum(pickle.dumps((None, None))),
    "checksum of random bytes": with_checksum(b"\x80\x04random"),
    "checksum of nothing": with_checksum(b""),
    "another key": write_code_of_another_key,
    "another version of Numba": write_with_another_version,
    "missing": lambda path, files, key: path.unlink(),
    "a folder": put_folder,
    "a dangling link": put_link("nowhere"),
    "a link to a folder": put_link("."),
}


def assert_healed(function, argument):
    """Assert that the next start compiles a kernel, and the start after it loads this kernel."""
    for misses in (1, 0):
        dispatcher = load(function)
        assert dispatcher(argument) == function(argument)
        assert sum(dispatcher.stats.cache_misses.values()) == misses


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_kernel_is_compiled_again(folder, damage):
    files, path, key = cached_file(twice, 4)
    damage(path, files, key)
    assert_healed(twice, 4)


def test_warmup_compiles_damaged_kernels(folder):
    dispatcher = kernel((int64,))(twice)
    dispatcher(4)
    declared = subject.KERNELS[f"{__name__.rpartition('.')[2]}.twice"]
    assert declared.is_cached()
    (path,) = folder.iterdir()
    path.write_bytes(flip(0.5)(path.read_bytes()))
    assert not declared.is_cached()


def test_swapped_files_are_detected(folder):
    paths = [cached_file(twice, 4)[1], cached_file(thrice, 4)[1], cached_file(twice, 0.5)[1]]
    contents = [path.read_bytes() for path in paths]
    for path, content in zip(paths, contents[1:] + contents[:1], strict=True):
        path.write_bytes(content)
    for function, argument in ((twice, 4), (thrice, 4), (twice, 0.5)):
        assert_healed(function, argument)


def test_code_of_changed_source_is_compiled_again(folder, monkeypatch):
    cached_file(twice, 4)
    monkeypatch.setattr(subject, "_source_stamp", lambda: "another source")
    assert_healed(twice, 4)


@pytest.mark.parametrize("place", ["prepare", "write"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES])
def test_unwritable_folder_causes_one_note(folder, monkeypatch, caplog, place, code):
    cached = cached_file(thrice, 4)[1].read_bytes()

    def fail(*arguments, **options):
        raise OSError(code, "the reason")

    monkeypatch.setattr(*((subject, "atomic_file") if place == "write" else (subject.tempfile, "TemporaryFile")), fail)
    for _ in range(2):
        assert load(twice)(4) == 8
    assert [record.getMessage() for record in caplog.records] == [
        f"note: compiled kernels are not cached in {folder}: the reason"
    ]
    assert [path.read_bytes() for path in folder.iterdir()] == [cached]
    assert load(thrice)(4) == 12


def test_cached_kernels_are_loaded_from_a_full_disk(folder, monkeypatch):
    cached_file(twice, 4)
    monkeypatch.setattr(subject, "atomic_file", None)
    monkeypatch.setattr(subject.tempfile, "TemporaryFile", None)
    dispatcher = load(twice)
    assert dispatcher(4) == 8 and not dispatcher.stats.cache_misses
