"""The progress of the optimiser in each stage of a training run, as a table and as plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

from relcrf.data.extras import import_extra
from relcrf.report.plot import EXTRA, FIRST, PURPOSE, Plot, draw

_MAX_MARKERS = 40
"""Maximum number of points of a line; longer lines are drawn without markers."""

_MAX_PLOTTED = 1e100
"""Maximum magnitude of plotted values; a diverging optimiser may exceed the range of an axis."""


def split_stages(
    log: Sequence[Mapping[str, Any]], steps: Sequence[tuple[float, float]]
) -> list[tuple[str, dict[str, np.ndarray]]]:
    """Split a log into stages. Return the name of each stage, and its columns of shape (n_iterations,) by column name.

    The columns are `iteration`, `value` (the objective), `gradient` (the largest absolute entry of the gradient or, with L1,
    of the steepest descent direction), `weights` (the number of nonzero weights) and, if known, `chosen` (candidates in the
    model), `seconds` (since the start of the stage) and `processor` (CPU seconds).

    Args:
        log: See `LearnedModel`.
        steps: The times of the log entries, see `Timings`; empty if unknown.
    """
    split = []
    times = steps if len(steps) == len(log) else ()
    for name, members in groupby(range(len(log)), key=lambda k: str(log[k]["stage"])):
        rows = list(members)
        known = [c for c in ("iteration", "value", "gradient", "weights", "chosen") if all(c in log[k] for k in rows)]
        columns = {column: np.array([log[k][column] for k in rows]) for column in known}
        if times:
            columns["seconds"], columns["processor"] = np.array([times[k] for k in rows]).T
        split.append((name, columns))
    return split


def plot_stage(name: str, stage: Mapping[str, np.ndarray]) -> list[Plot]:
    """Return plots of the objective, the gradient, and the numbers of nonzero weights and candidates."""
    draw_line = partial(_line_plot, name)
    iteration, gradient = stage["iteration"], stage["gradient"]
    plots = [draw_line("objective", stage["value"], "iterations", iteration)]
    if "seconds" in stage:
        plots.append(draw_line("objective", stage["value"], "seconds", stage["seconds"]))
    plottable = (gradient > 0) & (gradient < _MAX_PLOTTED)
    if plottable.any():
        plots.append(draw_line("gradient", gradient[plottable], "iterations", iteration[plottable], logarithmic=True))
    if len(np.unique(stage["weights"])) > 1:
        plots.append(draw_line("nonzero weights", stage["weights"], "iterations", iteration))
    if len(np.unique(stage.get("chosen", ()))) > 1:
        x_name, x = ("seconds", stage["seconds"]) if "seconds" in stage else ("iterations", iteration)
        plots.append(draw_line("candidates in the model", stage["chosen"], x_name, x))
    return plots


def _line_plot(
    stage: str, what: str, values: np.ndarray, over: str, where: np.ndarray, *, logarithmic: bool = False
) -> Plot:
    plottable = (np.abs(values) < _MAX_PLOTTED) & (np.abs(where) < _MAX_PLOTTED)

    def paint(axes: Any) -> None:
        axes.plot(
            where[plottable],
            values[plottable],
            color=FIRST,
            linewidth=1.6,
            marker="." if plottable.sum() <= _MAX_MARKERS else "",
        )
        axes.set_xlabel(over)
        if over == "iterations":
            axes.xaxis.get_major_locator().set_params(integer=True)
        else:
            axes.set_xlim(left=0.0)
        if logarithmic:
            ticker = import_extra("matplotlib.ticker", EXTRA, PURPOSE)
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.yaxis.set_minor_formatter(ticker.LogFormatter(minor_thresholds=(1.5, 0.5)))

    return draw(f"{stage}: {what} over {over}", paint)
