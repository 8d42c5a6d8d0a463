"""Tests of the backend `gated`: learning of known worlds, closed gates, resumed runs, and rejected input."""

import json
import pickle
import re
import shlex
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import gated_worlds as worlds
import numpy as np
import pytest
from command import json_command, relcrf_command
from gated import count_row_messages
from interrupted import assert_goes_on

import relcrf
from relcrf import api
from relcrf.backends import checkpoints
from relcrf.backends.base import Monitor, Problem
from relcrf.backends.gated import GatedBackend
from relcrf.backends.gated_risks import ExampleSplitter
from relcrf.backends.learned_model import SEPARATE_LAYOUTS
from relcrf.errors import DataError, UsageError
from relcrf.evaluation.selection import StageCache
from relcrf.execution.serial import SerialExecutor
from relcrf.graph.reduction import Role
from relcrf.grounding import gates as gates_module
from relcrf.learning.risk import RiskSettings


def grounded(text, tables):
    model = relcrf.parse(text)
    return model, model.ground(relcrf.Dataset(tables))


def random_mask(grounding, share=0.5, seed=100):
    """Return a random mask of the variables, shape (n_variables,), bool; its seeds differ from those of the worlds."""
    return np.random.default_rng(seed).random(len(grounding.states)) < share


def attribute_mask(grounding, attribute):
    """Return a mask of the variables of an attribute, shape (n_variables,), bool."""
    (found,) = (one for one in grounding.blocks if attribute in (one.name, one.attribute))
    out = np.zeros(len(grounding.states), dtype=bool)
    out[found.start : found.start + found.count] = True
    return out


def score_hidden(fit, tables, hidden=random_mask, attribute=None):
    """Return the score of the hidden variables of other tables, and the number of messages per hidden variable."""
    grounding = fit.ground(relcrf.Dataset(tables))
    found = api.predict(fit, grounding, hidden=hidden(grounding))
    return found.score(attribute), found.inferred.n_messages / len(found.inferred.variables)


def open_keys(fit, prediction):
    """Return the keys of the pairs over which messages were sent."""
    grounding = prediction.grounding
    names = [f"{t}" for t in grounding.argument_texts(grounding.blocks[0])[1]]
    return {tuple(sorted((names[a], names[b]))) for a, b in prediction.inferred.edges}


@pytest.fixture(scope="module")
def rows():
    return grounded(worlds.ROWS, worlds.rows())


@pytest.fixture(scope="module")
def trained(rows):
    """Return a function that returns the fit with some settings, which is trained once."""
    model, grounding = rows
    given = random_mask(grounding, seed=105)
    return cache(lambda **settings: api.fit(model, grounding, "gated", observed=given, **settings))


@pytest.mark.parametrize("gates", ["static", "evidence"])
def test_links_that_do_not_matter_close(trained, gates):
    ungated, gated = trained(gates="none"), trained(gates=gates, message_cost=0.006)
    other = worlds.rows(800, seed=1)
    (without, every), (score, sent) = score_hidden(ungated, other), score_hidden(gated, other)
    assert score.accuracy > without.accuracy - 0.01
    new = gated.ground(relcrf.Dataset(other))
    asked = random_mask(new)
    assert every == count_row_messages(asked.reshape(800, 8)) / asked.sum() and sent < every / 8
    found = api.predict(gated, new, hidden=np.ones(len(new.states), dtype=bool))
    assert open_keys(gated, found) <= {("t0", "t1"), ("t2", "t3")}
    assert gated.summary["open_factors"] < gated.summary["gated_factors"] / 8


def test_higher_message_cost_sends_fewer_messages(rows):
    model, grounding = rows
    given = random_mask(grounding, seed=105)
    fits = [api.fit(model, grounding, "gated", observed=given, message_cost=price) for price in (0.0, 0.002, 0.5)]
    sent = [fit.summary["messages_per_query"] for fit in fits]
    assert sent[0] > 2 * sent[1] > 0 and sent[2] == 0.0
    assert fits[0].summary["loss"] < fits[2].summary["loss"]


def test_the_state_of_a_neighbour_opens_a_link():
    """Links whose evidence end is uninformative are closed, which gates without evidence cannot learn."""
    model, grounding = grounded(worlds.SWITCHED, worlds.switched())
    settings = {"observed": attribute_mask(grounding, "switch"), "validation_fraction": 0.0, "evidence_l2": 0.1}
    other, found = worlds.switched(seed=1), {}
    for gates, price in (("evidence", 0.08), ("static", 0.08), ("static", 0.8)):
        fit = api.fit(model, grounding, "gated", gates=gates, message_cost=price, **settings)
        found[gates, price] = score_hidden(fit, other, lambda g: ~attribute_mask(g, "switch"), "Thing.lamp")
    (score, sent), (all_score, all_sent), (none_score, none_sent) = found.values()
    assert all_sent == 1.0 and none_sent == 0.0 and 0.43 < sent < 0.57, "half of the switches are off"
    assert score.log_likelihood == pytest.approx(all_score.log_likelihood, abs=0.01)
    # Without evidence, as many messages cover a random half of the links, for half of the gain.
    assert score.log_likelihood > (all_score.log_likelihood + none_score.log_likelihood) / 2 + 0.1


def test_gate_features_open_gates():
    other, found = worlds.weather(seed=1), {}
    for gates, by in (("evidence", "gate link by x.wet"), ("evidence", ""), ("static", "gate link by x.wet")):
        model, grounding = grounded(worlds.WEATHER + by, worlds.weather(300))
        fit = api.fit(
            model, grounding, "gated", gates=gates, message_cost=0.005, validation_fraction=0.0, evidence_l2=0.1
        )
        found[gates, by] = score_hidden(fit, other, lambda g: np.ones(len(g.states), dtype=bool), "Thing.rain")
    (score, sent), *others = found.values()
    for plain, more in others:
        assert score.log_likelihood > plain.log_likelihood + 0.1 and 0.4 * more < sent < 0.6 * more


def test_optimisers_end_near_each_other(rows):
    model, grounding = rows
    given = random_mask(grounding, seed=105)
    settings = {"gates": "none", "validation_fraction": 0.0, "max_iterations": 200, "observed": given}
    loss = {
        name: api.fit(model, grounding, "gated", optimiser=name, **settings).summary["loss"]
        for name in ("adam", "smd", "lbfgs")
    }
    assert loss["adam"] == pytest.approx(loss["lbfgs"], abs=2e-4)
    assert loss["smd"] == pytest.approx(loss["lbfgs"], abs=2e-3)


@pytest.mark.parametrize(
    "settings",
    [
        {"optimiser": "smd", "batch_size": 20, "learning_rate": 2.0, "max_iterations": 20, "validation_fraction": 0.0},
        {"optimiser": "lbfgs"},
    ],
)
def test_gates_are_learned_by_each_optimiser(rows, settings):
    model, grounding = rows
    fit = api.fit(model, grounding, "gated", observed=random_mask(grounding, seed=105), message_cost=0.006, **settings)
    score, sent = score_hidden(fit, worlds.rows(seed=1))
    assert score.accuracy > 0.68 and sent < 4.0


def test_each_loss_is_the_smallest_where_it_is_learned(rows):
    model, grounding = rows
    problem = api.training_problem(grounding, evidence=random_mask(grounding, seed=105))
    kinds = ("squared", "cross-entropy", "f")
    settings = {"gates": "none", "validation_fraction": 0.0, "l2": 0.0, "optimiser": "lbfgs", "max_iterations": 200}
    fits = [
        api.fit(model, grounding, "gated", observed=random_mask(grounding, seed=105), loss=loss, **settings)
        for loss in kinds
    ]
    for loss, own in zip(kinds, fits, strict=True):
        losses = []
        for fit in fits:
            system = relcrf.backends.registry.make_backend("gated", gates="none", loss=loss)
            risk = system.joint_likelihood(problem, fit.learned.vectors).risk(problem)
            point = np.concatenate((fit.learned.vectors["weights"], fit.learned.vectors["gates"]))
            losses.append(risk.evaluate(risk.infer_with_hard_gates(point, 0.3)))
        assert own.summary["loss"] == min(losses), loss


@pytest.mark.parametrize("settings", [{"l1": 8.0}, {"group_l1": 6.0}], ids=["l1", "groups"])
def test_penalties_leave_pairs_out(rows, settings):
    model, grounding = rows
    fit = api.fit(model, grounding, "gated", observed=random_mask(grounding, seed=105), gates="none", **settings)
    tables = grounding.graph.layout.matrix(fit.learned.vectors["weights"], 1)
    assert (tables != 0.0).any(axis=1).sum() == 2, "two pairs of twins"
    score, sent = score_hidden(fit, worlds.rows(seed=1))
    assert sent < 3.0 and score.accuracy > 0.68


def test_penalties_leave_fixed_weights_alone():
    text = worlds.WEATHER.replace("over x.rain, x.street", "over x.rain == x.street init 0.004 fixed")
    model, grounding = grounded(text, worlds.weather(60))
    fit = api.fit(model, grounding, "gated", group_l1=3.0)
    assert fit.weights().columns["weight"][-1] == 0.004


@pytest.mark.parametrize("schedule", ["joint", "alternating"])
def test_each_schedule_closes_links_that_do_not_matter(trained, schedule):
    fit = trained(message_cost=0.006, schedule=schedule)
    score, sent = score_hidden(fit, worlds.rows(seed=1))
    assert score.accuracy > 0.7 and sent < 4.0, "14 messages without gates"


def test_gates_with_evidence_start_from_static_gates_if_better(rows):
    """The held-out risk is at most that of static gates, whose stages are learned once for both kinds of gates."""
    _, grounding = rows
    problem = api.training_problem(grounding, evidence=random_mask(grounding, seed=105))
    settings = {"message_cost": 0.006, "max_iterations": 20}
    static, evidence = (
        relcrf.backends.registry.make_backend("gated", gates=gates, **settings) for gates in ("static", "evidence")
    )
    finished = {}
    expected = dict(static.fit(problem, StageCache(static, finished)).stages)
    states = dict(evidence.fit(problem, StageCache(evidence, finished)).stages)
    assert states["final"].best <= min(states["sharp"].best, states["sharp_static"].best)
    assert states["held_out"] is expected["held_out"] and states["sharp_static"] is expected["sharp_static"]
    uncached = dict(evidence.fit(problem, Monitor()).stages)
    for name, state in uncached.items():
        np.testing.assert_array_equal(states[name].point, state.point)


def test_alternating_stages_change_one_kind_of_weights(rows):
    _, grounding = rows
    problem = api.training_problem(grounding, evidence=random_mask(grounding, seed=105))
    backend = relcrf.backends.registry.make_backend(
        "gated", schedule="alternating", validation_fraction=0.0, message_cost=0.006, max_iterations=3
    )
    stages = dict(backend.fit(problem, Monitor()).stages)
    names = ("static", "gates", "weights", "sharp_gates", "sharp_weights")
    points = [np.split(stages[name].point, [grounding.graph.layout.size]) for name in names]
    changed = [[bool((before != after).any()) for before, after in zip(*two, strict=True)] for two in pairwise(points)]
    assert changed == [[False, True], [True, False]] * 2


def test_keys_have_separate_penalties_on_gate_weights(rows):
    """A high penalty on deviations leaves only the shared weights of evidence features."""
    model, grounding = rows
    settings = {"observed": random_mask(grounding, seed=105), "message_cost": 0.006, "max_iterations": 30}
    settings["validation_fraction"] = 0.0  # otherwise static gates may be better on held-out data
    for strengths, is_zero in (((1.0, 1e5), [True, False]), ((1e5, 1.0), [False, True])):
        evidence_l2, deviation_l2 = strengths
        fit = api.fit(model, grounding, "gated", evidence_l2=evidence_l2, deviation_l2=deviation_l2, **settings)
        matrix = fit.learned.schemas["gates"].layout.matrix(fit.learned.vectors["gates"], 0).reshape(29, -1)
        largest = abs(matrix[:28, 1:]).max(), abs(matrix[28, 1:]).max()
        assert [size < 0.03 for size in largest] == is_zero, largest


# Evidence and hidden variables


@pytest.mark.parametrize(
    "settings", [{}, {"message_cost": 0.005}, {"loss": "cross-entropy"}], ids=["plain", "message_cost", "cross"]
)
def test_a_latent_attribute_is_learned(settings):
    model, grounding = grounded(worlds.HIDDEN_CAUSE, worlds.of_two_kinds())
    hidden = random_mask(grounding, 0.2) & (grounding.states >= 0)
    given = random_mask(grounding, 0.5, seed=101)
    fits = [
        api.fit(model, grounding, "local", hidden=hidden),
        api.fit(model, grounding, "gated", hidden=hidden, observed=given, **settings),
    ]
    local, gated = (api.predict(fit, grounding, hidden=hidden).score().log_likelihood for fit in fits)
    assert gated > local + 0.08


def test_observed_variables_are_evidence_without_loss(rows):
    model, grounding = rows
    given = random_mask(grounding, seed=105)
    fit = api.fit(model, grounding, "gated", observed=given, gates="none", validation_fraction=0.0, max_iterations=5)
    assert fit.summary["scored"] == (~given).sum()
    free = ~given.reshape(300, 8)
    assert fit.summary["messages_per_query"] == count_row_messages(free) / free.sum()


def test_evidence_fraction_and_draws(rows):
    model, grounding = rows
    settings = {"gates": "none", "validation_fraction": 0.0, "max_iterations": 5, "evidence_fraction": 0.75}
    one, three = (api.fit(model, grounding, "gated", evidence_draws=draws, **settings) for draws in (1, 3))
    n = len(grounding.states)
    assert one.summary["scored"] == pytest.approx(n / 4, rel=0.1)
    assert three.summary["scored"] == pytest.approx(3 * n / 4, rel=0.1)
    none = api.fit(model, grounding, "gated", **{**settings, "evidence_fraction": 0.0}, evidence_draws=3)
    assert none.summary["scored"] == n


@pytest.mark.parametrize(("text", "tables"), [(worlds.ROWS, worlds.rows(60)), (worlds.CITATIONS, worlds.citations())])
def test_all_draws_hold_out_the_same_labels(text, tables):
    """Held-out labels evaluate the training, so no draw may train on them."""
    _, grounding = grounded(text, tables)
    problem = api.training_problem(grounding)
    rng = np.random.default_rng(0)
    evidence = [rng.random(len(problem.roles)) < 0.5 for _ in range(4)]
    drawn = [replace(problem, roles=np.where(one, Role.CLAMPED, problem.roles).astype(np.int8)) for one in evidence]
    examples = ExampleSplitter(RiskSettings(), "gated", 0.3, 10)
    risks, held = examples.split_risks(drawn, *examples.select_held_out(problem, rng), rng)
    named = [set(risk.graph.ungated.variables[risk.scored]) for risk in (*risks, held)]
    assert named[-1] and not named[-1] & set.union(*named[:-1])


def test_unlabelled_variables_are_hidden_or_left_out(rows):
    model, grounding = rows
    hidden = random_mask(grounding)
    other = replace(grounding, states=np.where(hidden, 1 - grounding.states, grounding.states))

    settings = {"hidden": hidden, "gates": "none", "validation_fraction": 0.0, "max_iterations": 20}
    left, joined, without_values = (
        api.fit(model, ground, "gated", unlabelled=unlabelled, **settings)
        for ground, unlabelled in ((grounding, "ignore"), (grounding, "marginal"), (other, "marginal"))
    )
    assert left.summary["scored"] == joined.summary["scored"] == (~hidden).sum()
    # All pairs of traits of entities with a labelled trait.
    things = (~hidden).reshape(300, 8).any(axis=1).sum()
    assert joined.summary["gated_factors"] == things * 28 > 3 * left.summary["gated_factors"]
    np.testing.assert_array_equal(joined.learned.vectors["weights"], without_values.learned.vectors["weights"])


def test_gates_distinguish_queries_from_hidden_variables(rows):
    """Gates of hidden variables are closed, so messages are sent only between query variables."""
    model, grounding = rows
    fit = api.fit(model, grounding, "gated", message_cost=0.0, max_iterations=10)
    gates = fit.learned.vectors["gates"]
    (info,) = fit.learned.schemas["gates"].templates
    for place, name in enumerate(np.tile(info.features, len(info.keys.values))):
        gates[place] = -50.0 if "hidden" in name else 0.0
    every = np.ones(len(grounding.states), dtype=bool)
    few = random_mask(grounding, 0.3)
    all_asked, some_asked = (api.predict(fit, grounding, hidden=every, queried=mask) for mask in (None, few))
    assert len(all_asked.inferred.edges) == 300 * 28
    assert few[some_asked.inferred.edges].all() and 0 < len(some_asked.inferred.edges) < 300 * 28 / 5


# Relations


@pytest.mark.parametrize("islands", [1, 30])
def test_citations_help(islands):
    """In a single component variables are held out, otherwise whole components."""
    model, grounding = grounded(worlds.CITATIONS, worlds.citations(200, islands=islands))
    fit = api.fit(model, grounding, "gated", message_cost=0.01, evidence_fraction=0.3)
    local = api.fit(model, grounding, "local")
    other = worlds.citations(200, islands=islands, seed=1)
    new = fit.ground(relcrf.Dataset(other))
    found, alone = (api.predict(one, new, hidden=random_mask(new)).score() for one in (fit, local))
    assert found.accuracy > alone.accuracy + 0.05 and found.log_likelihood > alone.log_likelihood + 0.1
    assert fit.summary["held_out_loss"] < 0.1


@pytest.mark.parametrize("message_cost", [0.0, 0.005])
def test_rare_words_overfit_less_than_with_adam(message_cost):
    """Adam changes the weights of rare words as much as others; `auto` learns them with `lbfgs`."""
    model, scores = relcrf.parse(worlds.CITATIONS), dict[str, list[float]]()
    for seed in range(2):
        grounding = model.ground(relcrf.Dataset(worlds.citations(120, words=300, seed=seed)))
        for optimiser in ("auto", "adam"):
            fit = api.fit(model, grounding, "gated", optimiser=optimiser, message_cost=message_cost)
            new = fit.ground(relcrf.Dataset(worlds.citations(200, words=300, seed=100 + seed)))
            found = api.predict(fit, new, hidden=np.ones(len(new.states), dtype=bool))
            scores.setdefault(optimiser, []).append(found.score().log_likelihood)
    assert np.mean(scores["auto"]) > np.mean(scores["adam"]) + 0.1


def test_messages_count_all_queries_if_variables_are_held_out():
    model, grounding = grounded(worlds.CITATIONS, worlds.citations(160))
    fit = api.fit(model, grounding, "gated", gates="none", max_iterations=5)
    assert fit.summary["held_out_messages_per_query"] == fit.summary["messages_per_query"]
    assert fit.summary["messages_per_query"] == pytest.approx(6 * grounding.graph.groups[-1].n_factors / 160, rel=0.05)


def test_no_citations_in_training_or_in_use():
    empty = {"from": np.empty(0, dtype=int), "to": np.empty(0, dtype=int)}
    full = worlds.citations(40, unknown=0.3)
    bare = {**full, "Cites": empty}
    model = relcrf.parse(worlds.CITATIONS)
    for learned, used in ((full, bare), (bare, full), (bare, bare)):
        found = model.fit(relcrf.Dataset(learned), "gated").predict(relcrf.Dataset(used))
        assert found.inferred.n_messages == 0
        np.testing.assert_allclose(found.probabilities().sum(axis=1), 1.0)


CITES = "domain Kind = open\nrelation Cites(from: Paper, to: Paper) { kind : Kind }"
BAGS = """
domain Word = open
entity Paper {
  words : bag of Word
  predict one : bool
  predict other : bool
}
template prior(p: Paper) over p.one
template link(p: Paper) over p.one, p.other
gate link by p.words
"""


def papers(words, seed=0):
    """Return papers whose first word tells that both attributes agree; the other words are uninformative."""
    rng = np.random.default_rng(seed)
    word, one = rng.integers(0, 2, size=300), rng.random(300) < 0.5
    other = np.where(word == 0, one, rng.random(300) < 0.5)
    return {"paper": {"id": np.arange(300), "words": [[words[k]] for k in word], "one": one, "other": other}}


def test_gates_ignore_new_words_of_bags():
    model, grounding = grounded(BAGS, papers(["tied", "loose"]))
    settings = {
        "observed": attribute_mask(grounding, "other"),
        "evidence_l2": 0.1,
        "validation_fraction": 0.0,
        "message_cost": 0.01,
    }
    fit = api.fit(model, grounding, "gated", **settings)
    score, sent = score_hidden(fit, papers(["tied", "loose"], seed=1), lambda g: attribute_mask(g, "one"), "Paper.one")
    assert 0.4 < sent < 0.6 and score.accuracy > 0.7
    for words in (["tied", "new"], ["new", "loose"]):
        again, _ = score_hidden(fit, papers(words, seed=1), lambda g: attribute_mask(g, "one"), "Paper.one")
        assert np.isfinite(again.log_likelihood)


# Run folders


def test_a_run_folder_predicts_the_same_on_other_tables(tmp_path):
    model, grounding = grounded(worlds.CITATIONS, worlds.citations(100))
    fit = api.fit(model, grounding, "gated", message_cost=0.01, evidence_fraction=0.5)
    fit.save(tmp_path / "run")
    again = api.load_fit(tmp_path / "run")
    tables = worlds.citations(80, unknown=0.5, seed=1, first=6)
    one, two = (f.predict(relcrf.Dataset(tables)) for f in (fit, again))
    np.testing.assert_array_equal(one.probabilities(), two.probabilities())
    assert one.inferred.n_messages == two.inferred.n_messages > 0
    assert one.unseen_keys["word"] == two.unseen_keys["word"] == 6


def test_unseen_keys_have_the_gates_that_all_keys_share(rows, tmp_path):
    model, grounding = rows
    fit = api.fit(model, grounding, "gated", message_cost=0.002)
    fit.save(tmp_path / "run")
    again = api.load_fit(tmp_path / "run")
    tables = worlds.rows(50, 12, seed=2)
    one, two = (f.ground(relcrf.Dataset(tables)) for f in (fit, again))
    hidden = random_mask(one)
    first, second = (api.predict(f, g, hidden=hidden) for f, g in ((fit, one), (again, two)))
    np.testing.assert_array_equal(first.probabilities(), second.probabilities())
    assert first.unseen_keys == {"prior": 4, "link": 66 - 28}


def test_a_single_key_shares_its_gate_with_those_of_other_tables():
    """The shared gate weights are learned from a single key as from many, so another key's gate is equally open."""
    text = worlds.CITATIONS.replace("relation Cites(from: Paper, to: Paper)", CITES)
    model = relcrf.parse(text.replace("over p.topic, q.topic", "over p.topic, q.topic per Cites(p, q).kind"))
    papers = worlds.citations(60)
    n = len(papers["Cites"]["from"])
    one, two = (
        {**papers, "Cites": {**papers["Cites"], "kind": [kinds[k % len(kinds)] for k in range(n)]}}
        for kinds in (["x"], ["x", "y"])
    )
    fit = model.fit(relcrf.Dataset(one), "gated", max_iterations=10)
    learned = fit.learned.schemas["gates"].layout.matrix(fit.learned.vectors["gates"], 0).reshape(2, -1)
    carried = fit.learned.vectors_for(fit.ground(relcrf.Dataset(two)))["gates"].reshape(3, -1)
    np.testing.assert_array_equal(carried, [learned[0], np.zeros_like(learned[0]), learned[1]])
    assert learned[1, 0] != 0.0


@pytest.mark.parametrize(
    ("settings", "stops"),
    [
        (
            {},
            (
                ("likelihood", 2),
                ("open_weights", 2),
                ("static", 3),
                ("evidence", 2),
                ("sharp", 2),
                ("held_out", 2),
                ("final", 2),
                ("final_weights", 2),
            ),
        ),
        (
            {"optimiser": "smd", "gates": "static", "evidence_fraction": 0.5, "evidence_draws": 2},
            (("static", 3), ("held_out", 2), ("sharp_static", 2)),
        ),
        ({"l1": 1.0}, (("static", 3), ("evidence", 2), ("refit", 2))),
        ({"schedule": "alternating"}, (("gates", 2), ("sharp_weights", 2))),
    ],
    ids=["auto", "smd", "l1", "alternating"],
)
def test_interrupted_run_resumes_exactly(rows, tmp_path, settings, stops):
    settings = {"message_cost": 0.002, "max_iterations": 6, "patience": 3, "batch_size": 100, **settings}
    fit = assert_goes_on(*rows, "gated", settings, stops, tmp_path)
    assert set(fit.learned.vectors) == {"weights", "gates"}


def test_damaged_gates(rows, tmp_path):
    model, grounding = rows
    api.fit(model, grounding, "gated", max_iterations=2).save(tmp_path / "run")
    path = tmp_path / "run" / "gates.npy"
    whole = path.read_bytes()
    np.save(path, np.load(path)[:-1])
    with pytest.raises(DataError, match="E336"):
        api.load_fit(tmp_path / "run")
    path.write_bytes(whole[:-9])
    with pytest.raises(DataError, match="E336"):
        api.load_fit(tmp_path / "run")
    path.unlink()
    with pytest.raises(DataError, match="E336"):
        api.load_fit(tmp_path / "run")
    path.write_bytes(whole)
    run = tmp_path / "run" / "run.json"
    facts = json.loads(run.read_text())
    facts["gates"]["templates"][0]["features"].pop()
    run.write_text(json.dumps(facts))
    with pytest.raises(DataError, match="E336"):
        api.load_fit(tmp_path / "run")


# Combination with other components


def test_selection_and_calibration(rows):
    model, grounding = rows
    found = api.select(grounding, "gated", {"l2": (1e5, 1.0), "message_cost": (0.0, 0.5)}, max_iterations=10)
    assert found.settings["l2"] == 1.0 and found.whole_components and len(found.rows) == 4
    fit = api.fit(model, grounding, "gated", max_iterations=5, calibrate=2)
    assert 0.25 <= fit.summary["calibration"] <= 2.0


def test_joint_likelihood_is_the_sum_of_log_beliefs(rows):
    model, grounding = rows
    fit = api.fit(model, grounding, "gated", message_cost=0.002)
    every = np.ones(len(grounding.states), dtype=bool)
    alone = api.predict(fit, grounding, hidden=every).score()
    together = api.joint_log_likelihood(fit, grounding)
    assert together == pytest.approx(alone.log_likelihood * alone.n, rel=1e-9)


# Rejected input

BAD = (
    {"loss": "magic"},
    {"gates": "magic"},
    {"schedule": "magic"},
    {"unlabelled": "infer"},
    {"optimiser": "magic"},
    {"bp_iterations": 0},
    {"batch_size": 0},
    {"evidence_draws": 0},
    {"gate_threshold": 1.0},
    {"training_gate_threshold": 0.0},
    {"training_gate_threshold": 1.0},
    {"evidence_fraction": 1.0},
    {"validation_fraction": 1.5},
    {"l1": 1.0, "optimiser": "adam"},
)
TRIANGLE = (
    worlds.ROWS
    + "template all(x: Thing, s: Trait, t: Trait, u: Trait) where s < t and t < u "
    + ("over has(x, s) and has(x, t) and has(x, u)\n")
)


@pytest.mark.parametrize("settings", BAD, ids=str)
def test_invalid_settings_raise_error(rows, settings):
    with pytest.raises(UsageError, match="E305"):
        api.fit(*rows, "gated", **settings)


def test_unsupported_graphs_raise_error(rows):
    model, grounding = rows
    with pytest.raises(UsageError, match=r"E302[\s\S]*template 'all'"):
        relcrf.parse(TRIANGLE).fit(relcrf.Dataset(worlds.rows(20)), "gated")
    with pytest.raises(UsageError, match="E309"):
        api.fit(model, grounding, "gated", executor=SerialExecutor())
    with pytest.raises(DataError, match="E226"):
        api.fit(model, grounding, "gated", evidence_fraction=0.9999)
    with pytest.raises(DataError, match="E226"):
        api.fit(model, grounding, "gated", validation_fraction=0.9999)
    with pytest.raises(DataError, match="E226"):
        api.fit(model, grounding, "gated", observed=np.ones(len(grounding.states), dtype=bool))


def test_a_problem_made_by_hand_has_gates_by_statuses(rows):
    model, grounding = rows
    fit = api.fit(model, grounding, "gated", message_cost=0.002, max_iterations=5)
    roles = np.zeros(len(grounding.states), dtype=np.int8)
    by_hand = Problem(grounding.graph, roles, grounding.states, queries=np.ones(len(roles), dtype=bool))
    found = relcrf.backends.registry.make_backend("gated", message_cost=0.002).infer(by_hand, fit.learned.vectors)
    expected = api.predict(fit, grounding, hidden=np.ones(len(roles), dtype=bool))
    np.testing.assert_array_equal(found.marginals, expected.inferred.marginals)


def test_gates_are_grounded_when_a_backend_reads_them(monkeypatch):
    """Backends without gates never ground them, and those with gates do so exactly once."""
    ground, count = gates_module._ground_features, []
    monkeypatch.setattr(gates_module, "_ground_features", lambda *given: count.append(1) or ground(*given))
    model = relcrf.parse(worlds.WEATHER + "gate link by x.wet")
    grounding = model.ground(relcrf.Dataset(worlds.weather(60)))
    api.predict(api.fit(model, grounding, "local"), grounding)
    assert count == []
    fit = api.fit(model, grounding, "gated", max_iterations=2)
    api.predict(fit, grounding)
    assert count == [1]


def test_gates_are_pickled_with_their_problem():
    model = relcrf.parse(worlds.WEATHER + "gate link by x.wet")
    problem = api.training_problem(model.ground(relcrf.Dataset(worlds.weather(60))))
    found = pickle.loads(pickle.dumps(problem))
    assert found.gates.layout == problem.gates.layout
    (one,), (other,) = found.gates.groups.values(), problem.gates.groups.values()
    np.testing.assert_array_equal(one.features.values, other.features.values)


# Commands


def test_the_page_can_be_followed(tmp_path, capsys, monkeypatch):
    page = Path(__file__).parents[2] / "docs" / "explanation" / "gated.md"
    monkeypatch.chdir(tmp_path)
    texts = {"rcrf": [], "python": [], "console": []}
    for language, text in re.findall(r"^```(\w+)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        texts[language].append(text)
    (model,), (script,), (commands,) = texts.values()
    Path("street.rcrf").write_text(model)
    exec(compile(script, "page", "exec"), {})
    opened, _, every = capsys.readouterr().out.split()[:3]
    assert 0.4 < int(opened) / int(every) < 0.6
    for line in commands.splitlines():
        code, _, err = relcrf_command(capsys, monkeypatch, *shlex.split(line)[2:])
        assert code == 0, err
    assert len(Path("rain.csv").read_text().splitlines()) == 101


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("gated")
    worlds.write(worlds.citations(80, unknown=0.1), path / "papers")
    worlds.write(worlds.citations(80, unknown=0.5, seed=1, first=6), path / "others")
    worlds.write(worlds.rows(30), path / "rows")
    (path / "m.rcrf").write_text(worlds.CITATIONS)
    (path / "triangle.rcrf").write_text(TRIANGLE)
    return path


def test_commands(folder, tmp_path, capsys, monkeypatch):
    model, data, run = folder / "m.rcrf", folder / "papers", tmp_path / "run"
    train = ("train", model, "--data", data, "--out", run, "-b", "gated", "--set", "max_iterations=10")
    code, answer = json_command(
        capsys, monkeypatch, *train, "--set", "evidence_fraction=0.5", "--set", "message_cost=0.01"
    )
    assert code == 0 and answer["summary"]["messages_per_query"] > 0
    code, answer = json_command(capsys, monkeypatch, "predict", run, "--data", folder / "others")
    predicted = api.load_fit(run).predict(relcrf.Dataset(folder / "others")).table()
    assert code == 0 and answer["predictions"]["Paper.topic"][0]["probability"] == predicted.columns["probability"][0]
    code, answer = json_command(
        capsys, monkeypatch, "evaluate", model, "--data", data, "-b", "gated", "--split", "folds=2", *train[-2:]
    )
    assert code == 0 and answer["attributes"]["Paper.topic"]["accuracy"] > 0.8
    assert relcrf_command(capsys, monkeypatch, "report", run, "--out", tmp_path / "r.html")[0] == 0
    more = ("--force", "--select", "message_cost=0,5", "--calibrate", "2")
    code, answer = json_command(capsys, monkeypatch, *train, *more)
    assert code == 0 and answer["settings"]["message_cost"] in (0.0, 5.0) and "calibration" in answer["summary"]
    code, _, err = relcrf_command(
        capsys, monkeypatch, "predict", run, "--data", folder / "others", "--set", "gate_threshold=1"
    )
    assert code == 2 and err.count("error[") == 1 and "E305" in err


@pytest.mark.parametrize(
    ("model", "data", "extra", "code"),
    [
        ("m", "papers", ("--set", "message_cost=dear"), "E305"),
        ("m", "papers", ("--set", "l1=1", "--set", "optimiser=adam"), "E305"),
        ("m", "papers", ("--set", "given=0.5"), "E304"),
        ("m", "papers", ("--workers", "2"), "E309"),
        ("m", "papers", ("--set", "evidence_fraction=0.9999"), "E226"),
        ("m", "papers", ("--export-model", "x.rcrf"), "E392"),
        ("triangle", "rows", (), "E302"),
    ],
    ids=["word", "l1", "mask", "workers", "no labels", "export", "triangle"],
)
def test_command_errors_are_one_diagnostic(folder, tmp_path, capsys, monkeypatch, model, data, extra, code):
    train = ("train", folder / f"{model}.rcrf", "--data", folder / data, "--out", tmp_path / "run", "-b", "gated")
    status, _, err = relcrf_command(capsys, monkeypatch, *train, *extra)
    assert status in (2, 3) and err.count("error[") == 1 and f"[{code}]" in err
    assert not (tmp_path / "run").exists() and not list(tmp_path.glob("*.partial"))


def test_training_resumes_from_the_command_line(folder, tmp_path, capsys, monkeypatch):
    train = ("train", folder / "m.rcrf", "--data", folder / "papers", "-b", "gated", "--set", "max_iterations=8")
    assert relcrf_command(capsys, monkeypatch, *train, "--out", tmp_path / "whole")[0] == 0

    def interrupt(self, stage, state, most):
        whole(self, stage, state, most)
        if (stage, state.iteration) == ("evidence", 3):
            raise KeyboardInterrupt

    whole = checkpoints.CheckpointMonitor.step
    monkeypatch.setattr(checkpoints.CheckpointMonitor, "step", interrupt)
    assert relcrf_command(capsys, monkeypatch, *train, "--out", tmp_path / "run")[0] == 130
    monkeypatch.setattr(checkpoints.CheckpointMonitor, "step", whole)
    assert relcrf_command(capsys, monkeypatch, *train, "--out", tmp_path / "run", "--resume")[0] == 0
    for name in ("weights.npy", "gates.npy", "log.jsonl", "run.json"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


CASES = """
entity Thing {
  wet : bool
  predict rain : bool
}
relation Next(x: Thing, y: Thing)
template prior(x: Thing)
    over x.rain
template when_wet(x: Thing, y: Thing)
    where Next(x, y)
    over (x.rain and x.wet) <=> (y.rain and x.wet)
template when_dry(x: Thing, y: Thing)
    where Next(x, y)
    over (x.rain and not x.wet) <=> (y.rain and not x.wet)
"""


def chain_of(wet):
    rain = [bool(k // 3 % 2) for k in range(len(wet))]
    names = [f"x{k}" for k in range(len(wet))]
    return relcrf.Dataset(
        {
            "thing": {"id": names, "wet": list(wet), "rain": rain},
            "next": {"x": names[:-1], "y": names[1:]},
        }
    )


def test_gates_find_their_templates_where_data_have_no_factors_of_some():
    """A formula that the evidence decides leaves no factors, so a template may have gates in some data only."""
    model = relcrf.parse(CASES)
    for learned_on in ([True, False] * 20, [True] * 40):
        fit = model.fit(
            chain_of(learned_on), "gated", pretraining_iterations=2, max_iterations=5, validation_fraction=0.0
        )
        of = {info.name: k for k, info in enumerate(fit.learned.schemas["gates"].templates)}
        for wet in ([True] * 40, [False] * 40):
            grounding = fit.ground(chain_of(wet))
            vectors = fit.learned.vectors_for(grounding)
            meaning = SEPARATE_LAYOUTS["gates"](grounding)
            for k, info in enumerate(meaning.templates):
                found = meaning.layout.matrix(vectors["gates"], k)
                if info.name in of:
                    learned = fit.learned.schemas["gates"].layout.matrix(fit.learned.vectors["gates"], of[info.name])
                    np.testing.assert_array_equal(found, learned)
                else:
                    assert not found.any()
            everything = np.ones(len(grounding.states), dtype=bool)
            assert np.isfinite(api.predict(fit, grounding, hidden=everything).probabilities()).all()


def test_templates_with_several_keys_may_have_no_factors():
    text = CASES.split("template when_wet")[0] + "template pair(x: Thing, y: Thing) where Next(x, y) "
    model = relcrf.parse(text + "over x.rain, y.rain per x.wet, y.wet")
    empty = {"thing": {"id": ["a", "b"], "wet": [True, False], "rain": [True, False]}, "next": {"x": [], "y": []}}
    fit = model.fit(relcrf.Dataset(empty), "gated", pretraining_iterations=1, max_iterations=2, validation_fraction=0.0)
    assert fit.predict(relcrf.Dataset(empty)).probabilities().shape[1] == 2


def test_no_stage_reads_held_out_labels():
    """If variables are held out, their labels do not affect training."""
    model = relcrf.parse(
        CASES.split("template when_wet")[0]
        + "template pair(x: Thing, y: Thing) where Next(x, y) over x.rain <=> y.rain"
    )
    grounding = model.ground(chain_of([True] * 60))
    settings = {
        "validation_fraction": 0.3,
        "evidence_fraction": 0.5,
        "evidence_draws": 3,
        "max_iterations": 3,
        "patience": 100,
    }
    problem = api.training_problem(grounding)
    out, whole = ExampleSplitter(RiskSettings(), "gated", 0.3, 200).select_held_out(problem, np.random.default_rng(0))
    assert out.any() and not whole
    wrong = replace(problem, states=np.where(out, 1 - problem.states, problem.states).astype(np.int32))
    one, other = (GatedBackend(**settings).fit(some, Monitor()) for some in (problem, wrong))
    for (name, state), (_, turned) in zip(one.stages[:2], other.stages[:2], strict=True):
        np.testing.assert_array_equal(state.point, turned.point, err_msg=name)
