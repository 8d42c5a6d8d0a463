"""The choice of backend `auto` on the command line: its table, its JSON, and runs that are repeated or resumed."""

import inspect
import io
import json
import re
from contextlib import redirect_stdout
from dataclasses import replace

import pytest

from relcrf import RelationalCRF, api
from relcrf.cli import output
from relcrf.cli.commands import app
from relcrf.cli.learn import _limit_option as limit_option
from relcrf.resources import resource_path

MODEL = resource_path("models", "webkb.rcrf")

QUICK = ("--backend", "auto", "--set", "effort=quick")


@pytest.fixture(scope="module")
def run_and_json(web, tmp_path_factory):
    """Return a run folder, and the JSON object that its training printed."""
    folder = tmp_path_factory.mktemp("choice") / "run"
    arguments = ["train", str(MODEL), "--data", str(web), "--out", str(folder), *QUICK, "--json"]
    with redirect_stdout(io.StringIO()) as printed:
        app(arguments, standalone_mode=False)
    return folder, json.loads(printed.getvalue())


@pytest.fixture(scope="module")
def run(run_and_json):
    return run_and_json[0]


@pytest.fixture
def local_model(tmp_path):
    """Write a model without relations; `auto` compares few candidates, and training has a stage to interrupt."""
    text, path = MODEL.read_text(), tmp_path / "local.rcrf"
    path.write_text(text[: text.index("template linked")])
    return path


def test_train_prints_the_trials_and_the_reason(relcrf_, web, tmp_path, monkeypatch):
    monkeypatch.setattr(output.console, "width", 80)
    code, out, err = relcrf_("train", MODEL, "--data", web, "--out", tmp_path / "run", *QUICK)
    lines = out.splitlines()
    assert code == 0 and all(len(line) <= 80 for line in lines if "│" in line)
    assert "(*: chosen)" in lines[0]
    assert all(column in out for column in ("backend", "settings", "log-likelihood", "accuracy", "seconds"))
    (sentence,) = [line for line in lines if line.startswith("auto chose ")]
    assert "held-out labels" in sentence and ("local (standard error" in sentence or "do not improve" in sentence)
    assert "calibrated log likelihood" not in out, "the sentence contains these values"
    assert "Traceback" not in err


def test_json_contains_the_choice_and_all_trials(run_and_json):
    _, found = run_and_json
    chosen, trials = found["chosen"], found["trials"]
    assert {"backend", "settings", "held_out_labels", "gain_over_local", "standard_error_of_gain"} <= chosen.keys()
    assert (chosen["backend"], chosen["settings"]) in [(row["backend"], row["settings"]) for row in trials]
    assert {"backend", "settings", "log_likelihood", "accuracy", "seconds"} <= trials[0].keys()


def test_raised_limit_keeps_the_chosen_settings(run):
    learned = api.load_fit(run).learned
    changed = replace(learned, backend="ess", settings={"l2": 30.0, "edges": "tree", "max_iterations": 5})
    option = "--backend ess --set l2=30 --set edges=tree --set max_iterations=10000"
    assert sorted(limit_option(changed, "max_iterations=10000").split("--")) == sorted(option.split("--"))
    named = replace(changed, request=replace(changed.original_request, backend="ess"))
    assert limit_option(named, "max_iterations=10000") == "--set max_iterations=10000"


def test_named_backend_has_no_choice(relcrf_json, web, tmp_path):
    code, found = relcrf_json("train", MODEL, "--data", web, "--out", tmp_path / "run", "--backend", "local")
    assert code == 0 and not {"chosen", "trials"} & found.keys()


def test_choice_is_reproduced(relcrf_, run, web):
    code, out, err = relcrf_("reproduce", run, "--data", web)
    assert (code, "reproduced" in out) == (0, True), err


def test_report_contains_the_choice_and_the_original_command(relcrf_, run, tmp_path):
    page = tmp_path / "report.html"
    assert relcrf_("report", run, "--out", page)[0] == 0
    text = page.read_text()
    assert "Auto chose" in text and "--backend auto" in text and "effort=quick" in text
    trials = json.loads((run / "run.json").read_text())["trials"]
    assert all("seconds" not in row for row in trials)
    assert len(json.loads((run / "timings.json").read_text())["trials"]) == len(trials)


def test_damaged_trial_is_reported(relcrf_, run, tmp_path):
    damaged = tmp_path / "run"
    damaged.mkdir()
    for path in run.iterdir():
        (damaged / path.name).write_bytes(path.read_bytes())
    stored = json.loads((run / "run.json").read_text())
    stored["trials"] = [{"settings": ""}]
    (damaged / "run.json").write_text(json.dumps(stored))
    (damaged / "manifest.json").unlink()
    code, _, err = relcrf_("report", damaged, "--out", tmp_path / "report.html")
    assert (code, "E336" in err, "a trial has no" in err) == (3, True, True)


def test_interrupted_comparison_and_training_resume(
    relcrf_, web, local_model, tmp_path, interrupted_training, monkeypatch
):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert relcrf_("train", local_model, "--data", web, "--out", whole, *QUICK)[0] == 0

    def interrupt(*_):
        raise KeyboardInterrupt

    arguments = ("train", local_model, "--data", web, "--out", broken, *QUICK)
    with monkeypatch.context() as patch:
        patch.setattr("relcrf.evaluation.automatic.temper", interrupt)
        code, _, err = relcrf_(*arguments)
    assert (code, "--resume" in err) == (130, True)
    with interrupted_training():
        code, _, err = relcrf_(*arguments, "--resume")
    assert (code, "--resume" in err) == (130, True)
    assert relcrf_(*arguments, "--resume")[0] == 0
    for name in ("weights.npy", "log.jsonl", "run.json"):
        assert (whole / name).read_bytes() == (broken / name).read_bytes(), name


def test_training_with_workers_does_not_compare(relcrf_, relcrf_json, web, tmp_path):
    _, out, err = relcrf_(
        "train", MODEL, "--data", web, "--out", tmp_path / "run", "--backend", "auto", "--workers", "1"
    )
    assert "note: auto trained ess without a comparison:" in err and "trained by ess" in out
    assert "chosen without comparison" not in out
    assert relcrf_json("predict", tmp_path / "run", "--data", web)[0] == 0


def test_evaluate_names_the_chosen_backend_of_each_fold(relcrf_json, web, local_model, tmp_path):
    arguments = ("evaluate", local_model, "--data", web, "--split", "school", "--holdout", "s1")
    for n_loaded in (0, 2):
        code, found = relcrf_json(*arguments, "--set", "auto.effort=quick", "--out", tmp_path / "folds")
        assert (code, found["folds_loaded"]) == (0, n_loaded)
        assert [(one["backend"], one["chosen"]) for one in found["folds"]] == [("local", ""), ("auto", "local")]


@pytest.mark.parametrize("option", [("--set", "l2=0.5"), ("--select", "l2=0.1,1")])
def test_settings_need_the_name_of_a_backend(relcrf_, web, tmp_path, option):
    code, _, err = relcrf_("train", MODEL, "--data", web, "--out", tmp_path / "run", *option)
    assert (code, "E304" in err, "--backend ess" in err) == (2, True, True)
    assert "backend 'auto' has no setting 'l2', because it chooses the backend and its settings" in err
    code, _, err = relcrf_("cv", MODEL, "--data", web, "--set", "efort=quick")
    assert (code, "did you mean 'effort'?" in err) == (2, True)


def test_default_backend(relcrf_):
    for command in ("train", "evaluate"):
        code, out, _ = relcrf_(command, "--help")
        assert code == 0 and re.search(r"efault: +auto", out), out
    assert inspect.signature(api.fit).parameters["backend"].default == "auto"
    assert inspect.signature(RelationalCRF).parameters["backend"].default == "auto"
