"""Selection of settings of models with numbers, and joint log-likelihoods, compared with dense distributions and enumeration."""

from itertools import product

import numpy as np
import pytest
from gaussians import predict_plainly, without
from graphs import joint_score
from houses import DECLARATIONS, MIXED, NEAR, NEAR_PRICES, houses
from tables import write_tables

import relcrf
from relcrf import api
from relcrf.errors import DataError, UsageError
from relcrf.evaluation.splits import random_fold
from relcrf.graph.numeric_graph import discrete_part

GRID = {"l2": (0.1, 10.0, 1000.0)}


@pytest.mark.parametrize("backend", ["dense", "ess", "pseudo", "local"])
def test_selection_equals_manual_search(backend):
    model = relcrf.parse(DECLARATIONS + NEAR)
    grounding = model.ground(relcrf.Dataset(houses(80, 0, links=4.0)))
    found = api.select(grounding, backend, GRID, seed=3)
    held = random_fold(api.training_problem(grounding), 0.2, 3).test
    assert found.n == held.sum() and not found.whole_components
    for row in found.rows:
        fit = api.fit(model, grounding, backend, hidden=held, l2=row["l2"])
        score = api.predict(fit, grounding, hidden=held).score(subset=held)
        assert (row["log_likelihood"], row["mae"]) == pytest.approx((score.log_likelihood, score.mae), abs=1e-12)
    assert found.settings == {"l2": max(found.rows, key=lambda row: row["log_likelihood"])["l2"]}
    assert found.settings["l2"] < 1000.0


def test_whole_components_are_scored_jointly():
    model = relcrf.parse(DECLARATIONS + NEAR)
    grounding = model.ground(relcrf.Dataset(houses(120, 0)))
    found = api.select(grounding, "dense", GRID)
    held = random_fold(api.training_problem(grounding), 0.2, 0).test
    assert found.whole_components
    for row in found.rows:
        fit = api.fit(model, grounding, "dense", hidden=held, l2=row["l2"])
        joint = api.joint_log_likelihood(fit, grounding, hidden=held)
        assert row["log_likelihood"] == pytest.approx(joint / held.sum(), abs=1e-9)


@pytest.mark.parametrize("backend", ["dense", "ess", "local"])
def test_joint_likelihood_of_numbers_is_their_dense_density(backend):
    settings = {"edges": "tree"} if backend == "ess" else {}
    fit = relcrf.parse(DECLARATIONS + NEAR).fit(relcrf.Dataset(houses(60, 0)), backend, **settings)
    grounding = fit.ground(relcrf.Dataset(houses(20, 1)))
    for hidden in (np.arange(20) % 3 == 0, np.ones(20, dtype=bool)):
        _, _, whole = predict_plainly(fit, grounding, grounding.states)
        _, _, rest = predict_plainly(fit, without(grounding, hidden), grounding.states)
        assert api.joint_log_likelihood(fit, grounding, hidden=hidden) == pytest.approx(whole - rest)


@pytest.mark.parametrize(("pairs", "tolerance"), [("", 1e-9), (NEAR_PRICES, 0.02)], ids=["alone", "linked"])
def test_joint_likelihood_of_categories_and_numbers(pairs, tolerance):
    """It is the ratio of enumerated densities; with links, observed numbers are approximate evidence."""
    fit = relcrf.parse(MIXED + pairs).fit(relcrf.Dataset(houses(80, 0, unknown=0.0)), "dense", inference="jt")
    grounding = fit.ground(relcrf.Dataset(houses(6, 2, unknown=0.2)))
    discrete, weights = discrete_part(grounding.graph), fit.learned.vectors["weights"]
    is_kind = np.isnan(grounding.numbers) & (grounding.states >= 0)
    hidden = np.random.default_rng(0).random(len(is_kind)) < 0.5
    assert (hidden & is_kind).any() and (hidden & ~np.isnan(grounding.numbers)).any()

    def log_density(ground, states):
        discrete_states = np.where(is_kind, states, 0)
        return joint_score(discrete, weights, discrete_states) + predict_plainly(fit, ground, states)[2]

    free, logs = np.flatnonzero(hidden & is_kind), []
    for values in product(range(3), repeat=len(free)):
        states = grounding.states.copy()
        states[free] = values
        logs.append(log_density(without(grounding, hidden), states))
    expected = log_density(grounding, grounding.states) - np.logaddexp.reduce(logs)
    assert api.joint_log_likelihood(fit, grounding, hidden=hidden) == pytest.approx(expected, abs=tolerance)


def test_numbers_of_unlabelled_categories_have_no_joint_density():
    fit = relcrf.parse(MIXED).fit(relcrf.Dataset(houses(40, 0)), "dense")
    with pytest.raises(DataError, match="E379"):
        api.joint_log_likelihood(fit, fit.ground(relcrf.Dataset(houses(40, 0, unknown_kinds=0.3))))


def test_categories_and_numbers_are_scored_together():
    grounding = relcrf.parse(MIXED).ground(relcrf.Dataset(houses(60, 0, links=4.0)))
    found = api.select(grounding, "dense", {"l2": (0.1, 10.0)}, by="accuracy")
    assert {"log_likelihood", "accuracy", "mae"} <= found.rows[0].keys()
    assert found.settings["l2"] == max(found.rows, key=lambda row: row["accuracy"])["l2"]


def test_numbers_have_no_accuracy():
    grounding = relcrf.parse(DECLARATIONS).ground(relcrf.Dataset(houses(60, 0)))
    with pytest.raises(UsageError, match="E317"):
        api.select(grounding, "dense", GRID, by="accuracy")


def test_command(tmp_path, relcrf_json):
    tables = houses(60, 0)
    rows = {
        name: [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        for name, columns in tables.items()
    }
    folder = write_tables(tmp_path / "tables", **rows)
    (tmp_path / "prices.rcrf").write_text(DECLARATIONS + NEAR)
    options = ("--backend", "dense", "--select", "l2=0.1,1000", "--out", tmp_path / "run")
    code, found = relcrf_json("train", tmp_path / "prices.rcrf", "--data", folder, *options)
    assert code == 0 and found["settings"] == {"l2": 0.1} and "mae" in found["selection"][0]
