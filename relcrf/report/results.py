"""What held-out labels say of a run, for each predicted attribute: measures, relational gain, confusion, calibration, curve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from relcrf.data.frame import Frame
from relcrf.evaluation.predictions import LOCAL, MeasureDifference, MeasureEstimate, Predictions
from relcrf.report.calibration import Calibration, measure_calibration
from relcrf.report.comparison_plots import error_bars
from relcrf.report.confusion import Confusion, count_confusions
from relcrf.report.holdout import CURVE_COLUMNS, HoldoutEvaluation, LabelCounts
from relcrf.report.plot import FIRST, MARK, Plot, draw

MIN_LABELS = 100
"""Labels, below which figures say little."""

TITLES = {
    "accuracy": "accuracy",
    "log_loss": "log-loss, nats",
    "brier": "Brier score",
    "macro_f1": "macro F1",
    "roc_auc": "area under the ROC curve",
    "pr_auc": "average precision",
    "calibration_error": "calibration error",
}
_LOWER_IS_BETTER = ("log_loss", "brier", "calibration_error")


@dataclass(frozen=True)
class MeasureRow:
    """One row: what every system reached, in the order of `Section.systems`, and which ones no other beats."""

    title: str
    estimates: tuple[MeasureEstimate, ...]
    best: tuple[bool, ...]


@dataclass(frozen=True)
class RelationalGain:
    """What the run is above the local model, label by label."""

    accuracy: MeasureDifference
    log_loss: MeasureDifference

    @property
    def is_gain(self) -> bool:
        """Whether the relations help beyond chance."""
        return self.log_loss.high < 0.0

    @property
    def is_loss(self) -> bool:
        """Whether they harm beyond chance."""
        return self.log_loss.low > 0.0

    @property
    def summary(self) -> str:
        loss, points = _format_difference(self.log_loss, 1.0, ".3f"), _format_difference(self.accuracy, 100.0, ".1f")
        facts = f"against the local model, log-loss changes by {loss} nats and accuracy by {points} points"
        if self.is_gain:
            return f"The relations pay: {facts}."
        if self.is_loss:
            return f"The relations harm here: {facts}."
        return f"Whether the relations pay is open: {facts}."


def _format_difference(found: MeasureDifference, scale: float, digits: str) -> str:
    value, low, high = (format(scale * number, f"+{digits}") for number in (found.value, found.low, found.high))
    return f"{value} (95 %: {low} to {high})"


@dataclass(frozen=True)
class AttributeSection:
    """Of one attribute.

    Args:
        resampling_unit: `components` or `labels`, which the intervals resample.
        gain: None where there is no local model to compare with.
    """

    labels: LabelCounts
    systems: tuple[str, ...]
    measures: tuple[MeasureRow, ...]
    run_estimates: Mapping[str, MeasureEstimate]
    resampling_unit: str
    gain: RelationalGain | None
    confusion: Confusion
    calibration: Calibration
    plots: tuple[Plot, ...]


def build_sections(trial: HoldoutEvaluation) -> list[AttributeSection]:
    """One for each attribute of which something is held out."""
    if trial.predictions is None:
        return []
    return [_build_section(trial, trial.predictions, labels) for labels in trial.labels if labels.n_held_out]


def _build_section(trial: HoldoutEvaluation, results: Predictions, labels: LabelCounts) -> AttributeSection:
    name, systems = labels.name, tuple(results.systems)
    figures = {system: results.estimates(system, name) for system in systems}
    gain = None
    if LOCAL in systems and trial.system != LOCAL:
        found = results.differences(trial.system, LOCAL, name)
        gain = RelationalGain(found["accuracy"], found["log_loss"])
    judged, clusters = results.pooled(trial.system, name), results.clusters(name)
    calibrated, points = measure_calibration(name, judged, clusters), trial.curve.get(name, Frame({}))
    plots = [_systems_plot(name, figures, measure) for measure in ("accuracy", "log_loss")]
    plots += [calibrated.plot, *([_learning_curve_plot(name, points)] if len(points) > 1 else [])]
    return AttributeSection(
        labels,
        systems,
        tuple(_measure_rows(figures)),
        figures[trial.system],
        clusters.unit,
        gain,
        count_confusions(judged, tuple(labels.values), trial.names[name]),
        calibrated,
        tuple(plots),
    )


def _measure_rows(figures: Mapping[str, Mapping[str, MeasureEstimate]]) -> list[MeasureRow]:
    rows = []
    for measure, title in TITLES.items():
        own = tuple(of_system[measure] for of_system in figures.values())
        known = [figure.value for figure in own if figure.value == figure.value]
        if known:
            best = min(known) if measure in _LOWER_IS_BETTER else max(known)
            rows.append(MeasureRow(title, own, tuple(figure.value == best for figure in own)))
    return rows


def _systems_plot(name: str, figures: Mapping[str, Mapping[str, MeasureEstimate]], measure: str) -> Plot:
    """The systems beside each other."""
    systems = list(figures)[::-1]
    own = [figures[system][measure] for system in systems]

    def paint(axes: Any) -> None:
        values = [figure.value for figure in own]
        rows = range(len(systems))
        axes.errorbar(
            values, rows, xerr=error_bars(own), color=FIRST, linestyle="", marker="o", markersize=6, capsize=4
        )
        axes.set_yticks(rows, systems)
        axes.set_ylim(-0.6, len(systems) - 0.4)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel(TITLES[measure])

    return draw(f"{name}: {TITLES[measure]}", paint)


def _learning_curve_plot(name: str, points: Frame) -> Plot:
    def paint(axes: Any) -> None:
        labels, losses = (points[column] for column in CURVE_COLUMNS)
        axes.plot(labels, losses, color=FIRST, linewidth=1.6, marker="o", markersize=4)
        axes.plot(labels[-1:], losses[-1:], color=MARK, marker="o", markersize=6, linestyle="")
        axes.set_xlim(left=0.0)
        axes.set_xlabel("labels that were learned from")
        axes.set_ylabel("log-loss, nats")

    return draw(f"{name}: learning curve", paint, ((FIRST, "trained again on fewer labels"), (MARK, "this run")))
