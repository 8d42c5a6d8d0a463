"""Results on held-out labels per predicted attribute: measures, relational gain, confusions, calibration, learning curve."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from relcrf.data.frame import Frame
from relcrf.evaluation.class_measures import measure_classes
from relcrf.evaluation.decision_costs import DecisionCosts, ThresholdChoice, choose_threshold
from relcrf.evaluation.intervals import Clusters
from relcrf.evaluation.measures import ScoredLabels
from relcrf.evaluation.neighbour_gain import NeighbourGain, gain_by_neighbours
from relcrf.evaluation.number_evidence import number_format
from relcrf.evaluation.predictions import LOCAL, MeasureDifference, MeasureEstimate, Predictions
from relcrf.printable import escape_unprintable
from relcrf.report.calibration import Calibration, measure_calibration
from relcrf.report.class_plots import plot_curves
from relcrf.report.comparison_plots import error_bars
from relcrf.report.confusion import MAX_STATES, Confusion, count_confusions
from relcrf.report.headline import Headline, build_headline
from relcrf.report.holdout import HoldoutEvaluation, LabelCounts
from relcrf.report.number_plots import NumberCalibration, largest_errors, measure_number_calibration, plot_numbers
from relcrf.report.plot import FIRST, MARK, Plot, draw

MIN_LABELS = 100
"""Minimum number of held-out labels of an attribute; with fewer labels, small differences are not detectable."""

MAX_LABEL_LENGTH = 30
"""Maximum number of characters of a label of a plot, so that half of the width remains for the plot."""

TITLES = {
    "accuracy": "accuracy",
    "rmse": "root mean squared error",
    "mae": "mean absolute error",
    "r2": "R²",
    "crps": "CRPS",
    "log_loss": "log-loss, nats",
    "brier": "Brier score",
    "macro_f1": "macro F1",
    "roc_auc": "area under the ROC curve",
    "pr_auc": "average precision",
    "calibration_error": "calibration error",
    "coverage_90": "coverage of 90 % intervals",
}
_LOWER_IS_BETTER = ("log_loss", "brier", "calibration_error", "rmse", "mae", "crps")
_IN_UNITS = ("rmse", "mae", "crps")
"""Measures with the unit of the number."""

PLOTTED = {False: ("accuracy", "log_loss"), True: ("mae", "crps")}
"""Measures of categories and of numbers that have plots."""


@dataclass(frozen=True)
class MeasureRow:
    """One row of the table of measures: for each of `AbstractSection.systems`, its estimate and whether it is best.

    Args:
        format: The format of the estimates.
    """

    title: str
    estimates: tuple[MeasureEstimate, ...]
    best: tuple[bool, ...]
    format: str = ",.3f"


class AbstractGain(ABC):
    """The paired difference between the run and the local model."""

    @property
    @abstractmethod
    def loss(self) -> MeasureDifference:
        """The difference in the loss that decides whether the relations improve the predictions."""

    @property
    @abstractmethod
    def facts(self) -> str:
        """The differences as text."""

    @property
    def is_gain(self) -> bool:
        """Whether the relations significantly reduce the loss."""
        return self.loss.high < 0.0

    @property
    def is_loss(self) -> bool:
        """Whether the relations significantly increase the loss."""
        return self.loss.low > 0.0

    @property
    def summary(self) -> str:
        """A sentence that states the gain and its significance."""
        if self.is_gain:
            return f"The relations improve the predictions: {self.facts}."
        if self.is_loss:
            return f"The relations degrade the predictions: {self.facts}."
        return f"The effect of the relations is not significant: {self.facts}."


@dataclass(frozen=True)
class RelationalGain(AbstractGain):
    """The gain of a category."""

    accuracy: MeasureDifference
    log_loss: MeasureDifference

    @property
    def loss(self) -> MeasureDifference:
        return self.log_loss

    @property
    def facts(self) -> str:
        log_loss = format_difference(self.log_loss, 1.0, ".3f", " nats")
        accuracy = format_difference(self.accuracy, 100.0, ".1f", " percentage points")
        return f"compared with the local model, log-loss changes by {log_loss} and accuracy by {accuracy}"


def format_difference(difference: MeasureDifference, scale: float, digits: str, unit: str) -> str:
    """Return a difference with its interval as text; `digits` is a format without a sign."""
    value, low, high = (
        format(scale * number, f"+{digits}") for number in (difference.value, difference.low, difference.high)
    )
    return f"{value}{unit} (95 % CI: {low} to {high})"


@dataclass(frozen=True)
class NumberGain(AbstractGain):
    """The gain of a number.

    Args:
        format: The format of the differences, without a sign.
    """

    mae: MeasureDifference
    crps: MeasureDifference
    format: str

    @property
    def loss(self) -> MeasureDifference:
        return self.crps

    @property
    def facts(self) -> str:
        mae, crps = (format_difference(one, 1.0, self.format, "") for one in (self.mae, self.crps))
        return f"compared with the local model, the mean absolute error changes by {mae} and CRPS by {crps}"


@dataclass(frozen=True)
class AbstractSection:
    """The results for one attribute.

    Args:
        systems: The names of the baselines and of the run's backend.
        resampling_unit: The units that the bootstrap resamples: `components` or `labels`.
        gain: The difference from the local model; None if the local model is missing or is the run itself.
        neighbour_gains: The gain by the number of labelled neighbours; empty if `gain` is None.
    """

    labels: LabelCounts
    headline: Headline
    systems: tuple[str, ...]
    measures: tuple[MeasureRow, ...]
    run_estimates: Mapping[str, MeasureEstimate]
    resampling_unit: str
    gain: AbstractGain | None
    plots: tuple[Plot, ...]
    neighbour_gains: tuple[NeighbourGain, ...]


@dataclass(frozen=True)
class CategorySection(AbstractSection):
    """The results for a category or a relation.

    Args:
        classes: See `measure_classes`.
        thresholds: The thresholds by the costs of errors; empty without costs.
    """

    confusion: Confusion
    calibration: Calibration
    classes: Frame
    thresholds: tuple[ThresholdChoice, ...]


@dataclass(frozen=True)
class NumberSection(AbstractSection):
    """The results for a number.

    Args:
        format: The format of errors in units of the number, without a sign.
        errors: The largest errors, see `number_plots.largest_errors`.
    """

    format: str
    calibration: NumberCalibration
    errors: Frame


def build_sections(holdout: HoldoutEvaluation, costs: DecisionCosts | None = None) -> list[AbstractSection]:
    """Build a section for each attribute with held-out labels; with `costs`, it has a threshold for each value."""
    if holdout.predictions is None:
        return []
    return [
        _build_section(holdout, holdout.predictions, labels, costs) for labels in holdout.labels if labels.n_held_out
    ]


def _build_section(
    holdout: HoldoutEvaluation, results: Predictions, labels: LabelCounts, costs: DecisionCosts | None
) -> AbstractSection:
    name, systems = labels.name, tuple(results.systems)
    estimates = {system: results.estimates(system, name) for system in systems}
    differences = None
    if LOCAL in systems and holdout.system != LOCAL:
        differences = results.differences(holdout.system, LOCAL, name)
    clusters, points = results.clusters(name), holdout.curve.get(name, Frame({}))
    curves = [_learning_curve_plot(name, points)] if len(points) > 1 else []
    comparisons = [plot_systems(name, estimates, measure) for measure in PLOTTED[labels.is_numeric]]
    common = (
        labels,
        build_headline(results, holdout.system, name),
        systems,
        tuple(measure_rows(estimates)),
        estimates[holdout.system],
        clusters.unit,
    )
    measure = "mae" if labels.is_numeric else "accuracy"
    neighbour_gains = (
        ()
        if differences is None
        else gain_by_neighbours(results, holdout.system, name, holdout.n_neighbours[name], measure)
    )
    if labels.is_numeric:
        scored = results.pooled(holdout.system, name)
        calibration = measure_number_calibration(name, scored, clusters, holdout.calibration.get(name))
        format = number_format(estimates[holdout.system]["mae"].value)
        return NumberSection(
            *common,
            None if differences is None else NumberGain(differences["mae"], differences["crps"], format),
            (*comparisons, *plot_numbers(name, scored), *calibration.plots, *curves),
            neighbour_gains,
            format,
            calibration,
            largest_errors(scored, holdout.names[name]),
        )
    scored = results.pooled(holdout.system, name)
    calibrated = measure_calibration(name, scored, clusters)
    return CategorySection(
        *common,
        None if differences is None else RelationalGain(differences["accuracy"], differences["log_loss"]),
        (*comparisons, *plot_curves(name, scored, tuple(labels.values)), calibrated.plot, *curves),
        neighbour_gains,
        count_confusions(scored, tuple(labels.values), holdout.names[name]),
        calibrated,
        measure_classes(scored, tuple(labels.values)),
        _choose_thresholds(scored, tuple(labels.values), costs, clusters),
    )


def _choose_thresholds(
    scored: ScoredLabels, values: tuple[str, ...], costs: DecisionCosts | None, clusters: Clusters
) -> tuple[ThresholdChoice, ...]:
    """Choose a threshold for the second of two values, otherwise for each of the most frequent values against the rest."""
    if costs is None:
        return ()
    counts = np.bincount(scored.truth, minlength=len(values))
    states = [1] if len(values) == 2 else np.argsort(-counts, kind="stable")[:MAX_STATES].tolist()
    return tuple(choose_threshold(scored, values[state], state, costs, clusters) for state in states if counts[state])


def measure_rows(estimates: Mapping[str, Mapping[str, MeasureEstimate]]) -> list[MeasureRow]:
    """Return the rows of the table of measures.

    Args:
        estimates: For each system, its measures by name.
    """
    rows = []
    for measure, title in TITLES.items():
        if not all(measure in of_system for of_system in estimates.values()):
            continue
        row_estimates = tuple(of_system[measure] for of_system in estimates.values())
        known = [estimate.value for estimate in row_estimates if estimate.value == estimate.value]
        if known:
            best = min(known) if measure in _LOWER_IS_BETTER else max(known)
            is_best = tuple(estimate.value == best and measure != "coverage_90" for estimate in row_estimates)
            rows.append(
                MeasureRow(title, row_estimates, is_best, number_format(best) if measure in _IN_UNITS else ",.3f")
            )
    return rows


def _row_label(system: str) -> str:
    """Return the name of a system, such as the folder of a run, as the label of a row; long names lose their middle."""
    text = escape_unprintable(system)
    half = MAX_LABEL_LENGTH // 2
    return text if len(text) <= MAX_LABEL_LENGTH else f"{text[:half]}…{text[-half:]}"


def plot_systems(name: str, estimates: Mapping[str, Mapping[str, MeasureEstimate]], measure: str) -> Plot:
    """Plot one measure of all systems, with 95 % intervals; for `estimates` see `measure_rows`."""
    systems = list(estimates)[::-1]
    system_estimates = [estimates[system][measure] for system in systems]

    def paint(axes: Any) -> None:
        values = [estimate.value for estimate in system_estimates]
        rows = range(len(systems))
        axes.errorbar(
            values,
            rows,
            xerr=error_bars(system_estimates),
            color=FIRST,
            linestyle="",
            marker="o",
            markersize=6,
            capsize=4,
        )
        axes.set_yticks(rows, [*map(_row_label, systems)])
        axes.set_ylim(-0.6, len(systems) - 0.4)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel(TITLES[measure])

    return draw(f"{name}: {TITLES[measure]}", paint)


def _learning_curve_plot(name: str, points: Frame) -> Plot:
    (measure,) = set(points.columns) - {"labels"}

    def paint(axes: Any) -> None:
        labels, losses = points["labels"], points[measure]
        axes.plot(labels, losses, color=FIRST, linewidth=1.6, marker="o", markersize=4)
        axes.plot(labels[-1:], losses[-1:], color=MARK, marker="o", markersize=6, linestyle="")
        axes.set_xlim(left=0.0)
        axes.set_xlabel("training labels")
        axes.set_ylabel(TITLES[measure])

    return draw(f"{name}: learning curve", paint, ((FIRST, "trained on fewer labels"), (MARK, "this run")))
