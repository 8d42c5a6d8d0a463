"""Calibration of an attribute's probabilities: a reliability diagram and a recommendation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from relcrf.evaluation.intervals import Clusters, Interval, percentile_interval
from relcrf.evaluation.measures import BINS, ScoredLabels
from relcrf.report.plot import FIRST, GRID, MARK, Plot, draw


@dataclass(frozen=True)
class Calibration:
    """The calibration of the predictions of one attribute.

    Args:
        confidence: The mean probability of the predicted values.
        accuracy: The fraction of correct predictions.
        interval: The 95 % bootstrap interval of confidence minus accuracy.
    """

    confidence: float
    accuracy: float
    interval: Interval
    plot: Plot

    @property
    def is_overconfident(self) -> bool:
        """Whether confidence significantly exceeds accuracy."""
        return self.interval[0] > 0.0

    @property
    def is_underconfident(self) -> bool:
        """Whether accuracy significantly exceeds confidence."""
        return self.interval[1] < 0.0

    @property
    def advice(self) -> str:
        """An assessment of the calibration, with a recommendation."""
        low, high = (100 * end for end in self.interval)
        difference = (
            f"{100 * (self.confidence - self.accuracy):+.1f} percentage points, 95 % CI: {low:+.1f} to {high:+.1f}"
        )
        facts = f"mean confidence {self.confidence:.1%}, accuracy {self.accuracy:.1%} ({difference})"
        if self.is_overconfident:
            return (
                f"The model is overconfident: {facts}. Train with --calibrate 5 before you rely on its probabilities."
            )
        if self.is_underconfident:
            return f"The model is underconfident: {facts}. Train with --calibrate 5."
        return f"The model is calibrated on average, within sampling error: {facts}."


def measure_calibration(name: str, scored: ScoredLabels, clusters: Clusters) -> Calibration:
    """Measure the calibration of the held-out labels of one attribute.

    Args:
        clusters: The clusters of labels that the bootstrap resamples.
    """
    confidence, bins = scored.confidence_bins
    correct = scored.item_measures["accuracy"]
    gaps = clusters.resampled_means((confidence - correct)[:, None])[:, 0, 0]
    accuracies = clusters.resampled_means(correct[:, None], bins, BINS)[:, :, 0]
    n = np.bincount(bins, minlength=BINS)
    nonempty = np.flatnonzero(n)
    limits = np.array([percentile_interval(accuracies[:, k]) for k in nonempty])
    points = np.bincount(bins, confidence, minlength=BINS)[nonempty] / n[nonempty]
    plot = _reliability_plot(
        name, points, _accuracy_by_bin(bins, correct, np.ones(len(correct)))[nonempty], limits, n / n.sum()
    )
    return Calibration(float(confidence.mean()), float(correct.mean()), percentile_interval(gaps), plot)


def _accuracy_by_bin(bins: np.ndarray, correct: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the weighted accuracy in each bin, shape (BINS,); the accuracy of an empty bin is nan."""
    total = np.bincount(bins, weights, minlength=BINS)
    n_correct = np.bincount(bins, weights * correct, minlength=BINS)
    return np.asarray(np.divide(n_correct, total, out=np.full(BINS, np.nan), where=total > 0))


def _reliability_plot(
    name: str, points: np.ndarray, accuracies: np.ndarray, limits: np.ndarray, fractions: np.ndarray
) -> Plot:
    def paint(axes: Any) -> None:
        axes.bar((np.arange(BINS) + 0.5) / BINS, fractions, width=0.9 / BINS, color=GRID)
        axes.plot([0, 1], [0, 1], color=MARK, linewidth=1.2, linestyle="--")
        errors = np.maximum([accuracies - limits[:, 0], limits[:, 1] - accuracies], 0.0)
        axes.errorbar(
            points, accuracies, yerr=errors, color=FIRST, linewidth=1.4, marker="o", markersize=4, capsize=2.5
        )
        axes.set_xlim(0.0, 1.02)
        axes.set_ylim(0.0, 1.05)
        axes.set_xlabel("confidence (probability of the predicted value)")
        axes.set_ylabel("accuracy")

    legend = (
        (FIRST, "accuracy per bin, with 95 % intervals"),
        (MARK, "perfect calibration"),
        (GRID, "fraction of the predictions"),
    )
    return draw(f"{name}: reliability", paint, legend)
