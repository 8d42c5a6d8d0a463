"""Values are the same in every format, time zone and style of dates; a value that a type cannot represent is an error."""

import datetime
import time

import pytest

import relcrf
from relcrf.data.binding import bind
from relcrf.errors import DataError

TIME_ZONES = ("America/New_York", "Asia/Kolkata")


@pytest.fixture(params=TIME_ZONES)
def time_zone(request, monkeypatch):
    """Run the test in a time zone other than UTC."""
    for variable in ("TZ", "PGTZ"):
        monkeypatch.setenv(variable, request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


def bound_values(kind, cells):
    """Return the values of an attribute of a type, bound to a column of cells."""
    spec = relcrf.parse(f"entity I {{ predict c : bool  x : {kind} }}\ntemplate t(i: I) over i.c").spec
    table = {"id": list(range(len(cells))), "c": [True] * len(cells), "x": cells}
    bound = bind(spec, relcrf.Dataset({"I": table}))
    return [row[0] for row in bound.connection.execute('SELECT "x.x" FROM "ent.I" ORDER BY vid').fetchall()]


def at(text):
    return datetime.datetime.fromisoformat(text)


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
    assert caught.value.diagnostics[0].location.column == "x"


def test_strings_and_domains_do_not_depend_on_time_zone(time_zone):
    assert bound_values("string", [at("2024-01-31T10:00+02:00")]) == ["2024-01-31 08:00:00+00"]
