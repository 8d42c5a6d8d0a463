"""Passes over unary factors compared with the methods of the reduced graph, for features in memory and in files."""

import numpy as np
import pytest

from relcrf.columns.storage import Storage
from relcrf.graph.factor_graph import FactorGraph, FactorGroup
from relcrf.graph.features import Sparse
from relcrf.graph.reduction import Role, reduce_graph
from relcrf.graph.weights import WeightBlock, WeightLayout
from relcrf.learning import node_passes


def bags(n, n_words, storage):
    """Return a graph of n variables with 3 states and a bag of words each, whose columns are in a storage."""
    rng = np.random.default_rng(0)
    start = np.concatenate(([0], np.cumsum(rng.integers(0, 30, size=n))))
    arrays = []
    for values in (start, rng.integers(n_words, size=start[-1]).astype(np.int32), np.arange(n, dtype=np.int32)):
        column = storage.column(values.dtype)
        column.append(values)
        arrays.append(column.finish())
    features = Sparse(arrays[0], arrays[1], np.empty(0, dtype=np.float32), n_words)
    layout = WeightLayout((WeightBlock("word", n_words, 3),))
    return FactorGraph(np.full(n, 3, dtype=np.int32), (FactorGroup((arrays[2],), (3,), features, None, 0),), layout)


@pytest.mark.parametrize("max_bytes", [0, 1 << 40])
@pytest.mark.parametrize("min_cost", [1, 1 << 40])  # with and without lanes
def test_passes(max_bytes, min_cost, tmp_path, monkeypatch):
    monkeypatch.setattr("relcrf.kernels.threads.MIN_PARALLEL_COST", min_cost)
    monkeypatch.setattr(node_passes, "NODES_PER_RELEASE", 7)
    rng = np.random.default_rng(1)
    graph = bags(200, 50, Storage(tmp_path, max_bytes))
    roles = rng.choice([Role.FREE, Role.ABSENT], size=200).astype(np.int8)
    reduced = reduce_graph(graph, roles, np.zeros(200, dtype=np.int32))
    weights = rng.normal(size=graph.layout.size)
    expected = reduced.node_log_potentials(weights)
    for is_last in (False, True):
        assert np.array_equal(node_passes.node_potentials(reduced, weights, is_last=is_last), expected)
    counts = np.zeros(graph.layout.size)
    reduced.add_node_counts(expected, counts)
    np.testing.assert_allclose(node_passes.node_counts(reduced, expected), counts, rtol=1e-12)
