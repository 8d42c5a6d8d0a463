"""Moments: how often each feature goes with each pattern in the labels, and how often the model expects it to.

At the maximum of the likelihood they are the same (moment matching); a penalty, or an end before that, keeps them apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relcrf.learning.likelihood import AbstractJointLikelihood, square_features


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over all factors, one a weight; each array has shape (layout.size,).

    Args:
        empirical: of the labels; what of them is latent, as the model expects it given the labels.
        expected: under the model; nan for weights that were not learned.
        variance: of the empirical sum, about, if factors were independent: of a count the count itself (Poisson), which is
            too much for what is nearly always so.
    """

    empirical: np.ndarray
    expected: np.ndarray
    variance: np.ndarray

    @property
    def differences(self) -> np.ndarray:
        """Expected less empirical, in standard errors, shape (n,). What the labels never have goes by the expected count."""
        with np.errstate(over="ignore", invalid="ignore"):  # of an optimiser that diverged
            apart = self.expected - self.empirical
        variance = np.where(self.variance > 0.0, self.variance, np.abs(self.expected))
        return np.asarray(np.divide(apart, np.sqrt(variance), where=variance > 0.0, out=np.zeros(len(apart))))


def label_moments(likelihood: AbstractJointLikelihood, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return empirical moments and their variances, each of shape (layout.size,). Latent states count as the model expects."""
    if (likelihood.states >= 0).all():
        squares = square_features(likelihood.graph).state_counts(likelihood.states)
        return likelihood.observed_counts, squares
    counts = likelihood.clamped_expectation(weights)[1]
    return counts, np.abs(counts)
