"""Functions of dates and times, and indicators of missing values, against the calendar of Python."""

import datetime

import numpy as np

import relcrf

MODEL = """
entity P { predict z : bool  day : date  at : datetime  clock : time }
template t(p: P) over p.z
    by year(p.day), month(p.day), weekday(p.day), year(p.at), month(p.at), weekday(p.at), hour(p.at), hour(p.clock),
       days(p.day, p.at), days("2024-02-29", p.day), missing(p.day)
template k(p: P) over p.z per weekday(p.day)
template m(p: P) where not missing(p.day) over p.z per missing(p.clock)
feature gap(p: P) = missing(p.at)
template g(p: P) over p.z by gap(p)
"""
DAYS = [
    datetime.date(2024, 2, 29),
    datetime.date(1969, 12, 31),
    datetime.date(1, 1, 1),
    datetime.date(9999, 12, 31),
    None,
]
MOMENTS = [
    datetime.datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime.datetime(1970, 1, 1),
    datetime.datetime(1600, 2, 29, 5),
    None,
    datetime.datetime(2024, 12, 30, 0, 0, 0, 1),
]
CLOCKS = ["00:00", None, "23:59:59", "12:30", "01:00"]


def grounded():
    moments = [None if m is None else str(m) for m in MOMENTS]
    days = [None if d is None else str(d) for d in DAYS]
    page = {"id": range(5), "z": [True] * 5, "day": days, "at": moments, "clock": CLOCKS}
    return relcrf.parse(MODEL).ground(relcrf.Dataset({"p": page}))


def features(grounding, name):
    (group,) = (g for g, n in zip(grounding.graph.groups, grounding.group_names, strict=True) if n == name)
    order = np.argsort(group.scope[0])
    return [dict(group.features.row(int(row))) for row in order]


def expected_features(day, moment, clock):
    date = None if moment is None else moment.date()
    parts = [None] * 3 if day is None else [day.year, day.month, day.isoweekday()]
    parts += [None] * 4 if date is None else [date.year, date.month, date.isoweekday(), moment.hour]
    parts += [None if clock is None else int(clock[:2])]
    parts += [None if day is None or date is None else (date - day).days]
    parts += [None if day is None else (day - datetime.date(2024, 2, 29)).days, day is None]
    return {k: float(value) for k, value in enumerate(parts) if value}


def test_parts_of_dates_equal_those_of_python():
    found = features(grounded(), "t")
    for row, (day, moment, clock) in zip(found, zip(DAYS, MOMENTS, CLOCKS, strict=True), strict=True):
        assert {k: v for k, v in row.items() if v} == expected_features(day, moment, clock)


def test_weekdays_and_missing_values_are_keys():
    grounding = grounded()
    keys = {t.name: t.keys.values for t in grounding.templates if t.keys is not None}
    assert keys == {"k": (("1",), ("3",), ("4",), ("5",)), "m": (("false",), ("true",))}


def test_indicator_of_missing_value_is_a_feature():
    assert [row.get(0, 0.0) for row in features(grounded(), "g")] == [0, 0, 0, 1, 0]
