"""Python values as tables: right values, or one diagnostic that names the column and says what to pass."""

from datetime import date, datetime
from decimal import Decimal
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from pyarrow import feather

from relcrf.data.dataset import Dataset
from relcrf.errors import DataError


def read(value):
    data = Dataset({"t": value})
    table = data.find_table("t")
    return table.columns, data.connection.execute(f"FROM {table.scan}").fetchall()


def test_structured_array_is_a_table():
    array = np.array([(1, 2.5), (2, -1.0)], dtype=[("a", int), ("b", float)])
    expected = (("a", "b"), [(1, 2.5), (2, -1.0)])
    assert read(array) == expected and read(array.view(np.recarray)) == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.arange(6).reshape(3, 2), "table 't' is an array of shape (3, 2), which has no column names"),
        (sp.csr_array(np.eye(3)), "table 't' has type csr_array and is not a data frame"),
        ((k for k in range(3)), "table 't' has type generator and is not a data frame"),
        (None, "table 't' has type NoneType and is not a data frame"),
        (
            pd.DataFrame({"id": [1, 2], "month": pd.period_range("2024-01", periods=2, freq="M")}),
            "column 'month' of table 't' has the unsupported type period[M]",
        ),
        (
            pd.DataFrame({"id": [1, 2], "z": pd.arrays.SparseArray([0, 1])}),
            "column 'z' of table 't' has the unsupported type Sparse[int64, 0]",
        ),
        (
            pa.table({"id": [1], "h": pa.array([np.float16(1.5)], pa.float16())}),
            "column 'h' of table 't' has the unsupported type halffloat",
        ),
        (
            pa.table({"id": [1], "d": pa.array([Decimal("1.5")], pa.decimal256(60, 2))}),
            "column 'd' of table 't' has the unsupported type decimal256(60, 2)",
        ),
        (
            pl.DataFrame({"id": [1], "key": pl.Series([UUID(int=1)], dtype=pl.Object)}),
            "column 'key' of table 't' has the unsupported type Object",
        ),
        (pl.DataFrame({"x": [1]}, {"x": pl.Int128}), "column 'x' of table 't' has the unsupported type Int128"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_unsupported_value_is_reported(value, message):
    with pytest.raises(DataError) as caught:
        Dataset({"t": value})
    (problem,) = caught.value.diagnostics
    assert (problem.code, problem.message) == ("E203", message) and problem.hint


def test_unsupported_column_of_a_mapping_is_named():
    with pytest.raises(DataError, match=r"E203.*column 'z' of table 't' has a value of an unsupported type"):
        Dataset({"t": {"a": [1, 2], "z": [object(), 1], "b": np.array([1, 2])}})


def test_unsupported_column_of_an_arrow_file_is_named(tmp_path):
    table = pa.table({"id": [1], "h": pa.array([np.float16(1.5)], pa.float16())})
    feather.write_feather(table, str(tmp_path / "t.feather"))
    with pytest.raises(DataError, match=r"E203.*column 'h' of table 't' has the unsupported type halffloat"):
        Dataset(tmp_path)


def test_frames_are_not_formatted(monkeypatch):
    """The text of a data frame takes longer than reading a small one."""

    def fail(frame):
        raise AssertionError("a data frame was formatted")

    monkeypatch.setattr(pd.DataFrame, "__repr__", fail)
    dataset = Dataset({"t": pd.DataFrame({"a": [1]})})
    assert dataset.location == "the given tables"


def reversed_frame():
    columns = {
        "n": [1, 2],
        "x": [0.5, 1.5],
        "b": [True, False],
        "d": pd.to_datetime(["2024-01-01", "2024-01-02"]),
    }
    return pd.DataFrame(columns).assign(m=pd.array([1, None], dtype="Int64")).iloc[::-1]


@pytest.mark.parametrize(
    "value",
    [
        reversed_frame(),
        pd.DataFrame({"n": np.array([2, 1], dtype=">i8"), "x": np.array([1.5, 0.5], dtype=">f4")}),
        {"n": np.array([1, 2])[::-1], "x": np.array([0.5, 1.5])[::-1]},
        np.array([(2, 1.5), (1, 0.5)], dtype=[("n", ">i4"), ("x", ">f8")]),
    ],
    ids=["reversed frame", "frame in foreign byte order", "reversed arrays", "structured array in foreign byte order"],
)
def test_columns_may_have_any_layout_in_memory(value):
    columns, rows = read(value)
    assert columns[:2] == ("n", "x") and [row[:2] for row in rows] == [(2, 1.5), (1, 0.5)]


def test_unsupported_column_of_a_reversed_frame_is_named():
    frame = reversed_frame().assign(month=pd.period_range("2024-01", periods=2, freq="M"))
    with pytest.raises(DataError, match=r"E203.*column 'month' of table 't' has the unsupported type period\[M\]"):
        Dataset({"t": frame})


def test_days_of_arrays_are_dates():
    days = np.array(["2024-01-31", "NaT"], dtype="datetime64[D]")
    assert read({"day": days})[1] == [(date(2024, 1, 31),), (None,)]


def test_nan_of_a_list_is_a_missing_value():
    frame = pd.DataFrame({"id": [1, 2], "label": ["course", None], "x": [None, 2.5]})
    columns, rows = read(frame.to_dict("list"))
    assert columns == ("id", "label", "x") and rows == [(1, "course", None), (2, None, 2.5)]
    assert read({"label": np.array(["course", np.nan], dtype=object), "id": [1, 2]})[1] == [("course", 1), (None, 2)]


@pytest.mark.parametrize(
    "convert",
    [lambda column: column, pl.from_pandas, pa.array, lambda column: column[::-1].reset_index(drop=True)[::-1]],
    ids=["pandas", "polars", "arrow", "another index"],
)
def test_columns_may_be_series(convert):
    frame = pd.DataFrame({"id": [1, 2], "label": ["course", None], "x": [None, 2.5]})
    frame = frame.assign(n=pd.array([None, 7], dtype="Int64"), day=pd.to_datetime(["2024-01-31", None]))
    columns, rows = read({name: convert(frame[name]) for name in frame})
    assert columns == ("id", "label", "x", "n", "day")
    assert rows == [(1, "course", None, None, datetime(2024, 1, 31)), (2, None, 2.5, 7, None)]


def test_series_and_lists_may_be_mixed():
    columns = {"id": [1, 2], "x": pd.Series([0.5, 1.5], index=[7, 3]), "y": np.array([1, 2])}
    assert read(columns)[1] == [(1, 0.5, 1), (2, 1.5, 2)]


def test_list_may_contain_numbers_of_numpy():
    values = {
        "n": list(np.array([1, 2])),
        "x": list(np.array([0.5, np.nan], dtype="f4")),
        "b": list(np.array([True, False])),
    }
    assert read(values)[1] == [(1, 0.5, True), (2, None, False)]


def test_polars_column_without_values_is_read():
    frame = pl.DataFrame({"id": [1, 2], "label": [None, None]})
    assert frame.schema["label"] == pl.Null
    assert read(frame) == read(frame.lazy()) == (("id", "label"), [(1, None), (2, None)])
    assert read(frame["id"]) == (("id",), [(1,), (2,)])


@pytest.mark.parametrize(
    "frame", [pd.DataFrame([[1, 2, 3]], columns=["id", "x", "x"]), pl.DataFrame({"id": 1, "X": 2, "x": 3})]
)
def test_repeated_names_of_columns_are_reported(frame):
    data = Dataset({"t": frame})
    assert data.find_table("t").columns == ("id", frame.columns[1], "x_1")
    assert data.notes == ["table 't': the header repeats 'x'; the first column has this name, the others with a number"]
