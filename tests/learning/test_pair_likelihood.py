"""The likelihood of pairs with shared edge tables, and passes over nodes whose features are scattered in memory."""

import itertools

import numba
import numpy as np
import pytest
from scipy.special import logsumexp

from relcrf.graph.factor_graph import FactorGraph, FactorGroup
from relcrf.graph.features import Dense, Ones, Sparse
from relcrf.graph.reduction import reduce_graph
from relcrf.graph.weights import WeightBlock, WeightLayout
from relcrf.kernels import threads
from relcrf.learning import likelihood, node_passes
from relcrf.learning.likelihood import ForestLikelihood
from relcrf.learning.pair_likelihood import PairLikelihood

N, N_FEATURES = 400, 30


def bags(rng, n):
    length = rng.integers(0, 6, size=n)
    start = np.concatenate(([0], np.cumsum(length)))
    return Sparse(start, rng.integers(N_FEATURES, size=start[-1]).astype(np.int32), np.empty(0, np.float32), N_FEATURES)


def linked_pages(seed, edge_features=Ones, forest=False, sizes=(2, 3)):
    """Return the reduced graph of pages with words and links, and the states; some pages have no links.

    Args:
        sizes: The numbers of states of both halves of the pages.
    """
    rng = np.random.default_rng(seed)
    distinct = sorted(set(sizes))
    sizes = np.repeat(np.array(sizes, dtype=np.int32), N // 2)
    groups, blocks = [], []
    for size in distinct:
        pages = np.flatnonzero(sizes == size).astype(np.int32)
        groups.append(FactorGroup((pages,), (size,), bags(rng, len(pages)), None, len(blocks)))
        blocks.append(WeightBlock(f"word{size}", N_FEATURES, size))
    if forest:
        target = np.arange(1, N - 20)
        edges = np.column_stack([(rng.random(len(target)) * target).astype(int), target])
    else:
        edges = rng.integers(N - 20, size=(900, 2))
        edges = edges[edges[:, 0] != edges[:, 1]]
    edges = rng.permuted(edges, axis=1).astype(np.int32)
    for shape in itertools.product(distinct, repeat=2):
        some = edges[(sizes[edges] == shape).all(axis=1)]
        scope = tuple(np.ascontiguousarray(some[:, place]) for place in range(2))
        groups.append(FactorGroup(scope, shape, edge_features(len(some)), None, len(blocks)))
        blocks.append(WeightBlock(f"link{shape}", 1, shape[0] * shape[1]))
    graph = FactorGraph(sizes, tuple(groups), WeightLayout(tuple(blocks)))
    states = rng.integers(sizes)
    return reduce_graph(graph, np.zeros(N, dtype=np.int8), states), states


def separate(n):
    return Dense(np.ones((n, 1)))


def weights_of(graph, scale):
    return scale * np.random.default_rng(9).normal(size=graph.graph.layout.size)


@pytest.mark.parametrize("sizes", [(2, 3), (3, 3), (6, 6)])
@pytest.mark.parametrize("scale", [0.1, 1.0, 50.0, 1e4])
def test_shared_tables_equal_separate_ones(scale, sizes):
    graph, states = linked_pages(0, sizes=sizes)
    shared, apart = (PairLikelihood(linked_pages(0, kind, sizes=sizes)[0], states) for kind in (Ones, separate))
    assert shared._shared_tables is not None and apart._shared_tables is None
    weights = weights_of(graph, scale)
    (value, gradient), (expected, expected_gradient) = shared(weights), apart(weights)
    assert value == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(gradient, expected_gradient, atol=1e-9)


@pytest.mark.parametrize("impossible", [False, True])
def test_shared_tables_equal_logsumexp(impossible):
    graph, states = linked_pages(1)
    weights = weights_of(graph, 2.0)
    if impossible:  # no two pages of a link with the states 0 and 0
        for block in range(2, 6):
            graph.graph.layout.matrix(weights, block)[0, 0] = -np.inf
    nodes, edges = graph.node_log_potentials(weights), graph.edge_log_potentials(weights)
    total, degree = 0.0, np.bincount(graph.edges.ravel(), minlength=N)
    for (i, j), start in zip(graph.edges, graph.table_start[:-1], strict=True):
        a, b = (nodes[graph.state_start[v] : graph.state_start[v + 1]] for v in (i, j))
        total += logsumexp(a[:, None] + b[None, :] + edges[start : start + len(a) * len(b)].reshape(len(a), len(b)))
    for v in np.flatnonzero(degree == 0):
        total += logsumexp(nodes[graph.state_start[v] : graph.state_start[v + 1]])
    assert PairLikelihood(graph, states).expectation(weights, None)[0] == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize("edge_features", [Ones, separate])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_forest_is_the_same_with_nodes_in_memory_order(edge_features, scale, monkeypatch):
    graph, states = linked_pages(2, edge_features, forest=True)
    monkeypatch.setattr(likelihood, "table_matrices", lambda graph: None)
    found = []
    for gap in (np.inf, 0.0):
        monkeypatch.setattr(node_passes, "MIN_SCATTERED_GAP", gap)
        monkeypatch.setattr("relcrf.graph.reduction.MAX_COPIED_ROW_BYTES", 0)
        objective = ForestLikelihood.build(graph, np.where(np.arange(N) % 7 == 0, -1, states))
        assert (objective.unordered is None) == (gap == np.inf)
        found.append(objective(weights_of(graph, scale)))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-12)
    np.testing.assert_allclose(found[0][1], found[1][1], atol=1e-8)


def test_bits_do_not_depend_on_the_number_of_threads(monkeypatch):
    monkeypatch.setattr(threads, "MIN_PARALLEL_COST", 0)
    graph, states = linked_pages(3)
    found = []
    for n_threads in (1, 2, 3):
        monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", n_threads)
        found.append(PairLikelihood(graph, states)(weights_of(graph, 1.0)))
    for value, gradient in found[1:]:
        assert value == found[0][0]
        np.testing.assert_array_equal(gradient, found[0][1])
