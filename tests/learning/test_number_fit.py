"""Penalised likelihood of numbers: gradients, optima against ridge regression, and invariance to units."""

from dataclasses import replace

import numpy as np
import pytest
from gaussians import random_numeric_graph
from objectives import finite_differences
from scipy import optimize, sparse

from relcrf.graph.numeric_graph import NumericGraph
from relcrf.graph.weights import WeightBlock, WeightLayout
from relcrf.learning.gaussian_likelihood import GaussianLikelihood, GaussianPseudoLikelihood
from relcrf.learning.lbfgs import Lbfgs
from relcrf.learning.number_fit import NumberProblem, minimise

LAYOUT = WeightLayout((WeightBlock("a", 3, 1, 0.1), WeightBlock("b", 3, 1, -0.5, l2=3.0)))
PRECISE = Lbfgs(1e-9, value_tolerance=0.0, max_iterations=2000)
KINDS = ((0, 3), (1, 4), (2,), (5,))
"""The columns of means, log precisions, differences and sums."""


def random_problem(seed, n=12, n_pairs=15, unknown=0.3):
    rng = np.random.default_rng(seed)
    values = np.where(rng.random(n) < unknown, np.nan, rng.normal(size=n) * 5.0 + 3.0)
    return NumberProblem(random_numeric_graph(rng, n, n_pairs, KINDS), values, LAYOUT, np.ones(6, dtype=bool), 2)


def learn(problem, precisions=None, l2=2.0, likelihood=GaussianLikelihood):
    function = likelihood(problem.graph, problem.values)
    return minimise(problem, function, l2, problem.start(), PRECISE, lambda state: None, precisions).point


@pytest.mark.parametrize("precisions", [None, np.array([0.3, 2.0])], ids=["lambda", "constants"])
@pytest.mark.parametrize("seed", range(5))
def test_gradient(seed, precisions):
    problem = random_problem(seed)
    likelihood = GaussianLikelihood(problem.graph, problem.values)
    objective = problem.objective(likelihood, 2.0, precisions)
    point = problem.start() + np.random.default_rng(seed).normal(size=len(problem.start())) * 0.3
    value, gradient = objective(point)
    np.testing.assert_allclose(gradient, finite_differences(objective, point), rtol=1e-5, atol=1e-5)
    assert value == pytest.approx(penalised_plainly(problem, likelihood, point, 2.0, precisions))


def penalised_plainly(problem, likelihood, point, l2, precisions):
    """Return the objective as the docstring of `NumberProblem` defines it."""
    graph, learned = problem.graph, problem.weights_at(point)
    logs = learned.log_precision(graph)
    own = np.array([np.exp(logs[graph.attribute == k].mean()) * problem.location[k, 1] ** 2 for k in range(2)])
    known = ~np.isnan(problem.values)
    value = likelihood(learned)[0] - np.log(problem.location[graph.attribute[known], 1]).sum()
    value += 0.5 * (own - np.log(own)).sum()
    strengths = {0: l2, 3: 3.0, 1: 1.0, 4: 3.0, 2: 0.25, 5: 0.75}
    for unit, index in zip(problem.units, problem.indices, strict=True):
        cost = 0.5 * strengths[index] * ((learned.weights[index] - LAYOUT.initial()[index]) / unit) ** 2
        if index in KINDS[0]:
            first = graph.attribute[np.flatnonzero(graph.mean.toarray()[:, index])[0]]
            cost *= (own if precisions is None else precisions)[first]
        value += cost
    return value


def regression(seed=0, n=40, shift=0.0, scale=1.0, feature_scale=1.0):
    """Return the problem of one attribute and three features, their matrix, and the numbers."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3)) * (1.0, 20.0, 0.05)
    y = (x @ (1.0, -0.1, 30.0) + rng.normal(size=n)) * scale + shift
    x = x * (1.0, feature_scale, 1.0)
    none, empty = np.empty(0, dtype=np.int32), sparse.csr_matrix((0, 3))
    log_precision = sparse.csr_matrix((n, 3))
    attribute = np.zeros(n, dtype=np.int64)
    graph = NumericGraph(np.arange(n), attribute, sparse.csr_matrix(x), log_precision, none, none, empty, empty, none)
    return NumberProblem(graph, y, WeightLayout((WeightBlock("x", 3, 1),)), np.ones(3, dtype=bool), 1), x, y


@pytest.mark.parametrize("l2", [0.01, 1.0, 100.0])
def test_optimum_without_pairs_is_ridge_regression(l2):
    """The mean is not penalised; the precision maximises n log p - p (squared errors + penalty) + the prior in closed form."""
    problem, x, y = regression()
    found = problem.weights_at(learn(problem, l2=l2))
    scale = np.sqrt((x**2).mean(axis=0))
    centered, error = (x - x.mean(axis=0)) / scale, y - y.mean()
    v = np.linalg.solve(centered.T @ centered + l2 * np.eye(3), centered.T @ error)
    np.testing.assert_allclose(found.weights, v / scale, rtol=1e-5)
    assert found.offset[0, 0] == pytest.approx(y.mean() - x.mean(axis=0) @ (v / scale))
    cost = ((error - centered @ v) ** 2).sum() + l2 * (v @ v)
    assert np.exp(found.offset[0, 1]) == pytest.approx((len(y) + 1.0) / (cost + y.var()), rel=1e-5)


@pytest.mark.parametrize("likelihood", [GaussianLikelihood, GaussianPseudoLikelihood])
def test_gradient_is_0_at_the_optimum_with_pairs_and_other_optimisers_find_no_better_point(likelihood):
    problem = random_problem(2, n=30, n_pairs=30, unknown=0.0 if likelihood is GaussianPseudoLikelihood else 0.3)
    constants = np.array([1.5, 0.7])
    point = learn(problem, constants, likelihood=likelihood)
    objective = problem.objective(likelihood(problem.graph, problem.values), 2.0, constants)
    value, gradient = objective(point)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-4)
    other = optimize.minimize(objective, point + 0.3, jac=True, method="BFGS")
    assert value <= other.fun + 1e-6


def test_units_of_numbers_and_features_do_not_matter():
    first, second = regression(), regression(shift=-5e4, scale=1000.0, feature_scale=1000.0)
    found, other = (problem.weights_at(learn(problem)) for problem, _, _ in (first, second))
    graph, other_graph = first[0].graph, second[0].graph
    np.testing.assert_allclose(other.mean(other_graph), found.mean(graph) * 1000.0 - 5e4, rtol=1e-6)
    np.testing.assert_allclose(other.weights, found.weights * (1000.0, 1.0, 1000.0), rtol=1e-4)
    assert other.offset[0, 1] == pytest.approx(found.offset[0, 1] - 2.0 * np.log(1000.0), abs=1e-5)


@pytest.mark.parametrize("value", [0.0, 0.1, 3.7])
@pytest.mark.parametrize("n", [3, 7, 10])
def test_deviation_of_equal_numbers_does_not_depend_on_rounding(value, n):
    """The mean of seven times 0.1 is not 0.1, so that the computed deviation is 1.4e-17."""
    problem = replace(regression(n=n)[0], values=np.full(n, value))
    np.testing.assert_allclose(problem.location, [[value, 1.0]], rtol=1e-15)
    assert problem.weights_at(learn(problem)).offset[0, 1] == pytest.approx(np.log(n + 1.0), rel=1e-5)


def test_points_of_one_problem_continue_in_another():
    problem = random_problem(2, unknown=0.0)
    alone = replace(problem, graph=problem.graph.without_pairs())
    assert alone.indices.tolist() == [0, 3, 1, 4] and problem.indices.tolist() == [0, 3, 1, 4, 2, 5]
    np.testing.assert_allclose(problem.weights_at(problem.start()).weights, LAYOUT.initial())
    point = alone.start() + np.arange(8.0)
    found, expected = problem.weights_at(problem.start_at(alone.weights_at(point))), alone.weights_at(point)
    np.testing.assert_allclose(found.weights, expected.weights)
    np.testing.assert_allclose(found.offset, expected.offset)
    logs = expected.log_precision(alone.graph)
    means = [logs[alone.graph.attribute == k].mean() for k in range(2)]
    np.testing.assert_allclose(alone.precisions(point), np.exp(means) * problem.location[:, 1] ** 2)


def test_location_of_attributes_and_of_those_without_spread():
    problem = random_problem(0)
    attribute = problem.graph.attribute
    values = [problem.values[attribute == k] for k in range(2)]
    np.testing.assert_allclose(problem.location, [(np.nanmean(v), np.nanstd(v)) for v in values])
    constant = replace(problem, values=np.where(attribute == 0, 7.0, np.nan))
    assert constant.location.tolist() == [[7.0, 1.0], [0.0, 1.0]]
    point = learn(constant)
    assert np.isfinite(point).all() and constant.weights_at(point).offset[0, 0] == pytest.approx(7.0, abs=0.5)


def test_weights_that_may_not_be_learned_keep_their_initial_values():
    problem = replace(random_problem(4), learnable=np.array([1, 1, 1, 0, 1, 0], dtype=bool))
    found = problem.weights_at(learn(problem, np.ones(2))).weights
    assert found[3] == found[5] == -0.5 and (found[[0, 1, 2, 4]] != LAYOUT.initial()[[0, 1, 2, 4]]).all()
