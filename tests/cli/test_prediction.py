"""Tests of `relcrf predict`: overridden inference methods, verdicts and Ctrl-C."""

import csv
import subprocess
import sys

import numpy as np
import pytest

import relcrf
from relcrf import api
from relcrf.inference.auto import Auto
from relcrf.inference.result import MapStates, Verdict
from relcrf.resources import resource_path


@pytest.fixture(scope="module")
def run(web, tmp_path_factory):
    """Return a run folder, which tests must not change."""
    folder = tmp_path_factory.mktemp("run") / "run"
    relcrf.load(resource_path("models", "webkb.rcrf")).fit(relcrf.Dataset(web), "pseudo").save(folder)
    return folder


def test_inference_method_can_be_overridden(relcrf_, relcrf_json, run, web):
    found = {}
    for method in ("auto", "bp", "gibbs", "mf", "jt"):
        code, found[method] = relcrf_json("predict", run, "--data", web, "--set", f"inference={method}")
        assert code == 0
    assert found["auto"]["verdict"] == {"status": "exact", "iterations": 0, "residual": 0.0, "remark": ""}
    assert found["bp"]["verdict"]["status"] == "converged" and found["bp"]["verdict"]["iterations"] > 0
    (exact,) = found["auto"]["predictions"].values()
    for method in ("bp", "mf", "gibbs"):
        (close,) = found[method]["predictions"].values()
        assert [row["id"] for row in close] == [row["id"] for row in exact]
        assert all(abs(a["probability"] - b["probability"]) < 0.3 for a, b in zip(exact, close, strict=True))
    assert "(exact)" in relcrf_("predict", run, "--data", web)[1]


def test_strict_raises_e402_without_convergence(relcrf_, run, web):
    hurried = ("predict", run, "--data", web, "--set", "inference=gibbs", "--set", "sweeps=20", "--set", "chains=2")
    code, out, err = relcrf_(*hurried)
    assert code == 0 and "not converged after" in out and "inference did not converge" in err
    code, _, err = relcrf_(*hurried, "--strict")
    assert (code, "error[E402]" in err) == (4, True), err
    assert relcrf_("predict", run, "--data", web, "--strict")[0] == 0


@pytest.mark.parametrize(
    ("setting", "code"), [("inference=none", "E305"), ("inferense=bp", "E304"), ("inference=dual", "E305")]
)
def test_invalid_settings(relcrf_, run, web, setting, code):
    found, _, err = relcrf_("predict", run, "--data", web, "--set", setting)
    assert found == 2 and code in err


INTERRUPTED_SAMPLING = """
import signal, sys
from itertools import count
from relcrf.cli.main import run
from relcrf.inference import gibbs

batches, batch = count(), gibbs._ChainRun._run_batch

def interrupted(self, n_sweeps):
    if next(batches) == 10:
        signal.raise_signal(signal.SIGINT)
    return batch(self, n_sweeps)

gibbs._ChainRun._run_batch = interrupted
run()
"""


def test_ctrl_c_outputs_partial_result(run, web, tmp_path):
    out = tmp_path / "found.csv"
    command = [sys.executable, "-c", INTERRUPTED_SAMPLING, "predict", run, "--data", web, "--out", out]
    command += ["--set", "inference=gibbs", "--set", "sweeps=200"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600)
    err = done.stderr
    assert (done.returncode, "Traceback" in err) == (130, False), err
    assert "interrupted" in err
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12
    assert all(0 < float(row["probability"]) <= 1 for row in rows)


def test_verdict_on_the_column_joint(relcrf_, relcrf_json, run, web, monkeypatch):
    def converge_not(self, potentials):
        return MapStates(0.0, np.zeros(self.scopes.n_nodes, dtype=np.int32), 1.0, Verdict("not converged", 7, 0.5))

    with monkeypatch.context() as patched:
        patched.setattr(Auto, "map_states", converge_not)
        code, out, err = relcrf_("predict", run, "--data", web, "--strict")
        assert code == 0 and "(exact)" in out
        assert "most probable joint state: not converged after 7 iterations, residual 0.5" in " ".join(err.split())
        prediction = relcrf.load_fit(run).predict(web)
        assert str(prediction.joint_verdict) == "not converged after 7 iterations, residual 0.5"
        assert "column &#x27;joint&#x27;: not converged" in prediction._repr_html_()

    def interrupt(self, potentials):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Auto, "map_states", interrupt)
        code, found = relcrf_json("predict", run, "--data", web)
        assert (code, found["verdict"]["status"], found["joint_verdict"]["status"]) == (130, "exact", "interrupted")
    code, exact = relcrf_json("predict", run, "--data", web)
    assert (code, exact["joint_verdict"]["status"]) == (0, "exact")
    for (attribute, rows), (_, complete) in zip(
        found["predictions"].items(), exact["predictions"].items(), strict=True
    ):
        assert [row["probability"] for row in rows] == [row["probability"] for row in complete]
        assert all(row["joint"] == row[attribute.partition(".")[2]] for row in rows)


def test_prediction_sets(relcrf_, relcrf_json, run, web, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(api, "predict", None)  # the error precedes inference
        code, _, err = relcrf_("predict", run, "--data", web, "--coverage", 0.9)
    assert code == 2 and "E375" in err and "--calibrate 5" in err
    assert relcrf_("predict", run, "--data", web, "--coverage", 1)[0] == 2
    for options in (("--each-value",), ("--nearby",), ("--each-value", "--nearby", "--coverage", 0.9)):
        code, _, err = relcrf_("predict", run, "--data", web, *options)
        assert code == 2 and "E376" in err
    model, calibrated, written = resource_path("models", "webkb.rcrf"), tmp_path / "calibrated", tmp_path / "sets.csv"
    train = ("train", model, "--data", web, "--out", calibrated, "--backend", "local", "--calibrate", 3)
    assert relcrf_(*train, "--split", "by=Page.school", "--holdout", "s1")[0] == 0
    held_out = ("--data", web, "--split", "by=Page.school", "--holdout", "s1", "--coverage", 0.9)
    code, _, err = relcrf_("predict", calibrated, *held_out, "--out", written)
    assert code == 0 and "contains the true value of Page.category with probability 0.9" in err
    with written.open(newline="") as file:
        sets = [row["set"].split(", ") for row in csv.DictReader(file)]
    by_value = relcrf_json("predict", calibrated, *held_out, "--each-value")[1]["sets"]["Page.category"]
    code, found = relcrf_json("predict", calibrated, *held_out)
    assert by_value["each_value"] and by_value["mean_size"] != found["sets"]["Page.category"]["mean_size"]
    assert found["sets"]["Page.category"]["labels"] == 32
    assert found["sets"]["Page.category"]["mean_size"] == pytest.approx(sum(map(len, sets)) / len(sets))
    assert [row["set"].split(", ") for row in found["predictions"]["Page.category"]] == sets
    code, _, err = relcrf_("predict", calibrated, *held_out, "--nearby")
    assert code == 0 and "calibrated on 32 held-out labels" in " ".join(err.split())
    assert "28 sets are calibrated on all held-out labels, because too few are near" in " ".join(err.split())
    nearby = ("evaluate", model, "--data", web, "--folds", 3, "--coverage", 0.5, "--nearby", "--backend", "local")
    code, out, err = relcrf_(*nearby)
    assert code == 0 and "calibrated on the nearest 20 of " in " ".join(out.split())
    measured = relcrf_json(*nearby)[1]["sets"]["Page.category"]["local"]
    assert f"{measured['n'] - measured['n_nearby']} sets are calibrated on all" in " ".join(err.split())
    code, _, err = relcrf_("evaluate", run, "--data", web, "--split", "by=Page.school", "--coverage", 0.9)
    assert code == 0 and "the run has no held-out labels" in err


def test_tuples_are_printed_with_their_probability(relcrf_, tmp_path):
    text = """entity P
    domain K = { k, l }
    predict relation r(a: P, b: P, kind: K)
    template t(a: P, b: P, kind: K) over r(a, b, kind)"""
    data = relcrf.Dataset({"p": {"id": ["1", "2"]}, "r": {"a": ["1", "2"], "b": ["2", "1"], "kind": ["k", "l"]}})
    relcrf.parse(text).fit(data, "local").save(tmp_path / "run")
    (tmp_path / "p.csv").write_text("id\n1\n2\n")
    code, out, _ = relcrf_("predict", tmp_path / "run", "--data", tmp_path)
    assert code == 0 and "probability" in out and "joint" in out


def test_attributes_are_validated_before_inference(relcrf_, run, web, tmp_path, monkeypatch):
    monkeypatch.setattr("relcrf.api.predict", None)
    code, _, err = relcrf_("predict", run, "--data", web, "--attribute", "categry")
    assert code == 2 and "E310" in err and "did you mean 'Page.category'" in err
    text = "entity P { predict x: bool, predict y: bool } template t(p: P) over p.x template u(p: P) over p.y"
    data = relcrf.Dataset({"p": {"id": ["1", "2"], "x": [True, False], "y": [True, False]}})
    relcrf.parse(text).fit(data, "local").save(tmp_path / "run")
    (tmp_path / "p.csv").write_text("id,x,y\n1,,\n")
    code, _, err = relcrf_("predict", tmp_path / "run", "--data", tmp_path, "--out", tmp_path / "o.csv")
    assert code == 2 and "--out writes only one" in err and "--attribute: P.x, P.y" in err
