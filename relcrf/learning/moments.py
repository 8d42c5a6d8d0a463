"""Moments: observed and expected counts of each feature together with each pattern.

At the maximum of the likelihood they are equal (moment matching); a penalty or an early end of training makes them
differ.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relcrf.learning.likelihood import AbstractJointLikelihood, square_features


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over all factors, one per weight; each array has shape (layout.size,).

    Args:
        empirical: Counts in the labels; latent variables are included by their expectation given the labels.
        expected: Expected counts under the model; NaN for weights that were not learned.
        variance: Approximate variance of the empirical sum if factors were independent: for a count, the count itself
            (Poisson), which is too large for events that nearly always occur.
    """

    empirical: np.ndarray
    expected: np.ndarray
    variance: np.ndarray

    @property
    def differences(self) -> np.ndarray:
        """Return expected minus empirical in standard errors, shape (n,).

        If the empirical variance is 0, the expected count is used in its place.
        """
        with np.errstate(over="ignore", invalid="ignore"):  # after a diverged optimisation
            difference = self.expected - self.empirical
        variance = np.where(self.variance > 0.0, self.variance, np.abs(self.expected))
        return np.asarray(np.divide(difference, np.sqrt(variance), where=variance > 0.0, out=np.zeros(len(difference))))


def label_moments(likelihood: AbstractJointLikelihood, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return empirical moments and their variances, each of shape (layout.size,); latent states have expected counts."""
    if (likelihood.states >= 0).all():
        squares = square_features(likelihood.graph).state_counts(likelihood.states)
        return likelihood.observed_counts, squares
    counts = likelihood.clamped_expectation(weights)[1]
    return counts, np.abs(counts)
