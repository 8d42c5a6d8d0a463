"""Requests for numbers, compared with dense Bayesian linear regression with correlated noise, and with enumeration."""

import csv
import json

import numpy as np
import pytest
from gaussians import dense_distribution
from houses import DECLARATIONS, KIND_LEVELS, MIXED, NEAR, NEAR_PRICES, houses
from tables import write_tables
from trains import LINKS, TOGETHER, TRAINS, trains

import relcrf
from relcrf import api
from relcrf.backends import mean_uncertainty
from relcrf.backends.number_model import NumberModel
from relcrf.backends.problems import numeric_targets
from relcrf.errors import DataError, UsageError
from relcrf.evaluation.number_active_learning import MIN_REDUCTION
from relcrf.graph.numeric_graph import numeric_graph
from relcrf.inference import gaussian

L2 = 0.5


def fitted(text, tables, backend="dense", **settings):
    data = relcrf.Dataset(tables)
    fit = relcrf.parse(text).fit(data, backend, **{"l2": L2, **settings})
    return fit, fit.ground(data)


def plain_posterior(fit, grounding):
    """Return the variables of all numbers, and their covariance given the known ones, with the uncertainty of means."""
    model = NumberModel.from_vectors(fit.learned.vectors)
    weights, graph = model.weights, numeric_graph(numeric_targets(grounding), grounding.states)
    known = np.flatnonzero(~np.isnan(grounding.numbers[graph.variables]))
    _, covariance = dense_distribution(model.select(graph, ~np.isnan(grounding.numbers[graph.variables])), weights)
    features = graph.mean.toarray()
    features = features[:, (features != 0.0).any(axis=0)]
    squares = (features**2).sum(axis=0) / (features != 0.0).sum(axis=0)
    precision = np.exp(weights.log_precision(graph).mean())
    # The mean of the attribute has a flat prior.
    prior = np.append(1.0 / (L2 * precision * squares), 1e5 * covariance.diagonal().max())
    features = np.column_stack((features, np.ones(len(features))))
    covariance = covariance + (features * prior) @ features.T
    gain = np.linalg.solve(covariance[np.ix_(known, known)], covariance[known])
    return graph.variables, covariance - covariance[:, known] @ gain, np.nanvar(grounding.numbers)


@pytest.mark.parametrize(
    ("text", "backend"),
    [
        (DECLARATIONS + NEAR, "dense"),
        (DECLARATIONS + NEAR, "ess"),
        (DECLARATIONS + KIND_LEVELS + NEAR_PRICES, "pseudo"),
        (DECLARATIONS + NEAR, "local"),
        (DECLARATIONS, "dense"),
    ],
)
def test_batch_reduces_the_sum_of_variances_greedily(text, backend):
    fit, grounding = fitted(text, houses(40, 3, unknown=0.6), backend)
    variables, covariance, unit = plain_posterior(fit, grounding)
    unknown = np.flatnonzero(np.isnan(grounding.numbers[variables]))
    covariance = covariance[np.ix_(unknown, unknown)]
    found = fit.ask(grounding, 6)
    assert found.expected_rmse == pytest.approx(np.sqrt(covariance.diagonal().mean()), rel=1e-4)
    assert found.n_candidates == len(unknown) and found.verdict.status == "exact"
    now, left = covariance.diagonal().copy(), list(range(len(unknown)))
    for request, variable in zip(found.requests, found.variables, strict=True):
        gains = {k: (covariance[k] ** 2).sum() / covariance[k, k] / unit for k in left}
        best = max(gains, key=gains.get)
        assert variables[unknown[best]] == variable and request.gain == pytest.approx(gains[best], rel=1e-4)
        assert request.deviation == pytest.approx(np.sqrt(now[best]), rel=1e-4)
        assert request.own == pytest.approx(covariance[best, best] / unit, rel=1e-4)
        assert request.gain == pytest.approx(request.own + request.graph + request.weights)
        reduction = covariance[best] ** 2 / covariance[best, best]
        affected = reduction >= MIN_REDUCTION * covariance.diagonal()
        assert request.n_affected == affected[[k for k in left if k != best]].sum()
        covariance = covariance - np.outer(covariance[best], covariance[best]) / covariance[best, best]
        left.remove(best)
    assert found.expected_rmse_after == pytest.approx(
        np.sqrt(covariance.diagonal()[left].sum() / len(unknown)), rel=1e-4
    )


def test_means_are_those_of_predictions():
    fit, grounding = fitted(DECLARATIONS + NEAR, houses(40, 3, unknown=0.5))
    prediction, found = api.predict(fit, grounding), fit.ask(grounding, 3)
    rows = np.searchsorted(prediction.variables(), found.variables)
    np.testing.assert_allclose([request.mean for request in found.requests], prediction.means()[rows])
    assert all(r.deviation >= d for r, d in zip(found.requests, prediction.deviations()[rows], strict=True))


def test_hidden_numbers_candidates_and_costs():
    tables = houses(40, 3, unknown=0.5)
    tables["house"]["minutes"] = 1 + np.arange(40) % 3
    fit, grounding = fitted(DECLARATIONS + NEAR, tables)
    hidden = ~np.isnan(grounding.numbers) & (np.arange(40) % 2 == 0)
    found = fit.ask(grounding, 7, cost="minutes", hidden=hidden, candidates=hidden)
    assert found.n_candidates == hidden.sum() and hidden[found.variables].all()
    assert 5 <= found.total_cost <= 7
    assert [r.cost for r in found.requests] == (1 + found.variables % 3).tolist()
    changed = {**tables, "house": {**tables["house"]}}
    changed["house"]["price"] = [
        999.0 if h else p for p, h in zip(tables["house"]["price"], hidden.tolist(), strict=True)
    ]
    again = fit.ask(relcrf.Dataset(changed), 7, cost="minutes", hidden=hidden, candidates=hidden)
    assert [r.gain for r in again.requests] == [r.gain for r in found.requests]  # hidden values are not used
    with pytest.raises(DataError, match="E446"):
        fit.ask(grounding, 3, candidates=~np.isnan(grounding.numbers))
    with pytest.raises(UsageError, match="E448"):
        fit.ask(grounding, 0.5)


def test_links_and_weights_are_reasons():
    fit, grounding = fitted(DECLARATIONS + KIND_LEVELS + NEAR_PRICES, houses(200, 1, unknown=0.4, links=3.0))
    linked = [request for request in fit.ask(grounding, 10).requests if request.neighbours]
    assert linked and all(0.0 < gain <= request.graph for request in linked for _, gain in request.neighbours)
    assert any("informs House(" in request.reason for request in linked)
    fit, grounding = fitted(DECLARATIONS, houses(60, 1, unknown=0.9))
    assert "informs weights" in fit.ask(grounding, 1).requests[0].reason


def test_numbers_of_unknown_categories():
    """Their deviations are those of the prediction or larger, and a choice reduces the expected error."""
    tables = houses(40, 0, unknown=0.4, unknown_kinds=0.5)
    fit, grounding = fitted(MIXED + NEAR_PRICES, tables)
    assert_uncertain_numbers_are_chosen(fit, grounding, "price")
    with pytest.raises(UsageError, match="E310"):
        fit.ask(grounding, 3)
    fit = relcrf.parse(TRAINS + TOGETHER + LINKS).fit(relcrf.Dataset(trains(100, 0)), "dense")
    grounding = fit.ground(relcrf.Dataset(trains(40, 1, unknown=0.4, unknown_categories=0.6)))
    assert_uncertain_numbers_are_chosen(fit, grounding, "delay")


def assert_uncertain_numbers_are_chosen(fit, grounding, attribute):
    prediction, found = api.predict(fit, grounding), fit.ask(grounding, 40, attribute=attribute)
    assert set(found.variables) == set(prediction.variables(attribute))
    order = np.searchsorted(prediction.variables(attribute), found.variables)
    deviations = prediction.deviations(attribute)[order]
    assert all(r.deviation >= d * (1 - 1e-9) for r, d in zip(found.requests, deviations, strict=True))
    assert found.expected_rmse_after == pytest.approx(0.0, abs=1e-9)


def test_categories_in_models_with_numbers():
    """Known numbers are evidence about the categories, whose entropies are those of the prediction."""
    fit, grounding = fitted(MIXED, houses(40, 0, unknown=0.1, unknown_kinds=0.5))
    prediction, found = api.predict(fit, grounding), fit.ask(grounding, 4, attribute="kind")
    probabilities = prediction.probabilities("kind")
    assert found.expected_errors == pytest.approx((1.0 - probabilities.max(axis=1)).sum())
    for variable, request in zip(found.variables, found.requests, strict=True):
        row = probabilities[np.searchsorted(prediction.variables("kind"), variable)]
        assert request.probability == pytest.approx(row.max())
        assert request.own <= -(row * np.log(row)).sum() + 1e-9


def test_numbers_of_other_tables_determine_the_weights():
    """The uncertainty of the weights on tables without known numbers is like that on the training tables."""
    fit, grounding = fitted(DECLARATIONS, houses(200, 3, unknown=0.5), l2=1e-6)
    here, other = fit.ask(grounding, 1), fit.ask(relcrf.Dataset(houses(100, 4, unknown=1.0)), 1)
    assert other.expected_rmse == pytest.approx(here.expected_rmse, rel=0.05)
    deviations = fit.predict(relcrf.Dataset(houses(100, 4, unknown=1.0))).deviations()
    assert 1.01 < other.expected_rmse / np.sqrt((deviations**2).mean()) < 1.2


def test_units_do_not_matter():
    found = []
    for unit in (1.0, 1e6):
        tables = houses(40, 3, unknown=0.6, unit=unit)
        tables["house"]["size"] = tables["house"]["size"] * unit
        fit, grounding = fitted(DECLARATIONS + NEAR_PRICES, tables, tolerance=1e-9)
        found.append(fit.ask(grounding, 5))
    np.testing.assert_array_equal(found[0].variables, found[1].variables)
    np.testing.assert_allclose([r.gain for r in found[1].requests], [r.gain for r in found[0].requests], rtol=1e-3)
    assert found[1].expected_rmse == pytest.approx(1e6 * found[0].expected_rmse, rel=1e-3)


def test_unit_of_gains_of_equal_numbers():
    """Their computed variance, a rounding error, is not the unit; the learned variance is."""
    tables = houses(20, 3, unknown=0.5)
    tables["house"]["price"] = [None if each is None else 0.1 for each in tables["house"]["price"]]
    fit, grounding = fitted(DECLARATIONS, tables)
    assert 0.5 < fit.ask(grounding, 1).requests[0].gain < 10.0


def test_large_graphs_and_many_weights_are_reported(monkeypatch):
    fit, grounding = fitted(DECLARATIONS + NEAR, houses(60, 1, unknown=0.5))
    exact = fit.ask(grounding, 5)
    monkeypatch.setattr(gaussian, "MAX_FACTOR_ENTRIES", -1)
    estimated = fit.ask(grounding, 5)
    assert "estimated from 64 samples" in estimated.verdict.remark
    assert estimated.expected_rmse_after == pytest.approx(exact.expected_rmse_after, rel=0.05)
    monkeypatch.setattr(mean_uncertainty, "MAX_WEIGHTS", 3)
    limited = fit.ask(grounding, 5)
    assert "uncertainty of 3 of 7 weights" in limited.verdict.remark
    assert limited.expected_rmse < estimated.expected_rmse


def test_command(tmp_path, relcrf_):
    tables = houses(40, 3, unknown=0.6)
    relcrf.parse(DECLARATIONS + NEAR).fit(relcrf.Dataset(tables)).save(tmp_path / "run")
    rows = {
        name: [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        for name, columns in tables.items()
    }
    folder = write_tables(tmp_path / "tables", **rows)
    options = ("ask", str(tmp_path / "run"), "--data", str(folder), "--budget", "3")
    code, out, err = relcrf_(*options, "--json", "--out", str(tmp_path / "numbers.csv"))
    assert code == 0, err
    facts = json.loads(out)
    with (tmp_path / "numbers.csv").open(newline="") as file:
        written = list(csv.DictReader(file))
    assert [f"House({row['id']}).price" for row in written] == [each["variable"] for each in facts["requests"]]
    assert {row["price"] for row in written} == {""}
    assert [float(row["mean"]) for row in written] == [each["mean"] for each in facts["requests"]]
    assert facts["expected_rmse_after"] < facts["expected_rmse"]
    code, out, _ = relcrf_(*options)
    assert code == 0 and "gain in variances" in out and "expected root mean squared error" in out
