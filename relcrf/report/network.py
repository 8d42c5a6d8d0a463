"""A picture of the learned graph: node size by degree, edge width by strength, and labels that do not overlap."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from relcrf.data.extras import import_extra
from relcrf.data.frame import Frame
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

MAX_NODES, MAX_EDGES = 500, 2000
"""Maximum number of drawn nodes and edges, the strongest edges first; the time of layouts grows faster than the graph."""

MAX_LABELS = 150
"""Maximum number of labelled nodes; the nodes with the most edges are labelled."""

MAX_LABEL_LENGTH = 26
"""Maximum number of characters of a label."""

FONT_SIZE = 8.0
"""Font size of labels in points; all lengths in this file are in points."""

MARGIN, FOOTER = 14.0, 34.0
"""Margin around all nodes, and height of the legend below them."""

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
"""Placeholder colours of a picture on a page; the page replaces them by its own colours."""

_SHAPES = (("o", INK), ("s", MARK), ("D", GRID))
"""Marker and colour of each kind of node; further kinds share the last entry."""


@dataclass(frozen=True)
class GraphDrawing:
    """A graph with the layout of its picture.

    Args:
        positions: The centre of each node's disc, shape (n_nodes, 2).
        diameters: The diameter of each disc, shape (n_nodes,).
        labels: The label of each node; empty for none.
        size: The width and height of the picture.
        n_omitted: The number of weaker edges that are not drawn.
    """

    graph: LearnedGraph
    positions: np.ndarray
    diameters: np.ndarray
    labels: tuple[str, ...]
    size: tuple[float, float]
    n_omitted: int = 0

    @property
    def note(self) -> str:
        """The end of the title; empty if the picture contains all edges."""
        return f"; {self.n_omitted:,} weaker edges are not drawn" if self.n_omitted else ""

    @cached_property
    def kinds(self) -> list[str]:
        """The kinds of nodes, in the order of the first node of each kind."""
        return list(dict.fromkeys(self.graph.nodes["kind"]))

    @cached_property
    def colours(self) -> list[str]:
        """The colour of each edge by the sign of its weight; edges with several weights are coloured as positive."""
        return [SECOND if weight < 0 else FIRST for weight in self.graph.edges["weight"]]

    @property
    def legend(self) -> tuple[tuple[str, str], ...]:
        """The colours with their meanings."""
        signed = not np.isnan(self.graph.edges["weight"]).all()
        signs = [(FIRST, "positive weight"), (SECOND, "negative weight")] if signed else [(FIRST, "edges")]
        kinds = [(_SHAPES[min(k, len(_SHAPES) - 1)][1], escape_unprintable(kind)) for k, kind in enumerate(self.kinds)]
        return (*(entry for entry in signs if entry[0] in self.colours), *kinds)


def _strongest_edges(graph: LearnedGraph) -> LearnedGraph:
    """Return the strongest edges, at most MAX_EDGES, with their nodes, at most MAX_NODES; a smaller graph is not changed."""
    _, first_ends = np.unique(graph.pairs, return_index=True)
    first_edges = np.sort(first_ends // 2)  # for each node, the first edge that contains it
    n_edges = min(len(graph.edges), MAX_EDGES, *first_edges[MAX_NODES : MAX_NODES + 1].tolist())
    if n_edges == len(graph.edges):
        return graph
    nodes, ends = np.unique(graph.pairs[:n_edges], return_inverse=True)
    edges, pairs = graph.edges.take_rows(np.arange(n_edges)), ends.reshape(-1, 2)
    columns = {**edges.columns, "first": pairs[:, 0], "second": pairs[:, 1]}
    return LearnedGraph(graph.nodes.take_rows(nodes), Frame(columns), graph.triples)


def lay_out_graph(whole: LearnedGraph) -> GraphDrawing:
    """Compute the layout of a graph, or of its strongest edges; equal graphs have equal layouts.

    Raises:
        UsageError: Matplotlib is not installed.
    """
    graph = _strongest_edges(whole)
    degrees = graph.degrees
    diameters = 5.0 + 13.0 * np.sqrt(degrees / degrees.max())
    # Nodes with equal degrees are ordered by the strength of the strongest edge.
    best = np.zeros(len(degrees))
    np.maximum.at(best, graph.pairs.ravel(), np.repeat(graph.edges["strength"], 2))
    labelled = set(np.lexsort((-best, -degrees))[:MAX_LABELS].tolist())
    labels = tuple(
        truncate(name, MAX_LABEL_LENGTH) if k in labelled else "" for k, name in enumerate(graph.nodes["name"])
    )
    text_sizes = np.array([_measure_label(label) for label in labels])
    boxes = np.column_stack((np.maximum(diameters, text_sizes[:, 0]), diameters + text_sizes[:, 1]))
    positions = position_nodes(graph.pairs, boxes)
    width, height = (positions + boxes / 2).max(axis=0) + 2 * MARGIN
    # A box contains a disc and, below the disc, the label; the disc is therefore above the centre of the box.
    positions = positions + MARGIN + np.column_stack((np.zeros(len(positions)), text_sizes[:, 1] / 2 + FOOTER))
    size = max(float(width), 360.0), float(height) + FOOTER
    return GraphDrawing(graph, positions, diameters, labels, size, len(whole.edges) - len(graph.edges))


def _measure_label(label: str) -> tuple[float, float]:
    """Return width and height of a label."""
    if not label:
        return 0.0, 0.0
    textpath, fonts = (import_extra(f"matplotlib.{part}", EXTRA, PURPOSE) for part in ("textpath", "font_manager"))
    with drawing_style({}):
        font = fonts.FontProperties(size=FONT_SIZE)
        width, _, _ = textpath.TextToPath().get_text_width_height_descent(label, font, ismath=False)
    return float(width) + 2.0, 1.3 * FONT_SIZE


def plot_graph(graph: LearnedGraph, title: str) -> Plot:
    """Return the picture for the report page."""
    drawing = lay_out_graph(graph)
    return draw(
        f"{title}{drawing.note}",
        lambda axes: _paint_graph(axes, drawing, _PAGE),
        drawing.legend,
        inches=_inches(drawing),
    )


def save_graph(graph: LearnedGraph, path: Path) -> None:
    """Write the picture atomically; equal graphs give equal bytes. For errors see `plot.require_drawable`."""
    save_picture(lambda: _figure(graph), path, 144)


def _figure(graph: LearnedGraph) -> Any:
    drawing = lay_out_graph(graph)
    figure = new_figure(_inches(drawing), facecolor=_LIGHT[PAPER])
    axes = figure.subplots()
    _paint_graph(axes, drawing, _LIGHT)
    _write_legend(axes, drawing)
    return figure


def _inches(drawing: GraphDrawing) -> tuple[float, float]:
    width, height = drawing.size
    return width / 72, height / 72


def _paint_graph(axes: Any, drawing: GraphDrawing, colours: Mapping[str, str]) -> None:
    """Paint nodes and edges on axes that fill the figure, with points as unit.

    Args:
        colours: The actual colour of each placeholder colour.
    """
    axes.set_axis_off()
    axes.set_position((0.0, 0.0, 1.0, 1.0))
    axes.set_xlim(0.0, drawing.size[0])
    axes.set_ylim(0.0, drawing.size[1])
    relative_strengths = drawing.graph.edges["strength"] / drawing.graph.edges["strength"][0]
    for number in range(len(drawing.graph.edges) - 1, -1, -1):  # strongest last, in front of the others
        first, second = drawing.graph.pairs[number]
        colour, relative_strength = drawing.colours[number], float(relative_strengths[number])
        line = {
            "color": colours[colour],
            "alpha": 0.1 + 0.75 * relative_strength**0.6,
            "linewidth": 0.4 + 3.6 * relative_strength,
        }
        if first == second:
            loop_diameter = 1.7 * drawing.diameters[first]
            axes.plot(*drawing.positions[first], marker="o", markersize=loop_diameter, fillstyle="none",
                      markeredgewidth=line["linewidth"], markeredgecolor=line["color"], alpha=line["alpha"])  # fmt: skip
        else:
            axes.plot(*drawing.positions[[first, second]].T, solid_capstyle="round", **line)
    for node, (position, diameter, label) in enumerate(
        zip(drawing.positions, drawing.diameters, drawing.labels, strict=True)
    ):
        shape, colour = _SHAPES[min(drawing.kinds.index(drawing.graph.nodes["kind"][node]), len(_SHAPES) - 1)]
        axes.plot(*position, marker=shape, markersize=diameter if shape == "o" else 0.8 * diameter, color=colours[colour],
                  markeredgecolor=colours[PAPER], markeredgewidth=0.8, zorder=3)  # fmt: skip
        if label:
            background = {"facecolor": colours[PAPER], "edgecolor": "none", "alpha": 0.7, "pad": 0.4}
            axes.text(position[0], position[1] - diameter / 2 - 0.5, label, fontsize=FONT_SIZE, color=colours[INK],
                      ha="center", va="top", zorder=4, bbox=background)  # fmt: skip


def _write_legend(axes: Any, drawing: GraphDrawing) -> None:
    """Write the legend at the bottom of the picture."""
    lines = import_extra("matplotlib.lines", EXTRA, PURPOSE)
    handles = []
    markers = {colour: shape for shape, colour in _SHAPES[: len(drawing.kinds)]}
    for colour, text in drawing.legend:
        dot = {"marker": markers.get(colour), "linestyle": "none", "markersize": 6}
        style = dot if colour in markers else {"linewidth": 2.5}
        handles.append(lines.Line2D([], [], color=_LIGHT[colour], label=text, **style))
    title = f"{len(drawing.graph.nodes):,} nodes, {len(drawing.graph.edges):,} edges{drawing.note}"
    handles.insert(0, lines.Line2D([], [], linestyle="none", label=title))
    axes.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(0.0, 0.0), ncols=len(handles), frameon=False,
        fontsize=FONT_SIZE + 1, labelcolor=_LIGHT[INK], handletextpad=0.5, columnspacing=1.6, borderaxespad=0.4,
    )  # fmt: skip
