"""Measures of predicted normal distributions against numbers: errors, log-loss, CRPS, coverage of intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from scipy.special import ndtr, ndtri

from relcrf.evaluation.measures import Score
from relcrf.inference.gaussian import NumberMarginals

COVERAGE = 0.9
"""Probability of the central intervals whose coverage is measured."""

NUMBER_MEASURES = ("rmse", "mae", "r2", "crps", "log_loss", "coverage_90")
"""Names of the measures of predicted numbers, in display order."""


@dataclass(frozen=True, eq=False)
class NumberPredictions:
    """The predicted distributions of the test variables that are numbers, with their values.

    Args:
        truth: Value of each variable, shape (n,).
    """

    marginals: NumberMarginals
    truth: np.ndarray

    def select(self, chosen: slice) -> ScoredNumbers:
        """Return the predictions of a range of the variables."""
        marginals = self.marginals
        return ScoredNumbers(marginals.means[chosen], marginals.deviations[chosen], self.truth[chosen])


@dataclass(frozen=True, eq=False)
class ScoredNumbers:
    """Predicted normal distributions and the values of some variables, called *items*.

    Args:
        means, deviations: Mean and standard deviation of each item, shape (n,); a deviation is positive.
        truth: Value of each item, shape (n,).
    """

    means: np.ndarray
    deviations: np.ndarray
    truth: np.ndarray
    measure_names: ClassVar[tuple[str, ...]] = NUMBER_MEASURES
    compared_measures: ClassVar[tuple[str, ...]] = ("mae", "crps", "log_loss")

    @classmethod
    def concatenate(cls, parts: Sequence[ScoredNumbers]) -> ScoredNumbers:
        """Return the items of all parts."""
        return cls(
            np.concatenate([part.means for part in parts]),
            np.concatenate([part.deviations for part in parts]),
            np.concatenate([part.truth for part in parts]),
        )

    def tail_probabilities(self) -> np.ndarray:
        """Return the probability of a larger deviation from the mean than that of each value, shape (n,)."""
        return np.asarray(2.0 * ndtr(-np.abs(self.truth - self.means) / self.deviations))

    def score(self) -> Score:
        """Return the mean log density as log-likelihood, and the mean absolute error; a number has no accuracy."""
        if not len(self.truth):
            return Score(float("nan"), float("nan"), 0)
        means = {name: float(self.item_measures[name].mean()) for name in ("log_loss", "mae")}
        return Score(float("nan"), -means["log_loss"], len(self.truth), means["mae"])

    def measures(self, weights: np.ndarray | None = None, names: Sequence[str] | None = None) -> dict[str, float]:
        """Return the measures `names` (default: `measure_names`); nan if a measure is undefined.

        - `rmse`, `mae`: the root of the mean squared error and the mean absolute error of the predicted mean.
        - `r2`: the fraction of the variance that the predicted means explain.
        - `crps`: the mean continuous ranked probability score, which has the unit of the number (Gneiting & Raftery 2007).
        - `log_loss`: the mean negative logarithm of the predicted density.
        - `coverage_90`: the fraction of items in the central interval of probability 0.9.

        Args:
            weights: Nonnegative weights of the items, shape (n,). Default: 1.
        """
        weights = np.ones(len(self.truth)) if weights is None else weights
        total = weights.sum()
        names = self.measure_names if names is None else names
        if not total:
            return dict.fromkeys(names, float("nan"))
        out = {name: float(weights @ values / total) for name, values in self.item_measures.items()}
        center = weights @ self.truth / total
        variance = float(weights @ (self.truth - center) ** 2 / total)
        varies = np.ptp(self.truth[weights > 0.0]) > 0.0  # the variance of equal numbers may be a rounding error
        out["r2"] = 1.0 - out["squared_error"] / variance if varies and variance > 0.0 else float("nan")
        out["rmse"] = math.sqrt(out["squared_error"])
        return {name: out[name] for name in names}

    @cached_property
    def item_measures(self) -> Mapping[str, np.ndarray]:
        """For each measure that is a mean over items, the value of each item, shape (n,)."""
        error = self.truth - self.means
        z = error / self.deviations
        # Gneiting & Raftery 2007, equation 21 with the formula for normal distributions.
        density = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
        crps = self.deviations * (z * (2.0 * ndtr(z) - 1.0) + 2.0 * density - 1.0 / math.sqrt(math.pi))
        return {
            "squared_error": error**2,
            "mae": np.abs(error),
            "crps": crps,
            "log_loss": 0.5 * z**2 + np.log(self.deviations) + 0.5 * math.log(2.0 * math.pi),
            "coverage_90": (np.abs(z) <= ndtri(0.5 + 0.5 * COVERAGE)).astype(np.float64),
        }
