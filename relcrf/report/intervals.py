"""Backends beside each other, as a picture: log-loss and accuracy with their intervals."""

from __future__ import annotations

from pathlib import Path

from relcrf.data.extras import require
from relcrf.evaluation.comparison import Comparison
from relcrf.printable import printable
from relcrf.report.picture_files import EXTRA, PURPOSE, require_picture, write_picture

ENDINGS = (".png", ".svg", ".pdf")

_SHOWN = (("log_loss", "log-loss, nats"), ("accuracy", "accuracy"))


def require_drawable(path: Path) -> None:
    """Refuses a picture that could not be drawn, before any work is done; see `require_picture`."""
    require_picture(path, ENDINGS, "compare.png")


def draw(found: Comparison, path: Path) -> None:
    """Writes a picture of a comparison: a row of axes for each attribute, a bar with its interval of 95 % for each system.

    Raises:
        UsageError: see `require_drawable`.
    """
    require_drawable(path)
    results = found.results
    systems = list(results.answers)[::-1]
    n = len(results.attributes)
    size = (9.0, n * (1.2 + 0.3 * len(systems)))
    figure = require("matplotlib.figure", EXTRA, PURPOSE).Figure(figsize=size, layout="constrained")
    every = figure.subplots(n, len(_SHOWN), squeeze=False)
    for attribute, row in zip(results.attributes, every, strict=True):
        figures = [results.figures(name, attribute) for name in systems]
        for (measure, text), axes in zip(_SHOWN, row, strict=True):
            values = [one[measure].value for one in figures]
            low = [value - one[measure].interval[0] for value, one in zip(values, figures, strict=True)]
            high = [one[measure].interval[1] - value for value, one in zip(values, figures, strict=True)]
            # A resampled interval may lie a little to one side of the value.
            reach = [[max(part, 0.0) for part in side] for side in (low, high)]
            axes.barh(systems, values, xerr=reach, color="C0", alpha=0.6, capsize=3.0)
            axes.set_xlabel(text)
            axes.grid(axis="x", linewidth=0.4, alpha=0.6)
        row[0].set_title(printable(attribute), loc="left", fontsize="medium", parse_math=False)
    write_picture(figure, path, 130)
