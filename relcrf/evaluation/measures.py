"""Measures of predicted probabilities against labels: accuracy, losses, areas under curves, calibration error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

MIN_PROBABILITY = 1e-300
"""What a probability of 0 counts as, so that one impossible label does not hide all others."""

BINS = 10
"""Number of bins of confidence, of equal width, in the calibration error."""

MEASURES = ("accuracy", "log_loss", "brier", "macro_f1", "roc_auc", "pr_auc", "calibration_error")
"""Names in the order in which they are shown."""

RANKING_MEASURES = ("roc_auc", "pr_auc")
"""Measures that compare items with each other, and so only items that one trained model predicted: folds are averaged."""


@dataclass(frozen=True)
class Score:
    """Two measures of one predicted attribute.

    Args:
        accuracy: The fraction of variables whose most probable state is the label.
        log_likelihood: The mean log-probability of the label, in nats.
        n: The number of variables.
    """

    accuracy: float
    log_likelihood: float
    n: int


def score(probabilities: np.ndarray, truth: np.ndarray) -> Score:
    """Score marginals of shape (n, n_states) against labels of shape (n,)."""
    return ScoredLabels(probabilities, truth).score()


@dataclass(frozen=True, eq=False)
class ScoredLabels:
    """Probabilities of the states of labelled variables, with their labels.

    Args:
        probabilities: shape (n, n_states). truth: shape (n,).
    """

    probabilities: np.ndarray
    truth: np.ndarray

    def score(self) -> Score:
        """Return accuracy and log-likelihood; nan of nothing."""
        if not len(self.truth):
            return Score(float("nan"), float("nan"), 0)
        accuracy, loss = self.item_measures["accuracy"].mean(), self.item_measures["log_loss"].mean()
        return Score(float(accuracy), -float(loss), len(self.truth))

    def measures(self, weights: np.ndarray | None = None, names: Sequence[str] = MEASURES) -> dict[str, float]:
        """Return some of `MEASURES`; nan where one is not defined.

        `accuracy` is the share whose most probable state is the truth; `log_loss` is in nats. `brier` is the sum of squares over
        states, halved where there are two. `macro_f1` is a mean over the states that occur or are predicted. `roc_auc` is of the
        second of two states; of more a mean over each against the rest. `pr_auc`, the average precision, is of the second of two
        states. `calibration_error` is the mean distance of confidence and accuracy in `BINS` bins.

        Args:
            weights: of each item, from 0, shape (n,); None is 1.
        """
        weights = np.ones(len(self.truth)) if weights is None else weights
        if not weights.sum():
            return dict.fromkeys(names, float("nan"))
        others = {
            "macro_f1": self._macro_f1,
            "roc_auc": self._roc_auc,
            "pr_auc": self._average_precision,
            "calibration_error": self._calibration_error,
        }
        return {
            name: others[name](weights) if name in others else float(weights @ self.item_measures[name] / weights.sum())
            for name in names
        }

    @cached_property
    def modes(self) -> np.ndarray:
        """The most probable state of each variable, shape (n,); the first of equals."""
        return np.asarray(self.probabilities.argmax(axis=1))

    @cached_property
    def item_measures(self) -> Mapping[str, np.ndarray]:
        """The measures that are means over items, of each item, shape (n,)."""
        rows = np.arange(len(self.truth))
        of_truth = self.probabilities[rows, self.truth]
        squares = (self.probabilities**2).sum(axis=1) - 2.0 * of_truth + 1.0
        return {
            "accuracy": (self.modes == self.truth).astype(np.float64),
            "log_loss": -np.log(np.maximum(of_truth, MIN_PROBABILITY)),
            "brier": squares / 2.0 if self.probabilities.shape[1] == 2 else squares,
        }

    def _macro_f1(self, weights: np.ndarray) -> float:
        k = self.probabilities.shape[1]
        right = np.bincount(self.truth[self.modes == self.truth], weights[self.modes == self.truth], minlength=k)
        there = np.bincount(self.truth, weights, minlength=k) + np.bincount(self.modes, weights, minlength=k)
        return float((2.0 * right[there > 0] / there[there > 0]).mean())

    @cached_property
    def _sort_orders(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each state the items by its probability, ascending, and where each new probability begins."""
        out = []
        for column in self.probabilities.T:
            order = np.argsort(column, kind="stable")
            ordered = column[order]
            out.append((order, np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))))
        return out

    def _weights_by_rank(self, state: int, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The weights of items of a state and of all others at each of its probabilities, ascending."""
        order, starts = self._sort_orders[state]
        is_state = self.truth[order] == state
        ordered = weights[order]
        return np.add.reduceat(ordered * is_state, starts), np.add.reduceat(ordered * ~is_state, starts)

    def _roc_auc(self, weights: np.ndarray) -> float:
        k = self.probabilities.shape[1]
        areas = []
        for state in range(k) if k > 2 else (k - 1,):
            of, others = self._weights_by_rank(state, weights)
            if of.sum() and others.sum():
                below = np.cumsum(others) - others / 2.0
                areas.append(float(of @ below / (of.sum() * others.sum())))
        return float(np.mean(areas)) if areas else float("nan")

    def _average_precision(self, weights: np.ndarray) -> float:
        if self.probabilities.shape[1] != 2:
            return float("nan")
        of, others = (steps[::-1] for steps in self._weights_by_rank(1, weights))
        if not of.sum():
            return float("nan")
        chosen, right = np.cumsum(of + others), np.cumsum(of)
        precision = np.divide(right, chosen, out=np.zeros_like(right), where=chosen > 0)
        return float(of @ precision / of.sum())

    @cached_property
    def confidence_bins(self) -> tuple[np.ndarray, np.ndarray]:
        """Of each item its confidence, the probability of its most probable state, and which of `BINS` that is in, shape (n,)."""
        confidence = self.probabilities.max(axis=1, initial=0.0)
        return confidence, np.minimum((confidence * BINS).astype(np.int64), BINS - 1)

    def _calibration_error(self, weights: np.ndarray) -> float:
        confidence, place = self.confidence_bins
        gap = weights * (confidence - (self.modes == self.truth))
        return float(np.abs(np.bincount(place, gap, minlength=BINS)).sum() / weights.sum())
