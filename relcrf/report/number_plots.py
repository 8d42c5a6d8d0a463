"""Plots of predicted numbers against held-out ones, the coverage of their intervals, and the largest errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from relcrf.backends.calibration_labels import CalibrationLabels
from relcrf.data.frame import Frame
from relcrf.evaluation.intervals import Clusters, Interval, percentile_interval
from relcrf.evaluation.measures import BINS
from relcrf.evaluation.number_measures import COVERAGE, ScoredNumbers
from relcrf.report.plot import FIRST, MARK, SECOND, Plot, draw

MAX_POINTS = 1000
"""Maximum number of points of a scatter plot, a random sample, so that a page on many numbers remains small."""

MAX_ERRORS = 10
"""Maximum number of rows of the table of the largest errors."""

LEVELS = tuple(k / 20 for k in range(1, 20))
"""Probabilities of the intervals whose coverage is plotted."""


@dataclass(frozen=True)
class NumberCalibration:
    """The calibration of the distributions of one number.

    Args:
        coverage: The fraction of the held-out numbers in the intervals of probability `COVERAGE` of the model.
        interval: Its 95 % bootstrap interval.
        calibrated_coverage: The same for intervals that are calibrated on held-out labels of the training; None without them.
        plots: The coverage by probability, the histogram of probabilities and the quantiles of standardised residuals.
    """

    coverage: float
    interval: Interval
    calibrated_coverage: float | None
    plots: tuple[Plot, ...]

    @property
    def is_overconfident(self) -> bool:
        """Whether the intervals are significantly too narrow."""
        return self.interval[1] < COVERAGE

    @property
    def is_underconfident(self) -> bool:
        """Whether the intervals are significantly too wide."""
        return self.interval[0] > COVERAGE

    @property
    def advice(self) -> str:
        """An assessment of the calibration, with a recommendation."""
        low, high = self.interval
        facts = (
            f"{COVERAGE:.0%} intervals contain {self.coverage:.1%} of the numbers (95 % CI: {low:.1%} to {high:.1%})"
        )
        verdict = "calibrated, within sampling error"
        if self.is_overconfident:
            verdict = "overconfident, its intervals are too narrow"
        elif self.is_underconfident:
            verdict = "underconfident, its intervals are too wide"
        text = f"The model is {verdict}: {facts}."
        if self.calibrated_coverage is not None:
            return f"{text} The calibrated intervals, which relcrf predict returns, contain {self.calibrated_coverage:.1%}."
        if self.is_overconfident or self.is_underconfident:
            return f"{text} Train with --calibrate 5: relcrf predict then returns calibrated intervals."
        return text


def measure_number_calibration(
    name: str, scored: ScoredNumbers, clusters: Clusters, labels: CalibrationLabels | None
) -> NumberCalibration:
    """Measure the calibration of the held-out numbers of one attribute.

    Args:
        clusters: The clusters of numbers that the bootstrap resamples.
        labels: The held-out labels of the training, on which intervals are calibrated; None for no such intervals.
    """
    tail = scored.tail_probabilities()
    is_inside = tail[:, None] >= 1.0 - np.array(LEVELS)
    resampled = np.array([weights @ is_inside / weights.sum() for weights in clusters.bootstrap_weights()])
    limits = np.array([percentile_interval(values.tolist()) for values in resampled.T])
    chosen = LEVELS.index(COVERAGE)
    calibrated = None
    if labels is not None:
        calibrated = np.array([float((tail >= labels.min_probability(level)).mean()) for level in LEVELS])
    coverage = is_inside.mean(axis=0)
    plots = (
        _coverage_plot(name, coverage, limits, calibrated),
        _probability_plot(name, scored),
        _quantile_plot(name, scored),
    )
    low, high = limits[chosen].tolist()
    return NumberCalibration(
        float(coverage[chosen]), (low, high), None if calibrated is None else float(calibrated[chosen]), plots
    )


def largest_errors(scored: ScoredNumbers, names: Sequence[str]) -> Frame:
    """Return the largest absolute errors, largest first.

    The columns are `name`, `truth`, `mean`, `deviation`, `error` (the value minus the mean) and `residual` (the error divided
    by the standard deviation).
    """
    error = scored.truth - scored.means
    rows = np.argsort(-np.abs(error), kind="stable")[:MAX_ERRORS]
    columns = {
        "truth": scored.truth,
        "mean": scored.means,
        "deviation": scored.deviations,
        "error": error,
        "residual": error / scored.deviations,
    }
    return Frame(
        {"name": np.array(names, dtype=object)[rows], **{key: values[rows] for key, values in columns.items()}}
    )


def plot_numbers(name: str, scored: ScoredNumbers) -> list[Plot]:
    """Return a plot of the held-out numbers against their predicted means."""
    n = len(scored.truth)
    shown = np.sort(np.random.default_rng(0).permutation(n)[:MAX_POINTS])

    def paint(axes: Any) -> None:
        means, truth = scored.means[shown], scored.truth[shown]
        ends = [min(means.min(), truth.min()), max(means.max(), truth.max())]
        axes.plot(ends, ends, color=MARK, linewidth=1.2, linestyle="--")
        axes.plot(means, truth, color=FIRST, linestyle="", marker="o", markersize=3, alpha=0.6)
        axes.set_xlabel("predicted mean")
        axes.set_ylabel("held-out value")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: f"{value:,.10g}")

    points = f"{n:,} held-out numbers" if n <= MAX_POINTS else f"a sample of {MAX_POINTS:,} of {n:,} held-out numbers"
    return [draw(f"{name}: values and predictions", paint, ((FIRST, points), (MARK, "value equal to the mean")))]


def _coverage_plot(name: str, coverage: np.ndarray, limits: np.ndarray, calibrated: np.ndarray | None) -> Plot:
    def paint(axes: Any) -> None:
        axes.plot([0, 1], [0, 1], color=MARK, linewidth=1.2, linestyle="--")
        errors = np.maximum([coverage - limits[:, 0], limits[:, 1] - coverage], 0.0)
        axes.errorbar(LEVELS, coverage, yerr=errors, color=FIRST, linewidth=1.4, marker="o", markersize=3, capsize=2)
        if calibrated is not None:
            axes.plot(LEVELS, calibrated, color=SECOND, linewidth=1.4, marker="s", markersize=3)
        axes.set_xlim(0.0, 1.02)
        axes.set_ylim(0.0, 1.05)
        axes.set_xlabel("probability of the interval")
        axes.set_ylabel("fraction of numbers inside")

    legend = [(FIRST, "intervals of the model, with 95 % intervals"), (MARK, "perfect calibration")]
    if calibrated is not None:
        legend.insert(1, (SECOND, "calibrated intervals"))
    return draw(f"{name}: coverage", paint, tuple(legend))


def _probability_plot(name: str, scored: ScoredNumbers) -> Plot:
    """Plot a histogram of the predicted probability of a smaller number (the probability integral transform)."""
    below = ndtr((scored.truth - scored.means) / scored.deviations)
    fractions = np.histogram(below, bins=BINS, range=(0.0, 1.0))[0] / len(below)

    def paint(axes: Any) -> None:
        axes.bar((np.arange(BINS) + 0.5) / BINS, fractions, width=0.9 / BINS, color=FIRST)
        axes.axhline(1.0 / BINS, color=MARK, linewidth=1.2, linestyle="--")
        axes.set_xlim(0.0, 1.0)
        axes.grid(axis="x", visible=False)
        axes.set_axisbelow(True)
        axes.set_xlabel("predicted probability of a smaller number")
        axes.set_ylabel("fraction of numbers")

    legend = ((FIRST, "a U shape: too narrow; a hump: too wide; a slope: biased"), (MARK, "perfect calibration"))
    return draw(f"{name}: probability integral transform", paint, legend)


def _quantile_plot(name: str, scored: ScoredNumbers) -> Plot:
    """Plot the quantiles of the standardised residuals against those of the normal distribution."""
    residuals = np.sort((scored.truth - scored.means) / scored.deviations)
    n = len(residuals)
    expected = ndtri((np.arange(n) + 0.5) / n)
    shown = np.unique(np.linspace(0, n - 1, min(n, MAX_POINTS)).astype(np.int64))

    def paint(axes: Any) -> None:
        ends = [float(expected[0]), float(expected[-1])]
        axes.plot(ends, ends, color=MARK, linewidth=1.2, linestyle="--")
        axes.plot(expected[shown], residuals[shown], color=FIRST, linestyle="", marker="o", markersize=3, alpha=0.6)
        axes.set_xlabel("normal quantile")
        axes.set_ylabel("standardised residual")

    legend = ((FIRST, "errors in standard deviations"), (MARK, "normal distribution"))
    return draw(f"{name}: residuals", paint, legend)
