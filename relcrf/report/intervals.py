"""Backends beside each other, as a picture: log-loss and accuracy with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from relcrf.data.extras import require
from relcrf.evaluation.evaluations import Evaluation
from relcrf.evaluation.predictions import Estimate
from relcrf.printable import printable
from relcrf.report.picture_files import EXTRA, PURPOSE, require_picture, write_picture

ENDINGS = (".png", ".svg", ".pdf")

_SHOWN = (("log_loss", "log-loss, nats"), ("accuracy", "accuracy"))


def require_drawable(path: Path) -> None:
    """Refuses a picture that could not be drawn, before any work is done; see `require_picture`."""
    require_picture(path, ENDINGS, "compare.png")


def reach(estimates: Sequence[Estimate]) -> list[list[float]]:
    """Return how far intervals go below and above their values; a bootstrap interval may lie a little to one side."""
    below = [max(one.value - one.low, 0.0) for one in estimates]
    return [below, [max(one.high - one.value, 0.0) for one in estimates]]


def draw(found: Evaluation, path: Path) -> None:
    """Writes a picture of a comparison: a row of axes for each attribute, a bar with its interval of 95 % for each system.

    Raises:
        UsageError: see `require_drawable`.
    """
    require_drawable(path)
    results = found.predictions
    systems = list(results.systems)[::-1]
    n = len(results.attributes)
    size = (9.0, n * (1.2 + 0.3 * len(systems)))
    figure = require("matplotlib.figure", EXTRA, PURPOSE).Figure(figsize=size, layout="constrained")
    every = figure.subplots(n, len(_SHOWN), squeeze=False)
    for attribute, row in zip(results.attributes, every, strict=True):
        figures = [results.estimates(name, attribute) for name in systems]
        for (measure, text), axes in zip(_SHOWN, row, strict=True):
            values = [one[measure].value for one in figures]
            axes.barh(
                systems, values, xerr=reach([one[measure] for one in figures]), color="C0", alpha=0.6, capsize=3.0
            )
            axes.set_xlabel(text)
            axes.grid(axis="x", linewidth=0.4, alpha=0.6)
        row[0].set_title(printable(attribute), loc="left", fontsize="medium", parse_math=False)
    write_picture(figure, path, 130)
