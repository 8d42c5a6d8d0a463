"""Every objective against finite differences, and the likelihood against enumeration."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from graphs import dense_features, joint_score, random_graph

from relcrf.graph.blanket import blanket_graph
from relcrf.graph.features import Dense
from relcrf.graph.reduction import Role, reduce_graph
from relcrf.inference.enumeration import Enumeration
from relcrf.learning.likelihood import ForestLikelihood, PairLikelihood, log_likelihood, penalised


def problem(seed, forest):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, n_variables=6, forest=forest, max_arity=2)
    roles = np.where(rng.random(graph.n_variables) < 0.2, Role.CLAMPED, Role.FREE).astype(np.int8)
    states = np.array([rng.integers(k) for k in graph.cardinality])
    reduced = reduce_graph(graph, roles, states)
    return reduced, states[reduced.variables], rng.normal(size=graph.layout.size)


def make(kind, graph, states):
    return kind.of(graph, states) if kind is ForestLikelihood else kind(graph, states)


def finite_differences(objective, point, step=1e-5):
    out = np.empty_like(point)
    for k in range(len(point)):
        ahead, behind = point.copy(), point.copy()
        ahead[k] += step
        behind[k] -= step
        out[k] = (objective(ahead)[0] - objective(behind)[0]) / (2 * step)
    return out


@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize("kind", [ForestLikelihood, PairLikelihood])
def test_gradient(kind, seed):
    graph, states, weights = problem(seed, forest=kind is ForestLikelihood)
    size = graph.graph.layout.size
    rng = np.random.default_rng(seed)
    objective = penalised(make(kind, graph, states), rng.random(size), rng.random(size) < 0.9)
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
def test_latent_states_are_summed_out(seed):
    graph, states, weights = problem(seed, forest=True)
    latent = np.arange(len(states)) % 3 == seed % 3
    choices = zip(states, graph.cardinality, latent, strict=True)
    every = itertools.product(*(range(k) if hidden else (x,) for x, k, hidden in choices))
    potentials = graph.potentials(weights)
    joint = np.logaddexp.reduce([graph.scopes.score(potentials, np.array(s)) for s in every])
    exact = joint - Enumeration(graph.scopes).marginals(potentials).log_partition
    assert ForestLikelihood.of(graph, np.where(latent, -1, states))(weights)[0] == pytest.approx(-exact)


@pytest.mark.parametrize("seed", range(15))
def test_pseudo_likelihood_is_the_sum_of_conditionals(seed):
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
    objective = ForestLikelihood.of(blanket, states[blanket.variables])
    assert objective(weights)[0] == pytest.approx(-expected)
    np.testing.assert_allclose(objective(weights)[1], finite_differences(objective, weights), rtol=1e-5, atol=1e-6)


def without_absent(graph, roles):
    """The graph without the factors that touch an absent variable, made by hand."""
    groups = []
    for group in graph.groups:
        keep = [n for n in range(group.n_factors) if all(roles[v[n]] != Role.ABSENT for v in group.scope)]
        dense = dense_features(group.features)[keep]
        groups.append(replace(group, scope=tuple(v[keep] for v in group.scope), features=Dense(dense)))
    return replace(graph, groups=tuple(groups))


@pytest.mark.parametrize("seed", range(15))
def test_forest_likelihood_is_the_likelihood(seed):
    graph, states, weights = problem(seed, forest=True)
    potentials = graph.potentials(weights)
    exact = graph.scopes.score(potentials, states) - Enumeration(graph.scopes).marginals(potentials).log_partition
    assert ForestLikelihood.of(graph, states)(weights)[0] == pytest.approx(-exact)
    assert log_likelihood(graph, weights, states) == pytest.approx(exact)


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
