"""Tests of `relcrf pareto`: tables, plot, JSON and errors."""

import sys
from pathlib import Path

import numpy as np
import pytest

from relcrf.evaluation import pareto
from relcrf.resources import resource_path

sys.path.insert(0, str(Path(__file__).parents[2] / "datasets"))
import random_fields

MODEL = resource_path("models", "random_field.rcrf")
QUICK = ("--set", "batch_size=20", "--set", "max_iterations=30")


@pytest.fixture(scope="module")
def fields(tmp_path_factory):
    rng = np.random.default_rng(0)
    rows = random_fields.make_rows(random_fields.make_field(rng, 10, 20, 3), 100, rng, 60)
    folder = tmp_path_factory.mktemp("fields")
    for name, table in random_fields.tables(rows, with_outputs=True).items():
        table.to_csv(folder / f"{name}.csv", index=False)
    return folder


def test_json_output_and_plot(relcrf_json, fields, tmp_path):
    picture = tmp_path / "new" / "pareto.png"
    ask = (
        "pareto",
        MODEL,
        "--data",
        fields,
        "--split",
        "folds=4",
        "--holdout",
        "1",
        "--message-costs",
        "1e-2,0,1e-3",
        *QUICK,
    )
    code, found = relcrf_json(*ask, "--compare-gates", "static,none,static", "--plot", picture)
    assert code == 0
    assert set(found) == {"backend", "split", "held_out", "interrupted", "points", "plot"}
    assert (found["backend"], found["held_out"], found["interrupted"]) == ("gated", ["1"], False)
    assert [(one["gates"], one["cost"]) for one in found["points"]] == [
        *(("evidence", cost) for cost in (0.0, 1e-3, 1e-2)),
        *(("static", cost) for cost in (0.0, 1e-3, 1e-2)),
        ("none", 0.0),
    ]
    figures = {
        "loss",
        "accuracy",
        "log_likelihood",
        "n",
        "n_queries",
        "messages",
        "messages_per_query",
        "factors",
        "open_factors",
    }
    figures |= {"open_fraction", "iterations", "seconds_learn", "seconds_infer"}
    for one in found["points"]:
        assert set(one) == {"gates", "cost", "pareto_optimal", *figures}
        assert one["messages_per_query"] == one["messages"] / one["n_queries"]
    fewest = min(found["points"], key=lambda one: (one["messages_per_query"], one["loss"]))
    assert fewest["pareto_optimal"] and fewest["cost"] == 1e-2
    assert found["plot"] == str(picture) and picture.read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in picture.parent.iterdir()] == ["pareto.png"]


def test_table_output_and_plot(relcrf_, fields, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    picture = tmp_path / "pareto.svg"
    ask = (
        "pareto",
        MODEL,
        "--data",
        fields,
        "--split",
        "hide=0.3",
        "--message-costs",
        "0,0.01",
        *QUICK,
        "--set",
        "gates=static",
    )
    code, out, err = relcrf_(*ask, "--compare-gates", "none", "--plot", picture)
    assert code == 0, err
    assert out.index("gates static: ") < out.index("gates none: ") and "gates evidence" not in out
    assert "…" not in out and " * " in out and "100%" in out and "wrote the plot to" in out
    assert "per query variable" in err
    drawn = picture.read_text()
    assert drawn.startswith("<?xml") and "</svg>" in drawn


def test_each_fold_is_held_out_in_turn(relcrf_json, fields):
    ask = ("pareto", MODEL, "--data", fields, "--message-costs", "0.001", *QUICK)
    found = [relcrf_json(*ask, "--split", "folds=2", *hold)[1] for hold in ((), ("--holdout", "1"), ("--holdout", "2"))]
    both, first, second = (one["points"][0] for one in found)
    assert found[0]["held_out"] == ["1", "2"]
    for name in ("n", "n_queries", "messages", "factors", "open_factors"):
        assert both[name] == first[name] + second[name]


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (("--message-costs", "cheap"), 2, "E305"),
        (("--message-costs", "-1"), 2, "E305"),
        (("--message-costs", "0,inf"), 2, "E305"),
        (("--message-costs", ","), 2, "E319"),
        (("--message-costs", "0", "--backend", "ess"), 2, "E319"),
        (("--message-costs", "0", "--set", "message_cost=1"), 2, "E319"),
        (("--message-costs", "0", "--compare-gates", "evident"), 2, "E305"),
        (("--message-costs", "0", "--plot", "pareto.txt"), 2, "E312"),
        (("--message-costs", "0", "--plot", "."), 2, "E312"),
        (("--message-costs", "0", "--backend", "gated,ess"), 2, "E300"),
        (("--message-costs", "0", "--split", "folds=3", "--holdout", "9"), 2, "E340"),
        (("--message-costs", "0", "--split", "hide=0.3", "--holdout", "nowhere"), 2, "E340"),
        ((), 2, "E300"),
    ],
)
def test_mistakes(relcrf_, fields, tmp_path, monkeypatch, flags, code, message):
    monkeypatch.chdir(tmp_path)
    found, out, err = relcrf_("pareto", MODEL, "--data", fields, *flags)
    assert (found, out, err.count("error[")) == (code, "", 1) and message in err, err
    assert not list(tmp_path.iterdir())


def test_holdout_without_labels_raises_e226(relcrf_, tmp_path):
    (tmp_path / "row.csv").write_text("id,part\n" + "".join(f"{k},{'old' if k < 6 else 'new'}\n" for k in range(9)))
    listed = (f"{k},s{s},{'true' if k < 6 else ''}\n" for k in range(9) for s in range(3))
    (tmp_path / "on.csv").write_text("row,state,value\n" + "".join(listed))
    model = tmp_path / "model.rcrf"
    model.write_text(
        "domain S = open domain Part = { old, new } entity Row { part : Part } predict relation on(row: Row, state: S)\n"
        "template pair(r: Row, s: S, t: S) where s < t over on(r, s), on(r, t) per s, t\n"
    )
    ask = ("pareto", model, "--data", tmp_path, "--message-costs", "0")
    code, _, err = relcrf_(*ask, "--split", "part", "--holdout", "new")
    assert (code, err.count("error[")) == (3, 1) and "E226" in err, err


def test_missing_matplotlib_raises_e351(relcrf_, fields, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "matplotlib.figure", raising=False)
    ask = ("pareto", MODEL, "--data", fields, "--split", "hide=0.3", "--message-costs", "0")
    code, _, err = relcrf_(*ask, "--plot", tmp_path / "new" / "pareto.png")
    assert (code, err.count("error[")) == (2, 1) and "E351" in err and "relcrf[report]" in err
    assert not list(tmp_path.iterdir())


def test_ctrl_c_outputs_partial_result(relcrf_, relcrf_json, fields, tmp_path, monkeypatch):
    point, stop = pareto._evaluate_fold, [0.01]

    def interrupt(system, *rest):
        if system.message_cost in stop:
            raise KeyboardInterrupt
        return point(system, *rest)

    monkeypatch.setattr(pareto, "_evaluate_fold", interrupt)
    picture = tmp_path / "pareto.png"
    ask = ("pareto", MODEL, "--data", fields, "--split", "hide=0.3", "--message-costs", "0,0.001,0.01", *QUICK)
    code, found = relcrf_json(*ask, "--compare-gates", "static", "--plot", picture)
    assert (code, found["interrupted"]) == (130, True)
    assert [(one["gates"], one["cost"]) for one in found["points"]] == [("evidence", 0.0), ("evidence", 0.001)]
    assert picture.exists()
    stop[0] = 0.0
    code, out, err = relcrf_(*ask)
    assert (code, out, "interrupted" in err) == (130, "", True)
