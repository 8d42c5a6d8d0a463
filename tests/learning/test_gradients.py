"""Every objective against finite differences, and the likelihood against enumeration."""

import numpy as np
import pytest
from graphs import random_graph

from relcrf.graph.reduction import Role, reduce_graph
from relcrf.inference.enumeration import Enumeration
from relcrf.inference.forest import score
from relcrf.learning.likelihood import ForestLikelihood, PairLikelihood, log_likelihood, penalised


def problem(seed, forest):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, n_variables=6, forest=forest, max_arity=2)
    roles = np.where(rng.random(graph.n_variables) < 0.2, Role.CLAMPED, Role.FREE).astype(np.int8)
    states = np.array([rng.integers(k) for k in graph.cardinality])
    reduced = reduce_graph(graph, roles, states)
    return reduced, states[reduced.variables], rng.normal(size=graph.layout.size)


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
    objective = penalised(kind(graph, states), rng.random(size), rng.random(size) < 0.9)
    _, gradient = objective(weights)
    free = gradient != 0
    np.testing.assert_allclose(gradient[free], finite_differences(objective, weights)[free], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", range(15))
def test_forest_likelihood_is_the_likelihood(seed):
    graph, states, weights = problem(seed, forest=True)
    exact = score(graph, weights, states) - Enumeration(graph).marginals(weights).log_partition
    assert ForestLikelihood(graph, states)(weights)[0] == pytest.approx(-exact)
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
