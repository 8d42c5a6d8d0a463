"""The examples of the documentation, run in a folder of their own as a reader would."""

import os
import re
import runpy
import shlex
from pathlib import Path

import pytest
from command import json_command, relcrf_command

import relcrf

ROOT = Path(relcrf.__file__).parent.parent
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(name):
    return BLOCK.findall((ROOT / name).read_text())


def commands(text):
    """The relcrf commands of a console block; lines that end in a backslash continue, and other lines are output."""
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith("$ relcrf "):
            yield shlex.split(line.removeprefix("$ relcrf "))


PAGES = [
    "README.md",
    "docs/tutorial.md",
    "docs/explanation/grounding.md",
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs" / "how-to").glob("*.md")),
]


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_examples_run_in_an_empty_folder(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    ran = 0
    for language, text in blocks(page):
        if language == "rcrf" and "Save it as `accounts.rcrf`" in (ROOT / page).read_text():
            (tmp_path / "accounts.rcrf").write_text(text)
        elif language == "console":
            for words in commands(text):
                code, _, err = relcrf_command(capsys, monkeypatch, *words)
                assert code == 0, (words, err)
                ran += 1
        elif language == "python":
            (tmp_path / "example.py").write_text(text)
            runpy.run_path(str(tmp_path / "example.py"))
            ran += 1
    assert ran >= 1


def test_models_in_the_docs_are_well_formed():
    models = [text for language, text in blocks("README.md") if language == "rcrf"]
    assert len(models) == 1
    for model in models:
        assert relcrf.parse(model).warnings == ()


def test_the_model_in_python(tmp_path):
    (text,) = [text for language, text in blocks("docs/reference/language.md") if language == "py"]
    (tmp_path / "example.py").write_text(text)
    model = runpy.run_path(str(tmp_path / "example.py"))["model"]
    assert [t.name for t in model.spec.templates] == ["word", "cocited"]
    assert model.spec.rules[0].name == "courses"


@pytest.mark.parametrize(
    "page", ["README.md", *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md"))]
)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", (ROOT / page).read_text()):
        assert (ROOT / page).parent.joinpath(target).exists(), target


@pytest.mark.skipif(
    "RELCRF_DATA" not in os.environ, reason="needs the real WebKB tables, in the folder that RELCRF_DATA names"
)
def test_webkb(capsys, monkeypatch):
    data = Path(os.environ["RELCRF_DATA"]) / "webkb"
    code, found = json_command(
        capsys, monkeypatch, "evaluate", ROOT / "models" / "webkb.rcrf", "--data", data, "--split", "university"
    )
    assert code == 0
    assert found["attributes"]["Page.category"]["n"] == 877
    assert found["attributes"]["Page.category"]["accuracy"] > 0.83
