"""Tests of the language server as a process, over standard input and output."""

import io
import random
import shutil
from pathlib import Path

import pytest
from language_client import Editor, at, edited
from tables import small_web

from relcrf.editor.bounded_input import MAX_MESSAGE_BYTES, BoundedInput

pytest.importorskip("pygls")

MODELS = Path(__file__).parents[2] / "models"

COMMON = """\
domain Category = { course, faculty, "home page" }
domain Word = open

entity Page {
    predict category : Category
    words : bag of Word
    length : real
}
"""
SITE = """\
include "common.rcrf"

relation Link(source: Page, target: Page) { score : real }
derive Cited(a: Page) where Link(p, a)

template linked(a: Page, b: Page)
    where Link(a, b) and Link(a, b).score > 0.5
    over a.category == b.category
    by 1, log(a.length)
rule strong: Link(x, y) and x.category == course => y.category == faculty
"""


def words_at(texts, locations):
    """Return the text at each location, as `file:line: text`."""
    found = []
    for location in locations:
        name = Path(location["uri"]).name
        start, end = location["range"]["start"], location["range"]["end"]
        assert start["line"] == end["line"]
        line = texts[name].split("\n")[start["line"]]
        found.append(f"{name}:{start['line'] + 1}: {line[start['character'] : end['character']]}")
    return found


@pytest.fixture(scope="module")
def editor(tmp_path_factory):
    """Run one server for all tests, and check at the end that it logged no errors."""
    running = Editor(tmp_path_factory.mktemp("workspace"))
    yield running
    code, log = running.shut_down()
    assert (code, log) == (0, "")


@pytest.fixture
def site(tmp_path, editor):
    """Open a model that includes a file that is not open; return its path."""
    (tmp_path / "common.rcrf").write_text(COMMON)
    path = tmp_path / "site.rcrf"
    path.write_text(SITE)
    assert editor.open(path) == []
    yield path
    editor.close(path)


TEXTS = {"common.rcrf": COMMON, "site.rcrf": SITE}


def test_server_capabilities(editor):
    offered = editor.capabilities
    assert offered["textDocumentSync"]["openClose"]
    for provider in ("hover", "definition", "references", "documentSymbol", "documentFormatting"):
        assert offered[f"{provider}Provider"]
    assert offered["renameProvider"] == {"prepareProvider": True}
    assert "." in offered["completionProvider"]["triggerCharacters"]


# Diagnostics


def test_diagnostics_follow_changes(editor, tmp_path):
    path = tmp_path / "site.rcrf"
    wrong = COMMON + "template prior(p: Page) over p.categry\n"
    (found,) = editor.open(path, wrong)
    assert found["range"] == {"start": {"line": 8, "character": 29}, "end": {"line": 8, "character": 38}}
    assert (found["severity"], found["code"], found["source"]) == (1, "E101", "relcrf")
    assert found["message"] == "unknown attribute 'categry' of Page\nhelp: did you mean 'category'?"
    page = Path(found["codeDescription"]["href"].removeprefix("file://"))
    assert page.name == "E101.md" and page.is_file()
    editor.change(path, wrong.replace("categry", "category"))
    assert editor.diagnostics(path) == []
    editor.change(path, wrong.replace("over p.categry", "over"))
    assert [d["code"] for d in editor.diagnostics(path)] == ["E001"]
    editor.close(path)


def test_only_last_keystroke_is_checked(editor, tmp_path):
    path = tmp_path / "site.rcrf"
    editor.open(path, COMMON)
    for k in range(1, 20):
        editor.change(path, COMMON + "template prior(p: Page) over p.category"[:k])
    editor.change(path, COMMON + "template prior(p: Page) over p.category")
    assert editor.diagnostics(path) == []
    assert editor.published.empty()
    editor.close(path)


def test_warnings_have_warning_severity(editor, tmp_path):
    path = tmp_path / "site.rcrf"
    (found,) = editor.open(path, COMMON + "template pairs(a: Page, b: Page) over a.category, b.category\n")
    assert (found["severity"], found["code"]) == (2, "W201")
    assert "\nhelp: " in found["message"]
    editor.close(path)


def test_notes_have_locations(editor, tmp_path):
    path = tmp_path / "site.rcrf"
    text = COMMON + "entity Page\ntemplate prior(p: Page) over p.category\n"
    (found,) = editor.open(path, text)
    assert (found["code"], found["range"]["start"]["line"]) == ("E121", 8)
    (note,) = found["relatedInformation"]
    assert note["message"] == "first declared in line 4"
    assert note["location"]["uri"] == path.as_uri()
    assert note["location"]["range"] == {"start": {"line": 3, "character": 0}, "end": {"line": 3, "character": 13}}
    editor.close(path)


def test_errors_in_included_file_are_at_include(editor, site):
    common = site.with_name("common.rcrf")
    common.write_text(COMMON.replace("bag of Word", "bag of Wrd"))
    editor.save(common)
    (found,) = editor.diagnostics(site)
    assert found["range"] == {"start": {"line": 0, "character": 8}, "end": {"line": 0, "character": 21}}
    assert found["message"].startswith("in 'common.rcrf': unknown type 'Wrd'")
    (place,) = found["relatedInformation"]
    assert (place["location"]["uri"], place["location"]["range"]["start"]["line"]) == (common.as_uri(), 5)
    common.write_text(COMMON)
    editor.notify("workspace/didChangeWatchedFiles", {"changes": [{"uri": common.as_uri(), "type": 2}]})
    assert editor.diagnostics(site) == []
    assert [r["method"] for r in editor.registered] == ["workspace/didChangeWatchedFiles"]


def test_columns_are_utf16_units(editor, tmp_path):
    path = tmp_path / "site.rcrf"
    text = 'domain K = { "😀😀", b } entity E { predict k : K } template t(e: E) over e.k == "😀😀" by e.nix\n'
    (found,) = editor.open(path, text)
    assert found["range"]["start"] == at(path, text, "e.nix")["position"]
    place = at(path, text, "e.k| ==")
    (target,) = editor.request("textDocument/definition", place)
    assert target["range"]["start"] == at(path, text, "k : K")["position"]
    edits = editor.request("textDocument/rename", {**place, "newName": "kind"})["changes"][path.as_uri()]
    assert edited(text, edits) == text.replace("k : K", "kind : K").replace("e.k ", "e.kind ")
    editor.close(path)


# Names


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("by 1, log(|a.length)", ["site.rcrf:6: a"]),
        ("by 1, log(a.le|ngth)", ["common.rcrf:7: length"]),
        ("where Link(|p, a)", ["site.rcrf:4: p"]),
        ("Li|nk(x, y)", ["site.rcrf:3: Link"]),
        (".sco|re > 0.5", ["site.rcrf:3: score"]),
        ("source: Pa|ge,", ["common.rcrf:4: Page"]),
        ("== cour|se =>", ["common.rcrf:1: course"]),
        ("rule str|ong", ["site.rcrf:10: strong"]),
        ("rule strong: Link(x, y) and |x.c", ["site.rcrf:10: x"]),
    ],
)
def test_definitions(editor, site, words, expected):
    found = editor.request("textDocument/definition", at(site, SITE, words))
    assert words_at(TEXTS, found) == expected


def test_definition_of_include_is_file(editor, site):
    (found,) = editor.request("textDocument/definition", at(site, SITE, "com|mon.rcrf"))
    assert found["uri"] == site.with_name("common.rcrf").as_uri()
    assert editor.request("textDocument/definition", at(site, SITE, "> 0.|5")) is None


def test_references(editor, site):
    place = at(site, SITE, "relation Li|nk")
    found = editor.request("textDocument/references", {**place, "context": {"includeDeclaration": True}})
    assert words_at(TEXTS, found) == [f"site.rcrf:{line}: Link" for line in (3, 4, 7, 7, 10)]
    uses = editor.request("textDocument/references", {**place, "context": {"includeDeclaration": False}})
    assert uses == found[1:]


def test_references_in_models_with_same_include(editor, site):
    other = site.with_name("other.rcrf")
    text = 'include "common.rcrf"\ntemplate prior(p: Page) over p.category\n'
    other.write_text(text)
    place = at(site, SITE, "over a.cat|egory")
    found = editor.request("textDocument/references", {**place, "context": {"includeDeclaration": False}})
    assert sorted(words_at({**TEXTS, "other.rcrf": text}, found)) == [
        "other.rcrf:2: category",
        *["site.rcrf:10: category"] * 2,
        *["site.rcrf:8: category"] * 2,
    ]


# Hover


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("by 1, log(a.le|ngth)", ["Page.length : real", "evidence"]),
        ("over a.cat|egory", ["predict Page.category : Category", "random", "course, faculty, home page"]),
        (".sco|re > 0.5", ["Link.score : real"]),
        ("source: Pa|ge,", ["entity Page {", "key `id`"]),
        ("Li|nk(x, y)", ["relation Link(source: Page, target: Page)", "observed"]),
        ("derive Ci|ted", ["derive Cited(a: Page)", "derived"]),
        ("by 1, lo|g(", ["log(number): real", "natural logarithm"]),
        ("    ov|er", ["**over**: random attributes"]),
        ("= cour|se", ["value 1 of 3 of `Category`"]),
        ("where Link(p|, a)", ["p: Page", "existentially quantified variable in the condition of `Cited`"]),
        ("linked(|a", ["a: Page", "binder of `linked`: ranges over every Page"]),
        ("Link(so|urce", ["source: Page", "argument of `Link`"]),
        (
            "template lin|ked",
            [
                "For every a (Page) and b (Page) where `Link(a, b) and Link(a, b).score > 0.5`: one weight for the truth of"
                " `a.category == b.category`; separate weights for each feature: `1` and `log(a.length)`."
            ],
        ),
        (
            "rule str|ong",
            ["rule strong: ", "For every x (Page) and y (Page) where `Link(x, y)`: one weight for the truth"],
        ),
    ],
)
def test_hover(editor, site, words, expected):
    found = editor.request("textDocument/hover", at(site, SITE, words))
    assert found["contents"]["kind"] == "markdown"
    for text in expected:
        assert text in found["contents"]["value"]


def test_no_hover_outside_words(editor, site):
    assert editor.request("textDocument/hover", at(site, SITE, "> 0.|5")) is None
    assert editor.request("textDocument/hover", at(site, SITE, "\n|\nrelation")) is None


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a folder with webkb.rcrf and a run of it, and the fit."""
    import relcrf

    folder = tmp_path_factory.mktemp("trained")
    model = shutil.copy(MODELS / "webkb.rcrf", folder)
    data = relcrf.Dataset(small_web(folder / "data"))
    fit = relcrf.load(model).fit(data, "local", max_iterations=5)
    fit.save(folder / "runs" / "one")
    return folder, fit


def test_hover_of_template_shows_learned_weights(editor, trained):
    folder, fit = trained
    path = folder / "webkb.rcrf"
    text = path.read_text()
    editor.open(path)
    said = editor.request("textDocument/hover", at(path, text, "template wo|rd"))["contents"]["value"]
    weights = fit.weights()
    of_word = weights.columns["template"] == "word"
    assert f"**Learned** in `one` by local: {of_word.sum()} weights; 275 bindings" in said
    largest = max(range(len(of_word)), key=lambda k: abs(weights.columns["weight"][k]) * of_word[k])
    value, pattern, key = (weights.columns[c][largest] for c in ("weight", "pattern", "key"))
    rows = [line for line in said.splitlines() if line.startswith("|")]
    assert rows[2] == f"| {value:+.3f} | `{pattern}` | `{key}` |"
    assert len(rows) == 2 + 5
    # `local` does not learn the weights of links.
    said = editor.request("textDocument/hover", at(path, text, "template lin|ked"))["contents"]["value"]
    assert said.endswith("25 weights, all 0; 116 bindings")
    # Weights of a changed template are not shown; those of unchanged templates are.
    changed = text.replace("over page.category", "over page.category == student")
    assert changed != text
    editor.change(path, changed)
    assert (
        "Learned" not in editor.request("textDocument/hover", at(path, changed, "template pri|or"))["contents"]["value"]
    )
    assert "Learned" in editor.request("textDocument/hover", at(path, changed, "template wo|rd"))["contents"]["value"]
    editor.close(path)


def test_damaged_run_is_ignored(editor, trained, tmp_path):
    path = tmp_path / "webkb.rcrf"
    shutil.copy(trained[0] / "webkb.rcrf", path)
    shutil.copytree(trained[0] / "runs", tmp_path / "runs")
    (tmp_path / "runs" / "one" / "weights.npy").write_bytes(b"rubbish")
    (tmp_path / "runs" / "two").mkdir()
    (tmp_path / "runs" / "two" / "run.json").write_text("{")
    text = path.read_text()
    editor.open(path)
    assert "Learned" not in editor.request("textDocument/hover", at(path, text, "template wo|rd"))["contents"]["value"]
    editor.close(path)


# Completion


def labels(editor, path, text, *, typed=None):
    """Return the labels of the completion at the end of a text."""
    if path not in editor.versions:
        editor.open(path, "")
    editor.change(path, text)
    context = {"triggerKind": 2, "triggerCharacter": typed} if typed else {"triggerKind": 1}
    line, character = text.count("\n"), len(text) - text.rfind("\n") - 1
    place = {"textDocument": {"uri": path.as_uri()}, "position": {"line": line, "character": character}}
    found = editor.request("textDocument/completion", {**place, "context": context})
    return found and [item["label"] for item in sorted(found["items"], key=lambda item: item["sortText"])]


def test_completion(editor, tmp_path):
    path = tmp_path / "site.rcrf"
    (tmp_path / "common.rcrf").write_text(COMMON)
    model = SITE.split("template")[0]
    assert labels(editor, path, "dom")[:2] == ["domain", "entity"]
    assert labels(editor, path, model + "template t(a: ") == ["Page", "Category", "Word"]
    assert labels(editor, path, model + "template t(a: Page)\n    ") == ["where", "over"]
    assert labels(editor, path, model + "template t(a: Page) over a.") == ["category", "words", "length"]
    assert labels(editor, path, model + "template t(a: Page) where Link(a, q) over q.") == [
        "category",
        "words",
        "length",
    ]
    assert labels(editor, path, model + "template t(a: Page) over a.category == ")[:3] == [
        "course",
        "faculty",
        '"home page"',
    ]
    assert labels(editor, path, model + "template t(a: Page) where ")[:3] == ["a", "Link", "Cited"]
    domains = ["Category", "Word"]
    assert labels(editor, path, model + "entity New { predict x : ") == [*domains, "bool", "real"]
    assert labels(editor, path, model + "entity New { latent x : ") == [*domains, "bool"]
    assert labels(editor, path, model + "predict relation New(a: Page) : ") == [*domains, "bool"]
    assert labels(editor, path, model + 'include "') == ["common.rcrf"]
    timed = model + "entity Visit { time day : date }\ntemplate t(a: Page, v: Visit) over a.category as "
    assert labels(editor, path, timed) == ["of"]
    assert labels(editor, path, timed + "of ") == ["v"]
    # A space triggers completion only after certain tokens.
    assert labels(editor, path, model + "template t(a: Page) over a.category ", typed=" ") is None
    assert labels(editor, path, model + "template t(a: Page) over ", typed=" ")[0] == "a"
    editor.close(path)


def test_completion_replaces_partial_word(editor, site):
    place = at(site, SITE, "log(a.len|gth)")
    items = editor.request("textDocument/completion", place)["items"]
    (item,) = (item for item in items if item["label"] == "length")
    assert item["detail"] == "Page.length : real"
    assert edited(SITE, [item["textEdit"]]) == SITE
    items = editor.request("textDocument/completion", at(site, SITE, "where Li|nk(a, b)"))["items"]
    (item,) = (item for item in items if item["label"] == "Link")
    assert (item["insertTextFormat"], item["textEdit"]["newText"]) == (2, "Link(${1:source}, ${2:target})")


# Rename


def rename(editor, path, text, words, name):
    return editor.request("textDocument/rename", {**at(path, text, words), "newName": name})["changes"]


def test_rename_relation(editor, site):
    found = editor.request("textDocument/prepareRename", at(site, SITE, "relation Li|nk"))
    assert found["placeholder"] == "Link"
    changes = rename(editor, site, SITE, "relation Li|nk", "Cites")
    assert edited(SITE, changes.pop(site.as_uri())) == SITE.replace("Link", "Cites")
    assert changes == {}


def test_rename_binder_only_in_its_declaration(editor, site):
    changes = rename(editor, site, SITE, "linked(|a", "first")
    was = SITE[SITE.index("template") : SITE.index("rule")]
    now = was.replace("(a", "(first").replace(" a.", " first.")
    assert edited(SITE, changes[site.as_uri()]) == SITE.replace(was, now)


def test_rename_attribute_in_included_file(editor, site):
    changes = rename(editor, site, SITE, "over a.cat|egory", "kind")
    common = site.with_name("common.rcrf")
    assert edited(SITE, changes[site.as_uri()]) == SITE.replace("category", "kind")
    assert edited(COMMON, changes[common.as_uri()]) == COMMON.replace("category", "kind")


def test_rename_in_included_file_with_byte_order_mark(editor, site):
    """An editor shows the text of the file without the mark, so that columns do not count it."""
    common = site.with_name("common.rcrf")
    common.write_text(COMMON, encoding="utf-8-sig")
    editor.close(site)
    editor.open(site)
    editor.open(common, COMMON)
    changes = rename(editor, site, SITE, "source: Pa|ge,", "Site")
    assert edited(COMMON, changes[common.as_uri()]) == COMMON.replace("Page", "Site")
    assert edited(SITE, changes[site.as_uri()]) == SITE.replace("Page", "Site")
    editor.close(common)


def test_rename_in_included_file_changes_including_models(editor, site):
    common = site.with_name("common.rcrf")
    editor.open(common)
    changes = rename(editor, common, COMMON, "entity Pa|ge", "Site")
    assert edited(COMMON, changes[common.as_uri()]) == COMMON.replace("Page", "Site")
    assert edited(SITE, changes[site.as_uri()]) == SITE.replace("Page", "Site")
    editor.change(common, "# not saved\n" + COMMON)
    message = editor.refusal("textDocument/rename", {**at(site, SITE, "source: Pa|ge,"), "newName": "Site"})
    assert message == "'common.rcrf' has unsaved changes; save the file first"
    editor.close(common)


def test_rename_in_files_with_line_breaks_of_windows(editor, tmp_path):
    common, site = tmp_path / "common.rcrf", tmp_path / "site.rcrf"
    texts = {path: text.replace("\n", "\r\n") for path, text in ((common, COMMON), (site, SITE))}
    for path, text in texts.items():
        path.write_bytes(text.encode())
    editor.open(common, texts[common])
    found = [rename(editor, common, texts[common], "entity Pa|ge", "Site")]
    editor.open(site, texts[site])
    found.append(rename(editor, common, texts[common], "entity Pa|ge", "Site"))
    found.append(rename(editor, site, texts[site], "source: Pa|ge,", "Site"))
    for changes in found:
        assert {path: edited(text, changes[path.as_uri()]) for path, text in texts.items()} == {
            path: text.replace("Page", "Site") for path, text in texts.items()
        }
    for path in texts:
        editor.close(path)


def test_rename_in_incomplete_declaration(editor, site):
    text = SITE + "template more(c: Page, d: Page) where Link(c, d) over c.category ==\n"
    editor.change(site, text)
    changes = rename(editor, site, text, "relation Li|nk", "Cites")
    assert edited(text, changes[site.as_uri()]) == text.replace("Link", "Cites")


@pytest.mark.parametrize(
    ("words", "name", "message"),
    [
        ("relation Li|nk", "1st", "invalid name '1st'"),
        ("relation Li|nk", "", "invalid name ''"),
        ("relation Li|nk", "where", "'where' is a reserved word of the language"),
        ("relation Li|nk", "log", "'log' is a reserved word of the language"),
        ("relation Li|nk", "Cited", "'Cited' is already used"),
        ("relation Li|nk", "pa_ge", "'pa_ge' conflicts with 'Page': table and column names ignore case and '_'"),
        ("linked(|a", "b", "'b' is already used"),
        ("=> |y.", "faculty", "'faculty' is already used"),
        ("over a.cat|egory", "words", "'words' is already used"),
        ("over a.cat|egory", "over", "'over' is a reserved word of the language"),
        ("rule str|ong", "linked", "'linked' is already used"),
        ("== cour|se", "lecture", "'course' is a value in the data and cannot be renamed"),
        ("    ov|er", "under", "no declared name at this position"),
    ],
)
def test_rename_errors(editor, site, words, name, message):
    refusal = editor.refusal("textDocument/rename", {**at(site, SITE, words), "newName": name})
    assert refusal.startswith(message)


def test_attribute_may_have_name_of_function(editor, site):
    assert rename(editor, site, SITE, ".sco|re > 0.5", "length")


# Formatting and outline


def test_formatting(editor, site):
    from relcrf.language.format import format_text

    options = {"textDocument": {"uri": site.as_uri()}, "options": {"tabSize": 4, "insertSpaces": True}}
    edits = editor.request("textDocument/formatting", options)
    neat = format_text(SITE)
    assert neat != SITE
    assert edited(SITE, edits) == neat
    editor.change(site, neat)
    assert editor.request("textDocument/formatting", options) == []
    editor.change(site, neat.replace("\n", "\r\n"))
    assert editor.request("textDocument/formatting", options) == []
    editor.change(site, SITE + "template")
    assert editor.request("textDocument/formatting", options) is None


def test_outline(editor, site):
    found = editor.request("textDocument/documentSymbol", {"textDocument": {"uri": site.as_uri()}})
    assert [(s["name"], s["detail"]) for s in found] == [
        ('include "common.rcrf"', "include"),
        ("Link", "relation(source: Page, target: Page)"),
        ("Cited", "derive(a: Page)"),
        ("linked", "template(a: Page, b: Page)"),
        ("strong", "rule"),
    ]
    assert [(c["name"], c["detail"]) for c in found[1]["children"]] == [("score", "real")]
    linked = found[3]
    assert (linked["range"]["start"]["line"], linked["range"]["end"]["line"]) == (5, 8)
    assert linked["selectionRange"]["start"] == at(site, SITE, "|linked(")["position"]


# Robustness


def test_incomplete_texts_cause_no_errors(editor, tmp_path):
    """Check every few characters of a model as it is typed, with requests at random positions."""
    path = tmp_path / "site.rcrf"
    (tmp_path / "common.rcrf").write_text(COMMON)
    text = SITE + 'gate linked by a.length\ndomain Odd = { "é😀", -1, where }\n' + "".join(map(chr, range(32)))
    chance = random.Random(1)
    for stop in range(0, len(text) + 1, 3):
        prefix = text[:stop]
        editor.open(path, prefix)
        for method in ("textDocument/hover", "textDocument/completion", "textDocument/definition"):
            lines = prefix.split("\n")
            line = chance.randrange(len(lines) + 1)
            character = chance.randrange(len(lines[line]) + 3) if line < len(lines) else 5
            place = {"textDocument": {"uri": path.as_uri()}, "position": {"line": line, "character": character}}
            editor.request(method, place)
        editor.request("textDocument/documentSymbol", {"textDocument": {"uri": path.as_uri()}})
        editor.close(path)


def test_unsaved_document(editor):
    uri = "untitled:Untitled-1"
    document = {"uri": uri, "languageId": "rcrf", "version": 1, "text": COMMON}
    editor.notify("textDocument/didOpen", {"textDocument": document})
    place = {"textDocument": {"uri": uri}, "position": {"line": 4, "character": 25}}
    (found,) = editor.request("textDocument/definition", place)
    assert (found["uri"], found["range"]["start"]["line"]) == (uri, 0)
    editor.notify("textDocument/didClose", {"textDocument": {"uri": uri}})


def test_long_model_is_not_analysed(editor, tmp_path):
    path = tmp_path / "long.rcrf"
    (found,) = editor.open(path, "domain D = {a}\n" * 10_000)
    assert found["message"] == "models of more than 100,000 characters are not analysed here; run 'relcrf check'"
    options = {"textDocument": {"uri": path.as_uri()}, "options": {"tabSize": 4, "insertSpaces": True}}
    assert editor.request("textDocument/formatting", options) == []
    editor.change(path, "domain D = {a")
    assert editor.diagnostics(path)[0]["code"].startswith("E")


def test_message_of_excessive_length_is_skipped():
    long = b"Content-Length: %d\r\nX: y\r\n\r\n" % (MAX_MESSAGE_BYTES + 1) + bytes(MAX_MESSAGE_BYTES + 1)
    stream = BoundedInput(io.BytesIO(2 * long + b"Content-Length: 2\r\n\r\n{}"))
    assert [stream.readline(), stream.readline(), stream.read(2)] == [b"Content-Length: 2\r\n", b"\r\n", b"{}"]


@pytest.mark.parametrize("length", [b"9" * 19, b"9" * 5000])
def test_length_without_end_is_read_until_the_client_disconnects(length):
    stream = BoundedInput(io.BytesIO(b"Content-Length: " + length + b"\r\n\r\n" + b"x" * 5000))
    assert stream.readline() == b""


def test_exit_without_shutdown_returns_1(tmp_path):
    rude = Editor(tmp_path)
    assert rude.send_request("textDocument/magic", {})["error"]["code"] == -32601  # and it goes on
    assert (
        rude.request("textDocument/documentSymbol", {"textDocument": {"uri": (tmp_path / "new.rcrf").as_uri()}}) == []
    )
    rude.notify("exit")
    code, log = rude.wait()
    assert code == 1
    assert "Traceback" not in log


def test_client_without_capabilities(tmp_path):
    """Without snippets and related information, messages contain all notes. The client exits without shutdown."""
    simple = Editor(tmp_path, {})
    path = tmp_path / "site.rcrf"
    text = COMMON + "entity Page\ntemplate prior(p: Page) over p.category\n"
    (found,) = simple.open(path, text)
    assert found["message"].endswith("\nnote: first declared in line 4")
    assert found.get("relatedInformation") is None
    items = simple.request("textDocument/completion", at(path, text, "\n|template"))["items"]
    assert {item["textEdit"]["newText"] for item in items} == {item["label"] for item in items}
    simple.process.stdin.close()
    assert simple.wait() == (1, "")
