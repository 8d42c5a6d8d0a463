"""Quick fixes of the language server: they remove the diagnostic, and keep the format of the text."""

import json
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
from language_client import Editor, edited

from relcrf.errors import Diagnostic, Hint, NameReplacement, suggestion
from relcrf.language.format import format_text

pytest.importorskip("pygls")

BAD_MODELS = Path(__file__).parents[1] / "models" / "bad"

PAGES = """\
domain Category = { course, faculty, "home page" }

entity Page {
    predict category : Category
    length           : real
}

relation Link(source: Page, target: Page)

template pair(a: Page, b: Page)
    where Link(a, b)
    over  a.category, b.category
"""


@pytest.fixture(scope="module")
def editor(tmp_path_factory):
    """Run one server for all tests, and check at the end that it logged no errors."""
    running = Editor(tmp_path_factory.mktemp("workspace"))
    yield running
    assert running.shut_down() == (0, "")


@pytest.fixture
def fixes(editor, tmp_path):
    """Return a function that opens a text and returns its diagnostics and the code actions in the whole text."""
    path = tmp_path / "model.rcrf"

    def open_and_request(text, only=None, place=path, span=None):
        if place in editor.versions:
            editor.close(place)
        diagnostics = editor.open(place, text)
        end = {"line": text.count("\n") + 1, "character": 0}
        context = {"diagnostics": diagnostics} | ({"only": only} if only else {})
        span = span or {"start": {"line": 0, "character": 0}, "end": end}
        document = {"textDocument": {"uri": place.as_uri()}}
        return diagnostics, editor.request("textDocument/codeAction", {**document, "range": span, "context": context})

    yield open_and_request
    for opened in list(editor.versions):
        editor.close(opened)


def apply(text, action):
    (edits,) = action["edit"]["changes"].values()
    return edited(text, edits)


def titles(actions):
    return [action["title"] for action in actions]


def test_server_offers_kinds(editor):
    assert editor.capabilities["codeActionProvider"]["codeActionKinds"] == ["quickfix", "source.fixAll.relcrf"]


SUGGESTING = [
    path for path in sorted(BAD_MODELS.glob("*.rcrf")) if "did you mean" in path.with_suffix(".txt").read_text()
]


def test_codes_with_suggestions():
    codes = {path.stem.split("_")[0] for path in SUGGESTING}
    assert codes >= {"E001", "E002", "E101", "E102", "E105", "E120", "E142", "E147"}


@pytest.mark.parametrize("path", SUGGESTING, ids=lambda path: path.stem)
def test_suggestion_is_quick_fix(fixes, path):
    text = path.read_text()
    diagnostics, actions = fixes(text)
    for wrong in [d for d in diagnostics if "did you mean" in d["message"]]:
        changes = [a for a in actions if a.get("diagnostics") == [wrong] and a["title"].startswith("Change ")]
        name = wrong["message"].split("did you mean '")[1].split("'")[0]
        assert changes[0]["title"] == f"Change to '{name}'"
        assert changes[0]["isPreferred"]
        # The last change is that of all occurrences.
        remaining, _ = fixes(apply(text, changes[-1]))
        assert wrong["message"] not in [d["message"] for d in remaining]


@pytest.mark.parametrize(
    ("right", "wrong", "replacement", "fixed"),
    [
        ("entity Page {", "entiy Page {", "entity", None),
        ("template pair", "templat pair", "template", None),
        ("where Link(a, b)", "where Lnk(a, b)", "Link", None),
        ("length           : real", "length           : reel", "real", None),
        ("pair(a: Page, b: Page)", "pair(a: page, b: Page)", "Page", None),
        ("category, b.category", 'category == "home pge"', "home page", 'category == "home page"'),
        ("category, b.category", "category == homepage", "home page", 'category == "home page"'),
        ("entity", 'include "parts/comon.rcrf"\nentity', "common.rcrf", 'include "parts/common.rcrf"\nentity'),
    ],
)
def test_replacement(fixes, tmp_path, right, wrong, replacement, fixed):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "common.rcrf").write_text("domain Word = open\n")
    text = PAGES.replace(right, wrong, 1)
    diagnostics, actions = fixes(text)
    assert diagnostics != []
    change = next(a for a in actions if a["title"].startswith("Change to "))
    assert change["title"] == f"Change to '{replacement}'"
    new = apply(text, change)
    assert new == PAGES.replace(right, fixed or right, 1)
    assert fixes(new)[0] == []


def test_attribute_with_name_of_binder(fixes):
    text = PAGES + "\ntemplate prior(categry: Page)\n    over categry.categry\n"
    _, actions = fixes(text)
    assert apply(text, actions[0]) == text.replace("categry.categry", "categry.category")


def test_all_occurrences_of_undeclared_name(fixes):
    text = (
        PAGES.replace("relation Link", "relation Lnk")
        + "\ntemplate loop(a: Page)\n    where Link(a, a)\n    over a.category\n"
    )
    _, actions = fixes(text)
    assert titles(actions) == ["Change to 'Lnk'", "Change all 2 'Link' to 'Lnk'"]
    assert apply(text, actions[0]).count("Lnk(") == 2
    assert apply(text, actions[1]) == text.replace("Link", "Lnk")


def test_all_misspelt_names(fixes):
    text = PAGES.replace("a.category, b", "a.categry, b").replace("Link(a", "link(a").replace(": real", ": reel")
    diagnostics, actions = fixes(text)
    assert len(diagnostics) == 3
    everything = [a for a in actions if a["title"] == "Change all misspelt names"]
    assert [apply(text, a) for a in everything] == [PAGES]
    assert "diagnostics" not in everything[0]


def test_fix_all_changes_only_case(fixes):
    """An editor applies this action when it saves a file, so it does not change names that may mean another."""
    text = PAGES.replace("a.category, b", "a.Category, b").replace("Link(a", "link(a").replace(": real", ": reel")
    for only in (["source.fixAll"], ["source"], ["source.fixAll.relcrf"]):
        _, (action,) = fixes(text, only)
        assert action["kind"] == "source.fixAll.relcrf"
        assert apply(text, action) == PAGES.replace(": real", ": reel")
    assert fixes(text, ["refactor"])[1] == []
    assert {action["kind"] for action in fixes(text, ["quickfix"])[1]} == {"quickfix"}
    value = PAGES.replace("a.category, b", "a.category == Course, b")
    assert fixes(value, ["source.fixAll"])[1] == []
    assert titles(fixes(value)[1]) == ["Change to 'course'"]


def test_fixes_are_those_at_the_cursor(fixes):
    text = PAGES.replace("a.category, b", "a.categry, b").replace(": real", ": reel")
    line = text[: text.index("categry")].count("\n")
    character = len("    over  a.cat")
    cursor = {"line": line, "character": character}
    _, actions = fixes(text, span={"start": cursor, "end": cursor})
    assert titles(actions) == ["Change to 'category'", "Change all misspelt names"]
    _, actions = fixes(text, span={"start": {"line": 0, "character": 0}, "end": {"line": 1, "character": 0}})
    assert actions == []


# Declarations

HEAD = "domain Category = { course, faculty }"
ENTITY = "entity Page {\n    predict category : Category\n    words            : bag of Word\n}"
PRIOR = "template prior(a: Page)\n    over a.category"
LONG = "domain Category = { course,  # lectures\n    faculty }"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([HEAD, "", ENTITY, "", PRIOR], [HEAD, "domain Word = open", "", ENTITY, "", PRIOR]),
        ([HEAD + "  # two", "", ENTITY, "", PRIOR], [HEAD + "  # two", "domain Word = open", "", ENTITY, "", PRIOR]),
        ([LONG, "", ENTITY, "", PRIOR], [LONG, "", "domain Word = open", "", ENTITY, "", PRIOR]),
        ([ENTITY, "", PRIOR, "", HEAD], [ENTITY, "", PRIOR, "", HEAD, "domain Word = open"]),
        (
            ['include "part.rcrf"', "", ENTITY, "", PRIOR],
            ['include "part.rcrf"', "", "domain Word = open", "", ENTITY, "", PRIOR],
        ),
        (
            ["# A model", "", "# Pages", "# of sites", ENTITY.replace("Category", "bool"), "", PRIOR],
            [
                "# A model",
                "",
                "domain Word = open",
                "",
                "# Pages",
                "# of sites",
                ENTITY.replace("Category", "bool"),
                "",
                PRIOR,
            ],
        ),
        (
            [ENTITY.replace("Category", "bool"), "", PRIOR],
            ["domain Word = open", "", ENTITY.replace("Category", "bool"), "", PRIOR],
        ),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_declaration_of_domain(fixes, tmp_path, before, after, newline):
    (tmp_path / "part.rcrf").write_text(HEAD)
    text, expected = ("\n".join([*lines, ""]).replace("\n", newline) for lines in (before, after))
    (wrong,), (action,) = fixes(text)
    assert wrong["code"] == "E120"
    assert "help: declare it: domain Word = open" in wrong["message"]
    assert (action["title"], action["isPreferred"]) == ("Declare domain Word = open", True)
    new = apply(text, action)
    assert new == expected
    assert fixes(new)[0] == []
    if newline == "\n":
        assert format_text(text) == text
        assert format_text(new) == new


def test_declaration_of_domain_in_one_line(fixes):
    text = "domain A = { a, b } entity P { predict k : A  w : bag of Word } template t(p: P) over p.k\n"
    _, actions = fixes(text)
    assert apply(text, actions[-1]) == text.replace("} entity", "}\ndomain Word = open\nentity")


def test_declaration_of_entity(fixes):
    text = PAGES.replace("target: Page)", "target: Site)")
    (wrong,), actions = fixes(text)
    assert wrong["message"].endswith(
        "help: declare it: domain Site = open or entity Site; the types are Page, Category"
    )
    assert titles(actions) == ["Declare domain Site = open", "Declare entity Site"]
    assert [action["isPreferred"] for action in actions] == [False, False]
    new = apply(text, actions[1])
    assert new == text.replace("}\n\nrelation", "}\n\nentity Site\n\nrelation") == format_text(new)


@pytest.mark.parametrize("name", ["category", "log", "Link", "Cate_gory"])
def test_name_that_cannot_be_declared(fixes, name):
    """The model already has a name that is equal in tables, or a function has the name."""
    _, actions = fixes(PAGES.replace("length           : real", f"length : {name}"))
    assert not any(title.startswith("Declare") for title in titles(actions))


def test_error_in_included_file_has_no_fixes(fixes, tmp_path):
    (tmp_path / "common.rcrf").write_text(PAGES.replace(": real", ": reel"))
    text = 'include "common.rcrf"\n'
    (wrong,), actions = fixes(text)
    assert wrong["message"].startswith("in 'common.rcrf': unknown type 'reel'")
    assert actions == []


# Data of hints


def test_hint_keeps_its_fixes():
    hint = suggestion("categry", ["category", "words"])
    assert hint == "did you mean 'category'?"
    found = Diagnostic("E101", "unknown attribute 'categry' of Page", hint=hint)
    for same in (found, pickle.loads(pickle.dumps(found)), replace(found, notes=("also in line 3",))):
        assert same.fixes == (NameReplacement("categry", "category"),)
    assert json.loads(json.dumps(found.as_dict()))["hint"] == hint
    assert Diagnostic("E101", "x", hint="write it").fixes == ()


def test_hint_with_password_is_masked():
    found = Diagnostic("E101", "x", hint=Hint("use postgres://me:secret@host", NameReplacement("a", "b")))
    assert found.hint == "use postgres://me:******@host"
