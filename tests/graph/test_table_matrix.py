"""Matrices of small graphs agree with the kernels that compute tables and counts group by group."""

import numpy as np
import pytest
from graphs import random_graph

from relcrf.graph import table_matrix
from relcrf.graph.reduction import Role, reduce_graph
from relcrf.graph.table_matrix import table_matrices


def random_reduced_graph(rng):
    graph = random_graph(rng, max_arity=2)
    roles = np.where(rng.random(graph.n_variables) < 0.3, Role.CLAMPED, Role.FREE).astype(np.int8)
    return reduce_graph(graph, roles, np.array([rng.integers(k) for k in graph.cardinality]))


@pytest.mark.parametrize("seed", range(60))
def test_products_are_the_tables_and_counts_of_the_kernels(seed):
    rng = np.random.default_rng(seed)
    graph = random_reduced_graph(rng)
    weights = rng.normal(size=graph.graph.layout.size)
    matrices = table_matrices(graph)
    nodes, edges = matrices.potentials(weights)
    np.testing.assert_allclose(nodes, graph.node_log_potentials(weights), atol=1e-12)
    np.testing.assert_allclose(edges, graph.edge_log_potentials(weights), atol=1e-12)
    nodes, edges, expected = rng.random(len(nodes)), rng.random(len(edges)), np.zeros(len(weights))
    graph.add_node_counts(nodes, expected)
    graph.add_edge_counts(edges, expected)
    np.testing.assert_allclose(matrices.counts(nodes, edges), expected, atol=1e-12)


def test_large_graphs_have_no_matrices(monkeypatch):
    graph = random_reduced_graph(np.random.default_rng(0))
    monkeypatch.setattr(table_matrix, "MAX_ENTRIES", 1)
    assert table_matrices(graph) is None
