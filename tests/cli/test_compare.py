"""Tests of `relcrf compare`: tables, plot, JSON and errors."""

import sys

import pytest
from tables import write_tables

from relcrf.evaluation import runner
from relcrf.execution.isolated import IsolatedResult
from relcrf.resources import resource_path

WEBKB = resource_path("models", "webkb.rcrf")


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    """Return the path of a model that only some backends support, and of its tables."""
    folder = tmp_path_factory.mktemp("chain")
    e = [{"id": k, "d": "xxy"[k % 3]} for k in range(30)]
    write_tables(folder / "data", e=e, r=[{"a": k, "b": k + 1} for k in range(29)])
    model = folder / "model.rcrf"
    model.write_text(
        "domain D = { x, y } entity E { predict d : D } relation R(a: E, b: E) template p(e: E) over e.d\n"
        "template three(a: E, b: E, c: E) where R(a, b) and R(b, c) over a.d == b.d and b.d == c.d\n"
    )
    return model, folder / "data"


def test_table_and_plot_output(relcrf_, chain, tmp_path):
    model, data = chain
    picture = tmp_path / "new" / "compare.png"
    ask = ("compare", model, "--data", data, "--backend", "ess,pseudo", "--jobs", 2, "--plot", picture)
    code, out, err = relcrf_(*ask, "--hide", "0.3")
    assert code == 0, err
    assert "pseudo *" in out and "E302" in out
    assert "MiB" in out and "lowest log-loss" in err and "bootstrap over labels" in err
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_json_output(relcrf_json, chain):
    model, data = chain
    code, found = relcrf_json(
        "compare", model, "--data", data, "--backend", "ess,pseudo", "--folds", 2, "--exact-subgraphs", 3
    )
    assert code == 0 and list(found["backends"]) == ["ess", "pseudo"]
    assert found["backends"]["ess"]["error"]["code"] == "E302"
    assert found["backends"]["pseudo"]["exactness"]["n_subgraphs"] <= 3
    of = found["attributes"]["E.d"]
    assert of["best"] == "pseudo" and set(of["backends"]) == {"majority", "pseudo"}
    gap = of["backends"]["majority"]["against_best"]["log_loss"]
    assert gap["low"] <= gap["value"] <= gap["high"] and len(gap["fold_interval"]) == 2


def test_finished_backends_are_printed_after_an_interruption(relcrf_, chain, monkeypatch):
    def run_and_interrupt(tasks, jobs, time_limit):
        yield IsolatedResult(0, tasks[0]())
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "run_isolated", run_and_interrupt)
    model, data = chain
    code, out, err = relcrf_("compare", model, "--data", data, "--backend", "local,pseudo", "--folds", 2)
    assert code == 130 and "local *" in out and "'pseudo' was interrupted" in " ".join(out.split())
    assert "the results cover the finished backends only" in err


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--backend", ","), "E354"),
        (("--backend", "local,ass"), "E301"),
        (("--set", "l2=many"), "E305"),
        (("--jobs", "0"), "E300"),
        (("--plot", "compare.txt"), "E312"),
        (("--split", "hide=2"), "E349"),
    ],
)
def test_mistakes(relcrf_, web, arguments, error):
    code, out, err = relcrf_("compare", WEBKB, "--data", web, *arguments)
    assert (code, out, err.count("error[")) == (2, "", 1), err
    assert error in err


def test_missing_matplotlib_raises_e351(relcrf_, web, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "matplotlib.figure", raising=False)
    code, _, err = relcrf_("compare", WEBKB, "--data", web, "--plot", tmp_path / "new" / "compare.png")
    assert (code, err.count("error[")) == (2, 1) and "E351" in err
    assert not list(tmp_path.iterdir())
