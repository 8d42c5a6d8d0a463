"""The page that compares runs, written by `relcrf report` with several run folders."""

from __future__ import annotations

import os
import shutil

import pytest
from command import json_command, relcrf_command
from html_page import Page
from tables import small_web

from relcrf.report.results import MAX_LABEL_LENGTH
from relcrf.resources import resource_path

SPLIT = ("--split", "school", "--holdout", "s1")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("comparison")
    small_web(folder / "data", 240)
    model = resource_path("models", "webkb.rcrf").read_text()
    (folder / "web.rcrf").write_text(model)
    (folder / "prior.rcrf").write_text(model[: model.index("template linked")])
    return folder


@pytest.fixture
def runs(place, capsys, monkeypatch):
    """Train three runs once, and change to their folder."""
    monkeypatch.chdir(place)
    for name, model, backend in (("first", "prior", "local"), ("second", "web", "ess"), ("third", "web", "dense")):
        if not (place / name).exists():
            command = ("train", f"{model}.rcrf", "--data", "data", "--backend", backend, "--out", name, *SPLIT)
            assert relcrf_command(capsys, monkeypatch, *command)[0] == 0
    return ("first", "second", "third")


def test_page(runs, capsys, monkeypatch, place):
    code, out, err = relcrf_command(capsys, monkeypatch, "report", *runs, "--data", "data", "--out", "page.html")
    assert code == 0, err
    page = Page((place / "page.html").read_text())
    page.require_closed()
    assert page.text("h1") == ["Comparison of 3 runs"]
    assert page.text("h2") == ["Runs", "Results", "Settings", "Models", "Weights"]
    text = (place / "page.html").read_text()
    assert "+template linked" in text and "\n-template" not in text
    printed = " ".join(out.split())
    verdicts = [text for where, text in page.texts if where == "span" and "first" in text]
    better = [text for where, text in page.texts if where == "span" and text.startswith("better probabilities")]
    assert len(verdicts) == 2 and better, "the relations improve the predictions"
    assert all(sentence in printed for sentence in verdicts + better)
    assert "second: " in printed and "third: " in printed
    assert "treewidth" in page.text("th") and "seed" not in page.text("th"), "only settings that differ are shown"


def test_same_bytes(runs, capsys, monkeypatch, place):
    for out in ("one.html", "two.html"):
        assert relcrf_command(capsys, monkeypatch, "report", *runs, "--data", "data", "--out", out)[0] == 0
    assert (place / "one.html").read_bytes() == (place / "two.html").read_bytes()


def test_json_and_page_without_data(runs, capsys, monkeypatch, place):
    code, found = json_command(capsys, monkeypatch, "report", "second", "third", "--data", "data")
    assert code == 0 and found["report"] == "comparison.html" and found["runs"] == ["second", "third"]
    (verdict,) = found["verdicts"]["Page.category"]
    assert verdict.startswith("third: ")
    assert {row["system"] for row in found["results"]} == {"majority", "second", "third"}
    assert relcrf_command(capsys, monkeypatch, "report", "second", "third", "--out", "plain.html")[0] == 0
    page = Page((place / "plain.html").read_text())
    assert "Results" not in page.text("h2") and "Not evaluated on held-out labels." in page.text("span")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("first", "./first"), "'first' is named more than once"),
        (("first", "second", "--data", "data", "--cost", "fn=1,fp=1"), "--cost cannot be combined with several runs"),
        (("first", "second", "--data", "data", "--explanations", "2"), "--explanations cannot be combined"),
        (("first", "second", "--log", "mlflow"), "--log cannot be combined"),
    ],
)
def test_invalid_use(runs, capsys, monkeypatch, arguments, message):
    code, _, err = relcrf_command(capsys, monkeypatch, "report", *arguments)
    assert code == 2 and "E465" in err and message in " ".join(err.split())


def test_different_splits(runs, capsys, monkeypatch, place):
    command = ("train", "web.rcrf", "--data", "data", "--backend", "local", "--out", "all", "--force")
    assert relcrf_command(capsys, monkeypatch, *command)[0] == 0
    shutil.copytree(place / "all", place / "all-again", dirs_exist_ok=True)
    code, _, err = relcrf_command(capsys, monkeypatch, "report", "all", "all-again", "--data", "data")
    assert code == 2 and "E341" in err and "no labels are held out" in " ".join(err.split())
    code, _, err = relcrf_command(capsys, monkeypatch, "report", "second", "all", "--data", "data")
    assert code == 2 and "E465" in err and "second: school; all: none" in " ".join(err.split())
    code, out, err = relcrf_command(capsys, monkeypatch, "report", "second", "all", "--data", "data", *SPLIT)
    assert code == 0, err
    assert "The run all was trained on" in " ".join((out + err).split()), "its training used the held-out labels"


def test_names_that_occur_twice(runs, capsys, monkeypatch, place):
    shutil.copytree(place / "second", place / "old" / "second", dirs_exist_ok=True)
    code, found = json_command(capsys, monkeypatch, "report", "second", "old/second", "--data", "data")
    names = {row["system"] for row in found["results"]} - {"majority"}
    assert code == 0 and names == {"second", "old/second"}


@pytest.mark.parametrize(
    "name", [b"control \x01\x1b", b"not UTF-8 \xe9", b"long" * 50], ids=["control", "bytes", "long"]
)
def test_names_of_any_characters(runs, capsys, monkeypatch, place, name):
    """The name of a folder is a label of the plots, which have the same width for all names."""
    folder = os.fsdecode(name)
    shutil.copytree(place / "second", place / folder, dirs_exist_ok=True)
    code, _, err = relcrf_command(
        capsys, monkeypatch, "report", "first", folder, "--data", "data", "--out", "names.html"
    )
    assert code == 0, err
    page = Page((place / "names.html").read_text())
    page.require_closed()
    assert max(len(text) for where, text in page.texts if where == "text") <= MAX_LABEL_LENGTH + 1
