"""Injections: data that looks like SQL, HTML, paths, escape sequences or formats must stay text in every command."""

from __future__ import annotations

import base64
import csv
import hashlib
import html.parser
import json
import shutil
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest
from command import relcrf_command
from promise import require_printable

import relcrf
from relcrf.proposal import trial
from relcrf.unaries import estimators

EVIL = (
    "'; DROP TABLE main.rows1; --",
    "\" ); COPY (SELECT 1) TO 'canary.csv'; --",
    "x' UNION SELECT content FROM read_text('secret.txt') --",
    "read_csv('secret.txt')",
    "s3://bucket/key.parquet",
    "http://127.0.0.1:9/x.csv",
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "]]></svg><script>alert(2)</script>",
    "&lt;b&gt;&#x41;",
    "../../secret.txt",
    "/etc/passwd",
    "~/secret.txt",
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "\x9b31m",
    "[red]bold[/red]",
    "[/]",
    "{0} {t} {{x}} %s %n ${HOME} $(id) `id`",
    "$\\frac{$",
    "\u202egnp.exe\u202c",
    "\u2066hidden\u2069",
    "two\nlines\rof it",
    "a\ttab, a \"quote\" and a comma",
    "-- comment /* and */ another",
    "\\x41\\u0041\\",
    "=HYPERLINK(\"http://x\")",
    "a\u0000b",
    "enormous" * 400,
)  # fmt: skip

KINDS = EVIL[:12:2] + EVIL[13:19:2]

MODEL = """
domain Kind = open
domain Word = open
entity Page { predict kind : Kind  words : bag of Word  note : Word }
relation Link(a: Page, b: Page)
template word(p: Page, w: Word) where w in p.words over p.kind per w
template linked(p: Page, q: Page) where Link(p, q) over p.kind, q.kind per p.note
"""

SECRET = "secret"
"""Content of the file that no text of the data may access."""


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """Return a folder with an adversarial name that has tables, further tables and columns, a model, and a secret file.

    The folder `pages` has only the tables of the model.
    """
    folder = tmp_path_factory.mktemp("untrusted") / "[red]d*?{0}';--<b>"
    data = folder / "data"
    data.mkdir(parents=True)
    (folder / "secret.txt").write_text(SECRET)
    (folder / "m.rcrf").write_text(MODEL)
    page = [
        {
            "id": key,
            "kind": None if k % 4 == 3 else KINDS[k % len(KINDS)],
            "words": [EVIL[k - 1], key],
            "note": EVIL[k // 2],
        }
        for k, key in enumerate(EVIL)
    ]
    for row in page:
        row |= {name[:40]: "x" for name in EVIL if "\0" not in name}
    link = [{"a": EVIL[k], "b": EVIL[(5 * k + 1) % len(EVIL)]} for k in range(len(EVIL))]
    for name, rows in (("page", page), ("link", link)):
        (data / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    shutil.copytree(data, folder / "pages")
    for k, name in enumerate(EVIL[:-2]):
        (data / f"{k}{name.replace('/', '|')}.csv").write_text("id,x\n1,2\n")
    (data / "page*.csv").write_text("id,x\n1,2\n")
    return folder


class Page(html.parser.HTMLParser):
    """A parser that collects the elements of a page, and the attributes that would run or load something."""

    def __init__(self):
        super().__init__()
        self.elements, self.active, self.text, self.scripts, self.policy = set(), [], "", [], ""

    def handle_starttag(self, tag, attributes):
        self.elements.add(tag)
        if tag == "script":
            self.scripts.append("")
            self.active += [name for name, _ in attributes]
        if ("http-equiv", "Content-Security-Policy") in attributes:
            self.policy = dict(attributes)["content"]
        self.active += [name for name, value in attributes if name.startswith("on") or name in ("src", "srcdoc")]
        links = [value or "" for name, value in attributes if name in ("href", "xlink:href", "action")]
        self.active += [value for value in links if not value.startswith("#")]

    def handle_data(self, data):
        if self.cdata_elem == "script":
            self.scripts[-1] += data
        self.text += data


@pytest.fixture
def command(workspace, capsys, monkeypatch):
    """Return a function that runs a command in the folder and checks that it writes no harmful output and no other file."""
    monkeypatch.chdir(workspace)

    def run(*arguments, code=0):
        status, out, err = relcrf_command(capsys, monkeypatch, *arguments)
        assert status == code, (arguments, err)
        require_printable(out)
        require_printable(err)
        assert SECRET not in out.replace("secret.txt", "") and "Traceback" not in err
        assert (workspace / "secret.txt").read_text() == SECRET and not list(workspace.rglob("canary*"))
        return out

    return run


@pytest.fixture
def trained(workspace, command):
    if not (workspace / "run").exists():
        command("train", "m.rcrf", "--data", "data", "--out", "run", "--backend", "ess", "--set", "max_iterations=20")
    return "run"


def test_check_plan_and_ground(command):
    command("check", "m.rcrf", "--data", "data")
    command("plan", "m.rcrf", "--data", "data")
    assert "0 rows" not in command("ground", "m.rcrf", "--data", "data", "--show", "word", "--limit", "100")
    shown = json.loads(command("ground", "m.rcrf", "--data", "data", "--show", "linked", "--limit", "100", "--json"))
    texts = {cell for row in shown["instances"] for cell in row.values() if isinstance(cell, str)}
    assert set(EVIL) <= texts
    for key in EVIL[::4]:
        command("ground", "m.rcrf", "--data", "pages", "--show", f"Page({key}).kind", "--json", code=0)


def test_predictions_contain_data_unchanged(command, trained, workspace):
    command("predict", trained, "--data", "data")
    found = json.loads(command("predict", trained, "--data", "data", "--json"))["predictions"]["Page.kind"]
    assert {row["id"] for row in found} == {key for k, key in enumerate(EVIL) if k % 4 == 3}
    assert {row["kind"] for row in found} <= set(KINDS)
    command("predict", trained, "--data", "data", "--out", "out.csv")
    with (workspace / "out.csv").open(newline="") as file:
        assert {row["id"] for row in csv.DictReader(file)} == {row["id"] for row in found}


def test_explain_weights_diff_and_evaluate(command, trained):
    for key in EVIL[3::4]:
        command("explain", trained, f"Page({key}).kind", "--data", "pages")
    command("weights", trained, "--top", "500")
    keys = {row["key"] for row in json.loads(command("weights", trained, "--top", "5000", "--json"))["shown"]}
    assert set(EVIL) <= keys
    command("diff", trained, trained)
    command("evaluate", trained, "--data", "pages", "--split", "folds=2")


def test_commands_with_several_trainings(command, trained, workspace):
    """Check tables and pictures that name labels, folds and backends, and `reproduce`, which names tables and files."""
    command("cv", "m.rcrf", "--data", "pages", "--folds", "2", "--backend", "local")
    command("compare", "m.rcrf", "--data", "pages", "--folds", "2", "--backend", "local", "--plot", "compared.svg")
    costs = ("--message-costs", "0,0.1", "--set", "max_iterations=2")
    command("pareto", "m.rcrf", "--data", "pages", "--split", "hide=0.4", *costs, "--plot", "front.png")
    command("moments", trained)
    command("reproduce", trained, "--data", "data")
    assert "<script" not in (workspace / "compared.svg").read_text(encoding="utf-8")


LEARNED = """
domain Word = open
entity Page
predict relation has(p: Page, w: Word)
template prior(p: Page, w: Word) over has(p, w) per w
candidates together(p: Page, v: Word, w: Word) where v < w over has(p, v) and has(p, w) per v, w
"""


def test_learned_graph_with_adversarial_keys(command, workspace):
    rows = [{"p": f"x{k}", "w": text, "value": (k + j) % 2 == 0} for j, text in enumerate(EVIL) for k in range(8)]
    folder = workspace / "learned"
    folder.mkdir()
    (folder / "has.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "page.csv").write_text("id\n" + "".join(f"x{k}\n" for k in range(8)))
    (workspace / "learned.rcrf").write_text(LEARNED)
    settings = ("--backend", "trmrf", "--set", "l1=0.5", "--set", "max_iterations=20")
    command("train", "learned.rcrf", "--data", "learned", "--out", "graph-run", *settings)
    command("graph", "graph-run", "--graphml", "g.graphml", "--picture", "g.svg")
    # The standard library's parser rejects invalid XML. Characters that XML cannot represent are written as numbers.
    nodes = {
        node.get("id"): node for node in ElementTree.parse(workspace / "g.graphml").iter() if node.tag.endswith("node")
    }
    assert len(nodes) == len(EVIL) and "<script" not in (workspace / "g.svg").read_text(encoding="utf-8")
    assert command("graph", "graph-run", "--dot").count('"') % 2 == 0


def test_report_shows_texts_without_active_content(command, trained, workspace):
    command("report", trained, "--data", "data", "--split", "hide=0.4", "--out", "report.html")
    page = Page()
    text = (workspace / "report.html").read_text(encoding="utf-8")
    page.feed(text)
    assert not page.active and not page.elements & {"img", "iframe", "object", "embed", "base", "form"}
    # The only script is that of relcrf, and the policy permits no other one.
    script = (Path(relcrf.__file__).parent / "report" / "neighbourhood.js").read_text(encoding="utf-8")
    assert page.scripts == [script]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    sources = dict(part.strip().split(" ", 1) for part in page.policy.split(";"))
    assert sources["default-src"] == "'none'" and sources["script-src"] == f"'sha256-{digest}'"
    assert "<script>alert(1)</script>" in page.text and SECRET not in page.text.replace("secret.txt", "")
    assert not {"\x1b", "\x07", "\x9b", "\0", "\u202e", "\u2066"} & set(text)


def test_picture_of_explanation_has_no_script(command, trained, workspace):
    command("explain", trained, f"Page({EVIL[7]}).kind", "--data", "data", "--picture", "p.svg")
    assert "<script" not in (workspace / "p.svg").read_text(encoding="utf-8")


def test_proposed_model_of_adversarial_tables_is_valid(command, workspace, monkeypatch):
    """Propose a model for the adversarial tables, and check that it parses and has only valid names.

    The trial of the model boosts few trees, because its scores do not matter.
    """
    monkeypatch.setitem(estimators._CANDIDATES, ("boosting", "classifier"), ({"max_iter": 3}, {"max_iter": 4}))
    monkeypatch.setattr(trial, "COMPARED_FOLDS", "folds=2")
    shutil.rmtree(workspace / "new", ignore_errors=True)
    shutil.copytree(
        workspace / "data", workspace / "new", ignore=lambda folder, names: [n for n in names if n[:1] in "23456789"]
    )
    command("new", "new", "--out", "new.rcrf", "--predict", "page.kind")
    command("check", "new.rcrf", "--data", "new", "--manifest", "new.toml")


def test_column_names_add_nothing_to_the_manifest(command, workspace, monkeypatch):
    """The comment of a query contains the name of the shared column; a line break in it must not end the comment."""
    column = 'Household\n[tables.evil]\npostgres = ""postgresql://u@127.0.0.1:1/db""\n# ID'
    labels = ("yes", "no", "")
    rows = [f"{k},h{k * 7 % 60},{20 + k % 60},{labels[k % 3]}" for k in range(200)]
    folder = workspace / "shared"
    folder.mkdir()
    (folder / "customer.csv").write_text("\n".join([f'id,"{column}",age,fraud', *rows]) + "\n")
    monkeypatch.setattr(trial, "MAX_VARIABLES", 0)  # the manifest is the same without the trial of the model
    command("new", "shared", "--out", "shared.rcrf", "--predict", "customer.fraud", "--yes")
    manifest = tomllib.loads((workspace / "shared.toml").read_text())
    assert "evil" not in manifest["tables"] and any("sql" in table for table in manifest["tables"].values())


def test_error_messages_are_escaped(command, workspace):
    for name in EVIL:
        if "\0" not in name and len(name) < 200:
            command("check", f"no{name}", code=2)
            command("check", "m.rcrf", "--data", f"no{name}", code=3)
            command("train", "m.rcrf", "--data", "pages", "--backend", name, "--out", "x", code=2)
            command("predict", f"no{name}", "--data", "data", code=3)
    (workspace / "bad.rcrf").write_text("entity Page\n" + "\n".join(f"# x\n{name!r} {name}" for name in EVIL))
    command("check", "bad.rcrf", code=2)


def test_file_names_are_not_patterns(workspace):
    """Check that names are not treated as a pattern, a home folder, a URL, or a partitioned folder."""
    import relcrf

    folder = workspace / "kind=spam"
    folder.mkdir()
    for name in ("ab", "a*", "a?", "[ab]", "~", "a'b", "a{b,c}", "http:"):
        (folder / f"{name}.csv").write_text(f"id,name\n1,{json.dumps(name)}\n".replace('"', ""))
    for name in ("a*", "a?", "[ab]", "~", "a'b", "http:"):
        data = relcrf.Dataset({"page": folder / f"{name}.csv"})
        table = data.tables["page"]
        assert table.columns == ("id", "name")
        assert data.connection.execute(f"SELECT name FROM {table.scan}").fetchall() == [(name,)]


def test_file_name_that_is_not_utf8_is_rejected(command, workspace):
    folder = workspace / "odd"
    folder.mkdir()
    (folder / "page\udcff.csv").write_text("id,x\n1,2\n")
    command("check", "m.rcrf", "--data", "odd", code=3)
