"""The greedy selection of numbers, compared with dense covariance matrices that are conditioned step by step."""

import numpy as np
import pytest
from gaussians import dense_precision, random_pairs

from relcrf.inference import gaussian, gaussian_estimates
from relcrf.inference.gaussian import PrecisionPattern
from relcrf.inference.gaussian_design import VarianceSelection


def random_selection(n, n_pairs, rank, *, has_noise):
    """Return a selection, its covariance matrix and the weights of the variances."""
    pairs, rng = random_pairs(n, n_pairs), np.random.default_rng(n)
    inverse = PrecisionPattern(n, pairs.first, pairs.second).invert(pairs.diagonal, pairs.values)
    scale, weights = np.exp(rng.normal(size=n)), rng.random(n) * (rng.random(n) < 0.8)
    noise, coordinates = rng.random(n) * has_noise, rng.normal(size=(n, rank))
    covariance = np.outer(scale, scale) * np.linalg.inv(dense_precision(pairs)) + np.diag(noise)
    return (
        VarianceSelection(inverse, scale, noise, coordinates, weights),
        covariance + coordinates @ coordinates.T,
        weights,
    )


@pytest.mark.parametrize("rank", [0, 1, 3])
@pytest.mark.parametrize("has_noise", [False, True])
@pytest.mark.parametrize(("n", "n_pairs"), [(1, 0), (6, 0), (12, 15), (30, 80)])
def test_gains_are_reductions_of_the_sum_of_variances(n, n_pairs, has_noise, rank):
    selection, covariance, weights = random_selection(n, n_pairs, rank, has_noise=has_noise)
    left = np.arange(n)
    for row in np.random.default_rng(0).permutation(n)[:5]:
        after = [covariance - np.outer(c, c) / c[k] for k, c in enumerate(covariance) if k in left]
        expected = [weights @ (covariance - one).diagonal() for one in after]
        np.testing.assert_allclose(selection.gains[left], expected, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(selection.variances, covariance.diagonal(), atol=1e-9)
        reduction = selection.add(int(row)).total
        np.testing.assert_allclose(reduction, weights * covariance[row] ** 2 / covariance[row, row], atol=1e-9)
        covariance = covariance - np.outer(covariance[row], covariance[row]) / covariance[row, row]
        left = left[left != row]


def test_parts_of_reductions():
    """Without shared coefficients, links are the only part, and without links, the coefficients of other variables."""
    for n_pairs, rank in ((40, 0), (0, 3)):
        selection, _, weights = random_selection(20, n_pairs, rank, has_noise=False)
        variance = selection.variances[3]
        reduction = selection.add(3)
        empty, other = (reduction.shared, reduction.linked) if rank == 0 else (reduction.linked, reduction.shared)
        np.testing.assert_allclose(np.delete(empty, 3), 0.0, atol=1e-12)
        assert other.sum() > 0.0 and reduction.total[3] == pytest.approx(weights[3] * variance)


def test_estimated_gains_are_near_the_exact_ones(monkeypatch):
    exact, _, _ = random_selection(60, 200, 2, has_noise=True)
    monkeypatch.setattr(gaussian, "MAX_FACTOR_ENTRIES", -1)
    monkeypatch.setattr(gaussian_estimates, "N_SAMPLES", 4_000)
    estimated, _, _ = random_selection(60, 200, 2, has_noise=True)
    np.testing.assert_allclose(estimated.gains, exact.gains, rtol=0.1)
    np.testing.assert_allclose(estimated.add(7).total, exact.add(7).total, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(estimated.gains, exact.gains, rtol=0.1, atol=1e-3)
