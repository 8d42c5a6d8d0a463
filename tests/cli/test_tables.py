"""Tests of the tables that commands print in 80 columns: each word of each cell is printed unbroken."""

import io
import json
import re
import sys
from contextlib import redirect_stdout

import pytest
from rich.console import Console
from tables import small_web

from relcrf.cli import new, output
from relcrf.cli.commands import app
from relcrf.cli.table_layout import layout_table
from relcrf.proposal.proposal import propose

MODEL = """
domain Category = { course, faculty, student, project, staff }
domain Word = open
entity Page {
    predict category : Category
    words : bag of Word
    length_of_the_text_in_characters : real
}
relation Link(source: Page, target: Page)
template words_that_occur_on_the_page(page: Page, w: Word) where w in page.words over page.category per w
template length_of_the_text(page: Page)
    over page.category by standardise(log1p(page.length_of_the_text_in_characters))
template pages_that_are_linked(a: Page, b: Page) where Link(a, b) and a != b over a.category, b.category
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with tables, and with models whose templates and features have long names."""
    path = tmp_path_factory.mktemp("tables")
    web = small_web(path / "web")
    lines = (web / "page.csv").read_text().splitlines()
    header = f"{lines[0]},length_of_the_text_in_characters"
    (web / "page.csv").write_text("\n".join([header, *(f"{line},{k % 7}" for k, line in enumerate(lines[1:]))]))
    words = (web / "page_words.csv").read_text()
    (web / "page_words.csv").write_text(words.replace("w1\n", "Wörter\n"), encoding="utf-8")
    (path / "model.rcrf").write_text(MODEL)
    return path


@pytest.fixture(scope="module", autouse=True)
def run(folder):
    """Train a run."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()):
        patch.chdir(folder)
        app(["train", "model.rcrf", "--data", "web", "--backend", "ess", "--out", "run"], standalone_mode=False)


HOLDOUT = ("--split", "school")
COMMANDS = {
    "new": ("new", "web", "--out", "new.rcrf", "--force"),
    "plan": ("plan", "model.rcrf", "--data", "web"),
    "ground": ("ground", "model.rcrf", "--data", "web"),
    "factors": ("ground", "model.rcrf", "--data", "web", "--show", "Page(p1).category"),
    "train": ("train", "model.rcrf", "--data", "web", "-b", "ess", "--out", "run2", "--select", "l2=1,2"),
    "predict": ("predict", "run", "--data", "web"),
    "evaluate": ("evaluate", "model.rcrf", "--data", "web", *HOLDOUT, "-b", "ess,pseudo"),
    "compare": ("compare", "model.rcrf", "--data", "web", *HOLDOUT, "-b", "local"),
    "pareto": (
        "pareto",
        "model.rcrf",
        "--data",
        "web",
        *HOLDOUT,
        "--message-costs",
        "0",
        "--set",
        "pretraining_iterations=1",
    ),
    "weights": ("weights", "run"),
    "standard errors": ("weights", "run", "--data", "web"),
    "moments": ("moments", "run"),
    "diff": ("diff", "run", "run", "--data", "web"),
    "explain": ("explain", "run", "Page/p1", "--data", "web", "--depth", "2"),
    "reproduce": ("reproduce", "run", "--data", "web"),
    "profile": ("profile", "web", "--out", "profile.html"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_words_of_cells_are_not_broken_in_80_columns(name, folder, relcrf_, monkeypatch):
    printed = []

    def record(columns, width):
        printed.append(columns)
        return layout_table(columns, width)

    monkeypatch.chdir(folder)
    monkeypatch.setattr(new, "propose", lambda *values, **options: propose(*values, **{**options, "with_trial": False}))
    monkeypatch.setattr(output, "layout_table", record)
    monkeypatch.setattr(output, "console", Console(width=80))
    code, out, err = relcrf_(*COMMANDS[name])
    assert code == 0, err
    lines = [line for line in out.splitlines() if line[:1] in "│┃"]
    assert printed and max(map(len, lines)) <= 80
    shown = set(re.sub("[│┃]", " ", " ".join(lines)).split())
    cells = [text.plain for columns in printed for column in columns for text in (column.name, *column.cells)]
    assert {word for cell in cells for word in cell.split()} <= shown


@pytest.mark.parametrize("name", ["weights", "explain", "profile", "json"])
def test_characters_that_the_encoding_lacks_are_replaced(name, folder, relcrf_, monkeypatch):
    monkeypatch.chdir(folder)
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(output, "console", Console(width=80))
    words = ("weights", "run", "--key", "W*", "--json") if name == "json" else COMMANDS[name]
    assert relcrf_(*words)[0] == 0
    stream.flush()
    found = stream.buffer.getvalue().decode("ascii")
    if name == "json":
        assert {row["key"] for row in json.loads(found)["shown"]} == {"Wörter"}
    elif name == "weights":
        assert "W\\xf6rter" in found and "\\u" not in found
        assert {len(line) for line in found.splitlines()[1:]} == {len(found.splitlines()[1])}
    else:
        assert len(found) > 200 and "\\u" not in found
