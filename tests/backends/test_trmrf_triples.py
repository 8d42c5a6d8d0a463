"""Tests of the backend `trmrf` with candidates of three literals, including export and resumption."""

import numpy as np
import pytest
from command import json_command, relcrf_command
from interrupted import assert_goes_on
from traits import traits_world
from triples import CAUSES, TEXT, TRIPLES, causes_world

import relcrf
from relcrf import api
from relcrf.backends.export import render_learned_model
from relcrf.data.frame import Frame
from relcrf.errors import UsageError

FOUND = ("a", "b", "c")


@pytest.fixture(scope="module")
def causes():
    model = relcrf.parse(CAUSES + TRIPLES)
    return model, model.ground(relcrf.Dataset(causes_world()))


@pytest.fixture(scope="module")
def causes_without_triples():
    model = relcrf.parse(CAUSES)
    return model, model.ground(relcrf.Dataset(causes_world()))


@pytest.fixture(scope="module")
def new_causes(causes, causes_without_triples):
    """Return the graphs of new entities, with and without candidates of three literals."""
    data = relcrf.Dataset(causes_world(seed=9))
    return [model.ground(data) for model, _ in (causes, causes_without_triples)]


@pytest.fixture(scope="module")
def traits():
    model = relcrf.parse(TEXT)
    return model, model.ground(relcrf.Dataset(traits_world()))


def keys(fit, name):
    info = next((t for t in fit.learned.templates if t.name == name), None)
    return set(info.keys.values) if info else set()


def score_given_others(fit, ground):
    """Return the sum over the traits of the mean log-probability of the trait of new entities given all other traits."""
    names, total = ground.variable_names(np.arange(len(ground.states))).astype(str), 0.0
    for trait in FOUND:
        hidden = np.char.find(names, f", {trait})") >= 0
        assert hidden.sum() == 600
        total += api.predict(fit, ground, hidden=hidden).score().log_likelihood
    return total


@pytest.mark.parametrize("structure", ["cfi", "grafting"])
@pytest.mark.parametrize("objective", ["pseudo", "cd"])
def test_three_way_effects_are_found(causes, causes_without_triples, new_causes, structure, objective):
    model, grounding = causes
    settings = {"l1": 25.0, "structure": structure, "objective": objective, "l2": 1.0}
    fit = api.fit(model, grounding, "trmrf", **settings)
    assert keys(fit, "triples") == {FOUND} and fit.learned.converged
    assert set() < keys(fit, "pairs") <= {("a", "b"), ("a", "c"), ("b", "c")}
    (pairs, of_pairs), (new, new_of_pairs) = causes_without_triples, new_causes
    alone = api.fit(pairs, of_pairs, "trmrf", **settings)
    assert score_given_others(fit, new) > score_given_others(alone, new_of_pairs) + 0.05


def test_no_triple_without_a_pair(causes):
    """All pairs are too expensive, so no triple is generated; the same holds if there are only triples."""
    model, grounding = causes
    none = api.fit(model, grounding, "trmrf", l1=1e4)
    assert none.summary["chosen"] == 0 and none.summary["candidates"] == 36
    dear = relcrf.parse(CAUSES + TRIPLES.rstrip() + "\n    l1 10000\n")
    fit = api.fit(dear, dear.ground(relcrf.Dataset(causes_world())), "trmrf", l1=25.0)
    assert keys(fit, "triples") == set() and keys(fit, "pairs")


def test_cfi_without_thresholds_matches_grafting(causes):
    model, grounding = causes
    settings = {
        "tolerance": 1e-7,
        "max_iterations": 2000,
        "l2": 0.0,
        "error_threshold": 0.0,
        "signal_threshold": 0.0,
        "l1": 12.0,
    }
    fits = [api.fit(model, grounding, "trmrf", structure=way, **settings) for way in ("cfi", "grafting")]
    for name in ("pairs", "triples"):
        assert keys(fits[0], name) == keys(fits[1], name) != set()
    weights = [
        dict(zip(zip(rows["template"], rows["key"], strict=True), rows["weight"], strict=True))
        for rows in (fit.weights().columns for fit in fits)
    ]
    assert weights[0] == pytest.approx(weights[1], abs=1e-3)


def test_the_learned_structure_predicts_the_same(causes, tmp_path):
    """The exported model, with the learned weights of the other templates, and the run folder predict the same."""
    model, grounding = causes
    fit = api.fit(model, grounding, "trmrf", l1=25.0)
    text = render_learned_model(fit.learned)
    assert 'over has(x, "a") and has(x, "b") and has(x, "c")' in text
    read = relcrf.parse(text)
    fit.save(tmp_path / "run")
    again = api.load_fit(tmp_path / "run")
    other = relcrf.Dataset(causes_world(rows=50, seed=4))
    ground, new = model.ground(other), read.ground(other)
    hidden = np.random.default_rng(0).random(len(ground.states)) < 0.4
    same = api.fit(read, read.ground(relcrf.Dataset(causes_world())), "trmrf", max_iterations=1)
    weights = same.learned.vectors["weights"]
    n_base, start = grounding.graph.layout.size, new.graph.layout.initial()
    weights[:n_base], weights[n_base:] = fit.learned.vectors["weights"][:n_base], start[n_base:]
    wanted = api.predict(fit, ground, hidden=hidden, inference="bp").probabilities("has")
    for found in (
        api.predict(again, ground, hidden=hidden, inference="bp"),
        api.predict(same, new, hidden=hidden, inference="bp"),
    ):
        np.testing.assert_allclose(found.probabilities("has"), wanted, atol=1e-5)


def test_other_tables_and_unlabelled_variables(traits, tmp_path):
    model, grounding = traits
    fit = api.fit(model, grounding, "trmrf", l1=0.5, unlabelled="infer", imputation_rounds=1)
    assert any(keys(fit, name) for name in ("three", "through", "mixed"))
    fit.save(tmp_path / "run")
    other = traits_world(seed=3, nations=9)
    one, two = (f.predict(relcrf.Dataset(other)) for f in (fit, api.load_fit(tmp_path / "run")))
    for attribute in one.attributes:
        np.testing.assert_array_equal(one.probabilities(attribute), two.probabilities(attribute))


@pytest.mark.parametrize(
    ("settings", "stops"),
    [
        (
            {"unlabelled": "infer", "imputation_rounds": 1, "validation_fraction": 0.1},
            (("induction", 5), ("weights", 2)),
        ),
        (
            {"objective": "cd", "update": "parallel", "unlabelled": "infer", "max_iterations": 15},
            (("induction", 4), ("induction", 10)),
        ),
    ],
    ids=["pseudo", "cd"],
)
def test_interrupted_run_resumes_exactly(traits, tmp_path, settings, stops):
    model, grounding = traits
    settings = {"l1": 0.5, "candidates_per_round": 6, "patience": 3, **settings}
    whole = assert_goes_on(model, grounding, "trmrf", settings, stops, tmp_path)
    assert any(keys(whole, name) for name in ("three", "through", "mixed", "loose"))


def test_full_structure_rejects_triples(causes):
    model, grounding = causes
    with pytest.raises(UsageError, match=r"E394[\s\S]*triples 'triples'"):
        api.fit(model, grounding, "trmrf", structure="full")


def test_the_commands(tmp_path, capsys, monkeypatch):
    for name, table in causes_world(rows=300).items():
        Frame({k: np.asarray(v, dtype=object) for k, v in table.items()}).write(tmp_path / f"{name}.csv")
    (tmp_path / "m.rcrf").write_text(CAUSES + TRIPLES)
    out = tmp_path / "learned.rcrf"
    arguments = ("train", tmp_path / "m.rcrf", "--data", tmp_path, "--out", tmp_path / "run", "-b", "trmrf")
    code, answer = json_command(capsys, monkeypatch, *arguments, "--set", "l1=15", "--export-model", out)
    assert code == 0 and answer["summary"]["chosen"] >= 2
    assert "template triples_1(x: Thing)" in out.read_text()
    assert relcrf_command(capsys, monkeypatch, "check", out)[0] == 0
    status, _, err = relcrf_command(capsys, monkeypatch, *arguments, "--force", "--set", "structure=full")
    assert status == 2 and "E394" in err
    (tmp_path / "m.rcrf").write_text(CAUSES.split("candidates")[0] + TRIPLES)
    status, _, err = relcrf_command(capsys, monkeypatch, *arguments, "--force")
    assert status == 2 and "E393" in err and "m.rcrf:" in err
