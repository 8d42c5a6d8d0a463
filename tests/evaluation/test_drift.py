"""Drift between columns: distances and tests by their definitions, texts of changes, and the method of a fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2

import relcrf
from relcrf.data.distributions import ColumnDistribution
from relcrf.evaluation.drift import MIN_DISTANCE, column_texts, measure_drift

MODEL = """
domain Topic = { a, b }
domain Colour = open
entity Item {
    size: real
    colour: Colour
    predict topic: Topic
}
template unary(i: Item) over i.topic per i.colour
"""


def tables(n, seed, mean=0.0, colours=("red", "blue"), missing=0.0):
    rng = np.random.default_rng(seed)
    item = pd.DataFrame({"id": range(n), "size": rng.normal(mean, size=n), "colour": rng.choice(colours, n)})
    return {"item": item.assign(size=item["size"].mask(rng.random(n) < missing), topic=rng.choice(["a", "b"], n))}


def columns(first, second, **values):
    return [ColumnDistribution("x", tuple(each), values=("u", "v", "w"), **values) for each in (first, second)]


@pytest.mark.parametrize("seed", range(3))
def test_distance_and_test_by_their_definitions(seed):
    rng = np.random.default_rng(seed)
    first, second = rng.multinomial(300, [0.5, 0.3, 0.2]), rng.multinomial(200, [0.3, 0.3, 0.4])
    one, other = columns(first.tolist(), second.tolist())
    (drift,) = measure_drift([one], [other])
    p, q = first / 300, second / 200
    assert drift.distance == pytest.approx(sum(abs(p - q)) / 2) == pytest.approx(sum(np.maximum(p - q, 0)))
    pooled = (first + second) / 500
    statistic = sum(
        ((counts - total * pooled) ** 2 / (total * pooled)).sum() for counts, total in ((first, 300), (second, 200))
    )
    assert drift.p_value == pytest.approx(chi2.sf(statistic, 2))
    assert [(shift.trained, shift.found) for shift in drift.shifts] == [*zip(p, q, strict=True)]


def test_a_change_is_clear_only_if_it_is_large_and_no_chance():
    def is_clear(first, second):
        (drift,) = measure_drift(*([each] for each in columns(first, second)))
        return drift.is_clear

    assert is_clear((500, 500, 0), (350, 650, 0))
    assert not is_clear((5000, 5000, 0), (4500, 5500, 0)), f"smaller than {MIN_DISTANCE}"
    assert not is_clear((5, 5, 0), (3, 7, 0)), "chance"


def test_chance_is_rarely_clear():
    names = [f"{kind}{k}" for kind in ("size", "colour") for k in range(40)]
    model = MODEL.replace("size: real", " ".join(f"{n}: {'real' if 'size' in n else 'Colour'}" for n in names))
    first, second = ({"item": tables(60, 0)["item"][["id", "colour", "topic"]].copy()} for _ in range(2))
    for offset, table in ((0, first["item"]), (100, second["item"])):
        for k in range(40):
            drawn = tables(60, k + offset)["item"]
            table[f"size{k}"], table[f"colour{k}"] = drawn["size"], drawn["colour"]
    drifts = relcrf.parse(model).fit(first, "local").drift(second).to_dicts()
    assert len(drifts) == 82
    assert sum(drift["distance"] > MIN_DISTANCE for drift in drifts) > 10 and not any(d["clear"] for d in drifts)


def test_missing_values_count_except_of_predicted_columns():
    for is_predicted, distance in ((False, 0.5), (True, 0.0)):
        one, other = columns((50, 50, 0), (25, 25, 0), is_predicted=is_predicted)
        (drift,) = measure_drift([one], [replace(other, n_missing=50)])
        assert drift.distance == distance
    assert not measure_drift([ColumnDistribution("x", (1,), ("u",))], [ColumnDistribution("y", (1,), ("u",))])
    assert not measure_drift([ColumnDistribution("x", (), is_predicted=True, n_missing=9)],
                             [ColumnDistribution("x", (), n_others=9)])  # fmt: skip


@pytest.mark.parametrize(
    ("unit", "edges", "expected"),
    [
        ("", (1.0, 1.0, 2500.5), ["below 1", "1", "above 1 to 2,500.5", "above 2,500.5"]),
        ("", (0.0, 1.0), ["below 0", "0 to 1", "above 1"]),
        ("integer", (0.0, 1.0, 2.0, 9.0), ["below 0", "0 to 1", "2", "3 to 9", "above 9"]),
        ("date", (0.0, 19723.0), ["below 1970-01-01", "1970-01-01 to 2024-01-01", "above 2024-01-01"]),
        ("time", (3600.0, 5400.0), ["below 01:00:00", "01:00:00 to 01:30:00", "above 01:30:00"]),
        ("datetime", (0.0, 60.0), ["below 1970-01-01 00:00:00", "1970-01-01 00:00:00 to 1970-01-01 00:01:00",
                                   "above 1970-01-01 00:01:00"]),
        ("date", (-1e300, 1e300), ["below -1e+300", "-1e+300 to 1e+300", "above 1e+300"]),
    ],
)  # fmt: skip
def test_texts_of_bins(unit, edges, expected):
    counts = (1,) * (len(edges) + 1)
    assert column_texts(ColumnDistribution("x", counts, edges=edges, unit=unit)) == expected


def test_drift_of_a_fit(tmp_path):
    fit = relcrf.parse(MODEL).fit(tables(400, 0), "local")
    assert not any(fit.drift(tables(400, 0))["distance"])
    fit.save(tmp_path / "run")
    changed = tables(400, 1, mean=2.0, colours=("red", "green"), missing=0.3)
    for each in (fit, relcrf.load_fit(tmp_path / "run")):
        found = {row["column"]: row for row in each.drift(changed).to_dicts()}
        assert [*found] == ["Item.size", "Item.colour", "Item.topic"]
        assert [row["clear"] for row in found.values()] == [True, True, False]
        assert "(missing): 0.0% to" in found["Item.size"]["changes"] and "above" in found["Item.size"]["changes"]
        assert found["Item.colour"]["changes"].startswith("blue: 51.7% to 0.0%; (others): 0.0% to 49.5%")
