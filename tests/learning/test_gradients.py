"""Tests of the gradients of all objectives against finite differences, and of the likelihood against enumeration."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from graphs import dense_features, joint_score, random_graph
from objectives import finite_differences, problem

from relcrf.backends.base import Problem
from relcrf.backends.whole_graph import WholeGraphSpec
from relcrf.graph import edge_classes, table_matrix
from relcrf.graph.blanket import blanket_graph
from relcrf.graph.factor_graph import FactorGraph, FactorGroup
from relcrf.graph.features import Dense, Ones
from relcrf.graph.reduction import Role, reduce_graph
from relcrf.graph.scopes import Potentials
from relcrf.graph.table_matrix import MAX_ENTRIES
from relcrf.graph.weights import WeightBlock, WeightLayout
from relcrf.inference import pair_lanes
from relcrf.inference.belief_propagation import BeliefPropagation
from relcrf.inference.enumeration import Enumeration
from relcrf.inference.forest import BLOCK_SIZE, ForestPlan
from relcrf.inference.junction_tree import JunctionTree
from relcrf.learning.likelihood import ForestLikelihood, InferredLikelihood, add_l2_penalty
from relcrf.learning.pair_likelihood import PairLikelihood


@pytest.fixture(params=[-1, MAX_ENTRIES], ids=["kernels", "matrices"])
def max_entries(request, monkeypatch):
    """Compute tables by the kernels of the groups or by sparse matrices."""
    monkeypatch.setattr(table_matrix, "MAX_ENTRIES", request.param)


def make(kind, graph, states):
    return kind.build(graph, states) if kind is ForestLikelihood else kind(graph, states)


@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize("kind", [ForestLikelihood, PairLikelihood])
def test_gradient(kind, seed, max_entries):
    graph, states, weights = problem(seed, forest=kind is ForestLikelihood)
    size = graph.graph.layout.size
    rng = np.random.default_rng(seed)
    objective = add_l2_penalty(
        make(kind, graph, states), rng.random(size), rng.random(size) < 0.9, rng.normal(size=size)
    )
    _, gradient = objective(weights)
    free = gradient != 0
    np.testing.assert_allclose(gradient[free], finite_differences(objective, weights)[free], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize("kind", [ForestLikelihood, PairLikelihood])
def test_gradient_with_latent_states(kind, seed):
    graph, states, weights = problem(seed, forest=kind is ForestLikelihood)
    states = np.where(np.random.default_rng(seed).random(len(states)) < 0.4, -1, states)
    objective = make(kind, graph, states)
    _, gradient = objective(weights)
    np.testing.assert_allclose(gradient, finite_differences(objective, weights), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", range(10))
def test_latent_states_are_summed_out(seed, max_entries):
    graph, states, weights = problem(seed, forest=True)
    latent = np.arange(len(states)) % 3 == seed % 3
    choices = zip(states, graph.cardinality, latent, strict=True)
    every = itertools.product(*(range(k) if hidden else (x,) for x, k, hidden in choices))
    potentials = graph.potentials(weights)
    joint = np.logaddexp.reduce([graph.scopes.score(potentials, np.array(s)) for s in every])
    exact = joint - Enumeration(graph.scopes).marginals(potentials).log_partition
    assert ForestLikelihood.build(graph, np.where(latent, -1, states))(weights)[0] == pytest.approx(-exact)


@pytest.mark.parametrize("seed", range(15))
def test_pseudo_likelihood_is_the_sum_of_conditionals(seed, max_entries):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, n_variables=5, max_arity=3)
    roles = rng.choice([Role.FREE, Role.FREE, Role.FREE, Role.CLAMPED, Role.ABSENT], size=5).astype(np.int8)
    states = np.array([rng.integers(k) for k in graph.cardinality])
    weights = rng.normal(size=graph.layout.size)
    expected = 0.0
    for v in np.flatnonzero(roles == Role.FREE):
        scores = []
        for x in range(graph.cardinality[v]):
            changed = states.copy()
            changed[v] = x
            scores.append(joint_score(without_absent(graph, roles), weights, changed))
        expected += scores[states[v]] - np.logaddexp.reduce(scores)
    blanket = blanket_graph(graph, roles, states)
    objective = ForestLikelihood.build(blanket, states[blanket.variables])
    assert objective(weights)[0] == pytest.approx(-expected)
    np.testing.assert_allclose(objective(weights)[1], finite_differences(objective, weights), rtol=1e-5, atol=1e-6)


def without_absent(graph, roles):
    """Return the graph without the factors that touch an absent variable."""
    groups = []
    for group in graph.groups:
        keep = [n for n in range(group.n_factors) if all(roles[v[n]] != Role.ABSENT for v in group.scope)]
        dense = dense_features(group.features)[keep]
        groups.append(replace(group, scope=tuple(v[keep] for v in group.scope), features=Dense(dense)))
    return replace(graph, groups=tuple(groups))


@pytest.mark.parametrize("seed", range(15))
def test_forest_likelihood_is_the_likelihood(seed, max_entries):
    graph, states, weights = problem(seed, forest=True)
    potentials = graph.potentials(weights)
    exact = graph.scopes.score(potentials, states) - Enumeration(graph.scopes).marginals(potentials).log_partition
    assert ForestLikelihood.build(graph, states)(weights)[0] == pytest.approx(-exact)


@pytest.mark.parametrize("seed", range(10))
def test_pair_likelihood_is_the_sum_of_pair_models(seed):
    graph, states, weights = problem(seed, forest=False)
    total = 0.0
    for e in range(graph.n_edges):
        total += pair_log_likelihood(graph, weights, e, states)
    nodes = graph.node_log_potentials(weights)
    for v in set(range(graph.n_nodes)) - set(graph.edges.ravel().tolist()):
        table = nodes[graph.state_start[v] : graph.state_start[v + 1]]
        total += table[states[v]] - np.log(np.exp(table).sum())
    assert PairLikelihood(graph, states)(weights)[0] == pytest.approx(-total)


def pair_log_likelihood(graph, weights, e, states):
    i, j = graph.edges[e]
    nodes = graph.node_log_potentials(weights)
    table = graph.edge_log_potentials(weights, e, e + 1).reshape(graph.cardinality[i], graph.cardinality[j])
    table = table + nodes[graph.state_start[i] : graph.state_start[i + 1], None]
    table = table + nodes[None, graph.state_start[j] : graph.state_start[j + 1]]
    return table[states[i], states[j]] - np.log(np.exp(table).sum())


def linked_forest(rng, features):
    """Return a forest of nodes of 2 and 3 states with factors of three templates, two of them in the same direction."""
    n = 900
    cardinality = np.where(np.arange(n) % 3 == 0, 3, 2).astype(np.int32)
    edges = np.array([(rng.integers(max(0, v - 6), v), v) for v in range(1, n) if v % 20], dtype=np.int32)
    edges[::3] = edges[::3, ::-1]
    layout, groups = [], []
    for name, share in (("follows", 1.0), ("cites", 0.4), ("cites again", 0.4)):
        for sizes in ((2, 2), (2, 3), (3, 2), (3, 3)):
            fits = (cardinality[edges] == sizes).all(axis=1) & (rng.random(len(edges)) < share)
            scope = tuple(np.ascontiguousarray(edges[fits, place]) for place in range(2))
            patterns = None if name == "follows" else (rng.random((sizes[0] * sizes[1], 2)) < 0.5).astype(float)
            n_patterns = sizes[0] * sizes[1] if patterns is None else 2
            groups.append(FactorGroup(scope, sizes, features(int(fits.sum())), patterns, len(layout)))
            layout.append(WeightBlock(name, 1, n_patterns))
    bias = np.flatnonzero(cardinality == 3).astype(np.int32)
    groups.append(FactorGroup((bias,), (3,), Dense(rng.normal(size=(len(bias), 1))), None, len(layout)))
    layout.append(WeightBlock("bias", 1, 3))
    return FactorGraph(cardinality, tuple(groups), WeightLayout(tuple(layout)))


@pytest.mark.parametrize("block", [30, BLOCK_SIZE])
@pytest.mark.parametrize("scale", [1.0, 400.0, 1e4])
@pytest.mark.parametrize("latent", [0.0, 0.3])
def test_shared_edge_tables_match_separate_ones_and_matrices(block, scale, latent, monkeypatch):
    found = []
    for features, max_entries in ((Ones, -1), (lambda n: Dense(np.ones((n, 1))), -1), (Ones, MAX_ENTRIES)):
        monkeypatch.setattr(table_matrix, "MAX_ENTRIES", max_entries)
        rng = np.random.default_rng(3)
        graph = linked_forest(rng, features)
        states = np.where(rng.random(900) < latent, -1, rng.integers(2, size=900))
        reduced = reduce_graph(graph, np.zeros(900, dtype=np.int8), states)
        plan = ForestPlan.from_scopes(reduced.scopes, block)
        arranged = reduced.reordered(plan.order, plan.edge[plan.edge >= 0])
        objective = ForestLikelihood(plan, arranged, states[plan.order])
        found.append(objective(scale * np.random.default_rng(4).normal(size=graph.layout.size)))
        assert (objective._shared_tables is None) == (features is not Ones)
        assert (objective._matrices is None) == (max_entries < 0)
    value, gradient = found[0]
    for other_value, other_gradient in found[1:]:
        assert value == pytest.approx(other_value, rel=1e-12)
        np.testing.assert_allclose(gradient, other_gradient, atol=1e-8)


def mixed_graph(rng, n=6, k=3):
    """Return a cycle with some edges that only depend on agreement, and two factors over three variables."""
    agree = np.eye(k).reshape(-1, 1)
    loop = np.array([(v, (v + 1) % n) for v in range(n)], dtype=np.int32)
    triples = np.array([(0, 2, 4), (1, 3, 5)], dtype=np.int32)
    groups, blocks = [], []
    for rows, patterns, features in (
        (loop, agree, Dense(rng.normal(size=(n, 2)))),
        (loop[:3, ::-1], agree, Ones(3)),
        (loop[2:4], None, Ones(2)),
        (triples, rng.normal(size=(k**3, 2)), Dense(rng.normal(size=(2, 1)))),
        (np.arange(n, dtype=np.int32)[:, None], None, Dense(rng.normal(size=(n, 1)))),
    ):
        scope = tuple(np.ascontiguousarray(rows[:, place]) for place in range(rows.shape[1]))
        groups.append(FactorGroup(scope, (k,) * rows.shape[1], features, patterns, len(blocks)))
        blocks.append(WeightBlock(f"t{len(blocks)}", features.n_features, groups[-1].n_patterns))
    return FactorGraph(np.full(n, k, dtype=np.int32), tuple(groups), WeightLayout(tuple(blocks)))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("latent", [0.0, 0.4])
def test_likelihood_by_a_method_of_inference(seed, latent):
    """The graph has cycles, factors over three variables, agreements, evidence and latent states."""
    rng = np.random.default_rng(seed)
    graph = mixed_graph(rng)
    roles = np.where(rng.random(6) < 0.2, Role.CLAMPED, Role.FREE).astype(np.int8)
    states = rng.integers(3, size=6)
    reduced = reduce_graph(graph, roles, states)
    states = np.where(rng.random(6) < latent, -1, states)[reduced.variables]
    weights = rng.normal(size=graph.layout.size)
    objective = InferredLikelihood(reduced, states, JunctionTree)
    value, gradient = objective(weights)
    np.testing.assert_allclose(gradient, finite_differences(objective, weights), rtol=1e-5, atol=1e-6)
    potentials = reduced.potentials(weights)
    every = itertools.product(*(range(3) if s < 0 else (s,) for s in states))
    clamped = np.logaddexp.reduce([reduced.scopes.score(potentials, np.array(s)) for s in every])
    assert value == pytest.approx(Enumeration(reduced.scopes).marginals(potentials).log_partition - clamped)
    # At fixed points of belief propagation, the gradient is the derivative of the Bethe value.
    bethe = InferredLikelihood(
        reduced, states, lambda scopes: BeliefPropagation(scopes, damping=0.3, tolerance=1e-12, max_iterations=5000)
    )
    np.testing.assert_allclose(
        bethe(weights / 4)[1], finite_differences(bethe, weights / 4, 1e-4), rtol=1e-4, atol=1e-5
    )


def test_impossible_probabilities_are_infinite_losses():
    """Two groups of nodes repel each other, and messages alternate: the Bethe value does not reach the score of the labels."""
    rng = np.random.default_rng(0)
    states = np.arange(8) % 2
    ends = [np.array(e, dtype=np.int32) for e in zip(*itertools.product(range(0, 8, 2), range(1, 8, 2)), strict=True)]
    groups = (
        FactorGroup(tuple(ends), (2, 2), Ones(16), np.eye(2).reshape(-1, 1), 0),
        FactorGroup((np.arange(8, dtype=np.int32),), (2,), Dense(rng.normal(size=(8, 1))), np.array([[0.0], [1.0]]), 1),
    )
    layout = WeightLayout((WeightBlock("pair", 1, 1), WeightBlock("own", 1, 1)))
    graph = FactorGraph(np.full(8, 2, dtype=np.int32), groups, layout)
    reduced = reduce_graph(graph, np.zeros(8, dtype=np.int8), states)
    likelihood, exact = (InferredLikelihood(reduced, states, method) for method in (BeliefPropagation, JunctionTree))
    found = []
    for repulsion in (0.1, 0.3, 1.0, 3.0, 10.0):
        weights = np.array([-repulsion, 0.1 * repulsion])
        log_partition, _ = likelihood.expectation(weights, None)
        found.append(log_partition - likelihood.observed_counts @ weights)
        assert likelihood(weights)[0] == (pytest.approx(found[-1]) if found[-1] > 0.0 else np.inf)
        assert 0.0 < exact(weights)[0] < np.inf
    assert found[0] > 0.0 > found[-1]


@pytest.mark.parametrize("seed", range(3))
def test_curvature_of_factors_over_three_variables(seed):
    """The factors have no variable in common, so that their mean squares are an upper bound of the Hessian's diagonal."""
    rng = np.random.default_rng(seed)
    graph = mixed_graph(rng)
    objective = InferredLikelihood(
        reduce_graph(graph, np.zeros(6, dtype=np.int8), np.full(6, -1)), rng.integers(3, size=6), JunctionTree
    )
    is_of_triples = np.zeros(graph.layout.size)
    graph.layout.matrix(is_of_triples, 3)[:] = 1.0
    for weight in np.flatnonzero(is_of_triples):
        step = np.zeros(graph.layout.size)
        step[weight] = 1e-4
        hessian = (objective(step)[1][weight] - objective(-step)[1][weight]) / 2e-4
        assert 0.0 < hessian <= objective.curvature[weight] * (1.0 + 1e-6) < 3.0 * hessian


@pytest.mark.parametrize("latent", [0.0, 0.4])
@pytest.mark.parametrize("shape", ["loopy", "chain"])
def test_likelihood_of_edges_that_share_tables(shape, latent, monkeypatch):
    """Links in either direction and links that depend on agreement share three tables; on the chain, messages are exact."""
    rng = np.random.default_rng(0)
    n, k = 300, 3
    links = np.column_stack((np.arange(n - 1), np.arange(1, n))).astype(np.int32)
    if shape == "loopy":
        links = np.unique(np.sort(rng.integers(n, size=(700, 2)), axis=1), axis=0).astype(np.int32)
        links = links[links[:, 0] != links[:, 1]]
    directed, equal = links[::2], links[1::2]
    directed[::3] = directed[::3, ::-1].copy()
    groups = (
        FactorGroup(tuple(directed.T.copy()), (k, k), Ones(len(directed)), None, 0),
        FactorGroup(tuple(equal.T.copy()), (k, k), Ones(len(equal)), np.eye(k).reshape(-1, 1), 1),
        FactorGroup((np.arange(n, dtype=np.int32),), (k,), Dense(rng.normal(size=(n, 2))), None, 2),
    )
    blocks = WeightBlock("directed", 1, k * k), WeightBlock("equal", 1, 1), WeightBlock("own", 2, k)
    graph = FactorGraph(np.full(n, k, dtype=np.int32), groups, WeightLayout(blocks))
    states = np.where(rng.random(n) < latent, -1, rng.integers(k, size=n))
    reduced = reduce_graph(graph, np.zeros(n, dtype=np.int8), states)
    weights = 0.3 * rng.normal(size=graph.layout.size)

    def likelihood():
        return InferredLikelihood(
            reduced, states, lambda scopes: BeliefPropagation(scopes, schedule="blocks", tolerance=1e-12)
        )

    separate = likelihood()
    value, gradient = separate(weights)
    monkeypatch.setattr(edge_classes, "MIN_CLASSIFIED_EDGES", 1)
    monkeypatch.setattr(pair_lanes, "MIN_SHARING_PAIRS", pair_lanes.LANES)
    shared = likelihood()
    found = shared(weights)
    assert separate._shared_tables is None and shared._shared_tables.graph.n_edges == 3
    assert found[0] == pytest.approx(value, rel=1e-11)
    np.testing.assert_allclose(found[1], gradient, atol=1e-8)
    np.testing.assert_allclose(found[1], finite_differences(shared, weights, 1e-4), rtol=1e-5, atol=1e-5)
    if shape == "chain":
        exact = InferredLikelihood(reduced, states, JunctionTree)(weights)
        assert found[0] == pytest.approx(exact[0], rel=1e-11)
        np.testing.assert_allclose(found[1], exact[1], atol=1e-8)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("latent", [0.0, 0.4])
def test_reweighted_likelihood(seed, latent):
    """Learning by tree-reweighted propagation: the gradient is exact, and without latent states the value is a bound."""
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, max_arity=2)
    states = rng.integers(3, size=len(graph.cardinality)) % graph.cardinality
    states = np.where(rng.random(len(states)) < latent, -1, states).astype(np.int32)
    task = Problem(graph, np.full(len(states), Role.FREE, dtype=np.int8), states)
    weights = 0.5 * rng.normal(size=graph.layout.size)
    settings = (("tolerance", 1e-12), ("max_iterations", 5000))
    objective, exact = (WholeGraphSpec("dense", name, settings).likelihood(task) for name in ("trw", "enumeration"))
    value, gradient = objective(weights)
    np.testing.assert_allclose(gradient, finite_differences(objective, weights, 1e-4), rtol=1e-4, atol=1e-5)
    if not latent:
        assert value >= exact(weights)[0] - 1e-9


def test_agreement_edges_have_one_value():
    rng = np.random.default_rng(0)
    graph = mixed_graph(rng)
    weights = rng.normal(size=graph.layout.size)
    reduced = reduce_graph(graph, np.zeros(6, dtype=np.int8), np.zeros(6))
    compact = reduced.with_agreements()
    is_table = [set(edge) in ({2, 3}, {3, 4}) for edge in reduced.edges.tolist()]
    np.testing.assert_array_equal(compact.agreement, ~np.array(is_table))
    assert len(compact.potentials(weights).factors) == 4 * 1 + 2 * 9 + 2 * 27
    for states in itertools.islice(itertools.product(range(3), repeat=6), 0, 729, 40):
        scores = [g.scopes.score(g.potentials(weights), np.array(states)) for g in (reduced, compact)]
        assert scores[0] == pytest.approx(scores[1])
    full = Enumeration(reduced.scopes).marginals(reduced.potentials(weights))
    few = Enumeration(compact.scopes).marginals(compact.potentials(weights))
    counts = [g.counts(Potentials(f.nodes, f.factors)) for g, f in ((reduced, full), (compact, few))]
    np.testing.assert_allclose(counts[0], counts[1], atol=1e-10)
    plain = random_graph(rng, max_arity=2)
    nothing = reduce_graph(plain, np.zeros(6, dtype=np.int8), np.zeros(6))
    assert nothing.with_agreements() is nothing
