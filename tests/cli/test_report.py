"""Tests of `relcrf report`: output and errors."""

import html
import io
import re
import shlex
import shutil
import sys
from contextlib import redirect_stdout

import pytest

from relcrf.cli.commands import app
from relcrf.resources import resource_path

MODEL = resource_path("models", "webkb.rcrf")


@pytest.fixture(scope="module")
def trained(web, tmp_path_factory):
    run = tmp_path_factory.mktemp("trained") / "run"
    command = ["train", str(MODEL), "--backend", "ess", "--data", str(web), "--out", str(run)]
    with redirect_stdout(io.StringIO()):
        app([*command, "--set", "max_iterations=4"], standalone_mode=False)
    return run


@pytest.fixture
def run(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


def test_report_is_written_to_file(relcrf_, relcrf_json, run, web, tmp_path):
    code, out, _ = relcrf_("report", run)
    assert code == 0 and str(run / "report.html") in out and "plots)" in out
    page = (run / "report.html").read_text()
    assert page.startswith("<!doctype html>") and "did not converge" in page
    code, found = relcrf_json("report", run, "--out", tmp_path / "deep" / "web.html")
    assert (code, found["report"]) == (0, str(tmp_path / "deep" / "web.html"))
    assert (tmp_path / "deep" / "web.html").read_text() == page
    assert found["bytes"] == len(page.encode()) and "weights: objective over seconds" in found["plots"]
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["web.html"]
    # A run folder with a report is still a valid run.
    assert relcrf_("predict", run, "--data", web, "--out", tmp_path / "p.csv")[0] == 0


def test_report_with_data(relcrf_, relcrf_json, web, tmp_path):
    held = ("--split", "school", "--holdout", "s1")
    assert relcrf_("train", MODEL, "--backend", "ess", "--data", web, *held, "--out", tmp_path / "run")[0] == 0
    code, found = relcrf_json(
        "report",
        tmp_path / "run",
        "--data",
        web,
        *held,
        "--learning-curve",
        "--standard-errors",
        "--cost",
        "fn=10,fp=1",
    )
    assert code == 0 and "Page.category: learning curve" in found["plots"]
    figures = {(row["system"], row["measure"]): row for row in found["results"]}
    assert {system for system, _ in figures} == {"majority", "local", "ess"}
    accuracy = figures["ess", "accuracy"]
    assert (
        0 <= accuracy["low"] <= accuracy["value"] <= accuracy["high"] <= 1 and accuracy["attribute"] == "Page.category"
    )
    assert "held-out labels." in found["headlines"]["Page.category"]
    assert "treat none" in (tmp_path / "run" / "report.html").read_text()
    assert [text for text in found["warnings"] if "Too few labels are held out" in text]
    scored = relcrf_json("evaluate", tmp_path / "run", "--data", web, *held)[1]["attributes"]["Page.category"]
    assert scored["accuracy"] == pytest.approx(accuracy["value"])
    code, out, err = relcrf_("report", tmp_path / "run", "--data", web, *held)
    assert (
        code == 0
        and "plots)" in out
        and "note: Too few labels are held out to detect small differences: Page.category" in err
    )


def test_mistakes(relcrf_, run, web, tmp_path):
    for arguments, code, message in (
        ((tmp_path / "nothing",), 3, "E334"),
        ((run, "--out", tmp_path / "report.pdf"), 2, "E312"),
        ((run, "--out", run), 2, "E312"),
        ((run, "--split", "school", "--holdout", "s1"), 2, "E359"),
        ((run, "--learning-curve"), 2, "E359"),
        ((run, "--standard-errors"), 2, "E359"),
        ((run, "--cost", "fn=10,fp=1"), 2, "E359"),
        ((run, "--data", web, "--cost", "fn=10"), 2, "E443"),
        ((run, "--data", web, "--split", "school"), 2, "E341"),
        ((run, "--data", web, "--split", "school", "--holdout", "x"), 2, "E340"),
        ((run, "--data", tmp_path / "nothing"), 3, "E2"),
        ((run, "--out", run / "run.json" / "report.html"), 2, "E314"),
    ):
        found, _, err = relcrf_("report", *arguments)
        assert (found, err.count("error[")) == (code, 1) and message in err, err
    (run / "report.html").mkdir()
    found, _, err = relcrf_("report", run)
    assert (found, err.count("error[")) == (2, 1) and "E312" in err


@pytest.mark.parametrize("package", ["jinja2", "matplotlib"])
def test_missing_packages_raise_e351(relcrf_, run, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"{package}.figure", raising=False)
    code, _, err = relcrf_("report", run)
    assert (code, err.count("error[")) == (2, 1)
    assert "E351" in err and f"'{package}'" in err and "relcrf[report]" in err
    assert not (run / "report.html").exists()


def test_commands_of_the_report_name_the_manifest(relcrf_, web, tmp_path):
    """The commands name the model of the run, to which the manifest of the run does not apply by itself."""
    manifest, out = tmp_path / "m.toml", tmp_path / "run"
    manifest.write_text('[tables.page]\nmissing = ["n/a"]\n')
    assert relcrf_("train", MODEL, "--backend", "local", "--data", web, "--manifest", manifest, "--out", out)[0] == 0
    assert relcrf_("report", out)[0] == 0
    page = html.unescape((out / "report.html").read_text())
    commands = re.findall(r"relcrf (?:evaluate|train|reproduce) [^<]+", page)
    stored = f"--manifest {out}/tables.toml"
    assert len(commands) > 2 and all(stored in " ".join(command.replace("\\", " ").split()) for command in commands)
    words = shlex.split(next(command for command in commands if command.startswith("relcrf evaluate")))[1:]
    code, _, err = relcrf_(*(str(web) if word == "DATA" else word for word in words))
    assert code == 0, err
