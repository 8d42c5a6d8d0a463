"""Method x random model x evidence, against enumeration."""

import numpy as np
import pytest
from graphs import random_graph

from relcrf.graph.reduction import Role, reduce_graph
from relcrf.inference.enumeration import Enumeration
from relcrf.inference.forest import ForestInference, score


def reduced_forest(seed):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, n_variables=7, forest=True, max_arity=2)
    roles = np.where(rng.random(graph.n_variables) < 0.25, Role.CLAMPED, Role.FREE).astype(np.int8)
    states = np.array([rng.integers(k) for k in graph.cardinality])
    return reduce_graph(graph, roles, states), 2.0 * rng.normal(size=graph.layout.size)


@pytest.mark.parametrize("seed", range(60))
def test_forest(seed):
    graph, weights = reduced_forest(seed)
    exact, found = Enumeration(graph).marginals(weights), ForestInference(graph).marginals(weights)
    assert found.log_partition == pytest.approx(exact.log_partition, abs=1e-9)
    np.testing.assert_allclose(found.nodes, exact.nodes, atol=1e-10)
    np.testing.assert_allclose(found.edges, exact.edges, atol=1e-10)
    best = ForestInference(graph).map_states(weights)
    assert best.score == pytest.approx(Enumeration(graph).map_states(weights).score, abs=1e-9)
    assert score(graph, weights, best.states) == pytest.approx(best.score, abs=1e-9)


def test_large_weights_neither_overflow_nor_lose_the_sum():
    for seed in range(20):
        graph, weights = reduced_forest(seed)
        weights = weights * 1e4
        exact, found = Enumeration(graph).marginals(weights), ForestInference(graph).marginals(weights)
        assert found.log_partition == pytest.approx(exact.log_partition, rel=1e-12)
        np.testing.assert_allclose(found.nodes, exact.nodes, atol=1e-8)


def test_a_cycle_is_refused():
    rng = np.random.default_rng(0)
    for _ in range(20):
        graph = random_graph(rng, max_arity=2)
        roles = np.zeros(graph.n_variables, dtype=np.int8)
        reduced = reduce_graph(graph, roles, roles)
        if reduced.n_edges >= reduced.n_nodes:
            with pytest.raises(ValueError, match="cycle"):
                ForestInference(reduced).marginals(np.zeros(graph.layout.size))
            return
    raise AssertionError("no graph had a cycle")


def test_impossible_states_have_probability_zero():
    graph, weights = reduced_forest(3)
    nodes = graph.node_log_potentials(weights)
    nodes[graph.state_start[0]] = -np.inf
    inference = ForestInference(graph)
    from relcrf.kernels import forest

    edges = graph.edge_log_potentials(weights)
    if len(edges):
        edges[:: max(1, len(edges) // 3)] = -np.inf
    log_partition, marginal, _ = forest.sum_product(*inference._structure, nodes, edges)
    assert np.isfinite(log_partition)
    assert marginal[graph.state_start[0]] == 0.0
    assert np.isfinite(marginal).all()
