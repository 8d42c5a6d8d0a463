"""Plots of comparisons: measures of backends with intervals, and loss against messages and seconds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from relcrf.evaluation.evaluations import Evaluation
from relcrf.evaluation.pareto import ParetoPoint, pareto_optimal
from relcrf.evaluation.predictions import MeasureEstimate
from relcrf.printable import escape_unprintable
from relcrf.report.plot import new_figure, save_picture

_PLOTTED_MEASURES = (("log_loss", "log-loss, nats"), ("accuracy", "accuracy"))
_NUMBER_MEASURES = (("crps", "CRPS"), ("rmse", "RMSE"))
_MARKERS = {"evidence": "o", "static": "s", "none": "D"}


def error_bars(estimates: Sequence[MeasureEstimate]) -> list[list[float]]:
    """Return the distances from each value to the lower and upper limit of its interval; negative ones become 0."""
    below = [max(one.value - one.low, 0.0) for one in estimates]
    return [below, [max(one.high - one.value, 0.0) for one in estimates]]


def draw_backends(evaluation: Evaluation, path: Path) -> None:
    """Write a picture of a comparison: one row of plots per attribute, with one bar and 95 % interval per backend."""
    save_picture(lambda: _backends_figure(evaluation), path, 130)


def _backends_figure(evaluation: Evaluation) -> Any:
    results = evaluation.predictions
    systems = list(results.systems)[::-1]
    n = len(results.attributes)
    figure = new_figure((9.0, n * (1.2 + 0.3 * len(systems))), layout="constrained")
    all_axes = figure.subplots(n, len(_PLOTTED_MEASURES), squeeze=False)
    for attribute, row in zip(results.attributes, all_axes, strict=True):
        by_system = [results.estimates(name, attribute) for name in systems]
        plotted = _NUMBER_MEASURES if results.is_numeric(attribute) else _PLOTTED_MEASURES
        for (measure, text), axes in zip(plotted, row, strict=True):
            measure_estimates = [by_measure[measure] for by_measure in by_system]
            axes.barh(
                systems,
                [one.value for one in measure_estimates],
                xerr=error_bars(measure_estimates),
                color="C0",
                alpha=0.6,
                capsize=3.0,
            )
            axes.set_xlabel(text)
            axes.grid(axis="x", linewidth=0.4, alpha=0.6)
        row[0].set_title(escape_unprintable(attribute), loc="left", fontsize="medium")
    return figure


def draw_cost_sweep(points: Sequence[ParetoPoint], path: Path) -> None:
    """Write a picture of loss against messages and seconds: a line per kind of gates, Pareto-optimal points filled."""
    save_picture(lambda: _cost_figure(points), path, 130)


def _cost_figure(points: Sequence[ParetoPoint]) -> Any:
    figure = new_figure((9.0, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    best = pareto_optimal(points)
    for number, gates in enumerate(dict.fromkeys(point.gates for point in points)):
        of_gates = [(point, one) for point, one in zip(points, best, strict=True) if point.gates == gates]
        for axes, name in ((left, "messages_per_query"), (right, "seconds_infer")):
            x = [getattr(point, name) for point, _ in of_gates]
            y = [point.loss for point, _ in of_gates]
            colour, style = f"C{number}", _MARKERS[gates]
            axes.plot(x, y, color=colour, linewidth=1.0, marker=style, markerfacecolor="white", label=f"gates {gates}")
            filled = [k for k, (_, one) in enumerate(of_gates) if one]
            axes.plot([x[k] for k in filled], [y[k] for k in filled], color=colour, linestyle="none", marker=style)
    left.set_ylabel("mean loss of held-out labels")
    _format_axis(left, "messages per query variable")
    _format_axis(right, "inference, CPU seconds")
    left.legend(title="filled: Pareto-optimal")
    return figure


def _format_axis(axes: Any, text: str) -> None:
    axes.set_xlabel(text)
    axes.set_xlim(left=0.0)
    axes.grid(linewidth=0.4, alpha=0.6)
