"""Plots of histograms of cells, recorded by a backend. A cell is one value of a literal; see `graph/candidates.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from relcrf.learning.histogram import Histogram
from relcrf.report.plot import FIRST, INK, MARK, SECOND, Plot, draw

_COLOURS = (FIRST, SECOND, INK)
"""Colours of the histograms of a figure, in order; further histograms are not drawn."""


def plot_histograms(figures: Mapping[str, Mapping[str, Histogram]]) -> list[Plot]:
    """Return one plot per nonempty figure; the histograms of a figure are superimposed, with their thresholds."""
    drawn = {figure: [one for one in histograms.items() if one[1].total] for figure, histograms in figures.items()}
    return [_plot(figure, histograms) for figure, histograms in drawn.items() if histograms]


def _plot(figure: str, histograms: Sequence[tuple[str, Histogram]]) -> Plot:
    drawn = [(colour, name, histogram) for colour, (name, histogram) in zip(_COLOURS, histograms, strict=False)]

    def paint(axes: Any) -> None:
        for order, (colour, _, histogram) in enumerate(drawn):
            # The first histogram is filled; the other histograms are drawn over it as outlines.
            axes.stairs(histogram.counts, histogram.edges, color=colour, fill=not order, alpha=1.0 if order else 0.5)
        for threshold in sorted({h.threshold for _, _, h in drawn if h.threshold is not None}):
            for place in (-threshold, threshold):
                axes.axvline(place, color=MARK, linewidth=1.2, linestyle="--")
        axes.set_ylabel("cells")
        axes.set_yscale("log")
        axes.set_ylim(0.7, 2.0 * max(int(h.counts.max()) for _, _, h in drawn))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.yaxis.set_minor_formatter("")

    legend = [(colour, f"{name}: {_legend_text(histogram)}") for colour, name, histogram in drawn]
    if any(h.threshold is not None for _, _, h in drawn):
        legend.append((MARK, "threshold"))
    return draw(figure, paint, tuple(legend))


def _legend_text(histogram: Histogram) -> str:
    cells = f"{histogram.total:,} cells"
    if histogram.threshold is None:
        return cells
    return f"{histogram.n_beyond / histogram.total:.1%} of {cells} exceed ±{histogram.threshold:g}"
