"""Requests to models that predict numbers: equal to the trained model on both paths and in groups, with usual diagnostics."""

import math

import numpy as np
import pytest
from houses import DECLARATIONS, MIXED, NEAR, NEAR_PRICES, houses

import relcrf
from relcrf.resources import resource_path
from relcrf.serving import Predictor
from relcrf.serving.cells import FastPathUnavailable
from relcrf.serving.request_grounder import RequestGrounder

BATCH_TOLERANCE = 1e-12
"""Relative tolerance of predictions in groups, whose numbers are eliminated in another order."""


def dataset(request):
    columns = {
        name: {column: [row.get(column) for row in rows] for column in rows[0] | rows[-1]}
        for name, rows in request.items()
    }
    return relcrf.Dataset(columns)


def rows(table):
    return [dict(zip(table, map(plain, values), strict=True)) for values in zip(*table.values(), strict=True)]


def plain(value):
    return value.item() if isinstance(value, np.generic) else value


def request(seed, n=12, **options):
    tables = houses(n, seed, unknown=0.4, **options)
    del tables["house"]["area"]
    return {name: rows(table) for name, table in tables.items()}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return the run folder of a model of prices, which are linked, and of kinds, on which the prices depend."""
    folder = tmp_path_factory.mktemp("runs") / "mixed"
    fit = relcrf.parse(MIXED + NEAR_PRICES).fit(relcrf.Dataset(houses(120, 0)), "dense", calibrate=3)
    fit.save(folder)
    return folder


@pytest.fixture(scope="module")
def fit(run):
    return relcrf.load_fit(run)


def predict_slowly(fit, monkeypatch, tables, *arguments, **options):
    """Return the prediction of a predictor whose fast path is unavailable."""

    def refuse(*_):
        raise FastPathUnavailable("a test")

    with monkeypatch.context() as context:
        context.setattr(RequestGrounder, "ground", refuse)
        predictor = Predictor(fit)
        found = predictor.predict(tables, *arguments, **options)
    assert predictor.report().reasons == {"a test": 1}
    return found


@pytest.mark.parametrize(("attribute", "coverage"), [("House.price", None), ("House.price", 0.5), ("House.kind", None)])
@pytest.mark.parametrize("unknown_kinds", [0.0, 0.4], ids=["exact", "approximate"])
def test_predictions_equal_those_of_the_trained_model(fit, monkeypatch, attribute, coverage, unknown_kinds):
    tables = request(1, unknown_kinds=unknown_kinds)
    prediction = fit.predict(dataset(tables))
    assert prediction.verdict.status == ("converged" if unknown_kinds else "exact")
    expected, predictor = prediction.table(attribute, coverage=coverage), Predictor(fit)
    for found in (
        predictor.predict(tables, attribute, coverage=coverage),
        predict_slowly(fit, monkeypatch, tables, attribute, coverage=coverage),
    ):
        assert list(found.columns) == list(expected.columns)
        assert found.rows() == expected.rows()
    assert predictor.report().slow_path == 0


def test_columns_and_calibrated_intervals(fit):
    assert "House.price" in fit.learned.calibration_labels
    tables, predictor = request(2), Predictor(fit)
    wide, narrow = (predictor.predict(tables, "price", coverage=coverage) for coverage in (0.9, 0.3))
    assert list(wide.columns) == ["id", "price", "deviation", "low", "high"]
    assert wide.rows() == predictor.predict(tables, "price").rows()
    assert (wide["low"] < narrow["low"]).all() and (narrow["high"] < wide["high"]).all()
    uncalibrated = fit.predict(dataset(tables))
    uncalibrated = type(uncalibrated)(uncalibrated.grounding, uncalibrated.inferred, {}).table("price")
    assert (uncalibrated["low"] != wide["low"]).any()


def test_linked_and_given_numbers_are_evidence(fit):
    def mean(price, **link):
        tables = {"house": [{"id": 1, "size": 0.0, "kind": "flat"}, {"id": 2, "size": 0.0, "kind": "flat", **price}]}
        found = Predictor(fit).predict({**tables, **link}, "price")
        assert found["id"].tolist() == (["1"] if price.get("price") is not None else ["1", "2"])
        return float(found["price"][0])

    near = {"near": {"a": 1, "b": 2}}
    alone = mean({"price": 100.0})
    assert mean({}) == mean({"price": None}) == pytest.approx(alone)
    assert mean({}, **near) == pytest.approx(alone)
    assert mean({"price": -100.0}, **near) < alone < mean({"price": 100}, **near)


@pytest.mark.parametrize(
    ("attribute", "unknown_kinds"), [("House.price", 0.0), ("House.price", 0.4), ("House.kind", 0.4)]
)
def test_many_requests_are_predicted_like_single_ones(fit, monkeypatch, attribute, unknown_kinds):
    requests = [request(seed, 6 + seed, unknown_kinds=unknown_kinds) for seed in range(5)]
    singly = [Predictor(fit).predict(tables, attribute) for tables in requests]
    monkeypatch.setattr(RequestGrounder, "ground", lambda *_: pytest.fail("a request is grounded alone"))
    for found, expected in zip(Predictor(fit).predict_many(requests, attribute), singly, strict=True):
        assert list(found.columns) == list(expected.columns) and len(found)
        for name, column in expected.columns.items():
            if column.dtype == float:
                np.testing.assert_allclose(found[name], column, rtol=BATCH_TOLERANCE)
            else:
                assert found[name].tolist() == column.tolist()


def test_requests_with_overflows_do_not_affect_others():
    predictor = Predictor(relcrf.parse(DECLARATIONS + NEAR).fit(relcrf.Dataset(houses(60, 0)), "dense"))
    house = {"kind": "flat", "area": "x", "size": 1.0}
    good, extreme = (
        {"house": [{"id": 1, **house}, {"id": 2, **house, "size": size}], "near": {"a": 2, "b": 1}}
        for size in (1.0, 1e300)
    )
    first, bad, last = predictor.predict_many([good, extreme, good])
    expected = predictor.predict(good)
    assert not np.isfinite(bad["price"]).all() and np.isfinite(expected["price"]).all()
    for found in first, last:
        np.testing.assert_allclose(found["price"], expected["price"], rtol=BATCH_TOLERANCE)


MALFORMED = ["abc", "1,5", "1e400", "inf", math.inf, -math.inf, 10**400, True, [1.0], [], {"a": 1}]


@pytest.mark.parametrize("value", MALFORMED, ids=lambda value: repr(value)[:10])
def test_malformed_numbers_raise_data_errors(fit, value):
    tables = {"house": [{"id": 1, "kind": "flat", "size": 1.0, "price": value}, {"id": 2, "kind": "flat", "size": 1.0}]}
    predictor = Predictor(fit)
    with pytest.raises(relcrf.DataError) as caught:
        predictor.predict(tables, "price")
    assert [each.code for each in caught.value.diagnostics] in (["E215"], ["E203"])
    (error, good) = predictor.predict_many([tables, {"house": tables["house"][1:]}], "price")
    assert error.diagnostics == caught.value.diagnostics and len(good) == 1


def test_delays_and_their_causes(monkeypatch):
    """Compare the paths for `models/arrivals.rcrf`, which has an open domain, bins, and two predicted attributes."""
    rng = np.random.default_rng(0)
    n = 60
    cause = rng.integers(4, size=n)
    arrivals = {
        "id": range(n),
        "delay": (5.0 * cause + rng.normal(size=n)).tolist(),
        "cause": [("none", "weather", "signal", "crew")[k] if rng.random() < 0.7 else None for k in cause],
        "line": [f"line {k % 3}" for k in range(n)],
        "hour": rng.integers(24, size=n).tolist(),
        "rain": rng.random(n).tolist(),
    }
    follows = {"a": range(n - 1), "b": range(1, n)}
    fit = relcrf.load(resource_path("models", "arrivals.rcrf")).fit(
        relcrf.Dataset({"arrival": arrivals, "follows": follows}), "dense"
    )
    request = {"arrival": rows(arrivals)[:12], "follows": rows(follows)[:11]}
    for k, row in enumerate(request["arrival"]):
        row["delay"] = row["delay"] if k % 3 else None
        row["line"] = row["line"] if k != 5 else "a new line"
    predictor, expected = Predictor(fit), fit.predict(dataset(request))
    for attribute in "Arrival.delay", "Arrival.cause":
        found = predictor.predict(request, attribute).rows()
        assert len(found) and found == expected.table(attribute).rows()
        assert predict_slowly(fit, monkeypatch, request, attribute).rows() == found
        (again, _) = predictor.predict_many([request, request], attribute)
        assert again.rows() == found
    assert predictor.report().slow_path == 0


@pytest.mark.parametrize("value", [None, math.nan, "", "nan"])
def test_missing_numbers_are_predicted(fit, value):
    house = {"id": 1, "kind": "flat", "size": 1.0}
    expected = Predictor(fit).predict({"house": house}, "price").rows()
    assert Predictor(fit).predict({"house": {**house, "price": value}}, "price").rows() == expected


def test_numbers_as_texts_take_the_slow_path(fit):
    tables = {"house": [{"id": 1, "kind": "flat", "size": 1.0}, {"id": 2, "kind": "flat", "size": 1.0, "price": 7.5}]}
    tables["near"] = [{"a": 1, "b": 2}]
    predictor = Predictor(fit)
    expected = predictor.predict(tables, "price").rows()
    tables["house"][1]["price"] = " 7.5 "
    assert predictor.predict(tables, "price").rows() == expected
    assert list(predictor.report().reasons) == ["'price' has values that are not plain numbers"]


@pytest.mark.parametrize("coverage", [0.0, 1.0, math.nan])
@pytest.mark.parametrize("method", ["predict", "predict_many"])
def test_invalid_coverage_raises_e376(fit, method, coverage):
    with pytest.raises(relcrf.UsageError) as caught:
        getattr(Predictor(fit), method)([], "price", coverage=coverage)
    assert [each.code for each in caught.value.diagnostics] == ["E376"]
