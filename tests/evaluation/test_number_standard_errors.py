"""Standard errors of weights of numbers, compared with closed forms, dense distributions and the spread of estimates."""

from dataclasses import replace

import numpy as np
import pytest
from gaussians import dense_distribution
from houses import DECLARATIONS, MIXED, NEAR_PRICES, houses
from scipy.stats import multivariate_normal

import relcrf
from relcrf import api
from relcrf.backends.numeric_targets import number_problem
from relcrf.backends.problems import training_problem
from relcrf.errors import UsageError
from relcrf.evaluation.named_weights import standard_errors_from_data
from relcrf.evaluation.standard_errors import MAX_SOLVED_WEIGHTS
from relcrf.inference import gaussian, gaussian_estimates
from relcrf.learning.gaussian_likelihood import NumberWeights

REGRESSION = "entity E { predict y : real  x : real  z : real }\ntemplate slope(e: E) over e.y by e.x, e.z"
CHAIN = """entity E { predict y : real  x : real }
relation R(a: E, b: E)
template slope(e: E) over e.y by e.x
template link(a: E, b: E) where R(a, b) over a.y, b.y"""


def regression(n=80, unit=1.0):
    rng = np.random.default_rng(0)
    x, z, noise = rng.normal(size=(3, n))
    return {"e": {"id": range(n), "x": x * unit, "z": z, "y": (3.0 + x - 2.0 * z + 0.5 * noise).tolist()}}


@pytest.mark.parametrize("unit", [1.0, 1e4])
@pytest.mark.parametrize("backend", ["auto", "dense", "local"])
def test_linear_regression_equals_closed_form(backend, unit):
    """The covariance of the coefficients is that of ordinary least squares, or of ridge regression with a penalty."""
    tables = regression(unit=unit)
    data = relcrf.Dataset(tables)
    for l2 in (1e-9, 5.0) if backend == "dense" else (None,):
        settings = {} if l2 is None else {"l2": l2, "tolerance": 1e-9}
        fit = relcrf.parse(REGRESSION).fit(data, backend, **settings)
        found = fit.weights(data).to_dicts()
        precision = np.exp(fit.learned.vectors["independent_numbers"][1])
        design = np.column_stack((tables["e"]["x"], tables["e"]["z"], np.ones(80)))
        strength = fit.summary["numeric_l2"] * np.append((design[:, :2] ** 2).mean(axis=0), 0.0)
        expected = np.sqrt(np.linalg.inv(precision * (design.T @ design + np.diag(strength))).diagonal())
        errors = [row["standard_error"] for row in found if row["pattern"] == "mean"]
        np.testing.assert_allclose(errors, expected[:2], rtol=1e-2 if l2 is None or l2 > 1.0 else 1e-4)
        assert all(np.isnan(row["standard_error"]) for row in found if row["pattern"] != "mean")


def plain_information(fit, grounding, step=1e-3):
    """Return the Hessian of the penalised dense log density in the units of the optimiser, by differences of its values."""
    problem = number_problem(training_problem(grounding))
    graph, known = problem.graph, ~np.isnan(problem.values)
    point = problem.start_at(
        NumberWeights(fit.learned.vectors["weights"], fit.learned.vectors["numbers"].reshape(-1, 2))
    )
    alone = problem.labelled().without_pairs()
    one = fit.learned.log[[entry["stage"] for entry in fit.learned.log].index("all numbers") - 1]
    assert one["stage"] == "single numbers" and not alone.graph.n_pairs
    n = len(problem.indices)

    def value(at):
        mean, covariance = dense_distribution(graph, problem.weights_at(at))
        density = multivariate_normal(mean[known], covariance[np.ix_(known, known)]).logpdf(problem.values[known])
        own = problem.precisions(at)
        strength = problem.strength(float(fit.summary["numeric_l2"]))
        strength[: len(problem.kinds[0])] = 0.0  # of the test, means have no penalty
        return -density + 0.5 * strength @ at[:n] ** 2 + 0.5 * (own - np.log(own)).sum()

    size = len(point)
    steps = step * np.eye(size)
    hessian = np.empty((size, size))
    for i in range(size):
        for j in range(size):
            corners = [value(point + a * steps[i] + b * steps[j]) for a in (1, -1) for b in (1, -1)]
            hessian[i, j] = (corners[0] - corners[1] - corners[2] + corners[3]) / (4.0 * step**2)
    return problem, hessian


def test_errors_of_linked_numbers_equal_the_dense_information():
    data = relcrf.Dataset(houses(40, 2, unknown=0.2))
    text = DECLARATIONS.replace("by 1, h.size", "by h.size l2 0.0").replace("per h.area", "per h.area l2 0.0")
    text = text.split("template area")[0] + NEAR_PRICES
    fit = relcrf.parse(text).fit(data, "dense", tolerance=1e-9, max_iterations=2000)
    grounding = fit.ground(data)
    errors = standard_errors_from_data(fit.learned, grounding)
    problem, hessian = plain_information(fit, grounding)
    expected = problem.units * np.sqrt(np.linalg.inv(hessian).diagonal())[: len(problem.indices)]
    np.testing.assert_allclose(errors.values[problem.indices], expected, rtol=1e-3)
    assert len(problem.indices) == 3 and errors.is_maximum and "exact observed information" in errors.source


@pytest.mark.parametrize("backend", ["dense", "ess", "pseudo"])
def test_errors_equal_the_spread_of_estimates(backend):
    """Numbers are sampled in chains of five."""
    n, rng = 150, np.random.default_rng(1)
    first = np.array([5 * k + j for k in range(n // 5) for j in range(4)])
    x = rng.normal(size=n)
    tables = {"e": {"id": range(n), "x": x, "y": x.tolist()}, "r": {"a": first, "b": first + 1}}
    model = relcrf.parse(CHAIN)
    grounding = model.ground(relcrf.Dataset(tables))
    precision = np.eye(5)
    for j in range(4):
        precision[j : j + 2, j : j + 2] += [[2.0, -1.0], [-1.0, 2.0]]
    root = np.linalg.cholesky(np.linalg.inv(precision))
    estimates, errors = [], []
    for k in range(40):
        y = 2.0 * x + (rng.normal(size=(n // 5, 5)) @ root.T).ravel()
        sample = replace(grounding, given_numbers=y)
        fit = api.fit(model, sample, backend, l2=1e-6)
        estimates.append(fit.learned.vectors["weights"])
        if k % 4 == 0:
            found = standard_errors_from_data(fit.learned, sample)
            errors.append(found.values)
    learned = ~np.isnan(errors[0])
    spread = np.std(estimates, axis=0, ddof=1)[learned]
    mean_error = np.mean(errors, axis=0)[learned]
    assert spread[0] == pytest.approx(mean_error[0], rel=0.3)  # 40 samples have a relative error of a tenth
    assert ("sandwich" in found.source) == (backend == "pseudo")


def test_structure_weights_have_no_errors():
    data = relcrf.Dataset(houses(60, 0))
    fit = relcrf.parse(DECLARATIONS + NEAR_PRICES).fit(data, "ess", weights="pairs")
    with pytest.raises(UsageError, match="E357"):
        fit.weights(data)


def test_models_with_categories_have_errors_of_all_weights():
    data = relcrf.Dataset(houses(120, 0))
    fit = relcrf.parse(MIXED + NEAR_PRICES).fit(data, "dense", inference="jt")
    found = fit.weights(data)
    by_template = {
        name: found["standard_error"][found["template"] == name] for name in ("prior", "same", "kind", "near")
    }
    assert all((errors > 0.0).all() for errors in by_template.values())
    discrete = relcrf.parse(MIXED.replace("predict price", "price").split("template size")[0])
    alone = discrete.fit(data, "dense", inference="jt").weights(data)
    for name in ("prior", "same"):
        np.testing.assert_allclose(by_template[name], alone["standard_error"][alone["template"] == name], rtol=1e-3)


def test_many_weights_are_solved_one_by_one(monkeypatch):
    data = relcrf.Dataset(houses(60, 0))
    fit = relcrf.parse(DECLARATIONS + NEAR_PRICES).fit(data, "dense")
    grounding = fit.ground(data)
    whole = standard_errors_from_data(fit.learned, grounding).values
    monkeypatch.setattr("relcrf.evaluation.standard_errors.MAX_DENSE_WEIGHTS", 3)
    requested = np.arange(len(whole)) % 2 == 0
    some = standard_errors_from_data(fit.learned, grounding, requested=requested).values
    np.testing.assert_array_equal(~np.isnan(some), requested & ~np.isnan(whole))
    assert 0 < (~np.isnan(some)).sum() <= MAX_SOLVED_WEIGHTS
    np.testing.assert_allclose(some[~np.isnan(some)], whole[~np.isnan(some)], rtol=1e-2)


def test_estimated_likelihoods_are_reported(monkeypatch):
    monkeypatch.setattr(gaussian, "MAX_FACTOR_ENTRIES", -1)
    monkeypatch.setattr(gaussian_estimates, "PROBED_NUMBERS", 200)
    data = relcrf.Dataset(houses(40, 0))
    fit = relcrf.parse(DECLARATIONS + NEAR_PRICES).fit(data, "dense")
    assert "estimate of the observed" in standard_errors_from_data(fit.learned, fit.ground(data)).source
