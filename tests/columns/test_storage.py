"""Column storage: columns round-trip in memory and in files, and the storage counts live memory only."""

import gc
import sys
from pathlib import Path

import numpy as np
import pytest
from generated import generated
from hypothesis import given
from hypothesis import strategies as st

from relcrf.columns.storage import Storage, find_mapped_file, open_column, read_rows, release_pages

MAX_BYTES = (0, 100, 10_000, 1 << 40)
DTYPES = (np.int32, np.int64, np.uint64, np.float32, np.float64)


def make_pieces(sizes, dtype, width, seed):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 1000, size=(n, width) if width else n).astype(dtype) for n in sizes]


def concatenate(pieces, dtype, width):
    return np.concatenate([np.empty((0, width) if width else 0, dtype=dtype), *pieces])


columns = {
    "sizes": st.lists(st.integers(0, 30), max_size=8),
    "dtype": st.sampled_from(DTYPES),
    "width": st.integers(0, 3),
    "max_bytes": st.sampled_from(MAX_BYTES),
    "seed": st.integers(0, 9),
}


@generated(100)
@given(**columns)
def test_finish_returns_appended_values(tmp_path_factory, sizes, dtype, width, max_bytes, seed):
    storage = Storage(tmp_path_factory.mktemp("columns"), max_bytes)
    pieces = make_pieces(sizes, dtype, width, seed)
    column = storage.column(dtype, width)
    for piece in pieces:
        column.append(piece)
    expected = concatenate(pieces, dtype, width)
    assert len(column) == len(expected)
    is_file = max_bytes == 0 or expected.nbytes > max_bytes
    assert storage.used_bytes == (0 if is_file else expected.nbytes)
    assert storage.written_bytes == (expected.nbytes if is_file else 0)
    found = column.finish()
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(found, expected)
    assert not found.flags.writeable
    path = find_mapped_file(found)
    assert (path is not None) == (is_file and found.size > 0)
    if path is not None:
        np.testing.assert_array_equal(np.load(path), expected)
        np.testing.assert_array_equal(open_column(path), expected)
        assert find_mapped_file(found.reshape(-1)) == path
        assert len(found) < 2 or find_mapped_file(found[1:]) is None
    for start in range(0, len(expected) + 1, 7):
        np.testing.assert_array_equal(read_rows(found, start, start + 11), expected[start : start + 11])
    del found, column
    assert storage.used_bytes == 0


@generated(100)
@given(**columns)
def test_take_returns_owned_array_and_removes_file(tmp_path_factory, sizes, dtype, width, max_bytes, seed):
    folder = tmp_path_factory.mktemp("columns")
    storage = Storage(folder, max_bytes)
    pieces = make_pieces(sizes, dtype, width, seed)
    column = storage.column(dtype, width)
    for piece in pieces:
        column.append(piece)
    found = column.take()
    np.testing.assert_array_equal(found, concatenate(pieces, dtype, width))
    found[...] = 0
    assert storage.used_bytes == 0
    assert list(folder.iterdir()) == []


def test_column_over_limit_moves_to_file_and_uses_no_memory(tmp_path):
    storage = Storage(tmp_path, 1000)
    other, column = storage.column(np.int64), storage.column(np.int32, name="late")
    other.append(np.arange(100))
    column.append(np.arange(50))
    assert storage.used_bytes == 1000
    column.append(np.arange(50, 60))
    assert (storage.used_bytes, storage.written_bytes) == (800, 240)
    column.append(np.arange(60, 1000))
    finished = column.finish()
    assert find_mapped_file(finished) == tmp_path / "late.npy"
    np.testing.assert_array_equal(finished, np.arange(1000))
    assert find_mapped_file(other.finish()) is None


@pytest.mark.parametrize("max_bytes", [0, 1 << 30])
def test_unfinished_column_leaves_no_file_and_no_memory(tmp_path, max_bytes):
    storage = Storage(tmp_path, max_bytes)
    column = storage.column(np.int32)
    column.append(np.arange(10))
    del column
    gc.collect()
    assert storage.used_bytes == 0
    assert list(tmp_path.iterdir()) == []


def test_slice_of_column_keeps_it_counted(tmp_path):
    storage = Storage(tmp_path, 1 << 30)
    column = storage.column(np.int32)
    column.append(np.arange(10))
    part = column.finish()[2:4]
    del column
    gc.collect()
    assert storage.used_bytes == 40
    np.testing.assert_array_equal(part, [2, 3])
    del part
    gc.collect()
    assert storage.used_bytes == 0


def test_columns_of_same_name_use_separate_files(tmp_path):
    storage = Storage(tmp_path, 0)
    first = storage.column(np.int32, name="0.scope0")
    first.append(np.arange(5))
    first_column = first.finish()
    second = storage.column(np.int32, name="0.scope0")
    second.append(np.arange(5, 8))
    np.testing.assert_array_equal(second.finish(), [5, 6, 7])
    np.testing.assert_array_equal(first_column, np.arange(5))


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: data[:20], lambda data: b"not a column", lambda data: data + b"x"]
)
def test_open_column_rejects_damaged_file(tmp_path, damage):
    column = Storage(tmp_path, 0).column(np.int32, name="c")
    column.append(np.arange(100))
    column.finish()
    (tmp_path / "c.npy").write_bytes(damage((tmp_path / "c.npy").read_bytes()))
    with pytest.raises(ValueError):  # raised by NumPy or by the length check
        open_column(tmp_path / "c.npy")


def mapped_bytes(path):
    """Return the number of bytes of a file that are in the memory of this process."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    found, total = False, 0
    for line in lines:
        if "-" in line.split()[0]:
            found = line.endswith(f" {path}")
        elif found and line.startswith("Rss:"):
            total += 1024 * int(line.split()[1])
    return total


@pytest.mark.skipif(sys.platform != "linux", reason="/proc exists on Linux only")
def test_release_pages_of_mapped_column(tmp_path):
    builder = Storage(tmp_path, 0).column(np.int64)
    builder.append(np.arange(100_000))
    column = builder.finish()
    path = find_mapped_file(column)
    assert column.sum() == 99_999 * 50_000 and mapped_bytes(path) >= column.nbytes // 2
    release_pages(column[10:])
    assert mapped_bytes(path) == 0
    assert np.array_equal(column, np.arange(100_000))


def test_release_pages_keeps_unwritten_changes(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(10_000))
    changed = np.load(tmp_path / "a.npy", mmap_mode="c")
    changed[:] = 1.0
    in_memory = np.ones(10_000)
    for column in (changed, in_memory):
        release_pages(column)
        assert (column == 1.0).all()
