"""Settings of backend `ess` that select edges, weights and inference method for prediction."""

import itertools

import numpy as np
import pandas as pd
import pytest

import relcrf
from relcrf import api
from relcrf.backends import ess
from relcrf.backends.base import Monitor
from relcrf.backends.registry import make_backend
from relcrf.errors import UsageError
from relcrf.evaluation.selection import StageCache
from relcrf.graph import edge_classes
from relcrf.graph.reduction import Role, reduce_graph
from relcrf.inference import elimination_order, pair_lanes

MODEL = relcrf.parse("""
domain Topic = 0..2
entity Page {
    predict topic : Topic
    score         : vector
}
relation Link(a: Page, b: Page)
template own(a: Page)
    over a.topic
    by   1, a.score
template link(a: Page, b: Page)
    where Link(a, b)
    over  a.topic == b.topic
""")


def page_tables(n, degree, seed):
    """Return pages with a noisy score per topic, and links of which about three quarters join pages of a topic."""
    rng = np.random.default_rng(seed)
    topic = rng.integers(3, size=n)
    members = [np.flatnonzero(topic == k) for k in range(3)]
    source = rng.integers(n, size=n * degree // 2)
    target = np.array([rng.choice(members[topic[a]]) if rng.random() < 0.6 else rng.integers(n) for a in source])
    score = np.eye(3)[topic] + rng.normal(size=(n, 3))
    page = pd.DataFrame({"id": np.arange(n), "topic": topic, "score": list(score)})
    link = pd.DataFrame({"a": source, "b": target})
    return {"page": page, "link": link[link["a"] != link["b"]].drop_duplicates()}


def predict(fit, grounding, **settings):
    return api.predict(fit, grounding, hidden=np.ones(grounding.graph.n_variables, dtype=bool), **settings)


@pytest.fixture(scope="module")
def small():
    grounding = MODEL.ground(relcrf.Dataset(page_tables(9, 4, seed=1)))
    return grounding, api.fit(MODEL, grounding, "ess")


@pytest.mark.parametrize(
    ("weights", "inference", "tolerance"),
    [("weights", "exact", 1e-10), ("structure", "exact", 1e-10), ("weights", "bp", 0.1)],
)
def test_marginals_on_all_edges_equal_those_of_enumeration(small, weights, inference, tolerance):
    grounding, _ = small
    setting = {"weights": "tree", "structure": "pairs"}[weights]
    fit = api.fit(MODEL, grounding, "ess", edges="all", inference=inference, weights=setting)
    assert [name for name in fit.summary if name.endswith("_status")] == (
        ["structure_status", "weights_status"] if setting == "tree" else ["structure_status"]
    )
    np.testing.assert_array_equal(fit.learned.vectors["weights"], fit.learned.vectors[weights])
    roles = np.full(grounding.graph.n_variables, Role.FREE, dtype=np.int8)
    graph = reduce_graph(grounding.graph, roles, grounding.states)
    potentials = graph.potentials(fit.learned.vectors["weights"])
    states = np.array(list(itertools.product(range(3), repeat=graph.n_nodes)), dtype=np.int32)
    scores = np.array([graph.scopes.score(potentials, state) for state in states])
    p = np.exp(scores - np.logaddexp.reduce(scores))
    wanted = np.array([[p[states[:, v] == k].sum() for k in range(3)] for v in range(graph.n_nodes)])
    np.testing.assert_allclose(predict(fit, grounding).probabilities(), wanted, atol=tolerance)
    if inference == "exact":
        joint = api.joint_log_likelihood(fit, grounding, hidden=np.ones(graph.n_nodes, dtype=bool))
        assert joint == pytest.approx(np.log(p[np.flatnonzero((states == grounding.states).all(axis=1))[0]]), abs=1e-9)


@pytest.mark.parametrize("inference", ["trw", "bp"])
def test_messages_on_the_tree_are_exact(small, inference):
    grounding, fit = small
    found = predict(fit, grounding, edges="tree", inference=inference).probabilities()
    np.testing.assert_allclose(
        found, predict(fit, grounding, edges="tree", inference="exact").probabilities(), atol=1e-5
    )


def test_training_selects_all_edges_where_labels_are_more_probable_with_them(tmp_path):
    """With eight links per page, a forest contains a quarter of the links."""
    training, testing = (MODEL.ground(relcrf.Dataset(page_tables(300, 8, seed))) for seed in (0, 1))
    fit = api.fit(MODEL, training, "ess")
    assert fit.learned.chosen_settings["edges"] == "all" == fit.summary["edges"]
    assert fit.learned.chosen_settings["inference"] == fit.summary["inference"] == "bp"
    assert fit.summary["label_log_likelihood_all_bp"] > fit.summary["label_log_likelihood_tree_exact"]
    score = predict(fit, training).score()
    assert fit.summary["label_log_likelihood_all_bp"] == pytest.approx(score.log_likelihood, abs=1e-9)
    fit.save(tmp_path / "run")
    accuracy = predict(api.load_fit(tmp_path / "run"), testing).score().accuracy
    assert accuracy > predict(fit, testing, edges="tree", inference="exact").score().accuracy + 0.1


def test_training_keeps_the_tree_where_all_edges_count_evidence_repeatedly():
    """Six copies of a weakly biased variable: 15 edges repeat the information of the 5 edges of a tree."""
    model = relcrf.parse("""
    domain Kind = 0..1
    entity Row { x : real }
    domain Column = open
    predict relation cell(r: Row, c: Column) : Kind
    template level(r: Row, c: Column)
        over cell(r, c)
        per  c
        by   r.x
    template pair(r: Row, c: Column, d: Column)
        where c < d
        over cell(r, c), cell(r, d)
        per  c, d
    """)
    rng = np.random.default_rng(0)
    x = rng.normal(size=200)
    value = (x + 2.0 * rng.normal(size=200) > 0).astype(int)
    cells = [{"r": r, "c": c, "value": int(value[r])} for r in range(200) for c in "abcdef"]
    tables = {"row": pd.DataFrame({"id": np.arange(200), "x": x}), "cell": pd.DataFrame(cells)}
    fit = api.fit(model, model.ground(relcrf.Dataset(tables)), "ess")
    assert (fit.summary["edges"], fit.summary["inference"]) == ("tree", "exact")
    assert fit.summary["label_log_likelihood_tree_exact"] > fit.summary["label_log_likelihood_all_bp"]


def test_explicit_settings_are_not_replaced(small):
    grounding, _ = small
    for settings in ({"edges": "tree", "inference": "exact"}, {"edges": "all", "inference": "mf"}):
        fit = api.fit(MODEL, grounding, "ess", **settings)
        assert settings.items() <= fit.learned.chosen_settings.items()
    assert api.fit(MODEL, grounding, "ess", min_information=0.01).learned.chosen_settings["edges"] == "tree"


@pytest.mark.parametrize(
    "settings",
    [
        {"edges": "all", "trees": 3},
        {"edges": "all", "observed_edges": "tree"},
        {"weights": "pairs", "objective": "margin"},
        {"edges": "some"},
        {"inference": "gibbs"},
    ],
)
def test_settings_that_contradict_each_other(small, settings):
    with pytest.raises(relcrf.UsageError) as caught:
        api.fit(MODEL, small[0], "ess", **settings)
    assert caught.value.diagnostics[0].code == "E305"


def test_comparison_uses_components_with_edges(monkeypatch):
    """Isolated variables have the same probabilities under all methods, so they must not be the compared sample."""
    monkeypatch.setattr(ess, "MAX_COMPARED_EDGES", 10)
    tables = page_tables(300, 8, 0)
    isolated = [tables["page"].assign(id=np.arange(300) + 300 * copy) for copy in range(1, 11)]
    tables["page"] = pd.concat((tables["page"], *isolated))
    found = api.fit(MODEL, MODEL.ground(relcrf.Dataset(tables)), "ess").summary
    assert abs(found["label_log_likelihood_all_bp"] - found["label_log_likelihood_tree_exact"]) > 0.1


def test_shared_tables_of_pairs_do_not_change_probabilities(monkeypatch):
    """Test tables of links in both directions, which are transposes of each other, and of pairs with several links."""
    model = relcrf.parse(str(MODEL).replace("a.topic == b.topic", "a.topic, b.topic"))
    grounding = model.ground(relcrf.Dataset(page_tables(300, 8, 0)))
    fit = api.fit(model, grounding, "ess", edges="all", inference="bp")
    wanted = predict(fit, grounding).probabilities()
    monkeypatch.setattr(edge_classes, "MIN_CLASSIFIED_EDGES", 1)
    monkeypatch.setattr(pair_lanes, "MIN_SHARING_PAIRS", pair_lanes.LANES)
    problem = api.training_problem(grounding)
    (task,) = ess.EssBackend(edges="all", inference="bp").inference_tasks(problem, fit.learned.vectors)
    assert sum(lanes.shares_table for lanes in pair_lanes.PairLanes.from_scopes(task.graph.scopes)) >= 2
    np.testing.assert_allclose(predict(fit, grounding).probabilities(), wanted, atol=1e-10)


def test_large_components_are_not_compared(monkeypatch):
    monkeypatch.setattr(ess, "MAX_COMPARED_EDGES", 10)
    monkeypatch.setattr(ess, "MAX_TABLE_CELLS", 1000)
    found = api.fit(MODEL, MODEL.ground(relcrf.Dataset(page_tables(300, 8, 0))), "ess").summary
    assert (found["edges"], found["inference"]) == ("tree", "exact")
    assert not any(name.startswith("label_log_likelihood") for name in found)


def test_comparison_of_a_region_is_given_the_labels_around_it(monkeypatch):
    monkeypatch.setattr(ess, "MAX_COMPARED_EDGES", 10)
    monkeypatch.setattr(ess, "MAX_REGION_EDGES", 400)
    grounding = MODEL.ground(relcrf.Dataset(page_tables(300, 8, 0)))
    problem = api.training_problem(grounding)
    sample = ess._compared_sample(problem, "ess", 0.01)
    assert set(sample.roles.tolist()) == {Role.FREE, Role.CLAMPED}
    assert 350 < sample.reduced_graph("ess").n_edges <= 400 < problem.reduced_graph("ess").n_edges
    fit = api.fit(MODEL, grounding, "ess")
    assert (fit.summary["edges"], fit.summary["inference"]) == ("all", "bp")
    score = api.predict(fit, grounding, hidden=sample.roles == Role.FREE).score(subset=sample.roles == Role.FREE)
    assert fit.summary["label_log_likelihood_all_bp"] == pytest.approx(score.log_likelihood, abs=1e-9)


def test_dense_starts_at_the_maximum_of_the_pseudo_likelihood():
    training, testing = (MODEL.ground(relcrf.Dataset(page_tables(1200, 8, seed))) for seed in (0, 1))
    fit = api.fit(MODEL, training, "dense")
    pseudo = api.fit(MODEL, training, "pseudo", tolerance=1e-6)  # more accurate than the default by START_ACCURACY
    assert fit.summary["pseudo_iterations"] == pseudo.summary["weights_iterations"]
    accuracy = predict(fit, testing).score().accuracy
    assert accuracy > predict(api.fit(MODEL, training, "local"), testing).score().accuracy + 0.1


def test_exact_inference_keeps_the_structure_if_all_edges_are_too_many(monkeypatch):
    monkeypatch.setattr(elimination_order, "STEPS_PER_ALLOWED_CELL", 1e-6)
    data = relcrf.Dataset(page_tables(300, 8, 0))
    fit = MODEL.fit(data, "ess", inference="exact", max_iterations=5)
    assert (fit.summary["edges"], fit.summary["inference"]) == ("tree", "exact")
    with pytest.raises(UsageError, match="E381"):
        predict(fit, fit.ground(data), edges="all")


def test_cached_stages_are_those_of_other_settings():
    """The selection of settings learns a stage once for all settings on which it does not depend."""
    problem = api.training_problem(MODEL.ground(relcrf.Dataset(page_tables(60, 3, 0))))
    finished = {}
    for settings in (
        {},
        {"weights": "pairs"},
        {"treewidth": 2},
        {"edges": "tree", "inference": "mf"},
        {"pooling": 0.5},
    ):
        system = make_backend("ess", **settings)
        alone, cached = (system.fit(problem, monitor) for monitor in (Monitor(), StageCache(system, finished)))
        for name, vector in alone.vectors.items():
            np.testing.assert_array_equal(cached.vectors[name], vector, err_msg=f"{name} {settings}")
