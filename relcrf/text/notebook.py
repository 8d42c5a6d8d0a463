"""Parts of notebook displays: pictures and line charts with colours for light and dark themes."""

from __future__ import annotations

import html
from collections.abc import Sequence

import numpy as np

STYLE = (
    "--first: #3b82f6; --mark: #d97706; --grid: rgba(128, 128, 128, .4); --faint: rgba(128, 128, 128, .7); "
    "--panel: rgba(128, 128, 128, .08); --paper: rgba(128, 128, 128, .15); max-width: 720px; overflow-x: auto"
)
"""The CSS variables that SVG elements of relcrf use; reports define them in a style sheet."""

CHART_WIDTH, CHART_HEIGHT, CHART_MARGIN = 360, 110, 18
"""Size of a line chart and the space for its axis labels, in pixels."""

MAX_POINTS = 400
"""Maximum number of points of a line; of longer ones, evenly spaced points are drawn."""


def picture(svg: str) -> str:
    """Return an SVG element in a block that defines the colours of the element."""
    return f'<div style="{STYLE}">{svg}</div>'


def line_chart(values: Sequence[float], title: str) -> str:
    """Return an SVG element with a line of finite values over their numbers from 1; empty for fewer than two values."""
    numbers = np.asarray(values, dtype=np.float64)
    kept = np.flatnonzero(np.isfinite(numbers))
    kept = (
        kept[np.unique(np.linspace(0, len(kept) - 1, min(len(kept), MAX_POINTS)).astype(np.int64))]
        if len(kept)
        else kept
    )
    if len(kept) < 2:
        return ""
    low, high = float(numbers[kept].min()), float(numbers[kept].max())
    x = CHART_MARGIN + (CHART_WIDTH - 2 * CHART_MARGIN) * kept / (len(numbers) - 1)
    y = CHART_HEIGHT - CHART_MARGIN - (CHART_HEIGHT - 2 * CHART_MARGIN) * (numbers[kept] - low) / ((high - low) or 1.0)
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    bottom, label = CHART_HEIGHT - CHART_MARGIN, html.escape(title)
    texts = [
        (CHART_MARGIN, 12, "start", f"{label}: {numbers[kept[0]]:,.6g} to {numbers[kept[-1]]:,.6g}"),
        (CHART_MARGIN, CHART_HEIGHT - 3, "start", "1"),
        (CHART_WIDTH - CHART_MARGIN, CHART_HEIGHT - 3, "end", f"{len(numbers):,}"),
    ]
    labels = "".join(f'<text x="{a}" y="{b}" text-anchor="{anchor}">{text}</text>' for a, b, anchor, text in texts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {CHART_WIDTH} {CHART_HEIGHT}" width="{CHART_WIDTH}" '
        f'role="img" aria-label="{label}" font-size="11" fill="currentColor">{labels}'
        f'<path d="M {CHART_MARGIN} {bottom} H {CHART_WIDTH - CHART_MARGIN}" stroke="var(--grid)"/>'
        f'<polyline points="{points}" fill="none" stroke="var(--first)" stroke-width="1.6"/></svg>'
    )
