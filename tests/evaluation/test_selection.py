"""Selection of settings on held-out labels: what is held out, and that cached stages do not change the result."""

import json

import numpy as np
import pytest
from tables import small_web

import relcrf
from relcrf import api
from relcrf.errors import DataError, UsageError
from relcrf.evaluation.splits import random_fold
from relcrf.resources import resource_path


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    folder = small_web(tmp_path_factory.mktemp("web"), pages=60)
    model = relcrf.load(resource_path("models", "webkb.rcrf"))
    return model, model.ground(relcrf.Dataset(folder)), folder


def likelihoods(selection):
    return [row["log_likelihood"] for row in selection.rows]


def test_selection_equals_manual_search(web):
    model, grounding, _ = web
    found = api.select(grounding, "ess", {"l2": (0.1, 1.0, 100.0)}, seed=3)
    assert not found.whole_components
    assert found.n == round(0.2 * (grounding.states >= 0).sum())
    held = random_fold(api.training_problem(grounding), 0.2, 3).test
    for row in found.rows:
        fit = api.fit(model, grounding, "ess", hidden=held, **{name: row[name] for name in found.settings})
        score = api.predict(fit, grounding, hidden=held).score(subset=held)
        assert row["log_likelihood"] == pytest.approx(score.log_likelihood, abs=1e-12)
        assert row["accuracy"] == score.accuracy
    again = api.select(grounding, "ess", {"l2": (0.1, 1.0, 100.0)}, held_out=held)
    assert likelihoods(again) == likelihoods(found)
    assert found.settings == {"l2": max(found.rows, key=lambda row: row["log_likelihood"])["l2"]}
    assert [row["l2"] for row in found.rows] == [0.1, 1.0, 100.0]


def test_hidden_labels_are_not_used(web):
    _, grounding, _ = web
    hidden = np.arange(len(grounding.states)) % 4 == 0
    one = api.select(grounding, "ess", {"l2": (0.1, 10.0)}, hidden=hidden)
    from dataclasses import replace

    changed = replace(grounding, states=np.where(hidden & (grounding.states >= 0), 0, grounding.states))
    other = api.select(changed, "ess", {"l2": (0.1, 10.0)}, hidden=hidden)
    assert likelihoods(one) == likelihoods(other)


def test_whole_components_are_held_out_if_all_are_small():
    rng = np.random.default_rng(0)
    state = rng.integers(2, size=(40, 3))
    rows = [(f"m{m}", f"s{s}", bool(state[m, s])) for m in range(40) for s in range(3)]
    text = (
        "domain S = open entity M predict relation on(m: M, s: S)\n"
        "template alone(m: M, s: S) over on(m, s) per s\n"
        "template pair(m: M, s: S, t: S) where s < t over on(m, s), on(m, t) per s, t"
    )
    columns = dict(zip(("m", "s", "value"), map(list, zip(*rows, strict=True)), strict=True))
    model = relcrf.parse(text)
    grounding = model.ground(relcrf.Dataset({"m": {"id": [f"m{m}" for m in range(40)]}, "on": columns}))
    grid = {"l2": (0.1, 10.0), "min_fraction": (0.0, 0.5)}
    found = api.select(grounding, "ess", grid, holdout=0.25)
    assert found.whole_components and found.n == 10 * 3 and len(found.rows) == 4
    held = random_fold(api.training_problem(grounding), 0.25, 0).test
    again = api.select(grounding, "ess", grid, held_out=held)
    assert again.whole_components and likelihoods(again) == likelihoods(found)
    for row in found.rows:
        fit = api.fit(model, grounding, "ess", hidden=held, **{name: row[name] for name in found.settings})
        joint = api.joint_log_likelihood(fit, grounding, hidden=held)
        assert row["log_likelihood"] == pytest.approx(joint / 30, abs=1e-12), (
            "a cached stage does not change the result"
        )


def test_sampling_has_no_joint_likelihood():
    text = "entity A { predict y : bool }\nrelation R(x: A, y: A)\ntemplate bias(a: A) over a.y\n"
    model = relcrf.parse(f"{text}template link(a: A, b: A) where R(a, b) over a.y == b.y")
    n = 60
    tables = {
        "a": {"id": range(n), "y": [k % 3 > 0 for k in range(n)]},
        "r": {"x": [*range(0, n, 2)], "y": [*range(1, n, 2)]},
    }
    grounding = model.ground(tables)
    sampling = {"inference": "gibbs", "sweeps": 20, "chains": 2}
    with pytest.raises(UsageError, match=r"E305.*'gibbs' for joint log-likelihoods"):
        api.joint_log_likelihood(model.fit(tables, "pseudo", **sampling), grounding)
    with pytest.raises(UsageError, match=r"E305.*'gibbs' for joint log-likelihoods"):
        api.select(grounding, "pseudo", {"l2": (0.1,)}, holdout=0.5, **sampling)
    found = api.select(grounding, "pseudo", {"l2": (0.1,)}, holdout=0.5, by="accuracy", **sampling)
    assert found.whole_components and likelihoods(found) == [-np.inf]


def test_invalid_selection_raises_error(web):
    _, grounding, _ = web
    for options in ({"by": "luck"}, {"holdout": 1.0}, {"holdout": 0.0}):
        with pytest.raises(UsageError, match="E317"):
            api.select(grounding, "ess", {"l2": (1.0,)}, **options)
    with pytest.raises(UsageError, match="E317"):
        api.select(grounding, "ess", {"l2": ()})
    with pytest.raises(DataError, match="E226"):
        api.select(grounding, "ess", {"l2": (1.0,)}, held_out=np.zeros(len(grounding.states), dtype=bool))
    with pytest.raises(UsageError, match="E304"):
        api.select(grounding, "ess", {"l3": (1.0,)})
    few = np.ones(len(grounding.states), dtype=bool)
    few[np.flatnonzero(grounding.states >= 0)[:2]] = False
    with pytest.raises(DataError, match="E226"):
        api.select(grounding, "ess", {"l2": (1.0,)}, hidden=few)


def test_command_reports_selection(web, tmp_path, capsys, monkeypatch):
    from command import json_command, relcrf_command

    _, _, folder = web
    model = resource_path("models", "webkb.rcrf")
    common = (
        "train",
        model,
        "--backend",
        "ess",
        "--data",
        folder,
        "--select",
        "l2=0.1,10",
        "--select",
        "treewidth=1, 2",
    )
    code, answer = json_command(capsys, monkeypatch, *common, "--out", tmp_path / "run")
    assert code == 0 and len(answer["selection"]) == 4
    best = max(answer["selection"], key=lambda row: row["log_likelihood"])
    assert answer["settings"] == {"l2": best["l2"], "treewidth": best["treewidth"]}
    saved = json.loads((tmp_path / "run" / "run.json").read_text())
    assert {name: saved["settings"][name] for name in answer["settings"]} == answer["settings"]
    code, out, err = relcrf_command(
        capsys, monkeypatch, *common, "--select-by", "accuracy", "--out", tmp_path / "other"
    )
    assert code == 0 and "scored on" in out and "selected: l2=" in out + err
    code, _, err = relcrf_command(capsys, monkeypatch, *common, "--select", "l2=x", "--out", tmp_path / "third")
    assert code == 2 and "E305" in err
    code, _, err = relcrf_command(capsys, monkeypatch, *common, "--select-by", "luck", "--out", tmp_path / "third")
    assert code == 2 and "E317" in err
