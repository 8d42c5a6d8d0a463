"""Tests of the runs command, of the list of examples, and of suggestions for paths of runs and models."""

import json
import os
import shutil
import time
from dataclasses import replace

import pytest

import relcrf
from relcrf.backends.run_list import find_runs
from relcrf.cli import learn
from relcrf.datasets import examples

WEB = "domain Topic = { a, b }\nentity Page { predict topic : Topic }\npredict relation Good(page: Page)\n"
WEB += "template t(p: Page) over p.topic\ntemplate g(p: Page) over Good(p)\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with the runs `first` (a day old), `deep/second` and `broken`, and folders that contain no runs."""
    path = tmp_path_factory.mktemp("runs")
    data = relcrf.Dataset({"page": {"id": ["x", "y", "z"], "topic": ["a", "b", None]}, "good": {"page": ["x"]}})
    fit = relcrf.parse(WEB).fit(data, backend="local")
    for name in ("first", "deep/second", "broken", "archive/other.partial", ".hidden"):
        fit.save(path / name)
    day_before = time.time() - 86400
    os.utime(path / "first" / "run.json", (day_before, day_before))
    (path / "broken" / "run.json").write_text("{")
    (path / "empty").mkdir()
    return path


def test_lists_runs_newest_first_and_reports_damaged_ones(folder, relcrf_, relcrf_json):
    code, found = relcrf_json("runs", folder)
    assert code == 0 and [run["run"] for run in found["runs"]] == [str(folder / "deep/second"), str(folder / "first")]
    assert found["runs"][0]["predicts"] == ["Page.topic", "Good"] and found["runs"][0]["backend"] == "local"
    assert found["runs"][0]["n_bytes"] == sum(file.stat().st_size for file in (folder / "deep/second").iterdir())
    assert [text.partition(" is damaged: ")[0] for text in found["damaged"]] == [f"'{folder / 'broken'}'"]
    code, out, err = relcrf_("runs", folder, "--top", "1")
    assert code == 0 and "2 runs; the newest 1" in out and "second" in out and "first" not in out
    assert err.count("is damaged") == 1


@pytest.mark.parametrize("name", ["run.json", "timings.json", "manifest.json", "model.rcrf"])
@pytest.mark.parametrize("content", [None, "[]", "{}", "null"])
def test_damaged_files_do_not_end_the_command(name, content, folder, tmp_path, relcrf_json):
    shutil.copytree(folder / "first", tmp_path / "run")
    if content is None:
        (tmp_path / "run" / name).unlink()
    else:
        (tmp_path / "run" / name).write_text(content)
    code, found = relcrf_json("runs", tmp_path)
    is_run = name != "run.json" or content is not None
    assert code == 0 and len(found["runs"]) + len(found["damaged"]) == is_run


def test_lists_runs_of_earlier_versions(folder, tmp_path, relcrf_json):
    """Earlier versions stored neither the request nor the candidates of `auto`; the runs can be loaded."""
    shutil.copytree(folder / "first", tmp_path / "run")
    (tmp_path / "run" / "manifest.json").unlink()
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    (tmp_path / "run" / "run.json").write_text(
        json.dumps({k: v for k, v in facts.items() if k not in ("request", "trials")})
    )
    assert relcrf.load_fit(tmp_path / "run").learned.request is None
    shutil.copy(folder / "first" / "manifest.json", tmp_path / "run")
    (run,) = relcrf_json("runs", tmp_path)[1]["runs"]
    assert (run["backend"], run["requested"]) == ("local", "local")


def test_folders_without_runs(folder, relcrf_, relcrf_json):
    assert relcrf_json("runs", folder / "empty") == (0, {"runs": [], "damaged": []})
    assert "no run folders" in relcrf_("runs", folder / "empty")[1]
    code, _, err = relcrf_("runs", folder / "nothing")
    assert code == 3 and err.count("error[E334]") == 1


def test_scores_of_the_labels_that_smooth_held_out(tmp_path, relcrf_json):
    example = examples.load("web")
    example.model.fit(example.data, backend="smooth").save(tmp_path / "run")
    (run,) = relcrf_json("runs", tmp_path)[1]["runs"]
    assert 0.8 < run["accuracy"] <= 1 and -0.5 < run["log_likelihood"] < 0 and run["labels"] == 240


def test_thousands_of_folders_are_searched_without_their_contents(tmp_path):
    for k in range(2000):
        (tmp_path / f"run{k:04}" / "checkpoint").mkdir(parents=True)
        (tmp_path / f"run{k:04}" / "run.json").touch()
    assert [path.name for path in find_runs(tmp_path)] == [f"run{k:04}" for k in range(2000)]


def test_suggestions_for_paths(folder, relcrf_, tmp_path):
    (tmp_path / "page.rcrf").write_text(WEB)
    for words, hint in (
        (("weights", folder / "frist"), f"did you mean '{folder / 'first'}'?"),
        (("weights", folder), f"use one of {folder / 'broken'}, {folder / 'first'}"),
        (("weights", folder / "deep"), f"use {folder / 'deep/second'}"),
        (("weights", folder / "unlike anything"), "use a folder that 'relcrf train' wrote"),
        (("check", tmp_path / "pages.rcrf"), f"did you mean '{tmp_path / 'page.rcrf'}'?"),
    ):
        code, _, err = relcrf_(*words)
        assert code in (2, 3) and f"= help: {hint}" in err, err


def test_example_without_a_name_lists_examples(relcrf_, relcrf_json):
    code, out, _ = relcrf_("example")
    assert code == 0 and all(name in out for name in examples.descriptions())
    assert relcrf_json("example") == (0, {"examples": examples.descriptions()})


def test_hints_of_learning_that_stalls():
    data = relcrf.Dataset({"page": {"id": ["x", "y"], "topic": ["a", "b"]}, "good": {"page": ["x"]}})
    stalled = {"weights_status": "stalled"}
    for settings, text in (({"inference": "bp"}, "use --set inference=trw"), ({"inference": "trw"}, "extreme values")):
        learned = relcrf.parse(WEB).fit(data, backend="dense", **settings).learned
        assert text in learn._convergence_hint(replace(learned, summary=stalled))
