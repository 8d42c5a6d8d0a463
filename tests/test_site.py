"""The site of docs/, as far as it can be judged where nothing builds it; `make docs` judges the rest."""

import re
from pathlib import Path

import pytest

import relcrf

DOCS = Path(relcrf.__file__).parent.parent / "docs"
PAGES = sorted(str(p.relative_to(DOCS).with_suffix("")) for p in DOCS.rglob("*.md") if p.name != "index.md")
ERRORS = [page for page in PAGES if re.fullmatch(r"errors/[EW]\d+", page)]
LINKS = re.compile(r"\]\((?!https?:)([^)#\s]+)(?:#[^)\s]*)?\)")


def entries(text):
    """The pages that the front page leads to, in their order."""
    trees = re.findall(r"^```\{toctree\}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line for tree in trees for line in tree.splitlines() if line and not line.startswith(":")]
    return [found[1] if (found := re.search(r"<(.+)>$", line)) else line for line in lines]


def test_every_page_is_in_the_navigation_once():
    assert sorted(entries((DOCS / "index.md").read_text())) == sorted(set(PAGES) - set(ERRORS))


@pytest.mark.parametrize("page", PAGES)
def test_pages_keep_to_plain_markdown(page):
    text = (DOCS / f"{page}.md").read_text()
    assert not re.search(r"^(```\{|:::|!!!|\?\?\?)|\{[a-z:]+\}`", text, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES)
def test_links_of_all_pages_lead_somewhere(page):
    for target in LINKS.findall((DOCS / f"{page}.md").read_text()):
        assert (DOCS / page).parent.joinpath(target).exists(), target


def test_the_index_of_errors_has_every_page():
    assert sorted(re.findall(r"\]\(([EW]\d+)\.md\)", (DOCS / "errors" / "README.md").read_text())) == [
        page.removeprefix("errors/") for page in ERRORS
    ]
