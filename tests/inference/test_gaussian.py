"""Gaussian distributions with sparse precision matrices, compared with dense matrices."""

import numpy as np
import pytest
from gaussians import condition, dense_precision, random_pairs
from scipy.stats import norm

from relcrf.inference import gaussian
from relcrf.inference.gaussian import ConditionalPattern, NumberMarginals, PrecisionPattern

SHAPES = [(1, 0), (2, 3), (7, 0), (12, 15), (20, 120)]


@pytest.fixture(params=SHAPES, ids=str)
def pairs(request):
    """Return pairs, some repeated and in both directions, with random weights."""
    return random_pairs(*request.param)


def test_precision_matrix_of_pairs(pairs):
    matrix, u = dense_precision(pairs), np.random.default_rng(1).normal(size=pairs.n)
    np.testing.assert_allclose(pairs.diagonal, matrix.diagonal())
    np.testing.assert_allclose(pairs.multiply(u), matrix @ u, atol=1e-12)


def test_factor(pairs):
    matrix = dense_precision(pairs)
    pattern = PrecisionPattern(pairs.n, pairs.first, pairs.second)
    assert sorted(pattern.position) == list(range(pairs.n))
    factor, inverse = pattern.factorise(pairs.diagonal, pairs.values), np.linalg.inv(matrix)
    assert factor.log_determinant == pytest.approx(np.linalg.slogdet(matrix)[1])
    np.testing.assert_allclose(factor.variances, inverse.diagonal())
    by_diagonal, by_pair = factor.determinant_gradient
    np.testing.assert_array_equal(by_diagonal, factor.variances)
    np.testing.assert_allclose(by_pair, inverse[pairs.first, pairs.second], atol=1e-12)
    assert factor.verdict.status == "exact"
    vector = np.arange(1.0, pairs.n + 1.0)
    np.testing.assert_allclose(factor.solve(vector), inverse @ vector)
    np.testing.assert_array_equal(vector, np.arange(1.0, pairs.n + 1.0))  # the argument is unchanged


@pytest.mark.parametrize("fraction", [0.0, 0.5, 1.0])
def test_conditional_distribution(pairs, fraction):
    rng = np.random.default_rng(2)
    is_known = rng.permutation(pairs.n) < fraction * pairs.n
    values = np.where(is_known, rng.normal(size=pairs.n), np.nan)
    precision, shift = np.where(is_known, 0.0, rng.random(pairs.n)), rng.normal(size=pairs.n) * ~is_known
    pattern = ConditionalPattern(pairs.n, pairs.first, pairs.second, is_known)
    for more in ((), (precision, shift)):
        covariance = np.linalg.inv(dense_precision(pairs) + np.diag(more[0] if more else np.zeros(pairs.n)))
        mean = covariance @ (more[1] if more else np.zeros(pairs.n))
        expected, block = condition(mean, covariance, values)
        u, factor = pattern.condition(pairs, values, *more)
        np.testing.assert_array_equal(u[is_known], values[is_known])
        np.testing.assert_allclose(u[~is_known], expected, atol=1e-12)
        np.testing.assert_allclose(factor.variances, block.diagonal())
        first, second = pattern.block.first, pattern.block.second
        np.testing.assert_allclose(factor.determinant_gradient[1], block[first, second], atol=1e-12)
        ends = pattern.unknown[first], pattern.unknown[second]
        np.testing.assert_array_equal(ends, (pairs.first[pattern.within], pairs.second[pattern.within]))


@pytest.mark.parametrize("fraction", [0.0, 0.6, 1.0])
def test_distributions_given_all_others(pairs, fraction, monkeypatch):
    """They are exact if all are known; otherwise, unknown neighbours make the variances estimates."""
    monkeypatch.setattr(gaussian, "N_LEFT_OUT_SAMPLES", 2_000)
    rng = np.random.default_rng(3)
    is_known = rng.permutation(pairs.n) < fraction * pairs.n
    values, covariance = rng.normal(size=pairs.n), np.linalg.inv(dense_precision(pairs))
    pattern = ConditionalPattern(pairs.n, pairs.first, pairs.second, is_known)
    means, variances = pattern.leave_one_out(pairs, values)
    tolerance = 1e-9 if fraction == 1.0 else 0.05
    for k, i in enumerate(np.flatnonzero(is_known)):
        left = np.where(is_known & (np.arange(pairs.n) != i), values, np.nan)
        expected, block = condition(np.zeros(pairs.n), covariance, left)
        place = int(np.searchsorted(np.flatnonzero(np.isnan(left)), i))
        assert means[k] == pytest.approx(expected[place], abs=2 * tolerance)
        assert variances[k] == pytest.approx(block[place, place], rel=tolerance)


def test_pivots_that_are_not_positive_make_the_determinant_undefined():
    pattern = PrecisionPattern(3, np.array([0, 1], dtype=np.int32), np.array([1, 2], dtype=np.int32))
    assert np.isnan(pattern.factorise(np.ones(3), np.array([2.0, 0.0])).log_determinant)


def test_intervals_have_their_probability():
    marginals = NumberMarginals(np.array([2, 5, 6]), np.array([0.0, 10.0, -3.0]), np.array([1.0, 0.5, 2.0]))
    low, high = marginals.intervals(0.2)
    for mean, deviation, a, b in zip(marginals.means, marginals.deviations, low, high, strict=True):
        assert norm.cdf(b, mean, deviation) - norm.cdf(a, mean, deviation) == pytest.approx(0.8)
        assert a + b == pytest.approx(2 * mean)
    selected = marginals.select(np.array([0, 1, 1, 0, 1, 0, 1], dtype=bool))
    assert selected.variables.tolist() == [2, 6]
    assert selected.means.tolist() == [0.0, -3.0] and selected.deviations.tolist() == [1.0, 2.0]
