"""The optimiser's path: what each stage of a training did, in figures and in plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from relcrf.data.extras import require
from relcrf.report.plot import EXTRA, FIRST, PURPOSE, Plot, draw

_FEW = 40
"""Up to so many points are drawn one by one."""

_LARGEST = 1e100
"""What is beyond it is not drawn: an optimiser that diverges comes to numbers of which no axis can be made."""


@dataclass(frozen=True)
class OptimisationStage:
    """One optimisation; each array is of its iterations, shape (n,).

    Args:
        gradient: the largest absolute entry of the gradient, with L1 that of the steepest direction.
        weights: how many are not 0.
        chosen: candidates in the model; None where learning chooses none.
        seconds: by the clock since the stage began; None where they were not kept.
        processor: seconds of the processor, likewise.
    """

    name: str
    iteration: np.ndarray
    value: np.ndarray
    gradient: np.ndarray
    weights: np.ndarray
    chosen: np.ndarray | None
    seconds: np.ndarray | None
    processor: np.ndarray | None


def stages(log: Sequence[Mapping[str, Any]], steps: Sequence[tuple[float, float]]) -> tuple[OptimisationStage, ...]:
    """The stages of a log, in its order.

    Args:
        log: see `LearnedModel`.
        steps: when each entry of the log came, see `Timings`; empty where that was not kept.
    """
    found = []
    times = steps if len(steps) == len(log) else ()
    for name, members in groupby(range(len(log)), key=lambda k: str(log[k]["stage"])):
        rows = list(members)
        iteration, value, gradient, weights = (
            np.array([log[k][column] for k in rows]) for column in ("iteration", "value", "gradient", "weights")
        )
        chosen = np.array([log[k]["chosen"] for k in rows]) if all("chosen" in log[k] for k in rows) else None
        seconds, processor = np.array([times[k] for k in rows]).T if times else (None, None)
        found.append(OptimisationStage(name, iteration, value, gradient, weights, chosen, seconds, processor))
    return tuple(found)


def plots(stage: OptimisationStage) -> list[Plot]:
    """The value over iterations and over seconds, the gradient, and how many weights and candidates there are."""
    found = [_line(stage, "value", stage.value, "iterations", stage.iteration)]
    if stage.seconds is not None:
        found.append(_line(stage, "value", stage.value, "seconds", stage.seconds))
    seen = (stage.gradient > 0) & (stage.gradient < _LARGEST)
    if seen.any():
        found.append(
            _line(stage, "gradient", stage.gradient[seen], "iterations", stage.iteration[seen], logarithmic=True)
        )
    if len(np.unique(stage.weights)) > 1:
        found.append(_line(stage, "weights other than 0", stage.weights, "iterations", stage.iteration))
    if stage.chosen is not None and len(np.unique(stage.chosen)) > 1:
        over, where = ("iterations", stage.iteration) if stage.seconds is None else ("seconds", stage.seconds)
        found.append(_line(stage, "candidates in the model", stage.chosen, over, where))
    return found


def _line(
    stage: OptimisationStage, what: str, values: np.ndarray, over: str, where: np.ndarray, *, logarithmic: bool = False
) -> Plot:
    seen = (np.abs(values) < _LARGEST) & (np.abs(where) < _LARGEST)

    def paint(axes: Any) -> None:
        axes.plot(where[seen], values[seen], color=FIRST, linewidth=1.6, marker="." if seen.sum() <= _FEW else "")
        axes.set_xlabel(over)
        if over == "iterations":
            axes.xaxis.get_major_locator().set_params(integer=True)
        else:
            axes.set_xlim(left=0.0)
        if logarithmic:
            ticker = require("matplotlib.ticker", EXTRA, PURPOSE)
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
            axes.yaxis.set_minor_formatter(ticker.LogFormatter(minor_thresholds=(1.5, 0.5)))

    return draw(f"{stage.name}: {what} over {over}", paint)
