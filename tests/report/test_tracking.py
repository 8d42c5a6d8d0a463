"""Experiment trackers: what `relcrf report --log` stores, with recorders in place of the packages and with the packages."""

from __future__ import annotations

import contextlib
import json
import sys
import types
from pathlib import Path

import pytest
from command import json_command, relcrf_command
from tables import small_web

from relcrf import api
from relcrf.resources import resource_path

SPLIT = ("--split", "school", "--holdout", "s1")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tracking")
    small_web(folder / "data")
    return folder


@pytest.fixture
def run(place, capsys, monkeypatch):
    """Train a run once, and change to its folder."""
    monkeypatch.chdir(place)
    if not (place / "run").exists():
        model = resource_path("models", "webkb.rcrf")
        command = ("train", model, "--data", "data", "--backend", "ess", "--out", "run", *SPLIT)
        assert relcrf_command(capsys, monkeypatch, *command)[0] == 0
    return "run"


class FakeMlflow(types.ModuleType):
    """A recorder with the functions of MLflow that relcrf calls."""

    def __init__(self):
        super().__init__("mlflow")
        self.experiment, self.params, self.metrics, self.artifacts = None, {}, [], []
        info = types.SimpleNamespace(run_id="r1", start_time=5, experiment_id="7")
        self.entities = types.SimpleNamespace(Metric=lambda key, value, timestamp, step: (key, value, timestamp, step))
        self.start_run = lambda run_name: contextlib.nullcontext(types.SimpleNamespace(info=info, name=run_name))
        self.MlflowClient = lambda: types.SimpleNamespace(log_batch=self._log_batch)
        self.log_params = self.params.update
        self.get_tracking_uri = lambda: "sqlite:///somewhere"

    def set_experiment(self, name):
        self.experiment = name

    def _log_batch(self, run_id, metrics):
        assert run_id == "r1" and 0 < len(metrics) <= 1000
        self.metrics += metrics

    def log_artifact(self, path):
        self.artifacts.append(path)
        print("View the run somewhere")


@pytest.fixture
def mlflow(monkeypatch):
    fake = FakeMlflow()
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    for name in ("MLFLOW_EXPERIMENT_NAME", "MLFLOW_EXPERIMENT_ID"):
        monkeypatch.delenv(name, raising=False)
    return fake


def test_mlflow_receives_the_figures_of_the_report(run, capsys, monkeypatch, mlflow):
    code, found = json_command(capsys, monkeypatch, "report", run, "--data", "data", "--log", "mlflow")
    assert code == 0 and found["stored"] == ["sqlite:///somewhere, experiment 7, run r1"]
    assert mlflow.experiment == "relcrf" and mlflow.artifacts == [str(Path("run/report.html"))]
    learned = api.load_fit(run).learned
    assert mlflow.params == {"backend": "ess", "folder": "run", **learned.settings}
    last = {key: value for key, value, _, _ in mlflow.metrics}
    for row in found["results"]:
        system = "" if row["system"] == "ess" else f"/{row['system']}"
        name = f"{row['attribute']}{system}/{row['measure']}"
        found_values = [last.get(f"{name}{end}") for end in ("", "_low", "_high")]
        assert found_values == [row[key] for key in ("value", "low", "high")], "undefined measures are null"
    curve = [value for key, value, _, step in mlflow.metrics if key == "weights/objective"]
    assert curve == [entry["value"] for entry in learned.log if entry["stage"] == "weights"]
    assert last["variables"] == learned.summary["variables"]


def test_environment_names_the_experiment(run, capsys, monkeypatch, mlflow):
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    code, out, err = relcrf_command(capsys, monkeypatch, "report", run, "--log", "mlflow")
    assert code == 0 and mlflow.experiment is None
    assert "stored the figures in sqlite:///somewhere" in " ".join(out.split())
    assert "View the run somewhere" in err and "View the run" not in out


def test_errors_of_a_tracker_are_diagnostics(run, capsys, monkeypatch, mlflow):
    def refuse(name):
        raise ConnectionError("the server is down\nwith a second line")

    mlflow.set_experiment = refuse
    code, _, err = relcrf_command(capsys, monkeypatch, "report", run, "--log", "mlflow")
    assert code == 2 and "E466" in err and "mlflow did not store the run: the server is down" in " ".join(err.split())
    assert "second line" not in err and "Traceback" not in err
    assert Path("run/report.html").exists()


@pytest.mark.parametrize(
    ("tracker", "code", "text"),
    [("mlflw", "E466", "did you mean 'mlflow'?"), ("wandb", "E351", "pip install 'relcrf[wandb]'")],
)
def test_unknown_and_missing_trackers(run, capsys, monkeypatch, tracker, code, text):
    monkeypatch.setitem(sys.modules, "wandb", None)
    status, _, err = relcrf_command(capsys, monkeypatch, "report", run, "--log", tracker)
    assert status == 2 and code in err and text in err


def test_weights_and_biases(run, capsys, monkeypatch):
    logged, summary = [], {}
    begun = {}

    def init(**arguments):
        begun.update(arguments)
        one = types.SimpleNamespace(log=logged.append, summary=summary, url=None, dir="wandb/offline")
        return contextlib.nullcontext(one)

    fake = types.ModuleType("wandb")
    fake.init, fake.Settings, fake.Html = init, dict, lambda page, inject: ("html", page[:15], inject)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    code, found = json_command(capsys, monkeypatch, "report", run, "--data", "data", "--log", "wandb")
    assert code == 0 and found["stored"] == ["wandb/offline"]
    assert begun["project"] == "mine" and begun["name"] == "run" and begun["config"]["backend"] == "ess"
    learned = api.load_fit(run).learned
    n_steps = max(sum(entry["stage"] == stage for entry in learned.log) for stage in ("structure", "weights"))
    assert len(logged) == n_steps + 1 and logged[-1] == {"report": ("html", "<!doctype html>", False)}
    assert logged[0]["structure/objective"] == learned.log[0]["value"]
    (accuracy,) = [r["value"] for r in found["results"] if (r["system"], r["measure"]) == ("ess", "accuracy")]
    assert summary["Page.category/accuracy"] == accuracy


def test_installed_mlflow(run, capsys, monkeypatch, tmp_path):
    mlflow = pytest.importorskip("mlflow")
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    code, found = json_command(capsys, monkeypatch, "report", run, "--data", "data", "--log", "mlflow")
    (stored,) = mlflow.search_runs(experiment_names=["relcrf"], output_format="list")
    assert code == 0 and found["stored"][0].endswith(stored.info.run_id)
    assert stored.data.params["backend"] == "ess" and "Page.category/accuracy" in stored.data.metrics


def test_installed_wandb(run, capsys, monkeypatch, tmp_path):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    code, found = json_command(capsys, monkeypatch, "report", run, "--data", "data", "--log", "wandb")
    assert code == 0 and Path(found["stored"][0]).is_relative_to(tmp_path), json.dumps(found["stored"])
