"""Whether chains of samples agree: split R-hat and effective sample sizes of many series at once, in little memory.

Source: Gelman et al., Bayesian Data Analysis, 3rd edition (2013), 11.4, for R-hat. The effective sample size is by means of
batches (Flegal & Jones 2010), not by autocorrelations, which would need every sample: a batch's mean varies as much more
than that of independent samples as these are worth more. Where batches are too short to see it, the halves of the chains
are, in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

NEGLIGIBLE_DEVIATION = 1e-3
"""Standard deviation of a probability under which it counts as constant: no average of such can be further off."""

MAX_R_HAT = 1e6
"""R-hat of series that are constant in each chain and differ between them, where the formula divides by nothing."""


@dataclass(frozen=True, eq=False)
class ChainStatistics:
    """Sums over chains that came in batches; each chain is split in two halves. All arrays of shape (n_series,).

    Args:
        n: samples. total: sum of all.
        n_half, half_total, half_square: of the half under way: samples, sum, sum of squares.
        half_sizes: of each finished half the number of samples. mean, mean_square, variance: sums over halves of the mean,
            of its square and of the variance within.
        n_batches, batch_square: batches, and the sum of the squares of their means.
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
        none = np.zeros(n_series)
        return cls(0, none, 0, none, none, (), none, none, none, 0, none)

    def with_batch(self, n: int, total: np.ndarray, square: np.ndarray) -> ChainStatistics:
        """One more batch of `n` samples, by their sum and the sum of their squares."""
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
        """The half under way is at its end."""
        n, none = self.n_half, np.zeros_like(self.total)
        if n < 2:
            return replace(self, n_half=0, half_total=none, half_square=none)
        mean = self.half_total / n
        within = np.maximum(self.half_square - n * mean**2, 0.0) / (n - 1)
        return replace(
            self,
            n_half=0,
            half_total=none,
            half_square=none,
            half_sizes=(*self.half_sizes, n),
            mean_sum=self.mean_sum + mean,
            mean_square_sum=self.mean_square_sum + mean**2,
            variance_sum=self.variance_sum + within,
        )

    def _variances(self) -> tuple[np.ndarray, np.ndarray]:
        """Variance within halves, and the estimate of the whole variance that the halves' differences enter."""
        n, m = float(np.mean(self.half_sizes)), len(self.half_sizes)
        within = self.variance_sum / m
        between = np.maximum(self.mean_square_sum - self.mean_sum**2 / m, 0.0) / max(1, m - 1)
        return within, (n - 1) / n * within + between

    def r_hat(self) -> np.ndarray:
        """Of each series; 1 where it hardly varies at all, nan where there is no finished half."""
        if not self.half_sizes:
            return np.full(len(self.total), np.nan)
        within, whole = self._variances()
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratio = np.sqrt(whole / within)
        return np.where(whole < NEGLIGIBLE_DEVIATION**2, 1.0, np.minimum(ratio, MAX_R_HAT))

    def effective_sample_size(self) -> np.ndarray:
        """Of each series how many independent samples it is worth, at most all; nan as in `r_hat`."""
        if not self.half_sizes:
            return np.full(len(self.total), np.nan)
        within, whole = self._variances()
        n = float(np.mean(self.half_sizes))
        halves = whole - (n - 1) / n * within  # the variance of their means
        batches = np.maximum(self.batch_square / self.n_batches - (self.total / self.n) ** 2, 0.0)
        batches *= self.n_batches / max(1, self.n_batches - 1)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            worth = np.fmin(self.n_batches * whole / batches, len(self.half_sizes) * whole / halves)
        return np.where(whole < NEGLIGIBLE_DEVIATION**2, float(self.n), np.fmin(worth, self.n))
