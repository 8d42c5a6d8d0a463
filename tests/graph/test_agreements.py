"""Agreement factors, whose tables are a single number, compared with the same factors as full tables."""

from dataclasses import replace

import numpy as np
import pytest

from relcrf.graph.factor_graph import FactorGraph, FactorGroup
from relcrf.graph.features import Dense, Keyed, Ones
from relcrf.graph.reduction import Role, reduce_graph
from relcrf.graph.weights import WeightBlock, WeightLayout


def make_graph(rng, k):
    """Return a graph of seven variables with agreements for every type of features, and some factors with full tables."""
    blocks, groups = [], []
    kinds = (
        Ones(8),
        Dense(rng.normal(size=(8, 2))),
        Keyed(rng.integers(3, size=8).astype(np.int32), np.empty((0, 1)), 3),
    )
    for features in kinds:
        pairs = np.array([rng.choice(7, size=2, replace=False) for _ in range(8)], dtype=np.int32)
        blocks.append(WeightBlock(f"t{len(blocks)}", features.n_features, 1))
        scope = (np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1]))
        groups.append(FactorGroup(scope, (k, k), features, np.eye(k).reshape(-1, 1), len(groups)))
    blocks.append(WeightBlock("full", 1, k * k))
    scope = (np.array([0, 3], dtype=np.int32), np.array([1, 2], dtype=np.int32))
    groups.append(FactorGroup(scope, (k, k), Ones(2), None, len(groups)))
    return FactorGraph(np.full(7, k, dtype=np.int32), tuple(groups), WeightLayout(tuple(blocks)))


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("k", [2, 3, 6])
def test_agreements_equal_full_tables(k, seed):
    rng = np.random.default_rng(seed)
    graph = make_graph(rng, k)
    assert [group.is_agreement for group in graph.groups] == [True, True, True, False]
    # With an additional all-zero pattern, the same factors are not agreements.
    full_graph = replace(
        graph,
        groups=tuple(
            replace(g, patterns=np.column_stack((g.patterns, np.zeros(k * k)))) if g.is_agreement else g
            for g in graph.groups
        ),
        layout=WeightLayout(
            tuple(replace(b, n_patterns=b.n_patterns + (b.name != "full")) for b in graph.layout.blocks)
        ),
    )
    assert not any(group.is_agreement for group in full_graph.groups)
    roles = np.where(rng.random(7) < 0.3, Role.CLAMPED, Role.FREE).astype(np.int8)
    states = rng.integers(k, size=7)
    compact, full = (reduce_graph(g, roles, states) for g in (graph, full_graph))
    weights = rng.normal(size=graph.layout.size)
    full_weights = np.zeros(full_graph.layout.size)
    for block in range(len(graph.layout.blocks)):
        matrix = graph.layout.matrix(weights, block)
        full_graph.layout.matrix(full_weights, block)[:, : matrix.shape[1]] = matrix
    np.testing.assert_allclose(compact.edge_log_potentials(weights), full.edge_log_potentials(full_weights), atol=1e-12)
    tables = rng.normal(size=int(compact.table_start[-1]))
    counts, expected = np.zeros(graph.layout.size), np.zeros(full_graph.layout.size)
    compact.add_edge_counts(tables, counts)
    full.add_edge_counts(tables, expected)
    for block, described in enumerate(graph.layout.blocks):
        actual = graph.layout.matrix(counts, block)
        np.testing.assert_allclose(
            actual, full_graph.layout.matrix(expected, block)[:, : described.n_patterns], atol=1e-12
        )
