"""Likelihoods of numbers: values against dense distributions, gradients against finite differences."""

import math
from itertools import product

import numpy as np
import pytest
from gaussians import dense_distribution, random_numeric_graph
from objectives import finite_differences
from scipy.stats import multivariate_normal

from relcrf.inference import gaussian
from relcrf.inference.gaussian_estimates import random_signs
from relcrf.learning import gaussian_likelihood
from relcrf.learning.gaussian_likelihood import (
    MAX_LOG_WEIGHT,
    GaussianLikelihood,
    GaussianPseudoLikelihood,
    NumberWeights,
    bounded_exp,
)

SHAPES = [(1, 0), (3, 0), (4, 6), (9, 12), (14, 25)]


def unpacked(likelihood, is_forest=False):
    """Return the likelihood as a function of the vector of the weights and of the offsets of two attributes."""

    def evaluate(vector):
        value, by = likelihood(NumberWeights(vector[:-4], vector[-4:].reshape(2, 2), is_forest))
        return value, np.concatenate((by.weights, by.offset.ravel()))

    return evaluate


@pytest.fixture(params=[(*shape, seed) for shape in SHAPES for seed in range(3)], ids=str)
def case(request):
    """Return a graph, the values of its numbers, a mask of unknown ones, and a vector of weights."""
    n, n_pairs, seed = request.param
    rng = np.random.default_rng(seed)
    return random_numeric_graph(rng, n, n_pairs), rng.normal(size=n), rng.random(n) < 0.4, rng.normal(size=10) * 0.6


def test_likelihood_integrates_unknown_numbers_out(case):
    graph, values, unknown, vector = case
    values = np.where(unknown, np.nan, values)
    objective = unpacked(GaussianLikelihood(graph, values))
    value, gradient = objective(vector)
    mean, covariance = dense_distribution(graph, NumberWeights(vector[:-4], vector[-4:].reshape(2, 2)))
    known = ~unknown
    marginal = multivariate_normal(mean[known], covariance[np.ix_(known, known)]) if known.any() else None
    assert value == pytest.approx(-marginal.logpdf(values[known]) if marginal else 0.0)
    np.testing.assert_allclose(gradient, finite_differences(objective, vector), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("n", "n_links"), [(3, 2), (9, 8), (14, 9)])
@pytest.mark.parametrize("seed", range(3))
def test_likelihood_on_a_forest(n, n_links, seed):
    """Without unknown numbers, it is the product of the densities of the links over those of their ends."""
    rng = np.random.default_rng(seed)
    graph = random_numeric_graph(rng, n, n_links, is_forest=True)
    vector, values = rng.normal(size=10) * 0.6, rng.normal(size=n)
    point = NumberWeights(vector[:-4], vector[-4:].reshape(2, 2), is_forest=True)
    mean, covariance = dense_distribution(graph, point)
    expected = -multivariate_normal(mean, covariance).logpdf(values)
    product_of_links = -multivariate_normal(mean, np.diag(covariance.diagonal())).logpdf(values)
    for ends in graph.links[0]:
        joint = covariance[np.ix_(ends, ends)]
        for sign, matrix in ((-1.0, joint), (1.0, np.diag(joint.diagonal()))):
            product_of_links += sign * multivariate_normal(mean[ends], matrix).logpdf(values[ends])
    assert product_of_links == pytest.approx(expected)
    assert unpacked(GaussianLikelihood(graph, values), is_forest=True)(vector)[0] == pytest.approx(expected)
    values[rng.random(n) < 0.4] = np.nan
    objective, known = unpacked(GaussianLikelihood(graph, values), is_forest=True), ~np.isnan(values)
    value, gradient = objective(vector)
    marginal = multivariate_normal(mean[known], covariance[np.ix_(known, known)])
    assert value == pytest.approx(-marginal.logpdf(values[known]))
    np.testing.assert_allclose(gradient, finite_differences(objective, vector), rtol=1e-5, atol=1e-6)


def test_estimated_likelihood_has_its_gradient(case, monkeypatch):
    """With all vectors of signs, the estimates are the exact values, up to the error of the quadrature."""
    monkeypatch.setattr(gaussian_likelihood, "MAX_LIKELIHOOD_OPERATIONS", -1)
    graph, values, unknown, vector = case
    values = np.where(unknown, np.nan, values)
    n = len(values)
    signs = np.array(list(product((-1, 1), repeat=min(n, 4))), dtype=np.int8) if n <= 4 else random_signs(n)[:2]
    monkeypatch.setattr(gaussian, "random_signs", lambda n: signs)
    estimated = unpacked(GaussianLikelihood(graph, values))
    value, gradient = estimated(vector)
    np.testing.assert_allclose(gradient, finite_differences(estimated, vector), rtol=1e-4, atol=1e-5)
    if n <= 4:
        monkeypatch.undo()
        assert value == pytest.approx(unpacked(GaussianLikelihood(graph, values))(vector)[0], abs=2e-4 * n)


def test_pseudo_likelihood_is_the_product_of_conditional_densities(case):
    graph, values, _, vector = case
    objective = unpacked(GaussianPseudoLikelihood(graph, values))
    value, gradient = objective(vector)
    mean, covariance = dense_distribution(graph, NumberWeights(vector[:-4], vector[-4:].reshape(2, 2)))
    precision, error, expected = np.linalg.inv(covariance), values - mean, 0.0
    for i, row in enumerate(precision):
        conditional_mean = mean[i] - (row @ error - row[i] * error[i]) / row[i]
        expected += 0.5 * (row[i] * (values[i] - conditional_mean) ** 2 - math.log(row[i] / (2.0 * math.pi)))
    assert value == pytest.approx(expected)
    np.testing.assert_allclose(gradient, finite_differences(objective, vector), rtol=1e-5, atol=1e-6)


def test_without_pairs_both_likelihoods_are_equal():
    rng = np.random.default_rng(0)
    graph, values = random_numeric_graph(rng, 8, 10).without_pairs(), rng.normal(size=8)
    vector = rng.normal(size=10)
    (value, gradient), (pseudo_value, pseudo_gradient) = (
        unpacked(kind(graph, values))(vector) for kind in (GaussianLikelihood, GaussianPseudoLikelihood)
    )
    assert value == pytest.approx(pseudo_value)
    np.testing.assert_allclose(gradient, pseudo_gradient)


def test_extreme_weights_are_limited():
    limit = math.exp(MAX_LOG_WEIGHT)
    assert bounded_exp(np.array([-1e9, 0.0, 1e9])).tolist() == pytest.approx([1.0 / limit, 1.0, limit])
    rng = np.random.default_rng(0)
    graph, values = random_numeric_graph(rng, 8, 10), rng.normal(size=8)
    value, _ = GaussianPseudoLikelihood(graph, values)(NumberWeights(np.full(6, 1e5), np.zeros((2, 2))))
    assert np.isfinite(value)
