"""Comparison of backends: equal folds, results of failed backends, and the error of marginals."""

import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from tables import small_web

import relcrf
from relcrf.backends.base import Monitor
from relcrf.backends.problems import training_problem
from relcrf.backends.registry import make_backend
from relcrf.errors import UsageError
from relcrf.evaluation import runner
from relcrf.evaluation.evaluations import compare, evaluate
from relcrf.evaluation.exactness import JOINT_BITS, MAX_VARIABLES, measure_exactness, sample_subgraphs
from relcrf.execution.isolated import IsolatedResult
from relcrf.graph.adjacency import adjacency_matrix
from relcrf.graph.reduction import Role, reduce_graph
from relcrf.inference.enumeration import Enumeration
from relcrf.resources import resource_path

NAME = "Page.category"

THREES = """
domain D = { x, y }
entity E { predict d : D }
relation R(a: E, b: E)
template p(e: E) over e.d
template three(a: E, b: E, c: E) where R(a, b) and R(b, c) over a.d == b.d and b.d == c.d
"""


@pytest.fixture(scope="module")
def grounding(tmp_path_factory):
    model = relcrf.load(resource_path("models", "webkb.rcrf"))
    return model.ground(relcrf.Dataset(small_web(tmp_path_factory.mktemp("web"))))


@pytest.fixture(scope="module")
def found(grounding):
    return compare(
        grounding,
        ["local", "ess", "pseudo"],
        "by=Page.school",
        jobs=2,
        n_subgraphs=5,
        settings={"ess": {"l2": 0.5}},
    )


def test_probabilities_equal_cross_validation(grounding, found):
    other = evaluate(grounding, ["ess"], "by=Page.school", settings={"ess": {"l2": 0.5}})
    for name in ("majority", "local", "ess"):
        for one, two in zip(found.predictions.by_system[name], other.predictions.by_system[name], strict=True):
            np.testing.assert_allclose(one.probabilities, two.probabilities, atol=1e-9)


def test_each_backend_has_scores_and_resources(found):
    whole = {**found.as_dict(), **found.resources_as_dict()}
    assert list(whole["backends"]) == ["local", "ess", "pseudo"]
    of = whole["attributes"][NAME]
    losses = {name: of["backends"][name]["log_loss"]["value"] for name in whole["backends"]}
    assert of["best"] == min(losses, key=losses.get)
    for name, row in of["backends"].items():
        gap = row["against_best"]["log_loss"]
        assert gap["value"] == pytest.approx(row["log_loss"]["value"] - losses[of["best"]])
        assert name != of["best"] or (gap["low"], gap["high"]) == (0.0, 0.0)
    for row in whole["backends"].values():
        assert row["status"] == "converged" and row["seconds_learn"] > 0 and row["error"] is None
        assert 2**27 < row["bytes_before"] < row["bytes_peak"] < 2**33
        assert row["exactness"]["n_subgraphs"] == 5 <= row["exactness"]["n_variables"]
    assert whole["backends"]["local"]["exactness"]["divergence"] < 1e-9
    assert whole["backends"]["pseudo"]["exactness"]["max_error"] < 1e-9, "auto is exact on small graphs"


def test_backend_that_rejects_the_model_has_a_result():
    e = pd.DataFrame({"id": range(30), "d": ["x", "x", "y"] * 10})
    r = pd.DataFrame({"a": range(29), "b": range(1, 30)})
    grounding = relcrf.parse(THREES).ground(relcrf.Dataset({"e": e, "r": r}))
    found = compare(grounding, ["ess", "pseudo"], "random", jobs=2)
    assert found.results["ess"].error.code == "E302"
    assert found.results["ess"].status.startswith("E302: backend 'ess' supports factors over at most two")
    assert found.results["pseudo"].status == "converged" and found.predictions.best_system("E.d") == "pseudo"
    assert set(found.predictions.systems) == {"majority", "pseudo"}
    whole = found.resources_as_dict()["backends"]["ess"]
    assert whole["error"]["code"] == "E302" and whole["seconds_learn"] is None


def test_backend_that_dies_or_times_out_has_a_result(grounding, tmp_path, monkeypatch):
    """Use a third-party backend, found by its entry point in the separate processes as well."""
    package = tmp_path / "strangers.py"
    package.write_text(
        "import os, time\nfrom relcrf.backends.local import LocalBackend\n"
        "class Dying(LocalBackend):\n    name = 'dying'\n    def fit(self, problem, monitor):\n        os._exit(9)\n"
        "class Endless(LocalBackend):\n    name = 'endless'\n    def fit(self, problem, monitor):\n        time.sleep(600)\n"
    )
    info = tmp_path / "strangers-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: strangers\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[relcrf.backends]\ndying = strangers:Dying\nendless = strangers:Endless\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = compare(grounding, ["dying", "local"], "random", jobs=2, time_limit=600.0, n_subgraphs=0)
    assert found.results["dying"].error.code == "E355" and "died" in found.results["dying"].status
    assert found.results["local"].status == "converged"
    found = compare(grounding, ["endless"], "random", time_limit=1.0, n_subgraphs=0)
    assert found.results["endless"].status == "E355: backend 'endless' was stopped after 1 seconds"
    assert found.predictions.best_system(NAME) == "majority", "no backend is left"
    sys.modules.pop("strangers", None)


def test_finished_backends_are_kept_after_an_interruption(grounding, monkeypatch):
    def run_and_interrupt(tasks, jobs, time_limit):
        for number in finished:
            yield IsolatedResult(number, tasks[number]())
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "run_isolated", run_and_interrupt)
    finished = [1]
    found = compare(grounding, ["ess", "local"], "random,folds=2", n_subgraphs=0)
    assert found.interrupted and found.predictions.systems == ("majority", "local")
    assert found.results["ess"].status == "E355: backend 'ess' was interrupted"
    assert found.results["local"].status == "converged"
    finished = []
    with pytest.raises(KeyboardInterrupt):
        compare(grounding, ["ess", "local"], "random,folds=2", n_subgraphs=0)


def test_invalid_comparisons_raise_error(grounding):
    for backends, jobs, code in (([], 1, "E354"), (["ess"], 0, "E354"), (["ass"], 1, "E301")):
        with pytest.raises(UsageError, match=code):
            compare(grounding, backends, jobs=jobs)
    with pytest.raises(UsageError, match="E304"):
        compare(grounding, ["local"], settings={"local": {"treewidth": 2}})


@pytest.fixture(scope="module")
def problem(grounding):
    return training_problem(grounding)


def test_subgraphs_are_small_connected_and_disjoint(problem):
    chosen, parts = sample_subgraphs(problem, 6, 0)
    labelled = (problem.roles == Role.FREE) & (problem.states >= 0)
    assert parts >= 3 and not (chosen & ~labelled).any()
    roles = np.where(chosen, Role.FREE, Role.CLAMPED).astype(np.int8)
    graph = reduce_graph(problem.graph, roles, problem.states)
    sizes = component_sizes(graph)
    assert len(sizes) == parts and max(sizes) <= MAX_VARIABLES
    assert max(sizes) * np.log2(5) <= JOINT_BITS
    other, _ = sample_subgraphs(problem, 6, 1)
    assert not np.array_equal(chosen, other)
    np.testing.assert_array_equal(chosen, sample_subgraphs(problem, 6, 0)[0])


def component_sizes(graph):
    of = np.arange(graph.n_nodes)
    for _ in range(graph.n_nodes):
        for a, b in graph.edges:
            of[a] = of[b] = min(of[a], of[b])
    return np.unique(of, return_counts=True)[1].tolist()


@pytest.mark.parametrize("backend", ["ess", "chow-liu", "dense", "local"])
def test_exactness_equals_enumeration(problem, backend):
    """Compare with enumeration of a single subgraph."""
    system = make_backend(backend, **({"edges": "tree"} if backend == "ess" else {}))
    learned = system.fit(problem, Monitor())
    system = learned.configure(system)
    chosen, parts = sample_subgraphs(problem, 1, 3)
    assert parts == 1 and chosen.sum() >= 4
    found = measure_exactness(system, learned, problem, chosen, parts)
    labelled = (problem.roles == Role.FREE) & (problem.states >= 0)
    roles = np.where(chosen, Role.FREE, np.where(labelled, Role.CLAMPED, Role.ABSENT)).astype(np.int8)
    graph = reduce_graph(problem.graph, roles, problem.states)
    truth = Enumeration(graph.scopes).marginals(graph.potentials(learned.vectors["weights"])).nodes
    marginals = system.infer(replace(problem, roles=roles), learned.vectors).marginals
    assert found.max_error == pytest.approx(np.abs(truth - marginals).max(), abs=1e-9)
    assert found.divergence == pytest.approx((truth * np.log(truth / marginals)).sum() / chosen.sum(), abs=1e-9)
    assert found.n_variables == chosen.sum()
    if backend == "local":
        assert found.divergence < 1e-9, "its pairwise weights are 0"
    if backend == "ess":
        assert found.max_error > 1e-4, "the subgraph has cycles, which a forest omits"


def test_repeated_rows_have_one_subgraph_each():
    model = relcrf.load(resource_path("models", "sensors.rcrf"))
    rng = np.random.default_rng(0)
    moments = pd.DataFrame({"id": [f"t{k}" for k in range(6)]})
    reading = pd.DataFrame([(f"t{k}", f"s{s}", int(rng.integers(1, 6))) for k in range(6) for s in range(30)])
    reading.columns = ["m", "s", "value"]
    grounding = model.ground(relcrf.Dataset({"moment": moments, "reading": reading}))
    problem = training_problem(grounding)
    chosen, parts = sample_subgraphs(problem, 20, 0)
    assert parts == 6
    assert np.count_nonzero(chosen.reshape(6, 30), axis=1).max() <= JOINT_BITS / np.log2(5)


def test_adjacency_matrix_contains_all_links(grounding):
    adjacency = adjacency_matrix(grounding.graph)
    dense = adjacency.toarray()
    assert (dense == dense.T).all() and not dense.diagonal().any()
    (links,) = [group for group in grounding.graph.groups if len(group.scope) == 2]
    expected = {(int(a), int(b)) for a, b in zip(*links.scope, strict=True)}
    assert set(zip(*map(list, dense.nonzero()), strict=True)) == expected | {(b, a) for a, b in expected}
