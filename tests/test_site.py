"""The site of docs/, as far as it can be judged where nothing builds it; `make docs` judges the rest."""

import ast
import os
import re
import runpy
from pathlib import Path
from xml.etree import ElementTree

import pytest
from lark import Lark

import relcrf

DOCS = Path(relcrf.__file__).parent.parent / "docs"
PAGES = sorted(str(p.relative_to(DOCS).with_suffix("")) for p in DOCS.rglob("*.md") if p.name != "index.md")
ERRORS = [page for page in PAGES if re.fullmatch(r"errors/[EW]\d+", page)]
LINKS = re.compile(r"\]\((?!https?:)([^)#\s]+)(?:#[^)\s]*)?\)")

GRAMMAR = (DOCS.parent / "grammar" / "rcrf.lark").read_text()


@pytest.fixture(scope="module")
def grammar_page():
    return runpy.run_path(str(DOCS / "site" / "grammar_page.py"))


def entries(text):
    """The pages that the front page leads to, in their order."""
    trees = re.findall(r"^```\{toctree\}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line for tree in trees for line in tree.splitlines() if line and not line.startswith(":")]
    return [found[1] if (found := re.search(r"<(.+)>$", line)) else line for line in lines]


def children():
    """The pages below other pages, which `CHILDREN` of conf.py names by their titles and relative paths."""
    tree = ast.parse((DOCS / "site" / "conf.py").read_text())
    (listed,) = [node.value for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id == "CHILDREN"]
    for parent, pages in zip(listed.keys, listed.values, strict=True):
        if isinstance(pages, ast.Tuple):
            for page in entries("```{toctree}\n" + "\n".join(ast.literal_eval(pages)) + "\n```\n"):
                yield os.path.normpath(os.path.join(os.path.dirname(parent.value), page))


def test_every_page_is_in_the_navigation_once():
    notebooks = [str(p.relative_to(DOCS).with_suffix("")) for p in DOCS.rglob("*.ipynb")]
    top = entries((DOCS / "index.md").read_text())
    classes = [page for page in PAGES if re.fullmatch(r"reference/api/(?!README)\w+", page)]  # conf.py lists the folder
    assert sorted([*top, *children(), *classes]) == sorted({*PAGES, *notebooks} - set(ERRORS))


def test_navigation_is_short_and_grouped():
    text = (DOCS / "index.md").read_text()
    assert len(entries(text)) <= 25
    assert re.findall(r":caption: (.+)", text) == ["Start", "How-to guides", "Reference", "Explanation"]


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


def test_each_rule_of_the_grammar_is_drawn(grammar_page):
    parser = Lark(GRAMMAR, parser="lalr", keep_all_tokens=True, maybe_placeholders=False)
    names = {str(rule.origin.name) for rule in parser.rules} - {"$root"}
    names = {name for name in names if not name.startswith("__")}  # what Lark makes of repetitions
    names |= {token.name for token in parser.terminals if re.search(rf"^{token.name}(\.\d+)?:", GRAMMAR, re.MULTILINE)}
    page = grammar_page["page"](GRAMMAR)
    assert set(re.findall(r"^### (\w+)$", page, re.MULTILINE)) == names - {"COMMENT"} and len(names) > 55
    drawn = re.findall(
        r'^<div class="railroad" id="(?:rule|token)-(\w+)">\n(<svg.*?</svg>)\n</div>$', page, re.MULTILINE | re.DOTALL
    )
    assert {name for name, _ in drawn} == names - {"COMMENT"}
    anchors = set(re.findall(r' id="([\w-]+)"', page))
    for _, svg in drawn:
        links = re.findall(r'href="#([^"]+)"', ElementTree.tostring(ElementTree.fromstring(svg), "unicode"))
        assert set(links) <= anchors


def test_a_diagram_says_what_its_rule_says(grammar_page):
    grammar = """
start: item
// ---- Lists ----
item: "(" [value ("," value)*] ")" mark?
mark: "+"+ | (value "<")*
value: /[a-z]/
"""
    found = {rule.name: rule for rule in grammar_page["rules"](grammar)}
    assert [rule.section for rule in found.values()] == ["A declaration", "Lists", "Lists", "Lists"]

    def shape(item):
        inner = [getattr(item, "item", None), getattr(item, "rep", None), *getattr(item, "items", ())]
        name = getattr(item, "text", None)
        return (type(item).__name__, *([name] if name else map(shape, filter(None, inner))))

    draw = grammar_page["_diagram_item"]
    once = ("Skip",)
    value, comma = ("NonTerminal", "value"), ("Terminal", ",")
    assert shape(draw(found["item"].body, found)) == (
        "Sequence",
        ("Terminal", "("),
        ("Choice", once, ("OneOrMore", value, comma)),
        ("Terminal", ")"),
        ("Choice", once, ("NonTerminal", "mark")),
    )
    assert shape(draw(found["mark"].body, found)) == (
        "Choice",
        ("OneOrMore", ("Terminal", "+"), once),
        ("Choice", once, ("OneOrMore", ("Sequence", value, ("Terminal", "<")), once)),
    )


def test_only_pages_outside_docs_are_no_links_on_the_site():
    inside = runpy.run_path(str(DOCS / "site" / "conf.py"))["_inside"]
    text = "[a](../errors/E405.md), [b](README.md#x), [c](../../benchmarks/README.md), [d](https://x.y/z.md), [e](../ess.md#y)"
    assert inside(text, "inference/map") == text.replace(
        "[c](../../benchmarks/README.md)", "c (`benchmarks/README.md`)"
    )
    assert inside("[a](../README.md)", "index") == "a (`README.md`)"
