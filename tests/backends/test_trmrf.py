"""Tests of the backend `trmrf`: three searches with the same optimum, chosen candidates, and resumption."""

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from command import json_command, relcrf_command
from interrupted import assert_goes_on
from traits import TEXT, traits_world

import relcrf
from relcrf import api
from relcrf.backends import trmrf
from relcrf.backends.export import render_learned_model
from relcrf.backends.pseudo import PseudoLikelihoodSpec
from relcrf.backends.registry import make_backend
from relcrf.backends.trmrf import TrMrfBackend
from relcrf.data.frame import Frame
from relcrf.errors import UsageError
from relcrf.evaluation.named_weights import named_weights
from relcrf.execution.serial import SerialExecutor
from relcrf.graph.reduction import Role

EXACT = {"tolerance": 1e-7, "max_iterations": 2000, "l2": 0.0, "error_threshold": 0.0, "signal_threshold": 0.0}
PLAIN = """
domain Trait = open
entity Thing
predict relation has(x: Thing, t: Trait)
template prior(x: Thing, t: Trait) over has(x, t) per t
candidates together(x: Thing, s: Trait, t: Trait) where s < t over has(x, s) and has(x, t) per s, t
"""


def things(rows=300, traits=12, seed=0, missing=0.0):
    """Return entities with coupled traits t00 and t01, t02 and t03, and so on; the remaining traits are independent."""
    rng = np.random.default_rng(seed)
    cause = rng.random((rows, 3)) < 0.5
    columns = [cause[:, k // 2] ^ (rng.random(rows) < 0.15) for k in range(6)]
    columns += [rng.random(rows) < 0.3 for _ in range(traits - 6)]
    listed = [
        (f"x{r}", f"t{k:02}", None if rng.random() < missing else bool(columns[k][r]))
        for r in range(rows)
        for k in range(traits)
    ]
    heads = ("x", "t", "value")
    return {
        "thing": {"id": [f"x{r}" for r in range(rows)]},
        "has": dict(zip(heads, map(list, zip(*listed, strict=True)), strict=True)),
    }


@pytest.fixture(scope="module")
def plain():
    model = relcrf.parse(PLAIN)
    return model, model.ground(relcrf.Dataset(things()))


@pytest.fixture(scope="module")
def traits():
    model = relcrf.parse(TEXT)
    return model, model.ground(relcrf.Dataset(traits_world()))


MIXTURE = """
domain Trait = open
entity Thing {
  latent kind : 1..2
}
predict relation has(x: Thing, t: Trait)
template prior(x: Thing, t: Trait) over has(x, t) per t
template typical(x: Thing, t: Trait) over x.kind, has(x, t) per t
"""


def keys(fit, name="together"):
    info = next((t for t in fit.learned.templates if t.name == name), None)
    return set(info.keys.values) if info else set()


def test_coupled_traits_are_chosen(plain):
    model, grounding = plain
    fit = api.fit(model, grounding, "trmrf", l1=30.0)
    assert keys(fit) == {("t00", "t01"), ("t02", "t03"), ("t04", "t05")}
    assert fit.learned.converged and fit.summary["chosen"] == 3 and fit.summary["candidates"] == 66
    rows = fit.weights()
    chosen = [w for t, w in zip(rows.columns["template"], rows.columns["weight"], strict=True) if t == "together"]
    assert min(chosen) > 0.5
    none = api.fit(model, grounding, "trmrf", l1=1e4)
    assert keys(none) == set() and none.summary["chosen"] == 0
    hidden = np.arange(len(grounding.states)) % 5 == 0
    scores = [api.predict(f, grounding, hidden=hidden).score().log_likelihood for f in (none, fit)]
    assert scores[1] > scores[0] + 0.03


@pytest.mark.parametrize("world", ["plain", "traits"])
def test_all_searches_reach_the_same_optimum(world, request):
    """Contrastive induction and grafting reach the optimum of L1 over all candidates, also if variables are unknown."""
    model, grounding = request.getfixturevalue(world)
    settings = {**EXACT, "l1": 2.0, "candidates_per_round": 3}
    fits = {way: api.fit(model, grounding, "trmrf", structure=way, **settings) for way in ("cfi", "grafting", "full")}
    values = {}
    problem = api.training_problem(grounding, with_candidates=True)
    for way, fit in fits.items():
        names = {s.pairs.name: s for s in grounding.candidates}
        pairs = {t.name: names[t.name].find_pairs(t.keys.values)[0] for t in fit.learned.templates if t.name in names}
        value, gradient = problem.with_candidates(pairs).total_likelihood(PseudoLikelihoodSpec())(
            fit.learned.vectors["weights"]
        )
        weights = fit.learned.vectors["weights"]
        n_base = grounding.graph.layout.size
        values[way] = value + 2.0 * np.abs(weights[n_base:]).sum()
        np.testing.assert_allclose(gradient[n_base:], -2.0 * np.sign(weights[n_base:]), atol=2e-2)
        np.testing.assert_allclose(gradient[:n_base], 0.0, atol=2e-2)
    assert values["grafting"] == pytest.approx(values["full"], rel=1e-7)
    assert values["cfi"] == pytest.approx(values["full"], rel=1e-7)
    if world == "plain":
        assert keys(fits["cfi"]) == keys(fits["grafting"]) == keys(fits["full"])


def test_final_test_finds_the_features_below_the_thresholds(plain):
    """With thresholds and an L2 penalty, induction alone ends before the optimum."""
    model, grounding = plain
    settings = {**EXACT, "l1": 2.0, "l2": 1.0}
    full = api.fit(model, grounding, "trmrf", structure="full", **settings)
    settings |= {"error_threshold": 0.2, "signal_threshold": 0.6}
    tested, untested = (api.fit(model, grounding, "trmrf", final_test=test, **settings) for test in (True, False))
    assert keys(tested) == keys(full) and keys(untested) < keys(full)
    weights = [
        dict(zip(f.weights().columns["key"], f.weights().columns["weight"], strict=True)) for f in (full, tested)
    ]
    assert weights[1] == pytest.approx(weights[0], abs=5e-3)


WAYS = [
    ("blocks", 0.0, ("cfi", "grafting", "full")),
    ("parallel", 1.0, ("grafting", "full", "adagrad")),
]


@pytest.mark.parametrize(("update", "l2", "ways"), WAYS, ids=["blocks", "parallel"])
def test_all_searches_reach_the_same_cd_solution(plain, update, l2, ways):
    model, grounding = plain
    settings = {
        **EXACT,
        "tolerance": 1e-5,
        "objective": "cd",
        "update": update,
        "l1": 6.0,
        "l2": l2,
        "candidates_per_round": 3,
    }
    found = {}
    for way in ways:
        choice = {"structure": "full", "optimiser": "adagrad"} if way == "adagrad" else {"structure": way}
        fit = api.fit(model, grounding, "trmrf", **choice, **settings)
        assert fit.learned.converged
        rows = fit.weights().columns
        listed = zip(rows["template"], rows["key"], rows["weight"], strict=True)
        found[way] = {key: weight for name, key, weight in listed if name == "together"}
    assert {("t00", "t01"), ("t02", "t03"), ("t04", "t05")} <= keys(fit) and len(keys(fit)) < 20
    for way in ways:
        assert found[way] == pytest.approx(found["full"], abs=2e-3)


def test_a_latent_attribute_is_learned_by_contrastive_divergence():
    """One cause has eight noisy traits: two unnamed kinds of entities explain why these are correlated."""
    rng = np.random.default_rng(0)
    truth = (rng.random((200, 1)) < 0.5) ^ (rng.random((200, 8)) < 0.2)
    x, t = np.indices(truth.shape).reshape(2, -1)
    has = {"x": x, "t": np.char.add("t", t.astype(str)), "value": truth.ravel()}
    model = relcrf.parse(MIXTURE)
    grounding = model.ground(relcrf.Dataset({"thing": {"id": np.arange(200)}, "has": has}))
    hidden = (rng.random(len(grounding.states)) < 0.2) & (grounding.states >= 0)
    settings = {"objective": "cd", "l2": 1.0}
    fits = [api.fit(model, grounding, "local", hidden=hidden)]
    fits += [api.fit(model, grounding, "trmrf", hidden=hidden, cd_steps=steps, **settings) for steps in (1, 3)]
    assert fits[1].learned.converged and fits[1].summary["hidden"] == 200
    local, one, three = (api.predict(fit, grounding, hidden=hidden).score().log_likelihood for fit in fits)
    assert min(one, three) > local + 0.05


def test_unlabelled_variables_ignore_table_values(plain):
    model, grounding = plain
    hidden = np.random.default_rng(0).random(len(grounding.states)) < 0.2
    other = replace(grounding, states=np.where(hidden, 1 - grounding.states, grounding.states))
    settings = {"objective": "cd", "update": "parallel", "l1": 10.0, "l2": 5.0}
    left, joined, without_values = (
        api.fit(model, ground, "trmrf", hidden=hidden, unlabelled=unlabelled, **settings)
        for ground, unlabelled in ((grounding, "ignore"), (grounding, "infer"), (other, "infer"))
    )
    assert joined.summary["hidden"] == hidden.sum() and left.summary["hidden"] == 0
    np.testing.assert_array_equal(joined.learned.vectors["weights"], without_values.learned.vectors["weights"])
    assert keys(joined) >= {("t00", "t01"), ("t02", "t03"), ("t04", "t05")}
    none = api.fit(model, grounding, "local", hidden=hidden)
    scores = [api.predict(fit, grounding, hidden=hidden).score().log_likelihood for fit in (none, left, joined)]
    assert min(scores[1:]) > scores[0] + 0.01


def test_thresholds_drop_weak_candidates(plain):
    model, grounding = plain
    loose, strict = (
        api.fit(model, grounding, "trmrf", l1=3.0, error_threshold=0.0, signal_threshold=signal, final_test=False)
        for signal in (0.0, 0.6)
    )
    assert {("t00", "t01"), ("t02", "t03"), ("t04", "t05")} <= keys(loose)
    # Half of the entities have these traits, so no signal exceeds one half.
    assert not {("t00", "t01"), ("t02", "t03"), ("t04", "t05")} & keys(strict)
    assert 0 < strict.summary["chosen"] < loose.summary["chosen"]


def test_held_out_labels_stop_training(plain):
    model, grounding = plain
    fit = api.fit(
        model,
        grounding,
        "trmrf",
        l1=0.01,
        validation_fraction=0.2,
        candidates_per_round=2,
        iterations_per_round=3,
        patience=2,
    )
    everything = api.fit(model, grounding, "trmrf", l1=0.01)
    assert fit.summary["induction_status"] == "stopped early" and fit.learned.converged
    assert fit.summary["weights_status"] == "converged"
    assert fit.summary["chosen"] < everything.summary["chosen"]
    assert {("t00", "t01"), ("t02", "t03"), ("t04", "t05")} <= keys(fit)


def test_unlabelled_variables_are_imputed(plain):
    """If hidden variables are neighbours, there are more training samples, weighted by probability."""
    model, grounding = plain
    hidden = np.random.default_rng(0).random(len(grounding.states)) < 0.4
    fits = [api.fit(model, grounding, "trmrf", hidden=hidden, l1=12.0, unlabelled=way) for way in ("ignore", "infer")]
    assert "induction_3_status" in fits[1].summary and "induction_2_status" not in fits[0].summary
    supports = []
    for fit in fits:
        info, n = fit.learned.templates[-1], grounding.graph.layout.size
        supports.append(dict(zip(info.keys.values, fit.learned.vectors["support"][n:], strict=True)))
    for key in (("t00", "t01"), ("t02", "t03"), ("t04", "t05")):
        assert supports[0][key] % 1 == 0 and supports[1][key] > supports[0][key] + 5
    assert any(support % 1 for support in supports[1].values())


def test_support_of_a_template_is_its_number_of_labels(plain):
    model, grounding = plain
    learned = api.fit(model, grounding, "trmrf", l1=12.0).learned
    frame, labels = named_weights(learned), things()["has"]
    is_prior = frame["template"] == "prior"
    support = dict(zip(frame["key"][is_prior], frame["support"][is_prior], strict=True))
    assert support == Counter(t for t, value in zip(labels["t"], labels["value"], strict=True) if value)


def test_evidence_is_not_imputed(plain, monkeypatch):
    model, grounding = plain
    infer, seen, part = TrMrfBackend.infer, [], np.arange(len(grounding.states)) % 3
    monkeypatch.setattr(TrMrfBackend, "infer", lambda self, *args: seen.append(args[0].roles) or infer(self, *args))
    settings = {"unlabelled": "infer", "imputation_rounds": 1, "l1": 12.0}
    api.fit(model, grounding, "trmrf", hidden=part == 0, observed=part == 1, **settings)
    np.testing.assert_array_equal(seen, [np.where(part == 0, Role.FREE, Role.CLAMPED)])


def test_a_run_folder_predicts_the_same_on_other_tables(traits, tmp_path):
    model, grounding = traits
    fit = api.fit(model, grounding, "trmrf", l1=1.0)
    assert fit.summary["chosen"] > 5
    fit.save(tmp_path / "run")
    again = api.load_fit(tmp_path / "run")
    other = traits_world(seed=3, nations=9)
    one, two = (f.predict(relcrf.Dataset(other)) for f in (fit, again))
    for attribute in one.attributes:
        np.testing.assert_array_equal(one.probabilities(attribute), two.probabilities(attribute))
    assert set(one.unseen_keys.values()) <= {0}
    dense = api.predict(fit, grounding, inference="bp")
    assert dense.verdict.is_good


CONTRASTIVE = {"objective": "cd", "cd_steps": 2, "unlabelled": "infer", "max_iterations": 8}


@pytest.mark.parametrize(
    ("settings", "stops"),
    [
        (
            {"unlabelled": "infer", "imputation_rounds": 1},
            (("unary", 2), ("induction", 3), ("induction", 6), ("weights", 2), ("induction_2", 2)),
        ),
        ({"l1_selection": "held-out", "l1": 4.0, "candidates_per_round": 50}, (("l1_3", 1), ("induction", 2))),
        (CONTRASTIVE, (("unary", 2), ("induction", 2), ("weights", 3))),
    ],
    ids=["pseudo", "selection", "cd"],
)
def test_interrupted_run_resumes_exactly(traits, tmp_path, settings, stops):
    model, grounding = traits
    settings = {"l1": 0.5, "candidates_per_round": 4, "validation_fraction": 0.1, "patience": 3, **settings}
    assert_goes_on(model, grounding, "trmrf", settings, stops, tmp_path)


def test_the_learned_structure_is_a_model_to_edit(traits):
    model, grounding = traits
    fit = api.fit(model, grounding, "trmrf", l1=1.0)
    text = render_learned_model(fit.learned)
    read = relcrf.parse(text)
    learned = [t for t in read.spec.templates if t.options.init is not None]
    assert len(learned) == fit.summary["chosen"] and not any(t.is_candidate for t in read.spec.templates)
    assert text.count("# gain ") == fit.summary["chosen"] and "support" in text
    # The same factors with the same weights predict the same, once the other weights are learned as before.
    ground = read.ground(relcrf.Dataset(traits_world()))
    assert sum(g.n_factors for g in ground.graph.groups) == grounding.graph.n_factors + sum(
        t.bindings for t in fit.learned.templates[len(grounding.templates) :]
    )
    starts = {round(float(v), 6) for v in fit.learned.vectors["weights"][grounding.graph.layout.size :]}
    assert {t.options.init for t in learned} == starts


TWO_SPACES = """
domain Trait = open
domain Mark = open
entity Thing
predict relation has(x: Thing, t: Trait)
predict relation shows(x: Thing, m: Mark)
template prior(x: Thing, t: Trait) over has(x, t) per t
template rate(x: Thing, m: Mark) over shows(x, m) per m
candidates together(x: Thing, s: Trait, t: Trait) where s < t over has(x, s) and has(x, t) per s, t
candidates chance(x: Thing, m: Mark, n: Mark) where m < n over shows(x, m) and shows(x, n) per m, n
candidates declared(x: Thing, t: Trait, m: Mark) over has(x, t) and shows(x, m) per t, m l1 50
"""


def test_each_space_has_a_strength_selected_by_held_out_labels():
    """The marks are independent coins, so that each selected pair of marks overfits."""
    tables = things(rows=60)
    x, m = np.indices((60, 12)).reshape(2, -1)
    value = np.random.default_rng(5).random(len(x)) < 0.5
    tables["shows"] = {"x": np.char.add("x", x.astype(str)), "m": np.char.add("m", m.astype(str)), "value": value}
    model = relcrf.parse(TWO_SPACES)
    grounding = model.ground(relcrf.Dataset(tables))
    settings = {"l1": 0.5, "l2": 0.1, "l1_selection": "held-out"}
    fit = api.fit(model, grounding, "trmrf", **settings)
    assert fit.summary["l1_chance"] >= 4 * fit.summary["l1_together"] and fit.summary["l1_declared"] == 50.0
    assert {("t00", "t01"), ("t02", "t03"), ("t04", "t05")} <= keys(fit)
    assert 2 * len(keys(fit, "chance")) < len(keys(api.fit(model, grounding, "trmrf", l1=0.5), "chance"))
    assert not any(name.startswith("l1_") and name.endswith("status") for name in fit.summary)


def test_preset_sets_defaults_only(plain):
    model, grounding = plain
    paper = make_backend("trmrf", preset="paper", l2="0.1", update="parallel")
    assert paper == make_backend("trmrf", **{**trmrf.TrMrfBackend.presets["paper"], "l2": 0.1, "update": "parallel"})
    assert paper.preset == "" and paper.l1_on_templates and paper.error_threshold == 0.2
    fit = api.fit(model, grounding, "trmrf", preset="paper", l1=30.0)
    assert fit.learned.converged and {("t00", "t01"), ("t02", "t03"), ("t04", "t05")} <= keys(fit)
    assert fit.learned.settings["l2"] == 1.0 and fit.learned.settings["objective"] == "cd"


def test_l1_on_templates(plain):
    """The strength exceeds the absolute gradients of the templates, which are at most 75 at weights of 0."""
    model, grounding = plain
    settings = {**EXACT, "l1": 200.0, "validation_fraction": 0.1}
    for penalised in (False, True):
        weights = api.fit(model, grounding, "trmrf", l1_on_templates=penalised, **settings).learned.vectors["weights"]
        assert np.count_nonzero(weights) == (0 if penalised else 12)


def test_selection_and_calibration(plain):
    model, grounding = plain
    found = api.select(grounding, "trmrf", {"l1": (10.0, 1e4)}, max_iterations=40)
    assert found.settings == {"l1": 10.0} and not found.whole_components
    fit = api.fit(model, grounding, "trmrf", l1=10.0, calibrate=2)
    assert 0.25 <= fit.summary["calibration"] <= 2.0


def test_unsupported_input_raises_error(plain):
    model, grounding = plain
    for settings in (
        {"structure": "magic"},
        {"candidates_per_round": 0},
        {"iterations_per_round": 0},
        {"validation_fraction": 1.0},
        {"inference": "dual"},
        {"objective": "magic"},
        {"update": "magic"},
        {"preset": "magic"},
        {"l1_selection": "magic"},
        {"l1_selection": "held-out", "l1": 0.0},
        {"optimiser": "magic"},
        {"cd_steps": 0},
        {"unlabelled": "magic"},
    ):
        with pytest.raises(UsageError, match="E305"):
            api.fit(model, grounding, "trmrf", **settings)
    with pytest.raises(UsageError, match=r"E309[\s\S]*whole graph"):
        api.fit(model, grounding, "trmrf", executor=SerialExecutor())
    latent = relcrf.parse("entity A { latent k : 1..2 predict b : bool } template t(a: A) over a.k, a.b")
    with pytest.raises(UsageError, match=r"E307[\s\S]*objective=cd"):
        latent.fit(relcrf.Dataset({"a": {"id": [1, 2], "b": [True, False]}}), "trmrf")


def test_the_command_exports(tmp_path, capsys, monkeypatch):
    for name, table in things(rows=80).items():
        Frame({k: np.asarray(v, dtype=object) for k, v in table.items()}).write(tmp_path / f"{name}.csv")
    (tmp_path / "m.rcrf").write_text(PLAIN)
    out = tmp_path / "deep" / "learned.rcrf"
    arguments = ("train", tmp_path / "m.rcrf", "--data", tmp_path, "--out", tmp_path / "run")
    code, answer = json_command(capsys, monkeypatch, *arguments, "-b", "trmrf", "--set", "l1=4", "--export-model", out)
    assert code == 0
    text = out.read_text()
    assert text.count("# gain") == answer["summary"]["chosen"] > 2
    assert json.loads((tmp_path / "run" / "run.json").read_text())["vectors"] == ["gain", "support", "weights"]
    assert relcrf_command(capsys, monkeypatch, "check", out)[0] == 0
    grid = ("-b", "trmrf", "--force", "--select", "l1=4,1000", "--set", "validation_fraction=0.1")
    code, answer = json_command(capsys, monkeypatch, *arguments, *grid)
    assert code == 0 and answer["settings"] == {"l1": 4.0}
    for extra, code in (
        (("-b", "ess", "--export-model", out), "E392"),
        (("-b", "trmrf", "--export-model", "x.txt"), "E312"),
    ):
        status, _, err = relcrf_command(capsys, monkeypatch, *arguments, "--force", *extra)
        assert status == 2 and code in err


@pytest.mark.parametrize(("structure", "limit"), [("full", "MAX_WEIGHTS"), ("grafting", "MAX_LITERAL_CELLS")])
def test_too_large_spaces_raise_error(plain, structure, limit, monkeypatch):
    model, grounding = plain
    monkeypatch.setattr(trmrf, limit, 60)
    with pytest.raises(UsageError, match=rf"E395[\s\S]*'structure={structure}' would need [\s\S]*'together'"):
        api.fit(model, grounding, "trmrf", structure=structure)
    assert api.fit(model, grounding, "trmrf", l1=20.0).learned.converged
