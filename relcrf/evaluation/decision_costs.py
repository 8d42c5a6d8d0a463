"""Decisions for one value of an attribute by the costs of errors: a threshold, and its cost per entity on other labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relcrf.evaluation.class_measures import count_above_thresholds
from relcrf.evaluation.intervals import Clusters, Interval, percentile_interval
from relcrf.evaluation.measures import ScoredLabels
from relcrf.evaluation.number_evidence import number_format

PARTS = 5
"""Number of parts of the labels; a part is scored with the threshold that has the lowest cost on the other parts."""


@dataclass(frozen=True)
class DecisionCosts:
    """The costs of the two kinds of errors: a missed entity (false negative), and a false alarm (false positive)."""

    false_negative: float
    false_positive: float


@dataclass(frozen=True)
class PolicyCost:
    """The mean cost per entity of a way to decide, with its 95 % bootstrap interval.

    Args:
        n_treated: The number of entities that are decided to have the value.
    """

    policy: str
    cost: float
    interval: Interval
    n_treated: int


@dataclass(frozen=True)
class ThresholdChoice:
    """A threshold of the probability of a value, and the costs of ways to decide.

    Args:
        threshold: The threshold with the lowest cost on all held-out labels.
        policies: The chosen threshold first; it is scored on labels on which it was not chosen.
        saving: The cost of threshold .5 minus the cost of the chosen threshold, per entity, with its interval.
    """

    value: str
    threshold: float
    policies: tuple[PolicyCost, ...]
    saving: tuple[float, Interval]

    @property
    def threshold_text(self) -> str:
        """The threshold with three significant digits."""
        return format(self.threshold, number_format(self.threshold))


def choose_threshold(
    scored: ScoredLabels, value: str, state: int, costs: DecisionCosts, clusters: Clusters
) -> ThresholdChoice:
    """Choose the threshold with the lowest cost, and compare its cost with threshold .5, treating none and treating all.

    Args:
        value, state: The name and the index of the value.
        clusters: The clusters of labels; all labels of a cluster are in the same part.
    """
    probabilities = scored.probabilities[:, state]
    n_clusters = int(clusters.index.max(initial=-1)) + 1
    part = (np.random.default_rng(0).permutation(n_clusters) % PARTS)[clusters.index]
    thresholds = np.full(len(part), 0.5)
    for number in np.unique(part):
        others = part != number
        if others.any():
            thresholds[~others] = _best_threshold(
                ScoredLabels(scored.probabilities[others], scored.truth[others]), state, costs
            )
    treated = {
        "chosen threshold": probabilities >= thresholds,
        "threshold .5": probabilities >= 0.5,
        "treat none": np.zeros(len(part), dtype=bool),
        "treat all": np.ones(len(part), dtype=bool),
    }
    is_value = scored.truth == state
    item_costs = {
        name: costs.false_negative * (is_value & ~mask) + costs.false_positive * (~is_value & mask)
        for name, mask in treated.items()
    }
    saved = item_costs["threshold .5"] - item_costs["chosen threshold"]
    resampled = clusters.resampled_means(np.column_stack([*item_costs.values(), saved]))[:, 0]
    *intervals, saved_interval = map(percentile_interval, resampled.T)
    policies = tuple(
        PolicyCost(name, float(one.mean()), interval, int(treated[name].sum()))
        for (name, one), interval in zip(item_costs.items(), intervals, strict=True)
    )
    saving = (float(saved.mean()), saved_interval)
    return ThresholdChoice(value, _best_threshold(scored, state, costs), policies, saving)


def _best_threshold(scored: ScoredLabels, state: int, costs: DecisionCosts) -> float:
    """Return the threshold with the lowest cost on some labels, halfway to the next lower probability if a number is between.

    The threshold to treat none is above all probabilities, even if one is 1.
    """
    thresholds, true, false = count_above_thresholds(scored, state)
    best = int(np.argmin(costs.false_negative * (true[-1] - true) + costs.false_positive * false))
    lower = thresholds[best + 1] if best + 1 < len(thresholds) else 0.0
    upper = min(thresholds[best], max(1.0, np.nextafter(lower, np.inf)))
    middle = (upper + lower) / 2.0
    return float(middle if middle > lower else upper)
