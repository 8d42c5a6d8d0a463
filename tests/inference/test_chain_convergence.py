"""R-hat and effective sample sizes from batches, compared with their definitions on complete series."""

import numpy as np
import pytest

from relcrf.inference.chain_convergence import MAX_R_HAT, ChainStatistics


def collect_statistics(chains, n_batches=20):
    """Return the statistics of chains of shape (n_chains, n_samples, n_series), added in batches as by a sampler."""
    out = ChainStatistics.empty(chains.shape[2])
    for chain in chains:
        for k, batch in enumerate(np.split(chain, n_batches)):
            out = out.with_batch(len(batch), batch.sum(axis=0), (batch**2).sum(axis=0))
            if k + 1 in (n_batches // 2, n_batches):
                out = out.close_half()
    return out


def autoregressive(rng, correlation, n_chains=4, n=4000, n_series=30):
    x = np.empty((n_chains, n, n_series))
    x[:, 0] = rng.normal(size=(n_chains, n_series))
    for t in range(1, n):
        x[:, t] = correlation * x[:, t - 1] + np.sqrt(1 - correlation**2) * rng.normal(size=(n_chains, n_series))
    return x


def test_r_hat_equals_its_definition():
    chains = autoregressive(np.random.default_rng(0), 0.9, n=200)
    halves = chains.reshape(8, 100, 30)
    within = halves.var(axis=1, ddof=1).mean(axis=0)
    between = 100 * halves.mean(axis=1).var(axis=0, ddof=1)
    expected = np.sqrt((99 / 100 * within + between / 100) / within)
    np.testing.assert_allclose(collect_statistics(chains).r_hat(), expected)
    assert expected.max() > 1.1


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_effective_sample_size_of_autoregressive_series(correlation):
    """The effective sample size of an autoregressive series is n (1 - correlation) / (1 + correlation)."""
    series = collect_statistics(autoregressive(np.random.default_rng(1), correlation))
    expected = 16000 * (1 - correlation) / (1 + correlation)
    assert series.n == 16000
    assert 0.6 * expected < np.median(series.effective_sample_size()) < 1.1 * expected


def test_constant_series():
    """R-hat is 1 for a constant series, and maximal for series that are constant within chains but differ between them."""
    constant, different = np.full((4, 40, 1), 0.3), np.repeat([[0.0], [0.0], [1.0], [0.0]], 40, axis=1)[:, :, None]
    series = collect_statistics(np.concatenate((constant, different), axis=2))
    np.testing.assert_array_equal(series.r_hat(), [1.0, MAX_R_HAT])
    assert series.effective_sample_size()[0] == 160 and series.effective_sample_size()[1] < 10
    assert (
        np.isnan(ChainStatistics.empty(2).r_hat()).all()
        and np.isnan(ChainStatistics.empty(2).effective_sample_size()).all()
    )


def test_drift_within_one_chain_is_detected():
    """The halves of a chain are compared, so that a drift is detected in a single chain."""
    drift = np.linspace(0.0, 1.0, 400)[None, :, None] + 0.05 * np.random.default_rng(0).normal(size=(1, 400, 1))
    assert collect_statistics(drift).r_hat()[0] > 1.5
