"""The Sphinx configuration of the documentation site, which `make docs` builds from plain Markdown pages."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))

import grammar_page  # noqa: E402  # both modules are in this folder
import reference_pages  # noqa: E402

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "relcrf"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["site"]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}
highlight_language = "text"

myst_heading_anchors = 4
nb_execution_mode = "off"

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the Args sections have shapes and units
autodoc_default_options = {
    "members": True,
    "exclude-members": "set_fit_request, set_predict_request, set_score_request",
}
napoleon_custom_sections = [("Source", "References")]

_CLASSES = sorted(page.stem for page in (ROOT / "docs/reference/api").glob("*.md") if page.stem != "README")

CHILDREN = {
    "notebooks/README": ("Web pages <web_pages>", "Sensors <sensors>", "Nations <nations>"),
    "how-to/evaluate": ("time", "prediction_sets", "few_labels", "ask", "pareto", "knowledge_graphs"),
    "how-to/explain": ("audit", "weights", "learned_graph"),
    "how-to/README": ("numbers", "weak_supervision", "link_records", "clusters"),
    "how-to/distribute": ("gpu",),
    "how-to/run_folders": ("update",),
    "how-to/extending/README": ("A backend <backend>", "A reader <reader>", "A function <function>", "An estimator <estimator>"),
    "reference/language": ("grammar",),
    "reference/api/README": tuple(_CLASSES),
    "explanation/backends": ("ESS-CRF <ess>", "TR-MRF <trmrf>", "Gated models <gated>", "grafting", "classical"),
    "explanation/inference/README": (
        "Junction trees <junction_tree>",
        "Belief propagation <belief_propagation>",
        "Weighted mini-buckets <mini_bucket>",
        "mean_field",
        "gibbs",
        "Most probable states <map>",
        "UAI format <uai>",
    ),
    "explanation/internals": ("redesign", "References <../reference/literature>", "Stability <../reference/stability>"),
    "benchmarks/README": (
        "backends",
        "few_labels",
        "ask",
        "numbers",
        "update",
        "learned_features",
        "linkage",
        "ess_relational",
        "ess_sensors",
        "ess_extensions",
        "trmrf_backend",
        "trmrf",
        "knowledge",
        "grafting",
        "gated",
        "classical",
        "pseudo_likelihood",
        "inference",
        "grounding",
        "memory",
        "startup",
        "limits",
        "faults",
        "redesign",
    ),
}
"""The child pages of pages in the navigation; the pages are plain Markdown, which has no `toctree`."""

html_theme = "furo"
html_title = "relcrf"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"

_RULES = re.compile(r"<!-- rules:.*-->")
_AUTODOC = re.compile(r"<!-- (auto\w+): ([\w. ]+) -->")
_LINK = re.compile(r"\]\((?!\w+:|#)([^)\s]+)\)")
_PAGE = re.compile(r"\[([^]]+)\]\((?!\w+:)([^)\s#]+\.md)(?:#[^)\s]*)?\)")


def _front(text: str) -> str:
    """Return the README with its links relative to docs/."""
    moved = _LINK.sub(lambda link: f"](../{link[1]})", text)
    return moved.replace("](../docs/", "](")


def _inside(text: str, page: str) -> str:
    """Return a page with links to pages outside docs/, which are not part of the site, replaced by their paths."""
    docs = ROOT / "docs"

    def replace_link(link: re.Match[str]) -> str:
        target = (docs / page).parent.joinpath(link[2]).resolve()
        return link[0] if target.is_relative_to(docs) else f"{link[1]} (`{target.relative_to(ROOT)}`)"

    return _PAGE.sub(replace_link, text)


def _autodoc(found: re.Match[str]) -> str:
    """Return the directives that document the objects named in a comment such as `<!-- autoclass: relcrf.Fit -->`."""
    lines = "\n".join(f".. {found[1]}:: {name}" for name in found[2].split())
    return f"```{{eval-rst}}\n{lines}\n```"


def _read(app: Sphinx, page: str, source: list[str]) -> None:
    if Path(app.env.doc2path(page)).suffix != ".md":
        return
    text = source[0]
    if page == "index":
        text = _front((ROOT / "README.md").read_text()) + text
    elif page == "reference/grammar":
        text = _RULES.sub(lambda _: grammar_page.page((ROOT / "grammar" / "rcrf.lark").read_text()), text)
    elif re.fullmatch(r"errors/[EW]\d+", page):
        text = "---\norphan: true\n---\n" + text  # the index of errors links to them; the navigation does not list them
    elif page == "reference/command_line":
        text = text.replace("<!-- commands -->", reference_pages.command_line())
    elif page == "reference/settings":
        text = text.replace("<!-- settings -->", reference_pages.settings())
    elif page.startswith("reference/api/"):
        text = _AUTODOC.sub(_autodoc, text)
    if page in CHILDREN:
        text += "\n```{toctree}\n:hidden:\n\n" + "\n".join(CHILDREN[page]) + "\n```\n"
    source[0] = _inside(text, page)


def setup(app: Sphinx) -> None:
    app.connect("source-read", _read)
