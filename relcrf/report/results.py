"""What held-out labels say of a run, for each predicted attribute: measures, relational gain, confusion, calibration, curve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from relcrf.data.frame import Frame
from relcrf.evaluation.predictions import LOCAL, Difference, Estimate, Predictions
from relcrf.report.calibration import Calibration, calibration
from relcrf.report.comparison_plots import reach
from relcrf.report.confusion import Confusion, confusion
from relcrf.report.plot import FIRST, MARK, Plot, draw
from relcrf.report.trial import CURVE, Labels, Trial

FEW = 100
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
_LOW_IS_GOOD = ("log_loss", "brier", "calibration_error")


@dataclass(frozen=True)
class Measure:
    """One row: what every system reached, in the order of `Section.systems`, and which ones no other beats."""

    title: str
    figures: tuple[Estimate, ...]
    best: tuple[bool, ...]


@dataclass(frozen=True)
class Gain:
    """What the run is above the local model, label by label."""

    accuracy: Difference
    log_loss: Difference

    @property
    def is_seen(self) -> bool:
        """Whether the relations help beyond chance."""
        return self.log_loss.high < 0.0

    @property
    def is_loss(self) -> bool:
        """Whether they harm beyond chance."""
        return self.log_loss.low > 0.0

    @property
    def sentence(self) -> str:
        loss, points = _signed(self.log_loss, 1.0, ".3f"), _signed(self.accuracy, 100.0, ".1f")
        facts = f"against the local model, log-loss changes by {loss} nats and accuracy by {points} points"
        if self.is_seen:
            return f"The relations pay: {facts}."
        if self.is_loss:
            return f"The relations harm here: {facts}."
        return f"Whether the relations pay is open: {facts}."


def _signed(found: Difference, scale: float, digits: str) -> str:
    value, low, high = (format(scale * number, f"+{digits}") for number in (found.value, found.low, found.high))
    return f"{value} (95 %: {low} to {high})"


@dataclass(frozen=True)
class Section:
    """Of one attribute.

    Args:
        resampled: `components` or `labels`, which the intervals resample.
        gain: None where there is no local model to compare with.
    """

    labels: Labels
    systems: tuple[str, ...]
    measures: tuple[Measure, ...]
    of_run: Mapping[str, Estimate]
    resampled: str
    gain: Gain | None
    confusion: Confusion
    calibration: Calibration
    plots: tuple[Plot, ...]


def sections(trial: Trial) -> list[Section]:
    """One for each attribute of which something is held out."""
    if trial.predictions is None:
        return []
    return [_section(trial, trial.predictions, labels) for labels in trial.labels if labels.held]


def _section(trial: Trial, results: Predictions, labels: Labels) -> Section:
    name, systems = labels.name, tuple(results.systems)
    figures = {system: results.estimates(system, name) for system in systems}
    gain = None
    if LOCAL in systems and trial.system != LOCAL:
        found = results.differences(trial.system, LOCAL, name)
        gain = Gain(found["accuracy"], found["log_loss"])
    judged, clusters = results.pooled(trial.system, name), results.clusters(name)
    calibrated, points = calibration(name, judged, clusters), trial.curve.get(name, Frame({}))
    plots = [_beside(name, figures, measure) for measure in ("accuracy", "log_loss")]
    plots += [calibrated.plot, *([_curve(name, points)] if len(points) > 1 else [])]
    return Section(
        labels,
        systems,
        tuple(_measures(figures)),
        figures[trial.system],
        clusters.what,
        gain,
        confusion(judged, tuple(labels.values), trial.names[name]),
        calibrated,
        tuple(plots),
    )


def _measures(figures: Mapping[str, Mapping[str, Estimate]]) -> list[Measure]:
    rows = []
    for measure, title in TITLES.items():
        own = tuple(of_system[measure] for of_system in figures.values())
        known = [figure.value for figure in own if figure.value == figure.value]
        if known:
            best = min(known) if measure in _LOW_IS_GOOD else max(known)
            rows.append(Measure(title, own, tuple(figure.value == best for figure in own)))
    return rows


def _beside(name: str, figures: Mapping[str, Mapping[str, Estimate]], measure: str) -> Plot:
    """The systems beside each other."""
    systems = list(figures)[::-1]
    own = [figures[system][measure] for system in systems]

    def paint(axes: Any) -> None:
        values = [figure.value for figure in own]
        rows = range(len(systems))
        axes.errorbar(values, rows, xerr=reach(own), color=FIRST, linestyle="", marker="o", markersize=6, capsize=4)
        axes.set_yticks(rows, systems)
        axes.set_ylim(-0.6, len(systems) - 0.4)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel(TITLES[measure])

    return draw(f"{name}: {TITLES[measure]}", paint)


def _curve(name: str, points: Frame) -> Plot:
    def paint(axes: Any) -> None:
        labels, losses = (points[column] for column in CURVE)
        axes.plot(labels, losses, color=FIRST, linewidth=1.6, marker="o", markersize=4)
        axes.plot(labels[-1:], losses[-1:], color=MARK, marker="o", markersize=6, linestyle="")
        axes.set_xlim(left=0.0)
        axes.set_xlabel("labels that were learned from")
        axes.set_ylabel("log-loss, nats")

    return draw(f"{name}: learning curve", paint, ((FIRST, "trained again on fewer labels"), (MARK, "this run")))
