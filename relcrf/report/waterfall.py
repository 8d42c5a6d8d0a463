"""A waterfall picture of an explanation: how the contributions add up to the log odds or to the mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from relcrf.evaluation.contributions import SOURCES, Contribution
from relcrf.evaluation.explanation import Explanation
from relcrf.report.neighbourhood import INK, OPPOSING, PAPER, SUPPORTING
from relcrf.report.plot import new_figure, save_picture, truncate

MAX_BARS = 20
"""Maximum number of contributions drawn, largest magnitudes first; one bar contains the others and the remainder."""

MAX_LABEL_LENGTH, MAX_TITLE_LENGTH = 44, 100
"""Maximum number of characters of a bar's label and of the title."""

ROW_HEIGHT, WIDTH = 0.32, 8.0
"""Row height and width of the picture, in inches."""


def save_waterfall(explanation: Explanation, path: Path) -> None:
    """Write the picture atomically; equal explanations give equal bytes. For errors see `plot.require_drawable`."""
    save_picture(lambda: draw_waterfall(explanation), path, 144)


def waterfall_bars(explanation: Explanation) -> list[tuple[str, float]]:
    """Return the label and the amount of each bar: contributions, largest first, and the rest; they add up to the total."""
    shown = explanation.contributions[:MAX_BARS]
    bars = [(_label(one), one.amount) for one in shown]
    rest = explanation.total - sum(amount for _, amount in bars)
    omitted = len(explanation.contributions) - len(shown)
    if omitted or abs(rest) > 5e-4:
        bars.append((f"{omitted:,} further contributions" if omitted else "interaction", rest))
    return bars


def draw_waterfall(explanation: Explanation) -> Any:
    """Return a Matplotlib figure with a bar for each contribution, which starts where the previous one ends.

    Bars that support the answer or raise the mean are blue and go right, others are brown and go left. The last bar, or the last
    point for a mean, is their sum.
    """
    bars = waterfall_bars(explanation)
    labels = [*(label for label, _ in bars), explanation.quantity]
    height = ROW_HEIGHT * len(labels) + 1.1
    figure = new_figure((WIDTH, height), facecolor=PAPER)
    axes = figure.add_axes((0.4, 0.55 / height, 0.56, ROW_HEIGHT * len(labels) / height))
    # A number is far from 0 compared with most contributions: the axis begins near its constant.
    has_constant = bool(explanation.contributions) and explanation.contributions[0].kind == "constant"
    start, ends = 0.0, [] if has_constant else [0.0]
    for row, (_, amount) in enumerate(bars):
        if has_constant and not row:
            _draw_point(axes, row, amount, explanation)
        else:
            _draw_bar(axes, row, start, amount, explanation)
        start += amount
        ends.append(start)
        axes.plot((start, start), (row - 0.36, row + 1.36), color=INK, linewidth=0.6, zorder=1)
    if has_constant:
        _draw_point(axes, len(bars), explanation.total, explanation)
    else:
        _draw_bar(axes, len(bars), 0.0, explanation.total, explanation)
        axes.axvline(0.0, color=INK, linewidth=0.8, zorder=1)
    axes.set_yticks(range(len(labels)), labels, fontsize=8, color=INK)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    margin = 0.12 * max(max(ends) - min(ends), 1e-9)  # space for the numbers
    axes.set_xlim(min(ends) - margin, max(ends) + margin)
    axes.tick_params(axis="x", labelsize=8, colors=INK)
    axes.tick_params(axis="y", length=0)
    for side in ("left", "right", "top"):
        axes.spines[side].set_visible(False)
    axes.set_xlabel(explanation.axis_label, fontsize=8, color=INK)
    title = truncate(f"{explanation.variable}: {explanation.summary}", MAX_TITLE_LENGTH)
    figure.text(0.02, 1.0 - 0.25 / height, title, fontsize=10, color=INK, va="center")
    return figure


def _draw_point(axes: Any, row: int, value: float, explanation: Explanation) -> None:
    axes.plot(value, row, marker="o", markersize=7, color=INK, zorder=2)
    _annotate(axes, row, value, explanation.format_amount(value, 2), (7, "left"))


def _draw_bar(axes: Any, row: int, start: float, amount: float, explanation: Explanation) -> None:
    axes.barh(row, amount, left=start, height=0.72, color=SUPPORTING if amount >= 0 else OPPOSING, zorder=2)
    side = (3, "left") if amount >= 0 else (-3, "right")
    _annotate(axes, row, start + amount, explanation.format_amount(amount, 2), side)


def _annotate(axes: Any, row: int, place: float, text: str, side: tuple[int, str]) -> None:
    """Write a text beside a place; `side` is the offset in points and the horizontal alignment."""
    axes.annotate(text, (place, row), (side[0], 0), textcoords="offset points", ha=side[1], va="center", fontsize=8,
                  color=INK, zorder=3)  # fmt: skip


def _label(one: Contribution) -> str:
    """Return the template with its key, e.g. `name 0.88 to 0.92`, or the template and the neighbours."""
    if one.kind in SOURCES:
        return SOURCES[one.kind]
    keys = [feature.key for feature in one.features if feature.key]
    names = ", ".join(one.templates)
    if one.kind == "itself" and len(one.features) == 1 and keys:
        names = f"{names}: {keys[0]}"
    elif one.neighbours:
        names = f"{', '.join(map(str, one.neighbours))}: {names}"
    return truncate(names, MAX_LABEL_LENGTH)
