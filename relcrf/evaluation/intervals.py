"""How far a figure may be off: intervals of 95 %, from resampled components or from folds.

Source: Field & Welsh, Bootstrapping clustered data (2007): whole clusters are drawn again, for what is connected is not
independent. Nadeau & Bengio, Inference for the generalization error (2003), equation 7 for folds: their trainings overlap, and
without a correction differences of folds look surer than they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from relcrf.kernels.distinct import number_rows

CONFIDENCE_LEVEL = 0.95

RESAMPLES = 400
"""The ends of an interval then vary by a twentieth of its width."""

MIN_CLUSTERS = 10
"""Independent ones, below which to draw them again tells nothing of how far a figure may be off."""

Interval = tuple[float, float]
"""Low and high; both nan where nothing is known."""

UNDEFINED: Interval = (float("nan"), float("nan"))


@dataclass(frozen=True)
class Clusters:
    """What is drawn again together.

    Args:
        index: the cluster of each item, from 0, shape (n,).
        unit: their name: `components`, or `labels` where the components are too few or one has too much of all.
    """

    index: np.ndarray
    unit: str

    @classmethod
    def from_variables(cls, variable: np.ndarray, component: np.ndarray) -> Clusters:
        """Of items by their variables, shape (n,), several of which may be of one.

        Args:
            component: of each variable.
        """
        cluster = number_rows(component[variable])
        if effective_count(np.bincount(cluster)) >= MIN_CLUSTERS:
            return cls(cluster, "components")
        return cls(number_rows(variable), "labels")

    def bootstrap_weights(self, seed: int = 0) -> Iterator[np.ndarray]:
        """The weights of the items in each of `RESAMPLES` draws, shape (n,)."""
        n = int(self.index.max(initial=-1)) + 1
        rng = np.random.default_rng(seed)
        for _ in range(RESAMPLES):
            yield np.bincount(rng.integers(n, size=n), minlength=n)[self.index].astype(np.float64)


def effective_count(sizes: np.ndarray) -> float:
    """How many clusters of equal size would say as much as ones of these sizes."""
    total = sizes.sum()
    return float(total**2 / (sizes.astype(np.float64) ** 2).sum()) if total else 0.0


def percentile_interval(values: list[float]) -> Interval:
    """The middle `CONFIDENCE_LEVEL` of resampled values; those that are not defined are left out."""
    known = [value for value in values if value == value]
    if not known:
        return UNDEFINED
    low, high = np.quantile(known, ((1 - CONFIDENCE_LEVEL) / 2, (1 + CONFIDENCE_LEVEL) / 2))
    return float(low), float(high)


def bias_corrected_interval(values: list[float], value: float) -> Interval:
    """As `percentiles`, of a measure from 0 on that is larger in draws than it is: less what it is larger in their mean."""
    low, high = percentile_interval(values)
    excess = float(np.nanmean(values)) - value if low == low else 0.0
    return max(low - excess, 0.0), max(high - excess, 0.0)


def fold_interval(values: list[float], test_train_ratio: float) -> Interval:
    """The interval of a mean of folds whose trainings overlap.

    Args:
        test_train_ratio: how many labels a fold holds out for each that it learns from.
    """
    known = np.array([value for value in values if value == value])
    if len(known) < 2:
        return UNDEFINED
    deviation = known.std(ddof=1) * np.sqrt(1 / len(known) + test_train_ratio)
    reach = float(stdtrit(len(known) - 1, (1 + CONFIDENCE_LEVEL) / 2) * deviation)
    return float(known.mean() - reach), float(known.mean() + reach)
