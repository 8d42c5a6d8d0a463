"""Plots as inline SVG that takes its colours and its letters from the page around it."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

from relcrf.data.extras import require

EXTRA, PURPOSE = "report", "relcrf report"
"""For `require`: whose packages draw, and for what."""

INK, GRID, FIRST, SECOND, MARK, PAPER = "#01aa01", "#02aa02", "#03aa03", "#04aa04", "#05aa05", "#06aa06"
"""Colours to draw with. Each stands for a variable of the page's style."""

_VARIABLES = {INK: "--ink", GRID: "--grid", FIRST: "--first", SECOND: "--second", MARK: "--mark", PAPER: "--paper"}

_STYLE = {
    "axes.edgecolor": INK,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 10,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "svg.fonttype": "none",  # letters stay letters
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": INK,
    "ytick.color": INK,
}
_INCHES = (4.4, 2.7)
"""A letter is as large as on the page around it where a plot is as wide as a telephone."""

_SVG = "http://www.w3.org/2000/svg"
_LINK = "http://www.w3.org/1999/xlink"


@dataclass(frozen=True)
class Plot:
    """A drawing with its words.

    Args:
        svg: an element for the inside of an HTML page.
        legend: pairs of a variable of the page's style and what is drawn in that colour.
    """

    title: str
    svg: str
    legend: tuple[tuple[str, str], ...] = ()


def draw(
    title: str,
    paint: Callable[[Any], None],
    legend: tuple[tuple[str, str], ...] = (),
    inches: tuple[float, float] = _INCHES,
) -> Plot:
    """A plot; the same bytes for the same input.

    Args:
        title: differs from those of the other plots of a page.
        paint: draws on Matplotlib's axes.
        legend: colours, of those above, and words for them.
        inches: width and height.

    Raises:
        UsageError: where Matplotlib is not installed.
    """
    settings, drawing = (require(f"matplotlib{part}", EXTRA, PURPOSE) for part in ("", ".figure"))
    out = io.StringIO()
    with settings.rc_context({**_STYLE, "svg.hashsalt": ascii(title)}):
        figure = drawing.Figure(figsize=inches, layout="constrained")
        paint(figure.subplots())
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    return Plot(title, _inline(out.getvalue(), title), tuple((_VARIABLES[colour], text) for colour, text in legend))


def _inline(text: str, title: str) -> str:
    """What of an SVG file an HTML page needs: no size of its own, nothing that other plots have by the same name."""
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _LINK)
    root = ElementTree.fromstring(text)
    used = set(re.findall(r"(?:url\(|href=\")#([^)\"]+)", text))
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{{{_SVG}}}style", f"{{{_SVG}}}metadata"):
                parent.remove(child)
        if parent.get("id") not in used:
            parent.attrib.pop("id", None)
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.set("role", "img")
    root.set("aria-label", title)
    svg = ElementTree.tostring(root, encoding="unicode")
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    return svg
