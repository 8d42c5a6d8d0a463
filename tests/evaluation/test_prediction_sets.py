"""Prediction sets of trained models: the held-out labels of training, coverage on new labels, and measures of evaluations."""

from dataclasses import replace

import numpy as np
import pytest

import relcrf
from relcrf import api
from relcrf.backends.calibration_labels import CalibrationLabels
from relcrf.backends.nearby_labels import nearby_min_probabilities
from relcrf.errors import UsageError
from relcrf.evaluation.predictions import MAJORITY
from relcrf.evaluation.splits import random_folds
from relcrf.graph.adjacency import adjacency_matrix
from relcrf.resources import resource_path

PAGES = 120


def make_web(n_sites, seed=0):
    """Return pages with weakly informative words, and links within sites."""
    rng = np.random.default_rng(seed)
    kinds = np.array(["course", "faculty", "student"], dtype=object)
    kind, site = rng.integers(3, size=PAGES), np.arange(PAGES) % n_sites
    words = np.where(rng.random((PAGES, 6)) < 0.15, kind[:, None], rng.integers(40, size=(PAGES, 6)))
    pairs = rng.integers(PAGES, size=(3000, 2))
    alike = (kind[pairs[:, 0]] == kind[pairs[:, 1]]) | (rng.random(3000) < 0.3)
    pairs = pairs[(site[pairs[:, 0]] == site[pairs[:, 1]]) & (pairs[:, 0] != pairs[:, 1]) & alike][:150]
    ids = np.array([f"p{k:03}" for k in range(PAGES)], dtype=object)
    tables = {
        "page": {"id": ids, "category": kinds[kind]},
        "link": {"source": ids[pairs[:, 0]], "target": ids[pairs[:, 1]]},
        "page_word": {"page": np.repeat(ids, 6), "word": [f"w{k}" for k in words.ravel()]},
    }
    model = relcrf.load(resource_path("models", "webkb.rcrf"))
    return model, model.ground(relcrf.Dataset(tables))


@pytest.fixture(scope="module")
def web():
    return make_web(2)


def test_held_out_probabilities_are_those_of_models_trained_without_the_labels(web):
    model, grounding = web
    fit = api.fit(model, grounding, "pseudo", calibrate=3, inference="bp")
    labels, scale = fit.learned.calibration_labels["Page.category"], fit.summary["calibration"]
    np.testing.assert_array_equal(labels.variables, np.arange(PAGES))
    np.testing.assert_array_equal(labels.states, grounding.states)
    for fold in random_folds(api.training_problem(grounding), 3, 0):
        part = api.fit(model, grounding, "pseudo", hidden=fold.test, inference="bp")
        part.learned.vectors["weights"][:] *= scale
        marginals = api.predict(part, grounding, hidden=fold.test).probabilities()
        expected = marginals[np.arange(len(marginals)), grounding.states[fold.test]]
        np.testing.assert_allclose(labels.probabilities[fold.test], expected)


@pytest.mark.parametrize(("backend", "settings"), [("auto", {"effort": "quick"}), ("propagate", {})])
def test_the_default_backend_holds_out_labels_and_others_do_not(web, backend, settings):
    model, grounding = web
    fit = api.fit(model, grounding, backend, hidden=np.arange(PAGES) < 40, **settings)
    prediction = api.predict(fit, grounding, hidden=np.arange(PAGES) < 40)
    if backend == "propagate":
        with pytest.raises(UsageError) as error:
            prediction.sets(coverage=0.9)
        assert error.value.diagnostics[0].code == "E375"
        return
    labels = fit.learned.calibration_labels["Page.category"]
    np.testing.assert_array_equal(labels.variables, np.arange(40, PAGES))
    sets, probabilities = prediction.sets(coverage=0.8), prediction.probabilities()
    expected = (probabilities >= labels.min_probability(0.8)) | (
        probabilities == probabilities.max(axis=1, keepdims=True)
    )
    np.testing.assert_array_equal(sets, expected)
    column = prediction.table(coverage=0.8)["set"]
    values = prediction.block(None).values
    for text, row, mask in zip(column, probabilities, sets, strict=True):
        assert text.split(", ") == [values[k] for k in np.argsort(-row) if mask[k]]
    assert "set" not in prediction.table().columns


def test_run_folder_contains_the_held_out_labels(web, tmp_path):
    model, grounding = web
    fit = api.fit(model, grounding, "local", calibrate=2)
    fit.save(tmp_path / "run")
    loaded, held_out = api.load_fit(tmp_path / "run"), fit.learned.calibration_labels["Page.category"]
    for name in ("variables", "states", "probabilities", "groups"):
        np.testing.assert_array_equal(
            getattr(loaded.learned.calibration_labels["Page.category"], name), getattr(held_out, name)
        )
    np.testing.assert_array_equal(
        api.predict(loaded, grounding).sets(coverage=0.9), api.predict(fit, grounding).sets(coverage=0.9)
    )


def test_components_are_groups_if_they_are_held_out_as_a_whole():
    model, grounding = make_web(24)
    labels = api.fit(model, grounding, "local", calibrate=3).learned.calibration_labels["Page.category"]
    assert (labels.unit, labels.are_components_held_out, labels.note) == ("components", True, "")
    component = grounding.component[labels.variables]
    np.testing.assert_array_equal(labels.groups[:, None] == labels.groups, component[:, None] == component)
    model, grounding = make_web(4)
    new_site = np.arange(PAGES) % 4 == 0
    few = api.fit(model, grounding, "auto", hidden=new_site, effort="quick").learned.calibration_labels["Page.category"]
    assert (few.unit, few.are_components_held_out) == ("labels", True)
    assert "too few connected components" in few.note


def test_coverage_of_hidden_labels_of_one_graph():
    """Labels are resampled from the words and links; the sets of a calibrated model cover the hidden half of them."""
    covered, sizes = [], []
    for seed in range(12):
        model, grounding = make_web(1, seed)
        hidden = np.random.default_rng(seed).random(PAGES) < 0.5
        fit = api.fit(model, grounding, "pseudo", hidden=hidden, calibrate=3, inference="bp", l2=0.01)
        sets = api.predict(fit, grounding, hidden=hidden).sets(coverage=0.9)
        covered.append(sets[np.arange(len(sets)), grounding.states[hidden]].mean())
        sizes.append(sets.sum(axis=1).mean())
    assert np.mean(covered) == pytest.approx(0.9, abs=0.05)
    assert np.mean(sizes) < 2.9  # not all values


def test_sets_of_a_fold_are_calibrated_on_the_other_folds(web):
    _, grounding = web
    evaluation = api.evaluate(grounding, ["local"], "random,folds=3")
    measured = evaluation.measure_sets(0.8)["Page.category"]["local"]
    folds = evaluation.predictions.scored_by_fold("local", "Page.category")
    hits, sizes = [], []
    for number, fold in enumerate(folds):
        others = [one for k, one in enumerate(folds) if k != number]
        known = np.concatenate([one.probabilities[np.arange(len(one.truth)), one.truth] for one in others])
        states = np.concatenate([one.truth for one in others])
        labels = CalibrationLabels(np.arange(len(known)), states, known, np.arange(len(known)), "labels", False)
        sets = labels.prediction_sets(fold.probabilities, 0.8)
        hits.extend(sets[np.arange(len(sets)), fold.truth])
        sizes.extend(sets.sum(axis=1))
    assert (measured.coverage, measured.mean_size) == (np.mean(hits), np.mean(sizes))
    assert measured.low <= measured.coverage <= measured.high and measured.n == PAGES
    assert {*evaluation.measure_sets(0.8)["Page.category"]} == {MAJORITY, "local"}
    by_value = evaluation.measure_sets(0.8, each_value=True)["Page.category"]["local"]
    assert by_value.lowest > measured.lowest and by_value.lowest > 0.7


def test_sets_of_a_run_are_calibrated_on_its_held_out_labels(web):
    model, grounding = web
    fit = api.fit(model, grounding, "local", hidden=np.arange(PAGES) % 3 == 0, calibrate=3)
    evaluation = api.evaluate_run(fit.learned, grounding, "folds=4")
    measured = evaluation.measure_sets(0.9)["Page.category"]
    assert {*measured} == {"local"} and measured["local"].n_calibration == PAGES - PAGES // 3
    without = replace(fit.learned, calibration_labels={})
    assert api.evaluate_run(without, grounding, "folds=4").measure_sets(0.9) == {}


def test_one_fold_has_no_sets_without_a_run(web):
    _, grounding = web
    assert api.evaluate(grounding, ["local"], "hide=0.2").measure_sets(0.9) == {}


def test_sets_from_the_nearest_labels():
    model, grounding = make_web(1)
    hidden = np.arange(PAGES) % 3 == 0
    fit = api.fit(model, grounding, "local", hidden=hidden, calibrate=3)
    prediction, labels = api.predict(fit, grounding, hidden=hidden), fit.learned.calibration_labels["Page.category"]
    near = nearby_min_probabilities(labels, adjacency_matrix(grounding.graph), prediction.variables(), 0.75)
    assert 0 < np.isnan(near).sum() < len(near)  # some pages have few links
    smallest = np.where(np.isnan(near), labels.min_probability(0.75), near)
    probabilities = prediction.probabilities()
    expected = (probabilities >= smallest[:, None]) | (probabilities == probabilities.max(axis=1, keepdims=True))
    sets = prediction.sets(coverage=0.75, nearby=True)
    np.testing.assert_array_equal(sets, expected)
    assert (sets != prediction.sets(coverage=0.75)).any()
    evaluation = api.evaluate_run(fit.learned, grounding, "random,folds=4")
    measured = evaluation.measure_sets(0.75, nearby=True)["Page.category"]["local"]
    assert 0 < measured.n_nearby < measured.n == PAGES
    assert evaluation.measure_sets(0.75)["Page.category"]["local"].n_nearby == 0
    by_fold = api.evaluate(grounding, ["local"], "random,folds=3").measure_sets(0.75, nearby=True)["Page.category"]
    assert by_fold["local"].n_nearby > 0
    for request in (
        lambda: prediction.sets(nearby=True, each_value=True),
        lambda: evaluation.measure_sets(0.75, nearby=True, each_value=True),
    ):
        with pytest.raises(UsageError) as error:
            request()
        assert error.value.diagnostics[0].code == "E376"


def test_nearest_labels_must_be_in_the_data():
    model, grounding = make_web(1)
    fit, other = api.fit(model, grounding, "local", calibrate=3), make_web(1, seed=1)[1]
    hidden = np.arange(PAGES) < 10
    for request in (
        lambda: api.predict(fit, other, hidden=hidden).sets(nearby=True),
        lambda: api.evaluate_run(fit.learned, other, "random,folds=4").measure_sets(0.5, nearby=True),
    ):
        with pytest.raises(UsageError) as error:
            request()
        assert error.value.diagnostics[0].code == "E375"
