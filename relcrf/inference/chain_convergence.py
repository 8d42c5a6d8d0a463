"""Convergence diagnostics of Markov chains: split R-hat and effective sample sizes of many series, without storing samples.

Source: Gelman et al., Bayesian Data Analysis, 3rd edition (2013), 11.4, for R-hat. The effective sample size uses batch means
(Flegal & Jones 2010), because autocorrelations would require all samples. The estimate is the number of batches times the total
variance divided by the variance of the batch means. Correlations may be longer than a batch; a second estimate therefore uses
halves of chains as batches, and the smaller estimate is returned.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

NEGLIGIBLE_DEVIATION = 1e-3
"""Standard deviation below which a series of probabilities is treated as constant; the mean is then accurate enough."""

MAX_R_HAT = 1e6
"""R-hat of series that are constant within chains but differ between chains; the formula would divide by zero."""


@dataclass(frozen=True, eq=False)
class ChainStatistics:
    """Running sums over chains, updated by batches of samples; each chain is split into halves. Arrays have shape (n_series,).

    Args:
        n: Number of samples.
        total: Sum of all samples.
        n_half: Number of samples in the current half.
        half_total, half_square: Sum of the samples in the current half, and sum of their squares.
        half_sizes: Number of samples of each completed half.
        mean_sum, mean_square_sum, variance_sum: Sums over completed halves of the mean, squared mean and variance.
        n_batches, batch_square: Number of batches, and sum of the squared batch means.
    """

    n: int
    total: np.ndarray
    n_half: int
    half_total: np.ndarray
    half_square: np.ndarray
    half_sizes: tuple[int, ...]
    mean_sum: np.ndarray
    mean_square_sum: np.ndarray
    variance_sum: np.ndarray
    n_batches: int
    batch_square: np.ndarray

    @classmethod
    def empty(cls, n_series: int) -> ChainStatistics:
        zeros = np.zeros(n_series)
        return cls(0, zeros, 0, zeros, zeros, (), zeros, zeros, zeros, 0, zeros)

    def with_batch(self, n: int, total: np.ndarray, square: np.ndarray) -> ChainStatistics:
        """Return statistics that include a batch of `n` samples, whose sum is `total` and whose sum of squares is `square`."""
        return replace(
            self,
            n=self.n + n,
            total=self.total + total,
            n_half=self.n_half + n,
            half_total=self.half_total + total,
            half_square=self.half_square + square,
            n_batches=self.n_batches + 1,
            batch_square=self.batch_square + (total / n) ** 2,
        )

    def close_half(self) -> ChainStatistics:
        """Return statistics in which the current half is complete; a half of fewer than two samples is discarded."""
        n, zeros = self.n_half, np.zeros_like(self.total)
        if n < 2:
            return replace(self, n_half=0, half_total=zeros, half_square=zeros)
        mean = self.half_total / n
        within = np.maximum(self.half_square - n * mean**2, 0.0) / (n - 1)
        return replace(
            self,
            n_half=0,
            half_total=zeros,
            half_square=zeros,
            half_sizes=(*self.half_sizes, n),
            mean_sum=self.mean_sum + mean,
            mean_square_sum=self.mean_square_sum + mean**2,
            variance_sum=self.variance_sum + within,
        )

    def _variances(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean variance within halves, and the pooled variance, which includes the variance between halves."""
        n, m = float(np.mean(self.half_sizes)), len(self.half_sizes)
        within = self.variance_sum / m
        between = np.maximum(self.mean_square_sum - self.mean_sum**2 / m, 0.0) / max(1, m - 1)
        return within, (n - 1) / n * within + between

    def r_hat(self) -> np.ndarray:
        """Return split R-hat of each series; 1 for a constant series, nan if no half is complete."""
        if not self.half_sizes:
            return np.full(len(self.total), np.nan)
        within, pooled = self._variances()
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratio = np.sqrt(pooled / within)
        return np.where(pooled < NEGLIGIBLE_DEVIATION**2, 1.0, np.minimum(ratio, MAX_R_HAT))

    def effective_sample_size(self) -> np.ndarray:
        """Return the effective sample size of each series, at most the number of samples; nan if no half is complete."""
        if not self.half_sizes:
            return np.full(len(self.total), np.nan)
        within, pooled = self._variances()
        n = float(np.mean(self.half_sizes))
        half_mean_variance = pooled - (n - 1) / n * within
        batch_mean_variance = np.maximum(self.batch_square / self.n_batches - (self.total / self.n) ** 2, 0.0)
        batch_mean_variance *= self.n_batches / max(1, self.n_batches - 1)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            by_batches = self.n_batches * pooled / batch_mean_variance
            by_halves = len(self.half_sizes) * pooled / half_mean_variance
            size = np.fmin(by_batches, by_halves)
        return np.where(pooled < NEGLIGIBLE_DEVIATION**2, float(self.n), np.fmin(size, self.n))
