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

from relcrf.kernels.distinct import numbered

LEVEL = 0.95

RESAMPLES = 400
"""The ends of an interval then vary by a twentieth of its width."""

FEWEST_CLUSTERS = 10
"""Independent ones, below which to draw them again tells nothing of how far a figure may be off."""

Interval = tuple[float, float]
"""Low and high; both nan where nothing is known."""

UNKNOWN: Interval = (float("nan"), float("nan"))


@dataclass(frozen=True)
class Clusters:
    """What is drawn again together.

    Args:
        of: the cluster of each item, from 0, shape (n,).
        what: their name: `components`, or `labels` where the components are too few or one has too much of all.
    """

    of: np.ndarray
    what: str

    @classmethod
    def of_items(cls, variable: np.ndarray, component: np.ndarray) -> Clusters:
        """Of items by their variables, shape (n,), several of which may be of one.

        Args:
            component: of each variable.
        """
        cluster = numbered(component[variable])
        if effective(np.bincount(cluster)) >= FEWEST_CLUSTERS:
            return cls(cluster, "components")
        return cls(numbered(variable), "labels")

    def resampled(self, seed: int = 0) -> Iterator[np.ndarray]:
        """The weights of the items in each of `RESAMPLES` draws, shape (n,)."""
        n = int(self.of.max(initial=-1)) + 1
        rng = np.random.default_rng(seed)
        for _ in range(RESAMPLES):
            yield np.bincount(rng.integers(n, size=n), minlength=n)[self.of].astype(np.float64)


def effective(sizes: np.ndarray) -> float:
    """How many clusters of equal size would say as much as ones of these sizes."""
    total = sizes.sum()
    return float(total**2 / (sizes.astype(np.float64) ** 2).sum()) if total else 0.0


def percentiles(values: list[float]) -> Interval:
    """The middle `LEVEL` of resampled values; those that are not defined are left out."""
    known = [value for value in values if value == value]
    if not known:
        return UNKNOWN
    low, high = np.quantile(known, ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return float(low), float(high)


def debiased(values: list[float], value: float) -> Interval:
    """As `percentiles`, of a measure from 0 on that is larger in draws than it is: less what it is larger in their mean."""
    low, high = percentiles(values)
    excess = float(np.nanmean(values)) - value if low == low else 0.0
    return max(low - excess, 0.0), max(high - excess, 0.0)


def over_folds(values: list[float], held: float) -> Interval:
    """The interval of a mean of folds whose trainings overlap.

    Args:
        held: how many labels a fold holds out for each that it learns from.
    """
    known = np.array([value for value in values if value == value])
    if len(known) < 2:
        return UNKNOWN
    deviation = known.std(ddof=1) * np.sqrt(1 / len(known) + held)
    reach = float(stdtrit(len(known) - 1, (1 + LEVEL) / 2) * deviation)
    return float(known.mean() - reach), float(known.mean() + reach)
