"""Plots: inline SVG that inherits colours and fonts from the HTML page, and picture files."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from relcrf.data.extras import import_extra
from relcrf.files import atomic_path, require_suffix
from relcrf.printable import escape_unprintable

EXTRA, PURPOSE = "report", "a picture"
"""Arguments of `import_extra` for the drawing packages."""

PICTURE_EXTENSIONS = (".png", ".svg", ".pdf")
"""Formats of picture files."""

INK, GRID, FIRST, SECOND, MARK, PAPER = "#01aa01", "#02aa02", "#03aa03", "#04aa04", "#05aa05", "#06aa06"
"""Placeholder colours, each of which represents a CSS variable of the page."""

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
    "svg.fonttype": "none",  # keep text as text
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": INK,
    "ytick.color": INK,
}
_INCHES = (4.4, 2.7)
"""Size of a plot, so that on a telephone the text of the plot is as large as the text of the page."""

_SVG = "http://www.w3.org/2000/svg"
_LINK = "http://www.w3.org/1999/xlink"


@dataclass(frozen=True)
class Plot:
    """A plot with title and legend.

    Args:
        svg: An SVG element to embed in an HTML page.
        legend: Pairs of a CSS variable of the page and the meaning of its colour.
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
    """Draw a plot; equal input gives equal bytes.

    Args:
        title: The title, unique among the plots of a page.
        paint: A function that draws on Matplotlib axes.
        legend: Pairs of a placeholder colour and its meaning.
        inches: Width and height.

    Raises:
        UsageError: Matplotlib is not installed.
    """
    out = io.StringIO()
    with drawing_style({**_STYLE, "svg.hashsalt": ascii(title)}):
        figure = new_figure(inches, layout="constrained")
        paint(figure.subplots())
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    return Plot(title, _inline_svg(out.getvalue(), title), tuple((_VARIABLES[colour], text) for colour, text in legend))


def require_drawable(path: Path) -> None:
    """Validate the name of a picture file before any work is done, and create its folder.

    Raises:
        UsageError: The extension is not in `PICTURE_EXTENSIONS`, the path is a folder, or Matplotlib is not installed.
    """
    require_suffix(path, PICTURE_EXTENSIONS, "picture.png")
    import_extra("matplotlib.figure", EXTRA, PURPOSE)
    path.parent.mkdir(parents=True, exist_ok=True)


def save_picture(make: Callable[[], Any], path: Path, dpi: int) -> None:
    """Write a Matplotlib figure atomically; equal figures give equal bytes.

    Args:
        make: A function that returns the figure; it is called while the drawing style is set.

    Raises:
        UsageError: See `require_drawable`.
    """
    require_drawable(path)
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix)
    style = {"text.parse_math": False, "svg.hashsalt": "relcrf", "svg.fonttype": "path"}
    with drawing_style(style), atomic_path(path) as partial:
        make().savefig(partial, dpi=dpi, format=path.suffix[1:], metadata=metadata)


def new_figure(inches: tuple[float, float], **options: Any) -> Any:
    """Return an empty Matplotlib figure."""
    return import_extra("matplotlib.figure", EXTRA, PURPOSE).Figure(figsize=inches, **options)


def truncate(text: str, max_length: int) -> str:
    """Return printable text of at most `max_length` characters, with an ellipsis if it was truncated."""
    text = escape_unprintable(text)
    return text if len(text) <= max_length else text[: max_length - 1] + "…"


@contextmanager
def drawing_style(settings: dict[str, Any]) -> Iterator[None]:
    """Set Matplotlib parameters and suppress warnings about glyphs that are missing in the font."""
    with import_extra("matplotlib", EXTRA, PURPOSE).rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph \d+")
        yield


def _inline_svg(text: str, title: str) -> str:
    """Convert an SVG file to an HTML element without a fixed size and without identifiers that clash with other plots."""
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
