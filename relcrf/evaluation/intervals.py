"""Confidence intervals of 95 %, computed from bootstrap resamples of connected components or from folds.

Source: Field & Welsh, Bootstrapping clustered data (2007): whole clusters are resampled, because connected variables
are dependent. Nadeau & Bengio, Inference for the generalization error (2003), equation 7: the training sets of folds
overlap, and the variance of a mean over folds is underestimated without a correction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from relcrf.kernels.distinct import number_rows

CONFIDENCE_LEVEL = 0.95

RESAMPLES = 400
"""Number of bootstrap resamples; with 400, the limits of an interval vary by about 5 % of the interval's width."""

MIN_CLUSTERS = 10
"""Minimum effective number of clusters; resampling fewer clusters does not estimate the variance reliably."""

Interval = tuple[float, float]
"""The lower and the upper limit of an interval; both limits are nan if the interval is undefined."""

UNDEFINED: Interval = (float("nan"), float("nan"))


@dataclass(frozen=True)
class Clusters:
    """The clusters of items that the bootstrap resamples.

    Args:
        index: The index of each item's cluster, from 0, shape (n,).
        unit: The resampled unit: `components`, or `labels` if the components are too few or too unequal in size.
    """

    index: np.ndarray
    unit: str

    @classmethod
    def from_variables(cls, variable: np.ndarray, component: np.ndarray) -> Clusters:
        """Cluster items by connected component, or by variable if the components are too few or too unequal in size.

        Args:
            variable: The variable of each item, shape (n,); several items may have the same variable.
            component: The component of each variable, shape (n_variables,).
        """
        cluster = number_rows(component[variable])
        if effective_count(np.bincount(cluster)) >= MIN_CLUSTERS:
            return cls(cluster, "components")
        return cls(number_rows(variable), "labels")

    def bootstrap_weights(self, seed: int = 0) -> Iterator[np.ndarray]:
        """Yield, for each of `RESAMPLES` bootstrap resamples, how often each item is drawn, shape (n,)."""
        n = int(self.index.max(initial=-1)) + 1
        rng = np.random.default_rng(seed)
        for _ in range(RESAMPLES):
            yield np.bincount(rng.integers(n, size=n), minlength=n)[self.index].astype(np.float64)

    def resampled_means(
        self, values: np.ndarray, group: np.ndarray | None = None, n_groups: int = 1, seed: int = 0
    ) -> np.ndarray:
        """Return the mean of each column of `values` in each group and resample, shape (RESAMPLES, n_groups, n_columns).

        Only one resample is in memory at a time. A group without items in a resample has the mean nan.

        Args:
            values: The values of the items, shape (n, n_columns).
            group: The group of each item, shape (n,); negative for items without a group. Default: one group.
        """
        if group is None:
            group = np.zeros(len(values), dtype=np.int64)
        items = np.flatnonzero(group >= 0)
        group, columns = group[items], values[items].T
        means = np.full((RESAMPLES, n_groups, len(columns)), np.nan)
        for resample, weights in zip(means, self.bootstrap_weights(seed), strict=True):
            weight = weights[items]
            totals = np.bincount(group, weight, minlength=n_groups)
            drawn = totals > 0.0
            for k, column in enumerate(columns):
                resample[drawn, k] = np.bincount(group, weight * column, minlength=n_groups)[drawn] / totals[drawn]
        return means


def effective_count(sizes: np.ndarray) -> float:
    """Return the effective number of clusters: how many clusters of equal size would give a mean the same variance."""
    total = sizes.sum()
    return float(total**2 / (sizes.astype(np.float64) ** 2).sum()) if total else 0.0


def percentile_interval(values: Sequence[float] | np.ndarray) -> Interval:
    """Return the central `CONFIDENCE_LEVEL` interval of resampled values, ignoring nan."""
    known = [value for value in values if value == value]
    if not known:
        return UNDEFINED
    low, high = np.quantile(known, ((1 - CONFIDENCE_LEVEL) / 2, (1 + CONFIDENCE_LEVEL) / 2))
    return float(low), float(high)


def bias_corrected_interval(values: list[float], value: float) -> Interval:
    """Return the percentile interval of a nonnegative measure that resampling inflates, minus the mean inflation."""
    low, high = percentile_interval(values)
    excess = float(np.nanmean(values)) - value if low == low else 0.0
    return max(low - excess, 0.0), max(high - excess, 0.0)


def fold_interval(values: list[float], test_train_ratio: float) -> Interval:
    """Return the interval of a mean over folds whose training sets overlap.

    Args:
        test_train_ratio: The number of test labels of a fold, divided by the number of training labels.
    """
    known = np.array([value for value in values if value == value])
    if len(known) < 2:
        return UNDEFINED
    deviation = known.std(ddof=1) * np.sqrt(1 / len(known) + test_train_ratio)
    reach = float(stdtrit(len(known) - 1, (1 + CONFIDENCE_LEVEL) / 2) * deviation)
    return float(known.mean() - reach), float(known.mean() + reach)
