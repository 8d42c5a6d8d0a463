"""Bucket sort compared with NumPy's sort: random fields and batches, in memory and in files."""

import itertools
import subprocess
import sys

import numpy as np
import pytest
from generated import generated
from hypothesis import given
from hypothesis import strategies as st

from relcrf.columns import bucket_sort
from relcrf.columns.bucket_sort import (
    MAX_PAYLOAD_INTEGER,
    BucketSort,
    DoubleField,
    FloatField,
    IntegerField,
    chunk_sorted_batches,
)
from relcrf.columns.storage import Storage

LOWEST, HIGHEST = -(2**63), 2**63
SINGLES = np.array(
    [-np.inf, -3.4e38, -1.5, -1e-45, -0.0, 0.0, 1e-45, 1e-38, 0.1, 2.0, 3.4e38, np.inf], dtype=np.float32
)
DOUBLES = np.array([-np.inf, -1.7e308, -1.5, -5e-324, -0.0, 0.0, 5e-324, 0.1, 1 / 3, 2.0, np.inf])

RANGES = st.sampled_from(
    [(0, 1), (7, 8), (-5, -4), (0, 2), (0, 10), (-10, 10), (-(2**31), 2**31), (0, 2**31), (-1, 2**32), (0, 2**40),
     (-(2**53), 2**53), (LOWEST, HIGHEST), (0, HIGHEST), (2**62, HIGHEST), (LOWEST, LOWEST + 1)]
)  # fmt: skip


@st.composite
def tables(draw, *, has_nan=False):
    """Generate fields and columns of values."""
    n = draw(st.integers(0, 60))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    kinds = ["whole", *draw(st.lists(st.sampled_from(["whole", "whole", "single", "double"]), max_size=4))]
    fields, columns = [], {}
    for k, kind in enumerate(kinds):
        name = f"c{k}"
        if kind == "whole":
            low, high = draw(RANGES)
            few = rng.integers(low, high, size=3, dtype=np.int64, endpoint=False)
            ends = np.array([low, high - 1], dtype=np.int64)
            values = np.concatenate([few, ends])[rng.integers(5, size=n)]
            fields.append(IntegerField(name, low, high))
            if low >= -(2**31) and high <= 2**31 and draw(st.booleans()):
                values = values.astype(np.int32)
        elif kind == "single":
            fields.append(FloatField(name))
            values = rng.choice(SINGLES, size=n)
        else:
            fields.append(DoubleField(name))
            values = rng.choice([*DOUBLES, np.nan] if has_nan else DOUBLES, size=n)
        columns[name] = values
    return fields, columns


def fits_payload(fields):
    """Return True if every field that may be in the payload fits there."""
    return all(
        isinstance(f, FloatField | DoubleField) or -MAX_PAYLOAD_INTEGER <= f.low <= f.high <= MAX_PAYLOAD_INTEGER
        for f in fields[1:]
    )


def sort_rows(folder, fields, columns, *, max_bytes, cuts, is_unique=False, n_rows=None):
    storage = Storage(folder, max_bytes)
    n = len(columns["c0"])
    sorter = BucketSort(fields, n if n_rows is None else n_rows, storage, is_unique=is_unique)
    starts = [0, *sorted(cuts), n]
    for start, stop in itertools.pairwise(starts):
        sorter.add({name: values[start:stop] for name, values in columns.items()})
    assert sorter.n_added <= n
    buckets = list(sorter.buckets())
    assert sorter.n_added == n
    assert storage.used_bytes == 0
    assert list(folder.iterdir()) == []
    firsts = [set(bucket["c0"].tolist()) for bucket in buckets]
    assert sum(map(len, firsts)) == len(set().union(*firsts)), "buckets share no value of the first field"
    assert all(len(first) for first in firsts)
    for bucket in buckets:
        for field in fields:
            if isinstance(field, IntegerField):
                assert bucket[field.name].dtype == field.dtype
            else:
                assert bucket[field.name].dtype == (np.float32 if isinstance(field, FloatField) else np.float64)
    return {f.name: np.concatenate([b[f.name] for b in buckets]) if buckets else np.empty(0) for f in fields}


def expected_rows(fields, columns):
    plain = {name: values + 0.0 if values.dtype.kind == "f" else values for name, values in columns.items()}
    order = np.lexsort([plain[f.name] for f in reversed(fields)])
    return {name: values[order] for name, values in plain.items()}


def assert_same(found, expected):
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)
        if values.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(found[name]), np.signbit(values))


@pytest.fixture
def small_sizes(monkeypatch):
    """Return a function that sets the sizes of buckets and batches."""

    def set_sizes(bucket, batch):
        monkeypatch.setattr(bucket_sort, "BUCKET_ROWS", bucket)
        monkeypatch.setattr(bucket_sort, "BATCH_ROWS", batch)

    return set_sizes


SIZES = {
    "bucket": st.sampled_from([1, 5, 1 << 18]),
    "batch": st.sampled_from([1, 13, 1 << 18]),
    "max_bytes": st.sampled_from([0, 200, 1 << 40]),
    "cuts": st.lists(st.floats(0, 1), max_size=4),
    "row_hint": st.sampled_from([None, 0, 1_000_000]),
}


@generated(250)
@given(table=tables(has_nan=True), **SIZES)
def test_rows_are_sorted(tmp_path_factory, small_sizes, table, bucket, batch, max_bytes, cuts, row_hint):
    fields, columns = table
    if not fits_payload(fields):
        return
    small_sizes(bucket, batch)
    n = len(columns["c0"])
    found = sort_rows(
        tmp_path_factory.mktemp("rows"),
        fields,
        columns,
        max_bytes=max_bytes,
        cuts=[int(c * n) for c in cuts],
        n_rows=row_hint,
    )
    assert_same(found, expected_rows(fields, columns))


@generated(250)
@given(table=tables(), **SIZES)
def test_unique_removes_duplicate_rows(tmp_path_factory, small_sizes, table, bucket, batch, max_bytes, cuts, row_hint):
    fields, columns = table
    if not fits_payload(fields):
        return
    small_sizes(bucket, batch)
    n = len(columns["c0"])
    cuts = [int(c * n) for c in cuts]
    found = sort_rows(
        tmp_path_factory.mktemp("rows"),
        fields,
        columns,
        max_bytes=max_bytes,
        cuts=cuts,
        is_unique=True,
        n_rows=row_hint,
    )
    ordered_rows = expected_rows(fields, columns)
    rows = list(dict.fromkeys(zip(*(ordered_rows[f.name].tolist() for f in fields), strict=True)))
    assert list(zip(*(found[f.name].tolist() for f in fields), strict=True)) == rows


@pytest.mark.parametrize("max_bytes", [0, 1 << 40])
def test_result_does_not_depend_on_input_order(tmp_path, small_sizes, max_bytes):
    """Include the sign of zero, and fields in the payload."""
    small_sizes(7, 11)
    rng = np.random.default_rng(0)
    fields = [
        IntegerField("c0", 0, 3),
        IntegerField("c1", 0, 2**40),
        IntegerField("c2", 0, 2**40),
        FloatField("c3"),
        DoubleField("c4"),
    ]
    n = 200
    columns = {
        "c0": rng.integers(3, size=n), "c1": rng.integers(2, size=n), "c2": rng.integers(2, size=n),
        "c3": rng.choice([-0.0, 0.0, 1.0], size=n).astype(np.float32), "c4": rng.choice([-0.0, 0.0, 1.0], size=n),
    }  # fmt: skip
    found = []
    for k in range(3):
        order = rng.permutation(n)
        (tmp_path / str(k)).mkdir()
        shuffled = {name: values[order] for name, values in columns.items()}
        for is_unique in (False, True):
            rows = sort_rows(
                tmp_path / str(k), fields, shuffled, max_bytes=max_bytes, cuts=[50, 51], is_unique=is_unique
            )
            found.append({name: values.tobytes() for name, values in rows.items()})
    assert found[0] == found[2] == found[4]
    assert found[1] == found[3] == found[5]
    assert found[0] != found[1]


def test_out_of_range_float_becomes_infinite(tmp_path):
    fields = [IntegerField("c0", 0, 2), FloatField("c1")]
    found = sort_rows(
        tmp_path, fields, {"c0": np.array([1, 0, 1]), "c1": np.array([1e300, 5.0, -1e300])}, max_bytes=1 << 20, cuts=[]
    )
    np.testing.assert_array_equal(found["c1"], [5.0, -np.inf, np.inf])


def test_large_integer_field_is_rejected_in_payload(tmp_path):
    """The payload is double precision, which would round them."""
    with pytest.raises(AssertionError):
        BucketSort(
            [IntegerField("a", 0, 2**40), DoubleField("b"), IntegerField("c", 0, 2**60)], 10, Storage(tmp_path, 0)
        )


def test_abandoned_sort_leaves_no_files_and_no_memory(tmp_path, small_sizes):
    small_sizes(5, 10)
    storage = Storage(tmp_path, 200)
    sorter = BucketSort([IntegerField("c0", 0, 100)], 100, storage)
    for _ in range(5):
        sorter.add({"c0": np.arange(100)})
    buckets = sorter.buckets()
    next(buckets)
    del buckets, sorter
    assert storage.used_bytes == 0
    assert list(tmp_path.iterdir()) == []


# Rows that are already sorted


@generated(250)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.floats(width=32)), max_size=40), st.data())
def test_sorted_batches_are_cut_between_first_values(rows, data):
    rows = sorted(rows, key=lambda row: row[:2])
    columns = {"a": [r[0] for r in rows], "b": [r[1] for r in rows], "c": [r[2] for r in rows]}
    columns = {
        "a": np.array(columns["a"], np.int32),
        "b": np.array(columns["b"], np.int32),
        "c": np.array(columns["c"]),
    }
    cuts = sorted(data.draw(st.sets(st.integers(1, max(len(rows) - 1, 1)), max_size=6)) if len(rows) > 1 else [])
    bounds = [0, *cuts, len(rows)] if rows else [0]
    batches = [{n: c[i:j] for n, c in columns.items()} for i, j in itertools.pairwise(bounds)]
    parts = list(chunk_sorted_batches(batches, [IntegerField("a", 0, 7), IntegerField("b", 0, 7), FloatField("c")]))
    firsts = [set(part["a"].tolist()) for part in parts]
    assert sum(map(len, firsts)) == len(set(columns["a"].tolist()))
    for name, values in columns.items():
        found = np.concatenate([part[name] for part in parts]) if parts else values[:0]
        np.testing.assert_array_equal(found, values.astype(np.float32) if name == "c" else values)


@pytest.mark.parametrize("rows", [[(1, 0), (0, 0)], [(0, 1), (0, 0)], [(0, 1), (0, 2), (0, 1)]])
@pytest.mark.parametrize("width", [1, 2, 9])
def test_unsorted_batches_raise_value_error(rows, width):
    first, second = (np.array(column) for column in zip(*rows, strict=True))
    batches = [{"a": first[k : k + width], "b": second[k : k + width]} for k in range(0, len(rows), width)]
    with pytest.raises(ValueError, match="not sorted"):
        list(chunk_sorted_batches(batches, [IntegerField("a", 0, 2), IntegerField("b", 0, 3)]))


# Memory

MANY = """
import sys
from pathlib import Path
import numpy as np
from relcrf.columns.storage import Storage
from relcrf.columns.bucket_sort import BucketSort, IntegerField

def peak():
    # ru_maxrss would start at the peak of the parent process
    return int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))) / 1000

n_rows, n_values = 20_000_000, 5_000_000
rng = np.random.default_rng(0)
storage = Storage(Path(sys.argv[1]), 20_000_000)
before = peak()
sorter = BucketSort((IntegerField("a", 0, n_values), IntegerField("b", 0, n_values)), n_rows, storage)
batch = 100_000
for _ in range(n_rows // batch):
    sorter.add({name: rng.integers(n_values, size=batch, dtype=np.int32) for name in "ab"})
results = [storage.column(np.int32, name=name) for name in "ab"]
last, n = -1, 0
for bucket in sorter.buckets():
    key = bucket["a"].astype(np.int64) * n_values + bucket["b"]
    assert key[0] > last and (key[1:] >= key[:-1]).all()
    last, n = key[-1], n + len(key)
    for column, name in zip(results, "ab"):
        column.append(bucket[name])
assert n == n_rows
for column in results:
    column.finish()
print(before, peak())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_twenty_million_rows_need_less_than_150_mb(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", MANY, str(tmp_path)], capture_output=True, text=True, timeout=600, check=True
    )
    before, peak = map(float, done.stdout.split())
    assert peak - before < 150, f"{peak - before:.0f} MB for 160 MB of rows"
