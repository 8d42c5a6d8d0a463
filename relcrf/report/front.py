"""What messages buy, as a picture: loss over messages, and over seconds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from relcrf.data.extras import require
from relcrf.evaluation.pareto import PricePoint, unbeaten
from relcrf.report.picture_files import EXTRA, PURPOSE, require_picture, write_picture

ENDINGS = (".png", ".svg", ".pdf")

_MARKERS = {"evidence": "o", "static": "s", "none": "D"}


def require_drawable(path: Path) -> None:
    """Refuses a picture that could not be drawn, before any work is done; see `require_picture`."""
    require_picture(path, ENDINGS, "pareto.png")


def draw(points: Sequence[PricePoint], path: Path) -> None:
    """Writes a picture of sweeps, a line for each setting of `gates`; points that no other beats are filled.

    Raises:
        UsageError: see `require_drawable`.
    """
    require_drawable(path)
    figure = require("matplotlib.figure", EXTRA, PURPOSE).Figure(figsize=(9.0, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    best = unbeaten(points)
    for number, gates in enumerate(dict.fromkeys(point.gates for point in points)):
        of_gates = [(point, one) for point, one in zip(points, best, strict=True) if point.gates == gates]
        for axes, name in ((left, "messages_each"), (right, "seconds_infer")):
            x = [getattr(point, name) for point, _ in of_gates]
            y = [point.loss for point, _ in of_gates]
            colour, style = f"C{number}", _MARKERS[gates]
            axes.plot(x, y, color=colour, linewidth=1.0, marker=style, markerfacecolor="white", label=f"gates {gates}")
            filled = [k for k, (_, one) in enumerate(of_gates) if one]
            axes.plot([x[k] for k in filled], [y[k] for k in filled], color=colour, linestyle="none", marker=style)
    left.set_ylabel("loss of held-out labels")
    _label(left, "messages for each variable asked")
    _label(right, "seconds of inference")
    left.legend(title="filled: no other has less loss\nand no more messages")
    write_picture(figure, path, 130)


def _label(axes: Any, text: str) -> None:
    axes.set_xlabel(text)
    axes.set_xlim(left=0.0)
    axes.grid(linewidth=0.4, alpha=0.6)
