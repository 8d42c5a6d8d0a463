"""Tests of the structures of structured backends (trees, thin graphs, regularisation) and of joint likelihoods."""

import itertools
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from installed_backends import GENERAL
from tables import small_web

import relcrf
from relcrf import api
from relcrf.backends import sharded
from relcrf.backends.base import Problem
from relcrf.backends.inference_result import average_results
from relcrf.backends.registry import make_backend
from relcrf.errors import UsageError
from relcrf.execution.serial import SerialExecutor
from relcrf.graph.reduction import Role, reduce_graph
from relcrf.inference.result import Verdict
from relcrf.resources import resource_path
from relcrf.structure.conditional_chow_liu import EdgeSelector
from relcrf.structure.edge_kinds import edge_kind_values

SENSORS = """
domain Sensor = open
domain Level = { low, middle, high }
entity Moment { sun : real }
predict relation warm(m: Moment, s: Sensor) : Level
template alone(m: Moment, s: Sensor) over warm(m, s) per s by 1, m.sun
template pair(m: Moment, s: Sensor, t: Sensor) where s < t over warm(m, s), warm(m, t) per s, t by 1, m.sun
"""


def sensor_tables(rows=120, seed=0):
    """Return six sensors in two chains, 1-2-3 and 4-5-6, which are linked at 3-4 in the sun and at 1-6 in the shade."""
    rng = np.random.default_rng(seed)
    sun = rng.integers(2, size=rows).astype(float)
    readings = []
    for m in range(rows):
        state = np.empty(6, dtype=int)
        follow = ((0, None), (1, 0), (2, 1), (3, 2), (4, 3), (5, 4)) if sun[m] > 0.5 else (
            (0, None), (1, 0), (2, 1), (5, 0), (4, 5), (3, 4)
        )  # fmt: skip
        for s, before in follow:
            copy = before is not None and rng.random() < 0.8
            state[s] = state[before] if copy else rng.integers(3)
        readings += [(f"m{m:03}", f"s{s}", ("low", "middle", "high")[state[s]]) for s in range(6)]
    columns = dict(zip(("m", "s", "value"), map(list, zip(*readings, strict=True)), strict=True))
    moments = {"id": [f"m{m:03}" for m in range(rows)], "sun": sun}
    return {"moment": moments, "warm": columns}


@pytest.fixture(scope="module")
def sensors():
    model = relcrf.parse(SENSORS)
    return model, model.ground(relcrf.Dataset(sensor_tables()))


@pytest.fixture(scope="module")
def few_rows():
    model = relcrf.parse(SENSORS)
    return model, model.ground(relcrf.Dataset(sensor_tables(rows=40)))


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    model = relcrf.load(resource_path("models", "webkb.rcrf"))
    return model, model.ground(relcrf.Dataset(small_web(tmp_path_factory.mktemp("web"), pages=40)))


def edges_by_row(found, grounding):
    """Return the linked sensors at each time."""
    pairs = np.sort(found.inferred.edges, axis=1)
    rows = {}
    for a, b in pairs.tolist():
        assert a // 6 == b // 6
        rows.setdefault(a // 6, set()).add((a % 6, b % 6))
    return rows


@pytest.mark.parametrize("backend", GENERAL)
def test_joint_of_one_hidden_label_is_its_marginal(web, backend):
    model, grounding = web
    fit = api.fit(model, grounding, backend, **({"edges": "tree"} if backend == "ess" else {}))
    labelled = np.flatnonzero(grounding.states >= 0)
    for v in labelled[:3]:
        hidden = np.arange(len(grounding.states)) == v
        only = relcrf.api.predict(fit, grounding, hidden=hidden)
        at = int(np.searchsorted(only.inferred.variables, v))
        probability = only.inferred.marginals[only.inferred.state_start[at] + grounding.states[v]]
        joint = api.joint_log_likelihood(fit, grounding, hidden=hidden)
        # Unlabelled variables are summed out; if that is approximate, so is the difference of the log partitions.
        assert joint == pytest.approx(
            np.log(probability), abs=1e-9 if backend in ("local", "ess", "chow-liu") else 1e-3
        )


def enumerate_log_probability(graph, weights, states, asked):
    """Return log P(states of the query nodes | those of all others), if the graph contains all nodes."""
    potentials = graph.potentials(weights)
    every = [range(k) if free else (int(s),) for k, s, free in zip(graph.cardinality, states, asked, strict=True)]
    scores = [graph.scopes.score(potentials, np.array(s, dtype=np.int32)) for s in itertools.product(*every)]
    return graph.scopes.score(potentials, states) - np.logaddexp.reduce(scores)


@pytest.mark.parametrize(
    "settings", [{}, {"treewidth": 2}, {"observed_edges": "tree"}, {"observed_edges": "tree", "treewidth": 3}]
)
def test_joint_log_likelihood_by_enumeration(sensors, settings):
    """Three sensors are queried at two times, and the other labels are observed."""
    model, grounding = sensors
    fit = api.fit(model, grounding, "ess", **settings)
    vectors = fit.learned.vectors_for(grounding)
    system = fit.learned.configure_backend()
    hidden = np.isin(np.arange(len(grounding.states)), [0, 2, 3, 7, 8, 11])
    roles = np.where(hidden, Role.FREE, Role.CLAMPED).astype(np.int8)
    problem = Problem(grounding.graph, roles, grounding.states)
    graph = system.joint_likelihood(problem, vectors).graph(problem)
    if settings.get("observed_edges") == "tree":
        assert graph.n_nodes == len(grounding.states)
        few = graph.variables < 12
        assert few[:12].all()
        problem = Problem(grounding.graph, np.where(few, roles, Role.ABSENT).astype(np.int8), grounding.states)
        graph = system.joint_likelihood(problem, vectors).graph(problem)
    asked = hidden[graph.variables]
    wanted = enumerate_log_probability(graph, vectors["weights"], grounding.states[graph.variables], asked)
    assert api.joint_log_likelihood(fit, grounding, hidden=hidden) == pytest.approx(wanted, abs=1e-8)
    # The marginals belong to the same distribution: for a single query they agree.
    found = api.predict(fit, grounding, hidden=hidden)
    np.testing.assert_array_equal(found.inferred.variables, np.flatnonzero(hidden))
    np.testing.assert_allclose(found.probabilities().sum(axis=1), 1.0)


def test_the_fixed_tree_is_that_of_networkx_in_every_row(sensors):
    model, grounding = sensors
    fit = api.fit(model, grounding, "chow-liu")
    table = grounding.states.reshape(-1, 6)
    graph = nx.Graph()
    for s, t in itertools.combinations(range(6), 2):
        joint = np.zeros((3, 3))
        np.add.at(joint, (table[:, s], table[:, t]), 1 / len(table))
        independent = np.outer(joint.sum(axis=1), joint.sum(axis=0))
        graph.add_edge(s, t, weight=(joint[joint > 0] * np.log(joint[joint > 0] / independent[joint > 0])).sum())
    wanted = {tuple(sorted(e)) for e in nx.maximum_spanning_tree(graph).edges}
    found = edges_by_row(api.predict(fit, grounding, hidden=np.ones(len(grounding.states), dtype=bool)), grounding)
    assert len(found) == 120
    assert all(row == wanted for row in found.values())


def test_the_structure_follows_the_evidence_and_is_regularised():
    model, tables = relcrf.parse(SENSORS), sensor_tables(rows=500)
    grounding = model.ground(relcrf.Dataset(tables))
    everything = np.ones(len(grounding.states), dtype=bool)
    sun = np.array(tables["moment"]["sun"])
    plain = api.predict(api.fit(model, grounding, "ess"), grounding, hidden=everything)
    rows = edges_by_row(plain, grounding)
    assert np.mean([(2, 3) in rows[m] for m in np.flatnonzero(sun > 0.5)]) > 0.95
    assert np.mean([(0, 5) in rows[m] for m in np.flatnonzero(sun < 0.5)]) > 0.95
    seen = {pair: np.mean([pair in row for row in rows.values()]) for row in rows.values() for pair in row}
    fit = api.fit(model, grounding, "ess", min_fraction=0.6)
    kept = set().union(*edges_by_row(api.predict(fit, grounding, hidden=everything), grounding).values())
    assert kept == {pair for pair, share in seen.items() if share >= 0.6} < set(seen)
    fit = api.fit(model, grounding, "ess", pooling=1.0)
    tree = api.fit(model, grounding, "chow-liu")
    asked = {"hidden": everything}
    np.testing.assert_array_equal(*(api.predict(f, grounding, **asked).inferred.edges for f in (fit, tree)))
    likelihoods = [api.joint_log_likelihood(f, grounding, **asked) for f in (fit, tree)]
    assert likelihoods[0] == pytest.approx(likelihoods[1], rel=1e-4)
    strict = api.fit(model, grounding, "ess", min_information=100.0)
    assert strict.summary["forest_edges"] == 0


def test_width_adds_edges_up_to_the_dense_model(few_rows):
    model, grounding = few_rows
    everything = np.ones(len(grounding.states), dtype=bool)
    found = []
    for width in (1, 2, 5):
        fit = api.fit(model, grounding, "ess", treewidth=width, l2=0.1)
        found.append((fit.summary["forest_edges"], api.joint_log_likelihood(fit, grounding, hidden=everything)))
    assert [edges for edges, _ in found] == [40 * 5, 40 * 9, 40 * 15]
    dense = api.fit(model, grounding, "dense", inference="jt", l2=0.1)
    assert found[2][1] == pytest.approx(api.joint_log_likelihood(dense, grounding, hidden=everything), rel=1e-4)


def test_dense_learning_by_any_method_is_better_than_local(sensors):
    model, grounding = sensors
    hidden = np.arange(len(grounding.states)) % 3 == 0
    local = api.predict(api.fit(model, grounding, "local"), grounding, hidden=hidden).score()
    for settings in ({"inference": "jt"}, {}, {"objective": "pseudo"}):
        found = api.predict(api.fit(model, grounding, "dense", **settings), grounding, hidden=hidden).score()
        assert found.log_likelihood > local.log_likelihood + 0.2


def test_averaged_structures(sensors):
    """Marginals and joint probabilities are the means over the structures; the first structure is that of `ess`."""
    model, grounding = sensors
    hidden = np.arange(len(grounding.states)) < 6
    fit = api.fit(model, grounding, "ess")
    vectors = fit.learned.vectors_for(grounding)
    system = make_backend("ess", trees=3)
    problem = Problem(grounding.graph, np.where(hidden, Role.FREE, Role.CLAMPED).astype(np.int8), grounding.states)
    graphs = system.joint_likelihood(problem, vectors).graphs(problem)
    assert len({tuple(map(tuple, graph.edges)) for graph in graphs}) == 3
    joints, marginals = [], []
    for graph in graphs:
        joints.append(
            enumerate_log_probability(graph, vectors["weights"], grounding.states[:6], np.ones(6, dtype=bool))
        )
        every = np.array(list(itertools.product(range(3), repeat=6)), dtype=np.int32)
        potentials = graph.potentials(vectors["weights"])
        p = np.exp(np.array([graph.scopes.score(potentials, s) for s in every]))
        marginals.append([[p[every[:, v] == x].sum() / p.sum() for x in range(3)] for v in range(6)])
    found = api.predict(fit, grounding, hidden=hidden, trees=3)
    np.testing.assert_allclose(found.probabilities(), np.mean(marginals, axis=0), atol=1e-9)
    joint = api.joint_log_likelihood(fit, grounding, hidden=hidden, trees=3)
    assert joint == pytest.approx(np.logaddexp.reduce(joints) - np.log(3), abs=1e-9)
    assert (found.inferred.map_states == found.probabilities().argmax(axis=1)).all()
    alone = api.predict(fit, grounding, hidden=hidden)
    np.testing.assert_allclose(alone.probabilities(), marginals[0], atol=1e-9)
    unfinished = replace(alone.inferred, verdict=Verdict("not converged", 9))
    assert average_results([alone.inferred, unfinished]).verdict == unfinished.verdict


def test_the_margin_objective_predicts_and_refuses_latent_attributes(web):
    model, grounding = web
    hidden = np.arange(len(grounding.states)) % 4 == 0
    soft, hard = (
        api.predict(api.fit(model, grounding, "ess", hidden=hidden, objective=o), grounding, hidden=hidden)
        for o in ("likelihood", "margin")
    )
    assert hard.score(subset=hidden).accuracy >= soft.score(subset=hidden).accuracy - 0.1 > 0.4
    assert (hard.inferred.marginals != soft.inferred.marginals).any()
    latent = relcrf.load(resource_path("models", "latent.rcrf"))
    tables = {
        "page": {"id": ["a", "b"], "category": ["x", "y"]},
        "page_words": {"page": ["a", "b"], "word": ["u", "v"]},
        "link": {"source": ["a"], "target": ["b"]},
    }
    for backend, settings in (("ess", {"objective": "margin"}), ("chow-liu", {})):
        with pytest.raises(UsageError, match="E307"):
            latent.fit(relcrf.Dataset(tables), backend, **settings)


@pytest.mark.parametrize(
    "backend, settings",
    [
        ("ess", {"objective": "hinge"}),
        ("ess", {"observed_edges": "both"}),
        ("ess", {"treewidth": 0}),
        ("ess", {"sharpness": 0}),
        ("ess", {"trees": 0}),
        ("dense", {"inference": "gibbs"}),
        ("dense", {"objective": "bp"}),
        ("pseudo", {"inference": "gibbs", "sweeps": 0}),
        ("pseudo", {"inference": "gibbs", "chains": 0}),
    ],
)
def test_invalid_settings_raise_before_work(backend, settings):
    with pytest.raises(UsageError, match="E305"):
        make_backend(backend, **settings)


@pytest.mark.parametrize("inference", ["forest", "enumeration"])
def test_unsupported_method_raises_error(sensors, inference):
    model, grounding = sensors
    with pytest.raises(UsageError, match=r"E381[\s\S]*'dense'"):
        api.fit(model, grounding, "dense", inference=inference)
    fit = api.fit(model, grounding, "pseudo")
    everything = np.ones(len(grounding.states), dtype=bool)
    for ask in (api.predict, api.joint_log_likelihood):
        with pytest.raises(UsageError, match=r"E381[\s\S]*'pseudo'"):
            ask(fit, grounding, hidden=everything, inference=inference)


@pytest.mark.parametrize("setting", ["min_fraction", "pooling"])
def test_settings_without_learned_vectors_raise_error(sensors, setting):
    model, grounding = sensors
    fit = api.fit(model, grounding, "ess")
    with pytest.raises(UsageError, match=rf"E305[\s\S]*without setting '{setting}'"):
        api.predict(fit, grounding, hidden=np.ones(len(grounding.states), dtype=bool), **{setting: 0.2})


@pytest.mark.parametrize("pooling", [0.3, 1.0])
def test_pooling_blends_the_information_of_kinds(sensors, pooling):
    _, grounding = sensors
    graph = reduce_graph(grounding.graph, np.zeros(grounding.graph.n_variables, dtype=np.int8), grounding.states)
    rng = np.random.default_rng(3)
    information = rng.random(graph.n_edges)
    of_kinds = rng.random(graph.graph.layout.size)
    (found,) = EdgeSelector(pooling=pooling).select(graph, information, label_information=of_kinds)
    blend = (1 - pooling) * information + pooling * edge_kind_values(graph, of_kinds)
    np.testing.assert_array_equal(found.edges, EdgeSelector().select(graph, blend)[0].edges)


def test_cliques_beyond_memory_raise_error(sensors, monkeypatch):
    from relcrf.backends import exact

    model, grounding = sensors
    monkeypatch.setattr(exact, "MAX_CELLS", 100)
    with pytest.raises(UsageError, match=r"E308[\s\S]*width"):
        api.fit(model, grounding, "ess", treewidth=2)


def test_shards_learn_the_same_structures(few_rows, monkeypatch):
    """Shards give the same structures; labelled neighbours in the tree require the whole graph."""
    monkeypatch.setattr(sharded, "SHARD_FACTORS", 100)
    model, grounding = few_rows
    everything = np.ones(len(grounding.states), dtype=bool)
    for backend, settings in (
        ("ess", {"min_fraction": 0.25, "pooling": 0.5}),
        ("ess", {"treewidth": 2}),
        ("chow-liu", {}),
        # With strong pairs, the likelihood by loopy propagation jumps on these complete graphs.
        ("dense", {"l2": 100.0}),
    ):
        options = {"tolerance": 1e-9, "max_iterations": 1000, **settings}
        whole, pieces = (api.fit(model, grounding, backend, executor=e, **options) for e in (None, SerialExecutor()))
        for name, vector in whole.learned.vectors.items():
            np.testing.assert_allclose(pieces.learned.vectors[name], vector, atol=1e-3)
        one, many = (
            api.joint_log_likelihood(whole, grounding, hidden=everything, executor=e) for e in (None, SerialExecutor())
        )
        assert many == pytest.approx(one, rel=1e-9)
    fit = api.fit(model, grounding, "ess", observed_edges="tree")
    for ask in (api.predict, api.joint_log_likelihood):
        with pytest.raises(UsageError, match="E309"):
            ask(fit, grounding, hidden=everything, executor=SerialExecutor())


COPIES = """
domain Topic = { a, b, c }
entity Page { predict topic : Topic, hint : Topic }
relation Link(x: Page, y: Page)
template hint(p: Page) over p.topic per p.hint
template linked(p: Page, q: Page) where Link(p, q) over p.topic == q.topic
"""


def test_loopy_propagation_does_not_exaggerate_strong_links():
    """Where most links join equal topics, the likelihood jumps; the weight is still near that of exact inference."""
    model, names, errors = relcrf.parse(COPIES), np.array(["a", "b", "c"], dtype=object), []
    for n_wrong, steps, seed in itertools.product((1, 6), ((1, 2, 5), (1, 2)), range(2)):
        rng = np.random.default_rng(seed)
        topic = np.arange(60) % 3
        hint = np.where(rng.random(60) < 0.5, topic, rng.integers(3, size=60))
        wrong = rng.choice(60, n_wrong, replace=False)
        topic[wrong] = (topic[wrong] + 1) % 3
        x, y = np.array([(p, (p + 3 * k) % 60) for p in range(60) for k in steps]).T
        page = {"id": np.arange(60), "topic": names[topic], "hint": names[hint]}
        data = relcrf.Dataset({"page": page, "link": {"x": x, "y": y}})
        grounding = model.ground(data)
        fits = [api.fit(model, grounding, "dense", inference=name) for name in ("bp", "jt")]
        found, expected = (fit.learned.vectors["weights"][-1] for fit in fits)
        errors.append(abs(found - expected))
    assert np.mean(errors) < 0.08, errors  # 0.03; with messages that start near another fixed point, 0.2
