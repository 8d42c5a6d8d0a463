"""The examples of the documentation, run in a folder of their own as a reader would."""

import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command import json_command, relcrf_command

import relcrf

ROOT = Path(relcrf.__file__).parent.parent
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(name):
    return BLOCK.findall((ROOT / name).read_text())


def in_checkout(folder):
    """A folder in which the paths of the documentation mean what they say."""
    for name in ("models", "datasets"):
        shutil.copytree(ROOT / name, folder / name)
    return folder


@pytest.mark.parametrize(
    ("page", "made"),
    [
        ("tutorial.md", "predictions.csv"),
        ("explanation/grounding.md", "links.parquet"),
        ("how-to/explain.md", "p3.svg"),
        ("how-to/weights.md", "words.csv"),
        ("how-to/README.md", "predictions.parquet"),
    ],
)
def test_pages_that_can_be_followed(page, made, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(in_checkout(tmp_path))
    ran = 0
    for language, text in blocks(f"docs/{page}"):
        if language == "console":
            for line in text.splitlines():
                words = shlex.split(line.removeprefix("$ "))
                if words[0] == "python":
                    subprocess.run([sys.executable, *words[1:]], check=True, capture_output=True)
                else:
                    code, _, err = relcrf_command(capsys, monkeypatch, *words[1:])
                    assert code == 0, (line, err)
                ran += 1
        elif language == "python":
            (tmp_path / "example.py").write_text(text)
            runpy.run_path(str(tmp_path / "example.py"))
            ran += 1
    assert ran >= 4
    assert (tmp_path / made).exists()


def test_models_in_the_docs_are_well_formed():
    models = [text for language, text in blocks("README.md") if language == "rcrf"]
    assert len(models) == 2
    for model in models:
        assert relcrf.parse(model).warnings == ()


def test_the_model_in_python(tmp_path):
    (text,) = [text for language, text in blocks("docs/reference/language.md") if language == "py"]
    (tmp_path / "example.py").write_text(text)
    model = runpy.run_path(str(tmp_path / "example.py"))["model"]
    assert [t.name for t in model.spec.templates] == ["word", "cocited"]
    assert model.spec.rules[0].name == "courses"


@pytest.mark.parametrize("page", ["README.md", *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md"))])
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
