"""Tests of the backend `grafting`: learning of a known world, resumption, time limits and rejected input."""

import json

import numpy as np
import pytest
from command import json_command, relcrf_command
from interrupted import assert_goes_on

import relcrf
from relcrf import api
from relcrf.backends.export import render_learned_model
from relcrf.backends.grafting import ACTIVATION_RULES
from relcrf.errors import UsageError
from relcrf.execution.serial import SerialExecutor
from relcrf.report import optimisation

TEXT = """
domain Node = open
entity Row
predict relation value(r: Row, n: Node) : 0..2
template prior(r: Row, n: Node) over value(r, n) per n
candidates edge(r: Row, s: Node, t: Node) where s < t over value(r, s), value(r, t) per s, t
"""
LITERALS = TEXT.replace("value(r, s), value(r, t)", "value(r, s) == 1 and value(r, t) == 1")
TRUE = {("n0", "n1"), ("n2", "n3"), ("n1", "n4")}
BETWEEN = ("n0", "n4")
"""Nodes that depend on each other unless n1, which is between them, is observed."""


def rows(n=300, seed=0, n_nodes=7):
    """Return pairs of nodes that usually agree; the other nodes are independent."""
    rng = np.random.default_rng(seed)
    states = rng.integers(3, size=(n, n_nodes))
    for s, t in ((0, 1), (2, 3), (1, 4)):
        tied = rng.random(n) < 0.8
        states[tied, t] = states[tied, s]
    names = [f"n{k}" for k in range(n_nodes)]
    value = {"r": np.repeat(np.arange(n), n_nodes).tolist(), "n": names * n, "value": states.ravel().tolist()}
    return {"row": {"id": list(range(n))}, "value": value}


@pytest.fixture(scope="module")
def world():
    model = relcrf.parse(TEXT)
    return model, model.ground(relcrf.Dataset(rows()))


def edges(fit):
    return {t.name: set(t.keys.values) for t in fit.learned.templates if t.name == "edge" and t.keys is not None}[
        "edge"
    ]


@pytest.mark.parametrize("activation", ACTIVATION_RULES)
def test_finds_edges_and_predicts_with_them(world, activation):
    model, grounding = world
    hidden = np.random.default_rng(0).random(grounding.graph.n_variables) < 0.15
    fit = api.fit(model, grounding, "grafting", hidden=hidden, activation=activation)
    assert fit.learned.converged
    assert edges(fit) >= TRUE
    if activation != "features":
        assert edges(fit) <= TRUE | {BETWEEN}
    assert api.predict(fit, grounding, hidden=hidden).score(subset=hidden).accuracy > 0.6


@pytest.mark.parametrize(
    "settings", [{}, {"inference": "bp"}, {"validation_fraction": 0.1, "patience": 3}, {"score": "counts"}]
)
def test_likelihood_finds_edges(world, settings):
    model, grounding = world
    fit = api.fit(model, grounding, "grafting", objective="likelihood", **settings)
    assert fit.learned.converged
    assert TRUE <= edges(fit) <= TRUE | {BETWEEN}


def test_default_penalty_of_the_likelihood_is_half_that_of_the_pseudo_likelihood(world):
    pseudo, joint = (
        api.fit(*world, "grafting", objective=objective, max_seconds=1e-9).learned.summary["l1_edge"]
        for objective in ("pseudo", "likelihood")
    )
    assert pseudo == pytest.approx(2.0 * joint)


def test_edges_that_inference_does_not_support_raise_error(world):
    with pytest.raises(UsageError) as caught:  # the learned graph has a cycle
        api.fit(*world, "grafting", objective="likelihood", inference="forest")
    assert caught.value.diagnostics[0].code == "E381"


def test_literals_are_edges_of_one_weight():
    model = relcrf.parse(LITERALS)
    fit = api.fit(model, model.ground(relcrf.Dataset(rows())), "grafting")
    assert edges(fit) >= TRUE and len(edges(fit)) < 8
    ((block, _),) = [(k, t) for k, t in enumerate(fit.learned.templates) if t.name == "edge"]
    assert fit.learned.layout.matrix(fit.learned.vectors["weights"], block).shape[1] == 1


def test_larger_penalty_has_fewer_edges_and_model_l1_wins(world):
    model, grounding = world
    assert not api.fit(model, grounding, "grafting", l1=1e6).learned.summary["chosen"]
    own = relcrf.parse(TEXT.replace("per s, t", "per s, t l1 1000000"))
    assert not api.fit(own, own.ground(relcrf.Dataset(rows())), "grafting", l1=1.0).learned.summary["chosen"]


@pytest.mark.parametrize("objective", ["pseudo", "likelihood"])
def test_node_penalty_sets_the_weights_of_templates_to_zero(world, objective):
    fit = api.fit(*world, "grafting", objective=objective, node_l1=1e6)
    weights, layout = fit.learned.vectors["weights"], fit.learned.layout
    assert fit.learned.converged and edges(fit) >= TRUE
    assert not layout.matrix(weights, 0).any() and layout.matrix(weights, 1).any()


@pytest.mark.parametrize(
    ("settings", "stops"),
    [
        ({"activation": "best-choice", "tests_per_round": 5, "iterations_per_round": 1}, [("unary", 2), ("edges", 3)]),
        ({"activation": "features", "reservoir_size": 4, "validation_fraction": 0.1}, [("edges", 6), ("weights", 3)]),
        ({"activation": "first-hit", "hub_fraction": 0.1, "tests_per_round": 4}, [("edges", 6)]),
        ({"objective": "likelihood", "reservoir_size": 2, "iterations_per_round": 1}, [("edges", 3)]),
    ],
)
def test_interrupted_run_resumes_exactly(world, tmp_path, settings, stops):
    assert_goes_on(*world, "grafting", settings, stops, tmp_path)


def test_time_limit_ends_training_with_a_note(tmp_path, capsys, monkeypatch):
    folder = written(tmp_path)
    arguments = (str(folder / "model.rcrf"), "--data", str(folder / "data"), "--backend", "grafting")
    status, out, err = relcrf_command(
        capsys, monkeypatch, "train", *arguments, "--set", "max_seconds=1e-9", "--out", str(folder / "run")
    )
    assert status == 0 and "out of time" in out
    assert "raise the limit with --set max_seconds=3600" in " ".join((out + err).split())
    assert not json.loads((folder / "run" / "run.json").read_text())["converged"]


def written(folder, text=TEXT):
    (folder / "data").mkdir()
    (folder / "model.rcrf").write_text(text)
    for name, columns in rows().items():
        lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
        (folder / "data" / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return folder


def test_run_folder_contains_log_and_model(tmp_path, capsys, monkeypatch):
    folder = written(tmp_path)
    arguments = (str(folder / "model.rcrf"), "--data", str(folder / "data"), "--backend", "grafting", "--set", "l1=25")
    graph = folder / "learned.rcrf"
    _, answer = json_command(
        capsys, monkeypatch, "train", *arguments, "--out", str(folder / "run"), "--export-model", str(graph)
    )
    assert answer["converged"] and answer["summary"]["chosen"] == 3 and answer["summary"]["candidates"] == 21
    fit = relcrf.load_fit(folder / "run")
    name, stage = optimisation.split_stages(fit.learned.log, ())[-1]
    assert name == "edges"
    assert (np.diff(stage["chosen"]) >= 0).all() and stage["chosen"][-1] >= 3
    assert (np.diff(stage["value"]) < 1e-6).all()
    learned = relcrf.load(graph)
    assert len([t for t in learned.spec.templates if t.name.startswith("edge_")]) == 3
    again = api.fit(learned, learned.ground(relcrf.Dataset(folder / "data")), "pseudo", l2=0.1)
    assert again.learned.converged
    assert render_learned_model(fit.learned) == graph.read_text()


def test_rows_with_missing_values():
    tables = rows()
    there = np.random.default_rng(1).random(len(tables["value"]["r"])) < 0.8
    tables["value"] = {k: [v for v, kept in zip(c, there, strict=True) if kept] for k, c in tables["value"].items()}
    model = relcrf.parse(TEXT)
    found = edges(api.fit(model, model.ground(relcrf.Dataset(tables)), "grafting"))
    assert TRUE <= found <= TRUE | {BETWEEN}


def test_model_without_candidates_learns_templates_only(world):
    model = relcrf.parse(TEXT.split("candidates")[0])
    fit = api.fit(model, model.ground(relcrf.Dataset(rows())), "grafting")
    assert fit.learned.converged and fit.learned.summary["candidates"] == 0


TRIPLES = """
domain Node = open
entity Row
predict relation on(r: Row, n: Node)
template prior(r: Row, n: Node) over on(r, n) per n
candidates pair(r: Row, s: Node, t: Node) where s < t over on(r, s) and on(r, t) per s, t
candidates three(r: Row, s: Node, t: Node, u: Node) where s < t and t < u over on(r, s) and on(r, t) and on(r, u) per s, t, u
"""
LATENT = """
domain Node = open
entity Row { latent kind : 1..2 }
predict relation value(r: Row, n: Node) : 0..2
template prior(r: Row, n: Node) over value(r, n) per n
template of_kind(r: Row, n: Node) over r.kind, value(r, n) per n
"""


@pytest.mark.parametrize(
    ("text", "settings", "code"),
    [
        (TRIPLES, {}, "E397"),
        (TEXT.replace("per s, t", "per s, t l1 0"), {}, "E399"),
        (LATENT, {}, "E307"),
        (TEXT, {"activation": "all"}, "E305"),
        (TEXT, {"score": "luck"}, "E305"),
        (TEXT, {"alpha": 1.5}, "E305"),
        (TEXT, {"validation_fraction": 1.0}, "E305"),
        (TEXT, {"tests_per_round": 0}, "E305"),
        (TEXT, {"inference": "dual"}, "E305"),
        (TEXT, {"objective": "margin"}, "E305"),
        (TEXT, {"objective": "likelihood", "inference": "gibbs"}, "E305"),
    ],
)
def test_unsupported_input_raises_error(text, settings, code):
    model = relcrf.parse(text)
    tables = {"row": {"id": [0, 1]}, "value": rows(2)["value"]}
    if "on(" in text:
        tables = {"row": {"id": [0, 1]}, "on": {"r": [0, 1, 1], "n": ["n0", "n1", "n2"]}}
    with pytest.raises(UsageError) as caught:
        api.fit(model, model.ground(relcrf.Dataset(tables)), "grafting", **settings)
    assert caught.value.diagnostics[0].code == code


def test_sharded_graph_raises_error(world):
    model, grounding = world
    with pytest.raises(UsageError) as caught:
        api.fit(model, grounding, "grafting", executor=SerialExecutor())
    assert caught.value.diagnostics[0].code == "E309"
