"""Estimates for Gaussian distributions without a Cholesky factor, compared with dense matrices."""

from itertools import product

import numpy as np
import pytest
from gaussians import dense_precision, random_ends, random_pairs

from relcrf.inference import gaussian, gaussian_estimates
from relcrf.inference.gaussian import ConditionalPattern, PairWeights, PrecisionPattern
from relcrf.inference.gaussian_estimates import random_signs

SHAPES = [(1, 0), (3, 3), (9, 0), (9, 20)]


@pytest.fixture(params=SHAPES, ids=str)
def pairs(request):
    """Return pairs, some repeated and in both directions, with random weights."""
    return random_pairs(*request.param)


def estimates(pairs, signs, diagonal=None, values=None):
    pattern = PrecisionPattern(pairs.n, pairs.first, pairs.second, signs)
    diagonal = pairs.diagonal if diagonal is None else diagonal
    return pattern.invert(diagonal, pairs.values if values is None else values, max_operations=-1)


def all_signs(n):
    return np.array(list(product((-1, 1), repeat=n)), dtype=np.int8)


def test_solutions(pairs):
    matrix, inverse = dense_precision(pairs), estimates(pairs, random_signs(pairs.n)[:1])
    vector = np.random.default_rng(0).normal(size=pairs.n)
    np.testing.assert_allclose(inverse.solve(vector), np.linalg.solve(matrix, vector), atol=1e-7)
    assert inverse.verdict.status == "converged" and "estimated from 64 samples" in inverse.verdict.remark


def test_the_mean_over_all_signs_is_the_log_determinant(pairs):
    matrix, inverse = dense_precision(pairs), estimates(pairs, all_signs(pairs.n))
    assert inverse.log_determinant == pytest.approx(np.linalg.slogdet(matrix)[1], abs=1e-4 * pairs.n)
    by_diagonal, by_pair = inverse.determinant_gradient
    covariance = np.linalg.inv(matrix)
    np.testing.assert_allclose(by_diagonal, covariance.diagonal(), atol=1e-3)
    np.testing.assert_allclose(by_pair, covariance[pairs.first, pairs.second], atol=1e-3)


def test_derivatives_are_those_of_the_estimate(pairs):
    """They are exact for any signs, so that line searches succeed."""
    signs = random_signs(pairs.n)[:2]
    by_diagonal, by_pair = estimates(pairs, signs).determinant_gradient
    step = 1e-5

    def difference(diagonal, values):
        plus = estimates(pairs, signs, pairs.diagonal + diagonal, pairs.values + values).log_determinant
        return (plus - estimates(pairs, signs, pairs.diagonal - diagonal, pairs.values - values).log_determinant) / (
            2 * step
        )

    for k, unit in enumerate(step * np.eye(pairs.n)):
        assert difference(unit, 0.0) == pytest.approx(by_diagonal[k], abs=1e-6)
    for k, unit in enumerate(step * np.eye(len(pairs.first))):
        assert difference(0.0, unit) == pytest.approx(2.0 * by_pair[k], abs=1e-6)


def test_variances_are_unbiased(pairs, monkeypatch):
    monkeypatch.setattr(gaussian_estimates, "N_SAMPLES", 4_000)
    found = estimates(pairs, None).variances
    np.testing.assert_allclose(found, np.linalg.inv(dense_precision(pairs)).diagonal(), rtol=0.05)


def test_variances_of_64_samples_are_accurate():
    rng = np.random.default_rng(0)
    first, second = random_ends(rng, 300, 900)
    weights = PairWeights(300, first, second, *np.exp(rng.normal(size=(2, len(first)))))
    pattern = PrecisionPattern(300, first, second)
    exact = pattern.factorise(weights.diagonal, weights.values).variances
    ratio = estimates(weights, None).variances / exact
    assert abs(ratio.mean() - 1.0) < 0.01 and ratio.std() < 0.05


def test_conditional_means_without_a_factor(pairs):
    rng = np.random.default_rng(2)
    pattern = ConditionalPattern(pairs.n, pairs.first, pairs.second, rng.random(pairs.n) < 0.5)
    values, precision = rng.normal(size=pairs.n), rng.random(pairs.n)
    exact, _ = pattern.condition(pairs, values, precision, values)
    found, inverse = pattern.condition(pairs, values, precision, values, max_operations=-1)
    np.testing.assert_allclose(found, exact, atol=1e-6)
    assert inverse.verdict.is_good


def test_equations_that_are_not_solved_are_reported(monkeypatch):
    monkeypatch.setattr(gaussian_estimates, "MAX_ITERATIONS", 2)
    rng = np.random.default_rng(0)
    first, second = random_ends(rng, 50, 200)
    weights = PairWeights(50, first, second, *np.exp(3.0 * rng.normal(size=(2, len(first)))))
    inverse = estimates(weights, None)
    inverse.solve(np.ones(50))
    assert inverse.verdict.status == "not converged" and not inverse.verdict.is_good


def test_a_factor_is_used_if_it_is_affordable(monkeypatch):
    first, second = np.triu_indices(5, 1)
    pattern = PrecisionPattern(5, first.astype(np.int32), second.astype(np.int32))
    assert (pattern.n_factor_entries, pattern.n_operations) == (10, 16 + 9 + 4 + 1)
    assert pattern.is_affordable(30) and not pattern.is_affordable(29)
    monkeypatch.setattr(gaussian, "MAX_FACTOR_ENTRIES", 9)
    assert not pattern.is_affordable(30)


def test_the_order_of_a_hopeless_graph_is_not_computed(monkeypatch):
    rng = np.random.default_rng(0)
    first, second = random_ends(rng, 400, 1600)
    whole = PrecisionPattern(400, first, second)
    n_operations = whole.n_operations
    monkeypatch.setattr(gaussian, "SMALL_ROWS", 50)
    affordable = PrecisionPattern(400, first, second)
    assert affordable.n_operations == n_operations
    monkeypatch.setattr(gaussian, "MAX_OPERATIONS", 100.0)
    hopeless = PrecisionPattern(400, first, second)
    assert 100.0 < hopeless.n_operations < n_operations and "position" not in hopeless.__dict__
