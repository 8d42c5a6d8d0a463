"""A picture of an explained variable's neighbourhood, with contributions that support or oppose the explained state."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from relcrf.evaluation.contributions import Contribution
from relcrf.evaluation.explanation import CategoryExplanation, Explanation
from relcrf.report.plot import new_figure, save_picture, truncate

MAX_NEIGHBOURS = 24
"""Maximum number of contributions drawn, largest magnitudes first; the caption contains the sum of the others."""

MAX_SOURCES = 4
"""Maximum number of sources drawn per neighbour."""

MAX_LINE_LENGTH = 28
"""Maximum number of characters of a label line."""

INK, PAPER, SUPPORTING, OPPOSING, OBSERVED, INFERRED = "#24292f", "#ffffff", "#0969da", "#bc4c00", "#57606a", "#8250df"

ROW_HEIGHT, COLUMN_OFFSET, LABEL_WIDTH = 0.42, 2.1, 4.0
"""Row height, distance of the columns from the variable, and width of a label, in inches."""


Point = tuple[float, float]
"""A position relative to the variable, in inches."""


def save_neighbourhood(explanation: Explanation, path: Path) -> None:
    """Write the picture atomically; equal explanations give equal bytes. For errors see `plot.require_drawable`."""
    save_picture(lambda: draw_neighbourhood(explanation), path, 144)


def draw_neighbourhood(explanation: Explanation) -> Any:
    """Return a Matplotlib figure of the variable, with positive contributions on the right and negative ones on the left.

    Lines of positive contributions are blue, lines of negative contributions brown; larger contributions have wider
    lines. Observed neighbours are grey discs, unobserved ones violet discs; a neighbour's largest sources are below it.
    """
    spokes = list(_spokes(explanation))
    left, right = (
        COLUMN_OFFSET + LABEL_WIDTH if any(sign * position[0] > 0 for _, position, _ in spokes) else COLUMN_OFFSET
        for sign in (-1, 1)
    )
    height = max([2.0, *(2.0 * abs(position[1]) + 1.0 for _, position, _ in spokes)])
    figure = new_figure((left + right, height + 0.4), facecolor=PAPER)
    axes = figure.add_axes((0.0, 0.4 / (height + 0.4), 1.0, height / (height + 0.4)))
    axes.set_axis_off()
    axes.set_xlim(-left, right)
    axes.set_ylim(-height / 2, height / 2)
    largest = max((abs(one.amount) for one, _, _ in spokes), default=1.0) or 1.0
    for one, position, origin in spokes:
        ratio = abs(one.amount) / largest
        colour = SUPPORTING if one.amount >= 0 else OPPOSING
        axes.plot(*zip(origin, position, strict=True), color=colour, linewidth=0.8 + 6.0 * ratio,
                  alpha=0.35 + 0.5 * ratio, solid_capstyle="round", zorder=1)  # fmt: skip
        disc = {"evidence": OBSERVED, "neighbour": INFERRED}.get(one.kind, INK)
        axes.plot(*position, marker="o", markersize=9, color=disc, markeredgecolor=PAPER, zorder=2)
        direction = math.copysign(1.0, position[0])
        axes.text(position[0] + 0.12 * direction, position[1], "\n".join(_lines(one, explanation)), fontsize=8, color=INK,
                  ha="left" if direction > 0 else "right", va="center", zorder=4)  # fmt: skip
    title = f"{_truncate_label(explanation.variable)}\n{_truncate_label(explanation.short_answer)}"
    box = {"boxstyle": "round,pad=0.5", "facecolor": PAPER, "edgecolor": INK, "linewidth": 1.2}
    axes.text(0.0, 0.0, title, fontsize=10, color=INK, ha="center", va="center", zorder=5, bbox=box)
    figure.text(0.02, 0.15 / (height + 0.4), _caption(explanation), fontsize=8, color=INK)
    return figure


def _caption(explanation: Explanation) -> str:
    format_amount = partial(explanation.format_amount, decimals=3)
    raising, lowering = (_truncate_label(effect) for effect in explanation.effects)
    text = f"{explanation.quantity} {format_amount(explanation.total)}: blue {raising}, brown {lowering}"
    text += ", in nats" if explanation.unit == "nats" else ""
    left = sum(one.amount for one in explanation.contributions[MAX_NEIGHBOURS:])
    if len(explanation.contributions) > MAX_NEIGHBOURS:
        text += f"; {len(explanation.contributions) - MAX_NEIGHBOURS} further contributions {format_amount(left)}"
    if isinstance(explanation, CategoryExplanation) and abs(explanation.remainder) > 5e-4:
        text += f"; remainder {format_amount(explanation.remainder)}"
    return text


def _spokes(explanation: Explanation) -> Iterator[tuple[Contribution, Point, Point]]:
    """Yield contributions, each with the centre of its disc and the other end of its line.

    Supporting contributions are in the right column, opposing ones in the left one; sources are in the rows below
    their neighbour.
    """
    shown = [one for one in explanation.contributions[:MAX_NEIGHBOURS] if one.kind != "constant"]
    for sign in (1.0, -1.0):
        rows: list[tuple[Contribution, Contribution | None]] = []
        for one in shown:
            if (one.amount >= 0) == (sign > 0):
                sources = [source for source in one.sources if source.kind not in ("start", "interaction")]
                largest = sorted(sources, key=lambda source: -abs(source.amount))[:MAX_SOURCES]
                rows += [(one, None), *((source, one) for source in largest)]
        top, parent = ROW_HEIGHT * (len(rows) - 1) / 2, (0.0, 0.0)
        for number, (one, neighbour) in enumerate(rows):
            position = (
                sign * (COLUMN_OFFSET if neighbour is None else COLUMN_OFFSET + 0.35),
                top - ROW_HEIGHT * number,
            )
            yield one, position, (0.0, 0.0) if neighbour is None else parent
            parent = position if neighbour is None else parent


def _lines(one: Contribution, explanation: Explanation) -> tuple[str, ...]:
    names = (
        replace(other, name=_truncate_label(other.name), state=_truncate_label(other.state)) for other in one.neighbours
    )
    return (*map(str, names), f"{', '.join(one.templates)} {explanation.format_amount(one.amount, 3)}")


def _truncate_label(text: str) -> str:
    return truncate(text, MAX_LINE_LENGTH)
