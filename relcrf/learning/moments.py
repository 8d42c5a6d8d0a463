"""Moments: observed and expected counts for each weight.

A weight belongs to a feature and to a *pattern*, a function of the joint state of a factor (usually one joint state).

At the maximum of the likelihood, observed and expected counts are equal (moment matching). The two counts differ if
there is a penalty or if training ends early.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relcrf.learning.likelihood import AbstractJointLikelihood, square_features


@dataclass(frozen=True, eq=False)
class Moments:
    """The moments of each weight, summed over all factors that use the weight; shape (layout.size,) each.

    Args:
        empirical: Observed counts; if variables are latent, expected counts given the labels.
        expected: Expected counts under the model; NaN for weights that were not learned.
        variance: Approximate variance of the empirical count for independent factors. The variance of a number of
            events is set to this number (Poisson distribution); it is too large for events that nearly always occur.
    """

    empirical: np.ndarray
    expected: np.ndarray
    variance: np.ndarray

    @property
    def differences(self) -> np.ndarray:
        """Return the expected minus the empirical counts in units of the standard error, shape (n,).

        If the variance of an empirical count is 0, the expected count is used as the variance.
        """
        with np.errstate(over="ignore", invalid="ignore"):  # after a diverged optimisation
            difference = self.expected - self.empirical
        variance = np.where(self.variance > 0.0, self.variance, np.abs(self.expected))
        return np.asarray(np.divide(difference, np.sqrt(variance), where=variance > 0.0, out=np.zeros(len(difference))))


def label_moments(likelihood: AbstractJointLikelihood, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return `Moments.empirical` and `Moments.variance` of the observed states."""
    if (likelihood.states >= 0).all():
        squares = square_features(likelihood.graph).state_counts(likelihood.states)
        return likelihood.observed_counts, squares
    counts = likelihood.clamped_expectation(weights)[1]
    return counts, np.abs(counts)
