"""The learned graph as a picture: hubs are large, strong edges wide, and no two labels meet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from relcrf.data.extras import import_extra
from relcrf.evaluation.learned_graph import LearnedGraph
from relcrf.printable import escape_unprintable
from relcrf.report.node_positions import position_nodes
from relcrf.report.plot import (
    EXTRA,
    FIRST,
    GRID,
    INK,
    MARK,
    PAPER,
    PURPOSE,
    SECOND,
    Plot,
    draw,
    drawing_style,
    new_figure,
    save_picture,
    truncate,
)

MAX_LABELS = 150
"""Nodes beyond these, those of the fewest edges, have no label."""

MAX_LABEL_LENGTH = 26
"""Of a label."""

FONT_SIZE = 8.0
"""Height of a label's letters, in points; as are all lengths here."""

MARGIN, FOOTER = 14.0, 34.0
"""Around all nodes, and below them for the legend."""

_LIGHT = {
    INK: "#24292f",
    GRID: "#d8dee4",
    FIRST: "#0969da",
    SECOND: "#bc4c00",
    MARK: "#8250df",
    PAPER: "#ffffff",
}
"""Colours of a picture file."""

_PAGE = {colour: colour for colour in _LIGHT}
"""Colours of a picture on a page, which replaces them."""

_SHAPES = (("o", INK), ("s", MARK), ("D", GRID))
"""Marker and colour of each kind of nodes; those beyond are as the last."""


@dataclass(frozen=True)
class GraphDrawing:
    """A graph with all that is measured of its picture.

    Args:
        positions: the centre of each node's disc, shape (n_nodes, 2).
        diameters: their diameters, shape (n_nodes,).
        labels: of each node; empty for none.
        size: width and height of the whole.
    """

    graph: LearnedGraph
    positions: np.ndarray
    diameters: np.ndarray
    labels: tuple[str, ...]
    size: tuple[float, float]

    @cached_property
    def kinds(self) -> list[str]:
        """The kinds of the nodes, in the order in which they come."""
        return list(dict.fromkeys(self.graph.nodes["kind"]))

    @cached_property
    def colours(self) -> list[str]:
        """The colour of each edge, by its sign; edges of several weights have none."""
        return [SECOND if weight < 0 else FIRST for weight in self.graph.edges["weight"]]

    @property
    def legend(self) -> tuple[tuple[str, str], ...]:
        """The colours with their meanings."""
        signed = not np.isnan(self.graph.edges["weight"]).all()
        signs = [(FIRST, "more often together"), (SECOND, "less often together")] if signed else [(FIRST, "edges")]
        kinds = [(_SHAPES[min(k, len(_SHAPES) - 1)][1], escape_unprintable(kind)) for k, kind in enumerate(self.kinds)]
        return (*(entry for entry in signs if entry[0] in self.colours), *kinds)


def lay_out_graph(graph: LearnedGraph) -> GraphDrawing:
    """A graph with places for its nodes; the same for the same graph.

    Raises:
        UsageError: where Matplotlib is not installed.
    """
    degrees = graph.degrees
    discs = 5.0 + 13.0 * np.sqrt(degrees / degrees.max())
    # Of equally many edges the strongest count.
    best = np.zeros(len(degrees))
    np.maximum.at(best, graph.pairs.ravel(), np.repeat(graph.edges["strength"], 2))
    labelled = set(np.lexsort((-best, -degrees))[:MAX_LABELS].tolist())
    labels = tuple(
        truncate(name, MAX_LABEL_LENGTH) if k in labelled else "" for k, name in enumerate(graph.nodes["name"])
    )
    words = np.array([_measure_label(label) for label in labels])
    boxes = np.column_stack((np.maximum(discs, words[:, 0]), discs + words[:, 1]))
    at = position_nodes(graph.pairs, boxes)
    width, height = (at + boxes / 2).max(axis=0) + 2 * MARGIN
    # A box is a disc and its label below; the centre of the disc is above that of the box.
    at = at + MARGIN + np.column_stack((np.zeros(len(at)), words[:, 1] / 2 + FOOTER))
    return GraphDrawing(graph, at, discs, labels, (max(float(width), 360.0), float(height) + FOOTER))


def _measure_label(label: str) -> tuple[float, float]:
    """Width and height of a label."""
    if not label:
        return 0.0, 0.0
    words, fonts = (import_extra(f"matplotlib.{part}", EXTRA, PURPOSE) for part in ("textpath", "font_manager"))
    with drawing_style({}):
        font = fonts.FontProperties(size=FONT_SIZE)
        width, _, _ = words.TextToPath().get_text_width_height_descent(label, font, ismath=False)
    return float(width) + 2.0, 1.3 * FONT_SIZE


def plot_graph(graph: LearnedGraph, title: str) -> Plot:
    """The picture for the report page."""
    made = lay_out_graph(graph)
    return draw(title, lambda axes: _paint_graph(axes, made, _PAGE), made.legend, inches=_inches(made))


def save_graph(graph: LearnedGraph, path: Path) -> None:
    """Write the picture through a temporary name; the same bytes for the same graph. For errors see `require_drawable`."""
    save_picture(lambda: _figure(graph), path, 144)


def _figure(graph: LearnedGraph) -> Any:
    made = lay_out_graph(graph)
    figure = new_figure(_inches(made), facecolor=_LIGHT[PAPER])
    axes = figure.subplots()
    _paint_graph(axes, made, _LIGHT)
    _write_legend(axes, made)
    return figure


def _inches(made: GraphDrawing) -> tuple[float, float]:
    width, height = made.size
    return width / 72, height / 72


def _paint_graph(axes: Any, made: GraphDrawing, colours: Mapping[str, str]) -> None:
    """The nodes and edges on axes as large as the figure, one unit of which is a point.

    Args:
        colours: by the names of a page.
    """
    axes.set_axis_off()
    axes.set_position((0.0, 0.0, 1.0, 1.0))
    axes.set_xlim(0.0, made.size[0])
    axes.set_ylim(0.0, made.size[1])
    shares = made.graph.edges["strength"] / made.graph.edges["strength"][0]
    for number in range(len(made.graph.edges) - 1, -1, -1):  # the strongest last, above the others
        first, second = made.graph.pairs[number]
        colour, share = made.colours[number], float(shares[number])
        line = {"color": colours[colour], "alpha": 0.1 + 0.75 * share**0.6, "linewidth": 0.4 + 3.6 * share}
        if first == second:
            around = 1.7 * made.diameters[first]
            axes.plot(*made.positions[first], marker="o", markersize=around, fillstyle="none", markeredgewidth=line["linewidth"],
                      markeredgecolor=line["color"], alpha=line["alpha"])  # fmt: skip
        else:
            axes.plot(*made.positions[[first, second]].T, solid_capstyle="round", **line)
    for node, (place, disc, label) in enumerate(zip(made.positions, made.diameters, made.labels, strict=True)):
        shape, colour = _SHAPES[min(made.kinds.index(made.graph.nodes["kind"][node]), len(_SHAPES) - 1)]
        axes.plot(*place, marker=shape, markersize=disc if shape == "o" else 0.8 * disc, color=colours[colour],
                  markeredgecolor=colours[PAPER], markeredgewidth=0.8, zorder=3)  # fmt: skip
        if label:
            back = {"facecolor": colours[PAPER], "edgecolor": "none", "alpha": 0.7, "pad": 0.4}
            axes.text(place[0], place[1] - disc / 2 - 0.5, label, fontsize=FONT_SIZE, color=colours[INK],
                      ha="center", va="top", zorder=4, bbox=back)  # fmt: skip


def _write_legend(axes: Any, made: GraphDrawing) -> None:
    """What colours and sizes say, in the foot of the picture."""
    lines = import_extra("matplotlib.lines", EXTRA, PURPOSE)
    handles = []
    markers = {colour: shape for shape, colour in _SHAPES[: len(made.kinds)]}
    for colour, text in made.legend:
        dot = {"marker": markers.get(colour), "linestyle": "none", "markersize": 6}
        style = dot if colour in markers else {"linewidth": 2.5}
        handles.append(lines.Line2D([], [], color=_LIGHT[colour], label=text, **style))
    title = f"{len(made.graph.nodes):,} keys, {len(made.graph.edges):,} edges"
    handles.insert(0, lines.Line2D([], [], linestyle="none", label=title))
    axes.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(0.0, 0.0), ncols=len(handles), frameon=False,
        fontsize=FONT_SIZE + 1, labelcolor=_LIGHT[INK], handletextpad=0.5, columnspacing=1.6, borderaxespad=0.4,
    )  # fmt: skip
