"""Evaluation of predicted numbers: measures against their definitions, folds against manual fits, files, groups and intervals."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from houses import DECLARATIONS, KIND_LEVELS, MIXED, NEAR_PRICES, houses
from scipy.integrate import quad
from scipy.stats import norm

import relcrf
from relcrf import api
from relcrf.backends.calibration_labels import CalibrationLabels
from relcrf.errors import UsageError
from relcrf.evaluation.evaluations import evaluate
from relcrf.evaluation.group_measures import VariableGroups, measure_groups
from relcrf.evaluation.number_measures import NUMBER_MEASURES, ScoredNumbers
from relcrf.evaluation.predictions import MAJORITY
from relcrf.evaluation.runner import predict_frequencies
from relcrf.evaluation.splits import make_folds

PRICE, KIND = "House.price", "House.kind"
TABLES = houses(100, 0, unknown=0.1, links=2.0)


@pytest.fixture(scope="module")
def scored():
    rng = np.random.default_rng(0)
    return ScoredNumbers(rng.normal(size=40), rng.uniform(0.5, 2.0, size=40), rng.normal(size=40) * 2.0)


def crps(mean, deviation, truth):
    """Return the integral of the squared difference of the predicted distribution function and the step at the number."""
    below, _ = quad(lambda x: norm.cdf(x, mean, deviation) ** 2, mean - 15.0 * deviation, truth)
    above, _ = quad(lambda x: norm.sf(x, mean, deviation) ** 2, truth, mean + 15.0 * deviation)
    return below + above


def test_measures_equal_their_definitions(scored):
    error = scored.truth - scored.means
    items = list(zip(scored.means, scored.deviations, scored.truth, strict=True))
    low, high = norm.interval(0.9, scored.means, scored.deviations)
    loss = -norm.logpdf(scored.truth, scored.means, scored.deviations).mean()
    expected = {
        "rmse": math.sqrt((error**2).mean()),
        "mae": np.abs(error).mean(),
        "r2": 1.0 - (error**2).sum() / ((scored.truth - scored.truth.mean()) ** 2).sum(),
        "crps": np.mean([crps(*item) for item in items]),
        "log_loss": loss,
        "coverage_90": ((low <= scored.truth) & (scored.truth <= high)).mean(),
    }
    found = scored.measures()
    assert found == pytest.approx(expected) and tuple(found) == scored.measure_names == NUMBER_MEASURES
    assert scored.score().log_likelihood == pytest.approx(-loss) and scored.score().n == 40
    tails = [2.0 * norm.sf(abs(y - m) / s) for m, s, y in items]
    np.testing.assert_allclose(scored.tail_probabilities(), tails)


def test_weights_repeat_items(scored):
    counts = np.random.default_rng(1).integers(3, size=40)
    parts = [np.repeat(column, counts) for column in (scored.means, scored.deviations, scored.truth)]
    assert scored.measures(counts.astype(float)) == pytest.approx(ScoredNumbers(*parts).measures())
    halves = [ScoredNumbers(*(part[half] for part in parts)) for half in (slice(15), slice(15, None))]
    assert ScoredNumbers.concatenate(halves).measures() == ScoredNumbers(*parts).measures()


def test_measures_that_are_undefined(scored):
    assert all(math.isnan(value) for value in scored.measures(np.zeros(40)).values())
    one = ScoredNumbers(scored.means[:1], scored.deviations[:1], scored.truth[:1])
    assert math.isnan(one.measures()["r2"]) and one.measures(names=["mae"]) == {"mae": abs(one.truth - one.means)[0]}
    nothing = ScoredNumbers(*np.empty((3, 0)))
    assert nothing.score().n == 0 and math.isnan(nothing.measures()["crps"])


def test_equal_numbers_have_no_variance(scored):
    """The sum of ten times 0.1 is not 1, so that the computed variance of equal numbers is 1e-34."""
    assert math.isnan(replace(scored, truth=np.full(40, 0.1)).measures()["r2"])
    table = {"id": range(40), "y": np.full(40, 0.1)}
    grounding = relcrf.parse("entity E { predict y : real } template t(e: E) over e.y").ground(
        relcrf.Dataset({"e": table})
    )
    numbers = predict_frequencies(grounding, make_folds(grounding, "random")[0]).numbers
    assert numbers is not None and (numbers.marginals.deviations == 1.0).all()


@pytest.fixture(scope="module")
def prices():
    model = relcrf.parse(DECLARATIONS + KIND_LEVELS + NEAR_PRICES)
    return model, model.ground(relcrf.Dataset(TABLES))


@pytest.fixture(scope="module")
def found(prices):
    return evaluate(prices[1], ["local", "dense"], "random,folds=3")


def test_folds_equal_manual_fits(prices, found):
    model, grounding = prices
    for name in ("local", "dense"):
        for fold, scored in zip(found.folds, found.predictions.scored_by_fold(name, PRICE), strict=True):
            prediction = api.predict(api.fit(model, grounding, name, hidden=fold.test), grounding, hidden=fold.test)
            among = fold.test[prediction.variables()]
            np.testing.assert_allclose(scored.means, prediction.means()[among])
            np.testing.assert_allclose(scored.deviations, prediction.deviations()[among])
            np.testing.assert_array_equal(scored.truth, grounding.numbers[fold.test])
    by_fold = found.predictions.scored_by_fold(MAJORITY, PRICE)
    for fold, scored in zip(found.folds, by_fold, strict=True):
        train = grounding.numbers[~np.isnan(grounding.numbers) & ~fold.test]
        assert set(scored.means) == {train.mean()} and set(scored.deviations) == {train.std()}


def test_systems_are_compared(found):
    predictions = found.predictions
    assert predictions.is_numeric(PRICE) and predictions.best_system(PRICE) == "dense"
    estimates = {name: predictions.estimates(name, PRICE) for name in predictions.systems}
    gain = predictions.differences("dense", "local", PRICE)
    assert set(gain) == {"mae", "crps", "log_loss"}
    for measure, difference in gain.items():
        values = [estimates[name][measure].value for name in ("dense", "local")]
        assert difference.value == pytest.approx(values[0] - values[1])
        assert difference.low < difference.value < difference.high
    assert estimates["dense"]["rmse"].low < estimates["dense"]["rmse"].value < estimates["dense"]["rmse"].high
    (one, *_) = predictions.fold_measures("local", PRICE, ("mae",))
    assert one["mae"] == pytest.approx(predictions.scored_by_fold("local", PRICE)[0].measures()["mae"])


def test_json_of_the_measures_has_no_nan(found):
    (measures,) = json.loads(json.dumps(found.as_dict()["attributes"], allow_nan=False)).values()
    assert "accuracy" not in measures and measures["n"] == found.predictions.pooled("local", PRICE).score().n
    assert set(measures["systems"]["dense"]) == set(NUMBER_MEASURES)
    assert set(measures["relational_gain"]) == {"dense"}


def test_prediction_files(prices, found, tmp_path, monkeypatch):
    _, grounding = prices
    ask = (grounding, ["local", "dense"], "random,folds=3")
    first = evaluate(*ask, folder=tmp_path)
    path, *others = sorted(tmp_path.glob(f"dense/fold-*/{PRICE}.csv"))
    lines = path.read_text().splitlines()
    assert lines[0] == "variable,truth,predicted,deviation,id" and len(others) == 2
    monkeypatch.setattr("relcrf.evaluation.runner.predict_fold", None)
    again = evaluate(*ask, folder=tmp_path)
    for one in (again, found):
        assert one.predictions.as_dict() == first.predictions.as_dict()
    path.write_text("\n".join(lines[:-1]))
    with pytest.raises(UsageError) as error:
        evaluate(*ask, folder=tmp_path)
    assert error.value.diagnostics[0].code == "E353"


def test_groups(prices, found):
    _, grounding = prices
    predictions = found.predictions
    frame = measure_groups(predictions, "dense", PRICE, VariableGroups.from_column(grounding, "area"))
    scored, variables = predictions.pooled("dense", PRICE), predictions.test_variables(PRICE)
    area = np.array(TABLES["house"]["area"])[grounding.argument_texts(grounding.blocks[0])[0].astype(int)]
    assert sum(frame["labels"]) == len(variables)
    for row in frame.to_dicts():
        chosen = area[variables] == row["area"]
        part = ScoredNumbers(scored.means[chosen], scored.deviations[chosen], scored.truth[chosen])
        measures = part.measures()
        expected = {"mae": measures["mae"], "crps": measures["crps"], "coverage": measures["coverage_90"]}
        assert {name: row[name] for name in expected} == pytest.approx(expected)
        assert row["bias"] == pytest.approx((part.means - part.truth).mean())
        assert row["low"] <= row["bias"] <= row["high"] and row["labels"] == chosen.sum()


def test_intervals_of_a_fold_are_calibrated_on_the_other_folds(found):
    measured = found.measure_sets(0.8)[PRICE]
    folds, hits, widths = found.predictions.scored_by_fold("local", PRICE), [], []
    component = np.split(found.predictions.clusters(PRICE).index, np.cumsum([len(fold.truth) for fold in folds])[:-1])
    for number, fold in enumerate(folds):
        tails = np.concatenate([one.tail_probabilities() for k, one in enumerate(folds) if k != number])
        groups = np.concatenate([one for k, one in enumerate(component) if k != number])
        index = np.arange(len(tails))
        smallest = CalibrationLabels(index, 0 * index, tails, groups, "components", False).min_probability(0.8)
        half = norm.isf(0.5 * smallest) * fold.deviations
        hits.extend(np.abs(fold.truth - fold.means) <= half)
        widths.extend(2.0 * half)
    assert (measured["local"].coverage, measured["local"].mean_size) == pytest.approx((np.mean(hits), np.mean(widths)))
    assert measured["dense"].mean_size < measured["local"].mean_size < measured[MAJORITY].mean_size
    assert math.isnan(measured["local"].lowest) and math.isnan(measured["local"].fraction_certain)


def test_intervals_of_a_run_are_calibrated_on_its_held_out_numbers(prices):
    model, grounding = prices
    fit = api.fit(model, grounding, "local", hidden=np.arange(100) % 3 == 0, calibrate=3)
    measured = api.evaluate_run(fit.learned, grounding, "folds=4").measure_sets(0.9)[PRICE]
    held_out = fit.learned.calibration_labels[PRICE].variables
    assert {*measured} == {"local"} and measured["local"].n_calibration == len(held_out) < 67
    without = replace(fit.learned, calibration_labels={})
    assert api.evaluate_run(without, grounding, "folds=4").measure_sets(0.9) == {}


def test_values_and_numbers_together():
    model = relcrf.parse(MIXED)
    grounding = model.ground(relcrf.Dataset(houses(60, 0, unknown=0.1, unknown_kinds=0.1)))
    found = evaluate(grounding, ["local", "dense"], "random,folds=3")
    predictions = found.predictions
    assert predictions.attributes == (PRICE, KIND)
    for fold, prices, kinds in zip(
        found.folds, *(predictions.scored_by_fold("dense", name) for name in (PRICE, KIND)), strict=True
    ):
        prediction = api.predict(api.fit(model, grounding, "dense", hidden=fold.test), grounding, hidden=fold.test)
        np.testing.assert_allclose(prices.means, prediction.means(PRICE)[fold.test[prediction.variables(PRICE)]])
        among = fold.test[prediction.variables(KIND)]
        np.testing.assert_allclose(kinds.probabilities, prediction.probabilities(KIND)[among])
    assert predictions.estimates("dense", KIND)["accuracy"].value > 0.45
    assert set(found.as_dict()["attributes"]) == {PRICE, KIND}
    assert {*found.measure_sets(0.9)} == {PRICE, KIND}
