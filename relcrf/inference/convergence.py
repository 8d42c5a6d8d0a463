"""Whether chains of samples agree: split R-hat and effective sample sizes of many series at once, in little memory.

Source: Gelman et al., Bayesian Data Analysis, 3rd edition (2013), 11.4, for R-hat. The effective sample size is by means of
batches (Flegal & Jones 2010), not by autocorrelations, which would need every sample: a batch's mean varies as much more
than that of independent samples as these are worth more. Where batches are too short to see it, the halves of the chains
are, in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

NEGLIGIBLE = 1e-3
"""Standard deviation of a probability under which it counts as constant: no average of such can be further off."""

APART = 1e6
"""R-hat of series that are constant in each chain and differ between them, where the formula divides by nothing."""


@dataclass(frozen=True, eq=False)
class Series:
    """Sums over chains that came in batches; each chain is split in two halves. All arrays of shape (n_series,).

    Args:
        n: samples. total: sum of all.
        n_part, part_total, part_square: of the half under way: samples, sum, sum of squares.
        parts: of each finished half the number of samples. mean, mean_square, variance: sums over halves of the mean,
            of its square and of the variance within.
        n_batches, batch_square: batches, and the sum of the squares of their means.
    """

    n: int
    total: np.ndarray
    n_part: int
    part_total: np.ndarray
    part_square: np.ndarray
    parts: tuple[int, ...]
    mean: np.ndarray
    mean_square: np.ndarray
    variance: np.ndarray
    n_batches: int
    batch_square: np.ndarray

    @classmethod
    def empty(cls, n_series: int) -> Series:
        none = np.zeros(n_series)
        return cls(0, none, 0, none, none, (), none, none, none, 0, none)

    def with_batch(self, n: int, total: np.ndarray, square: np.ndarray) -> Series:
        """One more batch of `n` samples, by their sum and the sum of their squares."""
        return replace(
            self,
            n=self.n + n,
            total=self.total + total,
            n_part=self.n_part + n,
            part_total=self.part_total + total,
            part_square=self.part_square + square,
            n_batches=self.n_batches + 1,
            batch_square=self.batch_square + (total / n) ** 2,
        )

    def with_half(self) -> Series:
        """The half under way is at its end."""
        n, none = self.n_part, np.zeros_like(self.total)
        if n < 2:
            return replace(self, n_part=0, part_total=none, part_square=none)
        mean = self.part_total / n
        within = np.maximum(self.part_square - n * mean**2, 0.0) / (n - 1)
        return replace(
            self,
            n_part=0,
            part_total=none,
            part_square=none,
            parts=(*self.parts, n),
            mean=self.mean + mean,
            mean_square=self.mean_square + mean**2,
            variance=self.variance + within,
        )

    def _variances(self) -> tuple[np.ndarray, np.ndarray]:
        """Variance within halves, and the estimate of the whole variance that the halves' differences enter."""
        n, m = float(np.mean(self.parts)), len(self.parts)
        within = self.variance / m
        between = np.maximum(self.mean_square - self.mean**2 / m, 0.0) / max(1, m - 1)
        return within, (n - 1) / n * within + between

    def r_hat(self) -> np.ndarray:
        """Of each series; 1 where it hardly varies at all, nan where there is no finished half."""
        if not self.parts:
            return np.full(len(self.total), np.nan)
        within, whole = self._variances()
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratio = np.sqrt(whole / within)
        return np.where(whole < NEGLIGIBLE**2, 1.0, np.minimum(ratio, APART))

    def effective(self) -> np.ndarray:
        """Of each series how many independent samples it is worth, at most all; nan as in `r_hat`."""
        if not self.parts:
            return np.full(len(self.total), np.nan)
        within, whole = self._variances()
        n = float(np.mean(self.parts))
        halves = whole - (n - 1) / n * within  # the variance of their means
        batches = np.maximum(self.batch_square / self.n_batches - (self.total / self.n) ** 2, 0.0)
        batches *= self.n_batches / max(1, self.n_batches - 1)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            worth = np.fmin(self.n_batches * whole / batches, len(self.parts) * whole / halves)
        return np.where(whole < NEGLIGIBLE**2, float(self.n), np.fmin(worth, self.n))
