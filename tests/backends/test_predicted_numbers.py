"""Models that predict numbers, from tables to predictions, compared with dense Gaussian distributions and with enumeration."""

from functools import cache

import numpy as np
import pytest
from gaussians import predict_by_enumeration, predict_plainly
from houses import DECLARATIONS, KIND_LEVELS, MIXED, NEAR, NEAR_PRICES, houses
from interrupted import assert_goes_on
from scipy.stats import norm

import relcrf
from relcrf import api
from relcrf.backends import numeric_targets, registry
from relcrf.backends.numeric_targets import NUMERIC_BACKENDS
from relcrf.errors import DataError, UsageError
from relcrf.evaluation.pareto import pareto
from relcrf.evaluation.splits import random_folds
from relcrf.inference import gaussian, gaussian_estimates


@pytest.fixture(scope="module")
def linked():
    model = relcrf.parse(DECLARATIONS + NEAR)
    return model, model.ground(relcrf.Dataset(houses(60, 0)))


@pytest.mark.parametrize("backend", NUMERIC_BACKENDS)
def test_predictions_are_conditional_distributions(linked, backend, tmp_path):
    """They are those of dense matrices, also on other tables with unseen keys, and after the run is saved and loaded."""
    model, grounding = linked
    fit = api.fit(model, grounding, backend)
    fit.save(tmp_path / "run")
    other = relcrf.Dataset(houses(30, 1, areas="wv", unknown=0.6))
    for grounded in (grounding, fit.ground(other)):
        prediction = api.predict(relcrf.load_fit(tmp_path / "run"), grounded)
        means, covariance, _ = predict_plainly(fit, grounded, grounded.states)
        np.testing.assert_array_equal(prediction.variables(), np.flatnonzero(np.isnan(grounded.numbers)))
        np.testing.assert_allclose(prediction.means(), means)
        np.testing.assert_allclose(prediction.deviations(), np.sqrt(covariance.diagonal()))
        assert prediction.verdict.status == "exact"
    assert prediction.unseen_keys == {"area": 1}
    assert ("numbers" in fit.learned.vectors) == (backend != "local")
    assert fit.learned.converged and fit.summary["numbers"] == (~np.isnan(grounding.numbers)).sum()


def predict(text, tables, backend="dense", test=None, **settings):
    fit = relcrf.parse(text).fit(relcrf.Dataset(tables), backend, **settings)
    return fit, fit.predict(relcrf.Dataset(test or tables))


@pytest.mark.parametrize("backend", NUMERIC_BACKENDS)
def test_units_do_not_matter_and_repetition_gives_the_same_bits(linked, backend):
    model, grounding = linked
    plain = predict(DECLARATIONS + NEAR, houses(60, 0), backend)
    for vectors in (plain[0].learned.vectors, api.fit(model, grounding, backend).learned.vectors):
        assert {name: vector.tobytes() for name, vector in vectors.items()} == {
            name: vector.tobytes() for name, vector in plain[0].learned.vectors.items()
        }
    tables = houses(60, 0, unit=1000.0)
    tables["house"]["price"] = [None if p is None else p - 3e5 for p in tables["house"]["price"]]
    tables["house"]["size"] = tables["house"]["size"] * 1000.0
    _, scaled = predict(DECLARATIONS + NEAR, tables, backend)
    np.testing.assert_allclose(scaled.means() + 3e5, plain[1].means() * 1000.0, rtol=1e-4)
    np.testing.assert_allclose(scaled.deviations(), plain[1].deviations() * 1000.0, rtol=1e-4)


@pytest.mark.parametrize("unit", [1e100, 1e-100])
def test_units_far_from_1(unit):
    predictions = [predict(DECLARATIONS + NEAR, houses(60, 0, unit=one))[1] for one in (1.0, unit)]
    np.testing.assert_allclose(predictions[1].means() / unit, predictions[0].means(), rtol=1e-4)
    np.testing.assert_allclose(predictions[1].deviations() / unit, predictions[0].deviations(), rtol=1e-4)


def without(tables, selected):
    """Return the tables without the prices of the selected houses."""
    prices = [None if drop else p for p, drop in zip(tables["house"]["price"], selected, strict=True)]
    return {**tables, "house": {**tables["house"], "price": prices}}


@cache
def mixed_fit(pairs):
    return relcrf.parse(MIXED + pairs).fit(relcrf.Dataset(houses(80, 0, unknown=0.0)), "dense")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("pairs", "tolerance"), [("", 1e-9), (NEAR_PRICES, 0.01)], ids=["alone", "linked"])
def test_discrete_variables_and_numbers_inform_each_other(pairs, tolerance, seed):
    """Inference equals the enumeration of the kinds; expectation propagation is approximate."""
    fit = mixed_fit(pairs)
    grounding = fit.ground(relcrf.Dataset(houses(7, seed, unknown=0.4, unknown_kinds=0.5)))
    prediction = api.predict(fit, grounding, inference="enumeration")
    marginals, means, deviations = predict_by_enumeration(fit, grounding)
    np.testing.assert_allclose(prediction.probabilities("kind"), marginals, atol=tolerance)
    np.testing.assert_allclose(prediction.means("price"), means, atol=4 * tolerance)
    np.testing.assert_allclose(prediction.deviations("price"), deviations, atol=4 * tolerance)
    assert prediction.verdict.status == ("converged" if pairs else "exact")
    assert ("approximate for linked numbers" in prediction.verdict.remark) == bool(pairs)


def test_estimates_without_a_factor_are_near_the_exact_results(linked, monkeypatch):
    model, grounding = linked
    exact = api.predict(api.fit(model, grounding, "dense"), grounding)
    monkeypatch.setattr(gaussian, "MAX_FACTOR_ENTRIES", -1)
    monkeypatch.setattr(gaussian_estimates, "PROBED_NUMBERS", 6_000)
    fit = api.fit(model, grounding, "dense")
    found = api.predict(fit, grounding)
    assert "estimated" in fit.summary["numeric_likelihood"] and fit.learned.converged
    assert found.verdict.status == "converged" and "estimated from 64 samples" in found.verdict.remark
    scale = exact.deviations()
    np.testing.assert_allclose(found.means() / scale, exact.means() / scale, atol=0.1)
    np.testing.assert_allclose(found.deviations() / scale, 1.0, atol=0.1)


def test_expectation_propagation_without_a_factor(monkeypatch):
    fit = mixed_fit(NEAR_PRICES)
    grounding = fit.ground(relcrf.Dataset(houses(30, 1, unknown=0.4, unknown_kinds=0.5)))
    exact = api.predict(fit, grounding)
    monkeypatch.setattr(gaussian, "MAX_FACTOR_ENTRIES", -1)
    found = api.predict(fit, grounding)
    assert found.verdict.status == "converged"
    assert "approximate for linked numbers" in found.verdict.remark and "64 samples" in found.verdict.remark
    np.testing.assert_allclose(found.probabilities("kind"), exact.probabilities("kind"), atol=0.03)
    np.testing.assert_allclose(found.means("price"), exact.means("price"), atol=0.1)


def test_numbers_of_unknown_kinds_are_not_used_in_training():
    tables = houses(60, 0, unknown=0.1, unknown_kinds=0.3)
    is_unknown = [kind is None for kind in tables["house"]["kind"]]
    for text in (MIXED, MIXED + NEAR_PRICES):
        found, other = (predict(text, t, max_iterations=30)[0] for t in (tables, without(tables, is_unknown)))
        for name, vector in found.learned.vectors.items():
            np.testing.assert_array_equal(vector, other.learned.vectors[name])
        known = [p is not None and not u for p, u in zip(tables["house"]["price"], is_unknown, strict=True)]
        assert found.summary["numbers"] == sum(known)


def test_interrupted_training_resumes(linked, tmp_path):
    model, grounding = linked
    assert_goes_on(model, grounding, "dense", {}, (("single numbers", 2), ("all numbers", 3)), tmp_path)


@pytest.mark.parametrize("model", [DECLARATIONS, MIXED])
@pytest.mark.parametrize("n_known", [0, 1])
def test_too_few_known_numbers(model, n_known):
    """A deviation needs two numbers, also if there are labels of discrete variables."""
    prices = houses(20, 0)["house"]["price"]
    kept = [k for k, price in enumerate(prices) if price is not None][:n_known]
    with pytest.raises(DataError) as error:
        relcrf.parse(model).fit(relcrf.Dataset(without(houses(20, 0), [k not in kept for k in range(20)])), "local")
    assert error.value.diagnostics[0].code == "E225"
    assert "fellegi-sunter" not in str(error.value)
    if n_known:
        assert "only one value of House.price" in error.value.diagnostics[0].message


@pytest.mark.parametrize(
    ("price", "size", "message"),
    [
        ([1e200, 2e200, 3.0], [1.0, 2.0, 3.0], "the values of House.price are too large: the largest is 2e\\+200"),
        ([1e-200, 2e-200, 0.0], [1.0, 2.0, 3.0], "the values of House.price are too small: the largest is 2e-200"),
        ([1.0, 2.0, 3.0], [1.0, 1e160, 3.0], "the features of 'size' are too large: the largest is 1e\\+160"),
    ],
)
def test_numbers_whose_squares_overflow(price, size, message):
    text = "entity House { predict price : real  size : real }\ntemplate size(h: House) over h.price by 1, h.size"
    with pytest.raises(DataError, match=message) as error:
        relcrf.parse(text).fit({"house": {"id": range(3), "price": price, "size": size}}, "local")
    assert error.value.diagnostics[0].code == "E222"


def weights_of(fit, name):
    (row,) = (k for k, info in enumerate(fit.learned.templates) if info.name == name)
    return fit.learned.layout.matrix(fit.learned.vectors["weights"], row)


def test_options_of_templates():
    size = "template size(h: House) over h.price by 1, h.size"
    tables = houses(60, 0)
    plain, _ = predict(DECLARATIONS + NEAR, tables)
    assert abs(weights_of(plain, "size")[1, 0] - 2.0) < 0.5
    fixed, _ = predict(f"{DECLARATIONS}{NEAR}".replace(size, f"{size} init 0.5 fixed"), tables)
    assert (weights_of(fixed, "size") == 0.5).all()
    strong, _ = predict(f"{DECLARATIONS}{NEAR}".replace(size, f"{size} l2 1e6"), tables)
    assert abs(weights_of(strong, "size")[:, 0]).max() < 0.01
    pair, _ = predict(f"{DECLARATIONS}{NEAR.rstrip()} init -1 l2 1e6\n", tables)
    np.testing.assert_allclose(weights_of(pair, "near"), -1.0, atol=0.01)
    weak, _ = predict(DECLARATIONS, tables, "local", l2=1e6)
    assert abs(weights_of(weak, "area")[:, 0]).max() < 0.01 and weak.summary["numeric_l2"] == 1e6


TWO_ATTRIBUTES = """
entity House {
    predict price : real
    predict rent : real
    size : real
}
template price(h: House) over h.price by 1, h.size
template rent(h: House) over h.rent by 1, h.size
template both(h: House) over h.price, h.rent
"""


def test_linked_attributes_of_different_units(monkeypatch):
    monkeypatch.setattr(numeric_targets, "VALUE_TOLERANCE", 0.0)
    tables = houses(80, 0)
    rng = np.random.default_rng(1)
    noise = np.where([p is None for p in tables["house"]["price"]], np.nan, 0.1) * rng.normal(size=80)
    rent = np.array([np.nan if p is None else p for p in tables["house"]["price"]]) * 0.5 + noise
    rent = np.where(np.isnan(rent) | (rng.random(80) < 0.3), np.nan, rent)
    rent[np.isnan(noise)] = rng.normal(4.0, 1.0, size=np.isnan(noise).sum())  # evidence for the unknown prices
    predictions = []
    for unit in (1.0, 1000.0):
        tables["house"]["rent"] = [None if np.isnan(r) else r * unit for r in rent]
        predictions.append(predict(TWO_ATTRIBUTES, {"house": tables["house"]})[1])
    one, other = predictions
    np.testing.assert_allclose(one.means("price"), other.means("price"), rtol=1e-4)
    np.testing.assert_allclose(one.means("rent") * 1000.0, other.means("rent"), rtol=1e-4)
    expected = rent[np.isnan(noise)] / 0.5
    assert np.abs(one.means("price") - expected).mean() < 0.3 < np.abs(expected - expected.mean()).mean()


def test_a_learned_feature_of_numbers():
    """The regressor is trained without the house that it predicts, so that its values are honest features."""
    text = DECLARATIONS[: DECLARATIONS.index("template")]
    text += "feature guess(h: House) = regressor of h.price from h.size, h.area using linear\n"
    text += "template guess(h: House) over h.price by 1, guess(h)\n"
    tables = houses(80, 0)
    fit, prediction = predict(text, tables, "local")
    assert 0.7 < weights_of(fit, "guess")[1, 0] < 1.3
    _, plain = predict(DECLARATIONS, tables, "local")
    assert np.corrcoef(prediction.means(), plain.means())[0, 1] > 0.9


OTHERS = sorted(set(registry.backend_names()) - set(NUMERIC_BACKENDS))


@pytest.mark.parametrize("backend", OTHERS)
def test_other_backends_raise_e378(linked, backend):
    with pytest.raises(UsageError) as error:
        api.fit(*linked, backend)
    assert error.value.diagnostics[0].code == "E378"


def coverage(prediction, truth, probability):
    low, high = prediction.intervals(coverage=probability)
    values = truth[prediction.variables()]
    return ((low <= values) & (values <= high)).mean()


def test_intervals_of_linked_numbers_have_their_coverage():
    """The standard error of the fractions is 0.02; the deviations of the model without links are larger."""
    model = relcrf.parse(DECLARATIONS + KIND_LEVELS + NEAR_PRICES)
    grounding = model.ground(relcrf.Dataset(houses(1600, 0, unknown=0.0, areas="w", links=1.5)))
    hidden = np.random.default_rng(0).random(1600) < 0.4
    widths = {}
    for backend in ("dense", "local"):
        prediction = api.predict(api.fit(model, grounding, backend, hidden=hidden), grounding, hidden=hidden)
        assert len(prediction.means()) == hidden.sum()
        for probability in (0.5, 0.9):
            assert abs(coverage(prediction, grounding.numbers, probability) - probability) < 0.06
        widths[backend] = prediction.deviations().mean()
    assert widths["dense"] < 0.9 * widths["local"]
    truth = grounding.numbers[hidden]
    densities = norm.logpdf(truth, prediction.means(), prediction.deviations())
    assert prediction.score().log_likelihood == pytest.approx(densities.mean())
    some = np.arange(1600) < 800
    assert prediction.score(subset=some).log_likelihood == pytest.approx(densities[some[hidden]].mean())


def test_calibrated_intervals_have_their_coverage_with_other_distributions():
    """Errors have heavy tails, so that intervals of normal distributions with probability 0.5 contain too many numbers."""
    rng = np.random.default_rng(0)
    size = rng.normal(size=3000)
    table = {"id": range(3000), "price": 2.0 * size + rng.standard_t(2.2, size=3000), "size": size}
    model = relcrf.parse(
        DECLARATIONS[: DECLARATIONS.index("template area")].replace("kind : Kind\n    area : Area", "")
    )
    grounding = model.ground(relcrf.Dataset({"house": table, "near": {"a": [], "b": []}}))
    hidden = np.arange(3000) >= 600
    fits = [api.fit(model, grounding, "local", hidden=hidden, calibrate=folds) for folds in (0, 5)]
    plain, calibrated = (api.predict(fit, grounding, hidden=hidden) for fit in fits)
    np.testing.assert_array_equal(plain.means(), calibrated.means())
    assert coverage(plain, grounding.numbers, 0.5) > 0.65
    for probability in (0.5, 0.8, 0.95):
        assert abs(coverage(calibrated, grounding.numbers, probability) - probability) < 0.05
    labels = fits[1].learned.calibration_labels["House.price"]
    np.testing.assert_array_equal(labels.variables, np.flatnonzero(~hidden))
    table = calibrated.table(coverage=0.8)
    low, high = calibrated.intervals(coverage=0.8)
    np.testing.assert_array_equal(table["low"], low)
    np.testing.assert_array_equal(table["high"], high)
    assert list(table.columns) == ["id", "price", "deviation", "low", "high"]
    with pytest.raises(UsageError) as error:
        calibrated.intervals(coverage=1.5)
    assert error.value.diagnostics[0].code == "E376"


SEPARATE = f"""{MIXED[: MIXED.index("template")]}
template prior(h: House) over h.kind
template size(h: House) over h.price by 1, h.size
{NEAR_PRICES}"""


@pytest.mark.parametrize(("text", "backend"), [(DECLARATIONS, "local"), (SEPARATE, "auto")])
def test_held_out_numbers_are_those_of_models_trained_without_them(text, backend):
    """This includes unlabelled numbers that are linked to held-out ones, and links if `auto` chooses `local` for the kinds."""
    model = relcrf.parse(text)
    grounding = model.ground(relcrf.Dataset(houses(60, 0, links=2.0)))
    fit = api.fit(model, grounding, backend, calibrate=3)
    assert fit.learned.backend == "local" and ("numbers" in fit.learned.vectors) == (backend == "auto")
    labels = fit.learned.calibration_labels["House.price"]
    for fold in random_folds(api.training_problem(grounding), 3, 0):
        part = api.fit(model, grounding, backend, hidden=fold.test)
        prediction = api.predict(part, grounding, hidden=fold.test)
        error = grounding.numbers[prediction.variables("price")] - prediction.means("price")
        tails = 2.0 * norm.sf(np.abs(error) / prediction.deviations("price"))
        held_out = fold.test[prediction.variables("price")]
        np.testing.assert_allclose(labels.probabilities[fold.test[labels.variables]], tails[held_out])
    assert len(labels.variables) == (~np.isnan(grounding.numbers)).sum()


def test_numbers_and_values_have_different_predictions():
    _, prediction = predict(MIXED, houses(40, 0, unknown_kinds=0.3))
    for read, attribute in (
        (prediction.probabilities, "price"),
        (prediction.sets, "price"),
        (prediction.means, "kind"),
        (prediction.intervals, "kind"),
    ):
        with pytest.raises(UsageError) as error:
            read(attribute)
        assert error.value.diagnostics[0].code == "E379"
    assert len(prediction.table("kind")) == len(prediction.variables("kind"))


def test_actions_that_do_not_support_numbers_raise_e379():
    data = relcrf.Dataset(houses(40, 0))
    model = relcrf.parse(DECLARATIONS)
    fit, grounding = model.fit(data, "dense"), model.ground(data)
    for action in (
        lambda: fit.flips(data, "House/0"),
        lambda: pareto(grounding, (0.1, 1.0), random_folds(api.training_problem(grounding), 2, 0)),
    ):
        with pytest.raises(UsageError) as error:
            action()
        assert error.value.diagnostics[0].code == "E379"
