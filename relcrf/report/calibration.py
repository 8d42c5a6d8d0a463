"""How far an attribute's probabilities can be taken at their word: a reliability diagram and a sentence of advice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from relcrf.evaluation.intervals import Clusters, Interval, percentile_interval
from relcrf.evaluation.measures import BINS, ScoredLabels
from relcrf.report.plot import FIRST, GRID, MARK, Plot, draw


@dataclass(frozen=True)
class Calibration:
    """
    Args:
        confidence: mean probability of the answers that are given. accuracy: share of them that are right.
        interval: of 95 %, of their difference.
    """

    confidence: float
    accuracy: float
    interval: Interval
    plot: Plot

    @property
    def is_overconfident(self) -> bool:
        return self.interval[0] > 0.0

    @property
    def is_underconfident(self) -> bool:
        return self.interval[1] < 0.0

    @property
    def advice(self) -> str:
        """What to make of it."""
        low, high = (100 * end for end in self.interval)
        facts = f"it gives its answers {self.confidence:.1%} on average, and {self.accuracy:.1%} of them are right"
        apart = f"{100 * (self.confidence - self.accuracy):+.1f} points, 95 %: {low:+.1f} to {high:+.1f}"
        if self.is_overconfident:
            return f"The model is too sure: {facts} ({apart}). Train with --calibrate 5 before you act on its probabilities."
        if self.is_underconfident:
            return f"The model is less sure than it may be: {facts} ({apart}). Train with --calibrate 5."
        return f"On the whole the probabilities can be taken at their word: {facts} ({apart}), which chance explains."


def measure_calibration(name: str, scored: ScoredLabels, clusters: Clusters) -> Calibration:
    """Of what is held out of one attribute.

    Args:
        clusters: what is drawn again for the intervals.
    """
    confidence, place = scored.confidence_bins
    right = scored.item_measures["accuracy"]
    drawn = list(clusters.bootstrap_weights())
    gaps = [float(weights @ (confidence - right) / weights.sum()) for weights in drawn]
    shares = np.array([_accuracy_by_bin(place, right, weights) for weights in drawn])
    n = np.bincount(place, minlength=BINS)
    seen = np.flatnonzero(n)
    ends = np.array([percentile_interval(shares[:, k].tolist()) for k in seen])
    points = np.bincount(place, confidence, minlength=BINS)[seen] / n[seen]
    plot = _reliability_plot(name, points, _accuracy_by_bin(place, right, np.ones(len(right)))[seen], ends, n / n.sum())
    return Calibration(float(confidence.mean()), float(right.mean()), percentile_interval(gaps), plot)


def _accuracy_by_bin(place: np.ndarray, right: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The share that is right in each bin, shape (BINS,); nan where nothing is."""
    total = np.bincount(place, weights, minlength=BINS)
    found = np.bincount(place, weights * right, minlength=BINS)
    return np.asarray(np.divide(found, total, out=np.full(BINS, np.nan), where=total > 0))


def _reliability_plot(name: str, points: np.ndarray, shares: np.ndarray, ends: np.ndarray, of_all: np.ndarray) -> Plot:
    def paint(axes: Any) -> None:
        axes.bar((np.arange(BINS) + 0.5) / BINS, of_all, width=0.9 / BINS, color=GRID)
        axes.plot([0, 1], [0, 1], color=MARK, linewidth=1.2, linestyle="--")
        reach = np.maximum([shares - ends[:, 0], ends[:, 1] - shares], 0.0)
        axes.errorbar(points, shares, yerr=reach, color=FIRST, linewidth=1.4, marker="o", markersize=4, capsize=2.5)
        axes.set_xlim(0.0, 1.02)
        axes.set_ylim(0.0, 1.05)
        axes.set_xlabel("confidence: the probability of the answer")
        axes.set_ylabel("share that is right")

    legend = (
        (FIRST, "share that is right, with intervals of 95 %"),
        (MARK, "where a model is as sure as it is right"),
        (GRID, "share of the answers"),
    )
    return draw(f"{name}: reliability", paint, legend)
