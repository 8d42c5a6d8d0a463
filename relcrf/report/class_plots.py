"""Plots of the ROC and precision-recall curves of an attribute's values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from relcrf.evaluation.class_measures import Curve, precision_recall_curve, roc_curve
from relcrf.evaluation.measures import ScoredLabels
from relcrf.report.plot import FIRST, GRID, MARK, SECOND, Plot, draw, truncate

COLOURS = (FIRST, SECOND, MARK)
"""Colours of the curves; of an attribute with more than two values, the most frequent values have a curve."""

MAX_POINTS = 300
"""Maximum number of points of a curve, so that a page on many labels remains small."""


def plot_curves(name: str, scored: ScoredLabels, values: Sequence[str]) -> list[Plot]:
    """Return the ROC and the precision-recall curve: of the second value of two, otherwise of the most frequent values."""
    counts = np.bincount(scored.truth, minlength=len(values))
    ranked = [1] if len(values) == 2 else np.argsort(-counts, kind="stable")[: len(COLOURS)].tolist()
    shown = [state for state in ranked if 0 < counts[state] < len(scored.truth)]
    if not shown:
        return []
    legend = tuple((colour, truncate(values[state], 30)) for colour, state in zip(COLOURS, shown, strict=False))
    plots = []
    for title, function, axis_names, chance in (
        ("ROC curve", roc_curve, ("false positive rate", "true positive rate"), ([0, 1], [0, 1])),
        ("precision and recall", precision_recall_curve, ("recall", "precision"), None),
    ):
        curves = [function(scored, state) for state in shown]
        plots.append(draw(f"{name}: {title}", _painter(curves, axis_names, chance), legend))
    return plots


def _painter(curves: list[Curve], axis_names: tuple[str, str], chance: Any) -> Callable[[Any], None]:
    def paint(axes: Any) -> None:
        if chance is not None:
            axes.plot(*chance, color=GRID, linewidth=1.2, linestyle="--")
        for colour, (x, y) in zip(COLOURS, curves, strict=False):
            points = np.unique(np.linspace(0, len(x) - 1, min(len(x), MAX_POINTS)).astype(np.int64))
            axes.plot(x[points], y[points], color=colour, linewidth=1.6, marker="o" if len(x) == 1 else None)
        axes.set_xlim(0.0, 1.02)
        axes.set_ylim(0.0, 1.05)
        axes.set_xlabel(axis_names[0])
        axes.set_ylabel(axis_names[1])

    return paint
