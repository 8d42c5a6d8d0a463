"""Measures of predicted probabilities against labels: accuracy, losses, areas under curves, calibration error."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar

import numpy as np

MIN_PROBABILITY = 1e-300
"""Lower bound of the probabilities in the log-loss, which a single probability of 0 would otherwise make infinite."""

BINS = 10
"""Number of confidence bins of equal width in the calibration error."""

MEASURES = ("accuracy", "log_loss", "brier", "macro_f1", "roc_auc", "pr_auc", "calibration_error")
"""Names of the measures of all attributes and relations, in display order."""

HITS = {"hits_at_1": 1, "hits_at_3": 3, "hits_at_10": 10}
"""The maximum rank of a hit, by the name of the measure."""

LINK_MEASURES = ("mrr", *HITS)
"""Names of the measures of ranks in groups of tuples, which are defined for Boolean relations."""

RANKING_MEASURES = ("roc_auc", "pr_auc", *LINK_MEASURES)
"""Measures that compare items with each other.

These measures are computed within each fold, because only predictions of one trained model can be ranked, and are then
averaged over the folds.
"""


MAX_RANKED = 1 << 16
"""Number of probabilities that are ranked together, to bound the memory of rankings by many states."""


@dataclass(frozen=True)
class Score:
    """The accuracy and log-likelihood of predictions.

    Args:
        accuracy: The fraction of variables whose most probable state is the label.
        log_likelihood: The mean log-probability of the label, in nats.
        n: The number of variables.
        mae: The mean absolute error of predicted numbers, which have no accuracy.
    """

    accuracy: float
    log_likelihood: float
    n: int
    mae: float = float("nan")

    def as_dict(self) -> dict[str, float]:
        """Return the fields as a JSON object: the accuracy of labels, or the mean absolute error of numbers."""
        error = {"accuracy": self.accuracy} if math.isnan(self.mae) else {"mae": self.mae}
        return {**error, "log_likelihood": self.log_likelihood, "n": self.n}


def score(probabilities: np.ndarray, truth: np.ndarray) -> Score:
    """Score marginals of shape (n, n_states) against labels of shape (n,)."""
    return ScoredLabels(probabilities, truth).score()


@dataclass(frozen=True, eq=False)
class _Ranking:
    """The items by ascending probability of each of several states.

    Args:
        items: The items in the order of the first state, then in that of the second state, and so on.
        is_labelled: Whether the item has the state as its label, for each entry of `items`.
        runs: The offset in `items` of each run of equal probabilities.
        states: The offset in `runs` of each state.
    """

    items: np.ndarray
    is_labelled: np.ndarray
    runs: np.ndarray
    states: np.ndarray

    @classmethod
    def build(cls, probabilities: np.ndarray, is_label: np.ndarray) -> _Ranking:
        """Rank items by the probabilities of states, shape (n, n_states); `is_label` of the same shape marks the labels."""
        n, n_states = probabilities.shape
        order = np.argsort(probabilities.T, axis=1, kind="stable")
        ordered = np.take_along_axis(probabilities.T, order, axis=1)
        is_new = np.ones((n_states, n), dtype=bool)
        is_new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
        runs = np.flatnonzero(is_new)
        is_labelled = np.take_along_axis(is_label.T, order, axis=1)
        return cls(order.ravel(), is_labelled.ravel(), runs, np.searchsorted(runs, n * np.arange(n_states)))

    def weights_by_rank(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the total weight of the items with the label and of the other items, for each run."""
        ordered = weights[self.items]
        labelled = np.where(self.is_labelled, ordered, 0.0)
        return np.add.reduceat(labelled, self.runs), np.add.reduceat(ordered - labelled, self.runs)

    def areas(self, weights: np.ndarray) -> np.ndarray:
        """Return the area under the ROC curve of each state for which there are items with the label and other items."""
        positives, negatives = self.weights_by_rank(weights)
        n_positives, n_negatives = (np.add.reduceat(each, self.states) for each in (positives, negatives))
        below = np.cumsum(negatives) - negatives / 2.0
        of_earlier_states = np.cumsum(n_negatives) - n_negatives
        pairs = np.add.reduceat(positives * below, self.states) - n_positives * of_earlier_states
        all_pairs = n_positives * n_negatives
        return np.asarray(pairs[all_pairs > 0.0] / all_pairs[all_pairs > 0.0])


@dataclass(frozen=True, eq=False)
class ScoredLabels:
    """The state probabilities and the labels of some variables, called *items*.

    Args:
        probabilities: The probability of each state, shape (n, n_states).
        truth: The label of each item, shape (n,).
        groups: Several partitions of the items; in each partition, the items of a group are ranked together. The group
            of each item, shape (n_partitions, n). None: the items are not ranked.
    """

    probabilities: np.ndarray
    truth: np.ndarray
    groups: np.ndarray | None = None
    compared_measures: ClassVar[tuple[str, ...]] = ("accuracy", "log_loss", "brier")
    """Measures by which systems are compared: means over labels, so that two systems can be compared label by label."""

    @classmethod
    def concatenate(cls, parts: Sequence[ScoredLabels]) -> ScoredLabels:
        """Return the items of all parts, without groups."""
        return cls(np.concatenate([p.probabilities for p in parts]), np.concatenate([p.truth for p in parts]))

    @property
    def measure_names(self) -> tuple[str, ...]:
        """The names of the measures of these items, in display order."""
        return MEASURES if self.groups is None else (*MEASURES, *LINK_MEASURES)

    def score(self) -> Score:
        """Return accuracy and log-likelihood; nan without labels."""
        if not len(self.truth):
            return Score(float("nan"), float("nan"), 0)
        accuracy, loss = self.item_measures["accuracy"].mean(), self.item_measures["log_loss"].mean()
        return Score(float(accuracy), -float(loss), len(self.truth))

    def measures(self, weights: np.ndarray | None = None, names: Sequence[str] | None = None) -> dict[str, float]:
        """Return the measures `names` (default: `measure_names`); nan if a measure is undefined.

        - `accuracy`: the fraction of items whose most probable state is the label.
        - `log_loss`: the mean negative log-probability of the label, in nats.
        - `brier`: the mean over items of the sum of squared errors over the states, halved for two states.
        - `macro_f1`: the mean F1 over the states that occur or are predicted.
        - `roc_auc`: for two states, the area under the ROC curve of the second state; otherwise, the mean area of each
          state against the rest.
        - `pr_auc`: for two states, the average precision of the second state; otherwise undefined.
        - `calibration_error`: the absolute difference of confidence and accuracy of an item's bin, averaged over items.
        - `mrr`: the mean of 1 / rank; see `ranks`.
        - `hits_at_1`, `hits_at_3`, `hits_at_10`: the fraction of ranks up to 1, 3 or 10.

        Args:
            weights: Nonnegative weights of the items, shape (n,). Default: 1.
        """
        weights = np.ones(len(self.truth)) if weights is None else weights
        names = self.measure_names if names is None else names
        if not weights.sum():
            return dict.fromkeys(names, float("nan"))
        others: dict[str, Callable[[np.ndarray], float]] = {
            "macro_f1": self._macro_f1,
            "roc_auc": self._roc_auc,
            "pr_auc": self._average_precision,
            "calibration_error": self._calibration_error,
            "mrr": lambda weights: self._mean_of_ranks(weights, np.reciprocal),
            **{name: partial(self._mean_of_ranks, function=partial(np.greater_equal, k)) for name, k in HITS.items()},
        }
        return {
            name: others[name](weights) if name in others else float(weights @ self.item_measures[name] / weights.sum())
            for name in names
        }

    @cached_property
    def modes(self) -> np.ndarray:
        """The most probable state of each variable, shape (n,); the first in case of ties."""
        return np.asarray(self.probabilities.argmax(axis=1))

    @cached_property
    def item_measures(self) -> Mapping[str, np.ndarray]:
        """For each measure that is a mean over items, the value of each item, shape (n,)."""
        rows = np.arange(len(self.truth))
        label_probabilities = self.probabilities[rows, self.truth]
        squares = (self.probabilities**2).sum(axis=1) - 2.0 * label_probabilities + 1.0
        return {
            "accuracy": (self.modes == self.truth).astype(np.float64),
            "log_loss": -np.log(np.maximum(label_probabilities, MIN_PROBABILITY)),
            "brier": squares / 2.0 if self.probabilities.shape[1] == 2 else squares,
        }

    @cached_property
    def ranks(self) -> tuple[np.ndarray, np.ndarray]:
        """The rank of each item with label 1 in each of its groups that has an item with label 0, and this item.

        The rank is 1 plus the number of items with label 0 in the group that have a higher probability of state 1, plus
        half of the number of those with an equal probability. Other items with label 1 do not count (*filtered* rank).
        """
        rank, item = [np.empty(0)], [np.empty(0, dtype=np.int64)]
        for group in np.empty((0, 0)) if self.groups is None else self.groups:
            order = np.lexsort((-self.probabilities[:, 1], group))
            score, ordered, is_false = self.probabilities[order, 1], group[order], self.truth[order] == 0
            new_group = np.concatenate(([True], ordered[1:] != ordered[:-1]))
            new_run = new_group | np.concatenate(([True], score[1:] != score[:-1]))
            before = np.concatenate(([0], np.cumsum(is_false)))
            group_start, run_start = np.flatnonzero(new_group), np.flatnonzero(new_run)
            group_false, run_false = (
                np.diff(before[np.append(start, len(order))]) for start in (group_start, run_start)
            )
            in_group, in_run = np.cumsum(new_group) - 1, np.cumsum(new_run) - 1
            higher = before[run_start][in_run] - before[group_start][in_group]
            ranked = ~is_false & (group_false[in_group] > 0)
            rank.append((1.0 + higher + 0.5 * run_false[in_run])[ranked])
            item.append(order[ranked])
        return np.concatenate(rank), np.concatenate(item)

    def _mean_of_ranks(self, weights: np.ndarray, function: Callable[[np.ndarray], np.ndarray]) -> float:
        ranks, items = self.ranks
        total = weights[items].sum()
        return float(weights[items] @ function(ranks) / total) if total else float("nan")

    def _macro_f1(self, weights: np.ndarray) -> float:
        k = self.probabilities.shape[1]
        correct = np.bincount(self.truth[self.modes == self.truth], weights[self.modes == self.truth], minlength=k)
        denominators = np.bincount(self.truth, weights, minlength=k) + np.bincount(self.modes, weights, minlength=k)
        return float((2.0 * correct[denominators > 0] / denominators[denominators > 0]).mean())

    @cached_property
    def _rankings(self) -> list[_Ranking]:
        """The rankings by the probability of each state; for two states, only of the second state."""
        k = self.probabilities.shape[1]
        states = np.arange(k) if k > 2 else np.array([k - 1])
        n_parts = -(-len(states) // max(1, MAX_RANKED // max(1, len(self.truth))))
        return [
            _Ranking.build(self.probabilities[:, part], self.truth[:, None] == part)
            for part in np.array_split(states, n_parts)
        ]

    def _roc_auc(self, weights: np.ndarray) -> float:
        areas = np.concatenate([ranking.areas(weights) for ranking in self._rankings])
        return float(areas.mean()) if len(areas) else float("nan")

    def _average_precision(self, weights: np.ndarray) -> float:
        if self.probabilities.shape[1] != 2:
            return float("nan")
        (ranking,) = self._rankings
        positives, negatives = (steps[::-1] for steps in ranking.weights_by_rank(weights))
        if not positives.sum():
            return float("nan")
        chosen, correct = np.cumsum(positives + negatives), np.cumsum(positives)
        precision = np.divide(correct, chosen, out=np.zeros_like(correct), where=chosen > 0)
        return float(positives @ precision / positives.sum())

    @cached_property
    def confidence_bins(self) -> tuple[np.ndarray, np.ndarray]:
        """The confidence (probability of the most probable state) and the bin index of each item, shape (n,) each."""
        confidence = self.probabilities.max(axis=1, initial=0.0)
        return confidence, np.minimum((confidence * BINS).astype(np.int64), BINS - 1)

    def _calibration_error(self, weights: np.ndarray) -> float:
        confidence, bins = self.confidence_bins
        gap = weights * (confidence - (self.modes == self.truth))
        return float(np.abs(np.bincount(bins, gap, minlength=BINS)).sum() / weights.sum())
