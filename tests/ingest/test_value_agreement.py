"""Values are the same in every format, time zone and style of dates; a value that a type cannot represent is an error."""

import csv
import datetime
import json
import sqlite3
import time
from contextlib import closing

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import feather, parquet

import relcrf
from relcrf.data.binding import bind
from relcrf.data.names import bag_table
from relcrf.errors import DataError, DataLocation
from relcrf.grounding.engines.postgres import PostgresEngine
from relcrf.grounding.engines.spark import SparkEngine
from relcrf.grounding.ground import ground

TIME_ZONES = ("America/New_York", "Asia/Kolkata")
DATE_STYLES = ("SQL, DMY", "German")

MODEL = """
domain W = open
entity I {
    predict c : bool
    n : integer  r : real  b : bool  s : string  day : date  clock : time  at : datetime  sent : datetime  w : bag of W
}
template order(i: I, j: I) where i.at < j.at and i.sent < j.sent over i.c, j.c by j.at - i.at
"""


def at(text):
    return datetime.datetime.fromisoformat(text)


ROWS = {
    "id": [1, 2, 3, 4],
    "c": [True, False, None, True],
    "n": [9007199254740993, -7, 0, None],
    "r": [0.1, 1 / 3, -1.2345678901234567e-300, None],
    "b": [True, False, None, True],
    "s": ["Zoë", 'a "quoted", text', "o'neill; straße", None],
    "day": [datetime.date(2024, 2, 3), datetime.date(1969, 12, 31), datetime.date(2024, 2, 29), None],
    "clock": [datetime.time(10, 30), datetime.time(0, 0, 0, 1), datetime.time(23, 59, 59, 999999), None],
    "at": [at("2024-02-03T10:00"), at("2024-02-03T11:00"), at("2024-02-03T12:00:00.000001"), None],
    "sent": [at("2024-02-03T10:00+01:00"), at("2024-02-03T09:00:00.5Z"), at("2024-07-03T00:00-04:00"), None],
    "w": [["a", "b, c"], ["a"], [], None],
}
"""Rows with a column of each type."""

SCHEMA = pa.schema(
    {
        "id": pa.int64(), "c": pa.bool_(), "n": pa.int64(), "r": pa.float64(), "b": pa.bool_(), "s": pa.string(),
        "day": pa.date32(), "clock": pa.time64("us"), "at": pa.timestamp("us"), "sent": pa.timestamp("us", "Europe/Berlin"),
        "w": pa.list_(pa.string()),
    }
)  # fmt: skip

EPOCH = at("1970-01-01T00:00Z")
SECOND = 1_000_000
EXPECTED = {
    "c": [1, 0, None, 1],
    **{name: ROWS[name] for name in ("n", "r", "b", "s", "day")},
    "clock": [37800 * SECOND, 1, 86400 * SECOND - 1, None],
    "at": [1706954400 * SECOND, 1706958000 * SECOND, 1706961600 * SECOND + 1, None],
    "sent": [1706950800 * SECOND, 1706950800 * SECOND + 500_000, 1719979200 * SECOND, None],
}
"""The values that every format has after binding: times are microseconds."""


@pytest.fixture(params=TIME_ZONES)
def time_zone(request, monkeypatch):
    """Run the test in a time zone other than UTC."""
    for variable in ("TZ", "PGTZ"):
        monkeypatch.setenv(variable, request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


def table():
    return pa.table(ROWS, SCHEMA)


def cell_text(value):
    return "" if value is None else value.isoformat() if hasattr(value, "isoformat") else str(value)


def write_csv(folder):
    names = [name for name in ROWS if name != "w"]
    with (folder / "i.csv").open("w", encoding="utf-8") as file:
        csv.writer(file).writerows([names, *([cell_text(ROWS[name][k]) for name in names] for k in range(4))])
    (folder / "i_w.csv").write_text('i,w\n1,a\n1,"b, c"\n2,a\n')
    return folder


def write_parquet(folder):
    parquet.write_table(table(), folder / "i.parquet")
    return folder


def write_parquet_utc_times(folder):
    """Write times with the zone UTC, as older versions of PyArrow do."""
    connection = duckdb.connect()
    connection.register("rows", table())
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"COPY (SELECT * REPLACE (clock::TIMETZ AS clock) FROM rows) TO '{folder / 'i.parquet'}'")
    return folder


def write_arrow(folder):
    feather.write_feather(table(), str(folder / "i.feather"))
    return folder


def write_jsonl(folder):
    rows = ({name: cells[k] for name, cells in ROWS.items() if cells[k] is not None} for k in range(4))
    (folder / "i.jsonl").write_text("".join(json.dumps(row, default=cell_text) + "\n" for row in rows))
    return folder


def write_sqlite(folder):
    names = [name for name in ROWS if name != "w"]
    with closing(sqlite3.connect(folder / "i.sqlite")) as database, database:
        database.execute(f"CREATE TABLE i ({', '.join(names)})")
        database.execute("CREATE TABLE i_w (i, w)")
        cells = ([v if isinstance(v, int | float | None) else cell_text(v) for v in ROWS[name]] for name in names)
        database.executemany(f"INSERT INTO i VALUES ({', '.join('?' * len(names))})", zip(*cells, strict=True))
        database.executemany("INSERT INTO i_w VALUES (?, ?)", [(1, "a"), (1, "b, c"), (2, "a")])
    return folder


def write_duckdb(folder):
    with duckdb.connect(str(folder / "i.duckdb")) as connection:
        connection.register("rows", table())
        connection.execute("CREATE TABLE i AS FROM rows")
    return folder


def write_duckdb_view(folder):
    with duckdb.connect(str(folder / "i.duckdb")) as connection:
        connection.register("rows", table())
        connection.execute("CREATE SCHEMA stored")
        connection.execute("CREATE TABLE stored.i AS FROM rows")
        connection.execute(
            "CREATE VIEW i AS SELECT * REPLACE (CAST(CAST(sent AS VARCHAR) AS TIMESTAMPTZ) AS sent) FROM stored.i"
        )
    return folder


def pandas_frame(folder):
    return {"I": table().to_pandas().assign(n=pd.array(ROWS["n"], dtype="Int64"))}


def python_lists(folder):
    return {"I": ROWS}


def arrays(folder):
    nanoseconds = np.array(ROWS["at"], dtype="datetime64[ns]")  # the other columns are lists, so this one is converted
    return {"I": {**ROWS, "at": nanoseconds}}


def relation(folder):
    connection = duckdb.connect()
    connection.register("rows", table())
    return {"I": connection.sql("FROM rows")}


SOURCES = [
    write_csv, write_parquet, write_parquet_utc_times, write_arrow, write_jsonl, write_sqlite, write_duckdb, write_duckdb_view,
    pandas_frame, python_lists, arrays, relation, lambda folder: {"I": pl.from_arrow(table())},
    lambda folder: {"I": pl.from_arrow(table()).lazy()}, lambda folder: {"I": table()},
]  # fmt: skip
NAMES = [
    "csv", "parquet", "parquet-utc", "arrow", "jsonl", "sqlite", "duckdb", "view",
    "pandas", "lists", "arrays", "relation", "polars", "lazy", "table",
]  # fmt: skip


def assert_expected_values(source):
    bound = bind(relcrf.parse(MODEL).spec, relcrf.Dataset(source))
    columns = ", ".join(f'"x.{name}"' for name in EXPECTED)
    found = bound.connection.execute(f'SELECT {columns} FROM "ent.I" ORDER BY vid').fetchall()
    assert found == list(zip(*EXPECTED.values(), strict=True))
    words = bound.connection.execute(f'FROM "{bag_table("I", "w")}" ORDER BY ALL').fetchall()
    assert bound.domains["W"] == ("a", "b, c") and words == [(0, 0, 1.0), (0, 1, 1.0), (1, 0, 1.0)]


@pytest.mark.parametrize("source", SOURCES, ids=NAMES)
def test_every_format_has_the_same_values(source, time_zone, tmp_path):
    assert_expected_values(source(tmp_path))


@pytest.fixture(scope="module", params=DATE_STYLES)
def url(request, postgres):
    """Return the URL of a database whose settings change the texts of values."""
    psycopg = pytest.importorskip("psycopg")
    found = postgres.new_database()
    name = found.rpartition("/")[2]
    with psycopg.connect(found, autocommit=True) as connection:
        for setting in (f"datestyle = '{request.param}'", "extra_float_digits = 0", "timezone = 'Asia/Tokyo'"):
            connection.execute(f"ALTER DATABASE {name} SET {setting}")
        connection.execute(
            "CREATE TABLE i (id bigint, c boolean, n bigint, r double precision, b boolean, s text, day date, clock time, "
            "at timestamp, sent timestamptz, w text[])"
        )
        for row in zip(*ROWS.values(), strict=True):
            connection.execute(f"INSERT INTO i VALUES ({', '.join(['%s'] * len(row))})", row)
    return found


def test_postgres_has_the_same_values(url, time_zone):
    assert_expected_values(url)


def seconds(grounding):
    """Return the sorted values of the template's feature, one for each factor."""
    return sorted(grounding.instances("order")["j.at - i.at"].tolist())


def test_bindings_of_times_on_every_engine(postgres, time_zone, tmp_path):
    """Three rows in temporal order have three pairs; the feature is the number of seconds between them."""
    bound = bind(relcrf.parse(MODEL).spec, relcrf.Dataset(write_parquet(tmp_path)))
    with_duckdb = ground(bound)
    engine = PostgresEngine(postgres.new_database(), bound.cursor)
    with_postgres = ground(bound, engine=engine)
    engine.close()
    for grounding in (with_duckdb, with_postgres):
        assert seconds(grounding) == [3600.0, 3600.000001, 7200.000001]


@pytest.mark.slow
def test_bindings_of_times_on_spark(spark, tmp_path):
    bound = bind(relcrf.parse(MODEL).spec, relcrf.Dataset(write_parquet(tmp_path)))
    engine = SparkEngine(spark, bound.cursor)
    assert seconds(ground(bound, engine=engine)) == [3600.0, 3600.000001, 7200.000001]
    engine.close()


def bound_values(kind, cells):
    """Return the values of an attribute of a type, bound to a column of cells."""
    spec = relcrf.parse(f"entity I {{ predict c : bool  x : {kind} }}\ntemplate t(i: I) over i.c").spec
    rows = {"id": list(range(len(cells))), "c": [True] * len(cells), "x": cells}
    bound = bind(spec, relcrf.Dataset({"I": rows}))
    return [row[0] for row in bound.connection.execute('SELECT "x.x" FROM "ent.I" ORDER BY vid').fetchall()]


def test_date_accepts_midnight_in_utc(time_zone):
    day = datetime.date(2024, 1, 31)
    assert bound_values("date", ["2024-01-31", "2024-01-31 00:00", "", "2024-01-31T00:00:00Z"]) == [day, day, None, day]
    assert bound_values("date", [at("2024-01-31T01:00+01:00"), at("2024-01-30T19:00-05:00")]) == [day, day]


@pytest.mark.parametrize(
    "cell",
    ["2024-01-31 10:00", "2024-01-31 00:00:00.0000001", at("2024-01-31T10:00"), at("2024-01-31T00:00+01:00")],
    ids=str,
)
def test_date_rejects_times_of_day(cell, time_zone):
    with pytest.raises(DataError, match=r"E215.*is not a date") as caught:
        bound_values("date", [cell])
    (problem,) = caught.value.diagnostics
    assert problem.location.column == "x" and problem.hint == "declare I.x as datetime: a date has no time of day"


@pytest.mark.parametrize(
    ("kind", "cell"),
    [
        ("datetime", "2024-01-31 10:00:00.1234567"), ("datetime", "infinity"), ("datetime", "31.1.2024"),
        ("datetime", "2024-01-31 25:00"), ("datetime", "2024-13-31 25:00:00"),
        ("datetime", "2024-01-31x10:00:00"), ("time", "10:30:00+01"), ("time", "2024-01-31"), ("time", "10:30:00.0000001"),
        ("time", datetime.time(10, 30, tzinfo=datetime.UTC)),
    ],
)  # fmt: skip
def test_times_reject_values_that_would_change(kind, cell):
    with pytest.raises(DataError, match=rf"E215.*is not a {kind}"):
        bound_values(kind, [cell])


@pytest.mark.parametrize(
    ("kind", "cells", "text"),
    [
        ("bag of D", [[], [["a", "b"], ["c"]]], "[a, b]"),
        ("bag of D", [[], [{"k": 1}]], "{'k': 1}"), ("D", [None, ["a", "b"]], "[a, b]"), ("string", [None, ["a"]], "[a]"),
    ],
)  # fmt: skip
def test_nested_values_do_not_become_words(kind, cells, text):
    model = f"domain D = open\nentity I {{ predict c : bool  x : {kind} }}\ntemplate t(i: I) over i.c"
    with pytest.raises(DataError) as caught:
        bind(relcrf.parse(model).spec, relcrf.Dataset({"I": {"id": [1, 2], "c": [True, False], "x": cells}}))
    (problem,) = caught.value.diagnostics
    assert (problem.code, problem.message) == ("E215", f"'{text}' is not a single value")
    assert problem.location == DataLocation("table 'I'", 2, "x")


def test_datetime_accepts_dates_and_zones(time_zone):
    hour = 3600 * SECOND
    cells = ["1970-01-01", "1970-01-01 01:00", "1970-01-01T01:00+02:00", "1970-01-01 00:00:00.0000010", ""]
    assert bound_values("datetime", cells) == [0, hour, -hour, 1, None]
    # All have 19 characters; a cast to TIMESTAMP would drop the zone.
    cells = ["1970-01-01 01:00:00", "1970-01-01T01:00:01", "1970-01-01 01:00+02"]
    assert bound_values("datetime", cells) == [hour, hour + SECOND, -hour]


def test_strings_do_not_depend_on_time_zone(time_zone):
    assert bound_values("string", [at("2024-01-31T10:00+02:00")]) == ["2024-01-31 08:00:00+00"]
