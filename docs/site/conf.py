"""How Sphinx builds the site: `make docs`. The pages are plain Markdown, which reads as well where nothing builds it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))

import grammar_page  # noqa: E402  # beside this file

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "relcrf"
extensions = ["myst_nb"]
exclude_patterns = ["site"]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}
highlight_language = "text"

myst_heading_anchors = 4
nb_execution_mode = "off"

html_theme = "furo"
html_title = "relcrf"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"

_RULES = re.compile(r"<!-- rules:.*-->")
_LINK = re.compile(r"\]\((?!\w+:|#)([^)\s]+)\)")
_OUTSIDE = re.compile(r"\[([^]]+)\]\((?:\.\./)+(?!docs/)([^)\s]+\.md)\)")


def _front(text: str) -> str:
    """The README as a page of docs/."""
    moved = _LINK.sub(lambda link: f"](../{link[1]})", text)
    return moved.replace("](../docs/", "](")


def _read(app: Sphinx, page: str, source: list[str]) -> None:
    if Path(app.env.doc2path(page)).suffix != ".md":
        return
    text = source[0]
    if page == "index":
        text = _front((ROOT / "README.md").read_text()) + text
    elif page == "grammar":
        text = _RULES.sub(lambda _: grammar_page.page((ROOT / "grammar" / "rcrf.lark").read_text()), text)
    elif re.fullmatch(r"errors/[EW]\d+", page):
        text = "---\norphan: true\n---\n" + text  # their index leads to them, and the navigation stays short
    source[0] = _OUTSIDE.sub(r"\1 (`\2`)", text)  # pages outside docs/ are no part of the site


def setup(app: Sphinx) -> None:
    app.connect("source-read", _read)
