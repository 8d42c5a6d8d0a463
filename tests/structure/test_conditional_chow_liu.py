"""Spanning forests compared with networkx, and edge information compared with its definition."""

import networkx as nx
import numpy as np
import pytest
from graphs import random_graph

from relcrf.graph.reduction import reduce_graph
from relcrf.structure.conditional_chow_liu import EdgeSelector, edge_information
from relcrf.structure.spanning_forest import maximum_spanning_forest


@pytest.mark.parametrize("seed", range(20))
def test_maximum_spanning_forest(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 30))
    pairs = np.array([(i, j) for i in range(n) for j in range(i + 1, n) if rng.random() < 0.2], dtype=np.int32)
    pairs = pairs.reshape(-1, 2)
    weight = rng.integers(0, 4, size=len(pairs)).astype(float)  # ties and zeros
    chosen = maximum_spanning_forest(n, pairs, weight)
    graph = nx.Graph()
    graph.add_nodes_from(range(n))
    graph.add_weighted_edges_from((int(i), int(j), w) for (i, j), w in zip(pairs, weight, strict=True))
    reference = nx.maximum_spanning_tree(graph, algorithm="kruskal")
    assert len(chosen) == reference.number_of_edges()
    assert weight[chosen].sum() == reference.size(weight="weight")
    forest = nx.Graph([tuple(map(int, pair)) for pair in pairs[chosen]])
    assert len(forest) == 0 or nx.is_forest(forest)


@pytest.mark.parametrize("seed", range(20))
def test_edge_information_equals_its_definition(seed):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, max_arity=2)
    roles = np.zeros(graph.n_variables, dtype=np.int8)
    reduced = reduce_graph(graph, roles, roles)
    weights = rng.normal(size=graph.layout.size)
    nodes = reduced.node_log_potentials(weights)
    found = edge_information(reduced, weights)
    for e, (i, j) in enumerate(reduced.edges):
        shape = (reduced.cardinality[i], reduced.cardinality[j])
        table = reduced.edge_log_potentials(weights, e, e + 1).reshape(shape)
        table = table + nodes[reduced.state_start[i] : reduced.state_start[i + 1], None]
        p = np.exp(table + nodes[None, reduced.state_start[j] : reduced.state_start[j + 1]])
        p /= p.sum()
        independent = p.sum(axis=1, keepdims=True) * p.sum(axis=0, keepdims=True)
        assert found[e] == pytest.approx((p * np.log(p / independent)).sum(), abs=1e-12)
    assert EdgeSelector().select(reduced, found)[0].n_edges <= reduced.n_nodes - 1
