"""Spanning forests compared with a textbook implementation of Kruskal's algorithm and with networkx."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relcrf.kernels import spanning
from relcrf.structure import spanning_forest
from relcrf.structure.spanning_forest import maximum_spanning_forest


def kruskal(n_nodes, edges, weight):
    """Reference implementation: examine all edges in the order of a stable sort."""
    component = list(range(n_nodes))
    chosen = []
    for e in np.argsort(-np.asarray(weight), kind="stable"):
        a, b = (component[v] for v in edges[e])
        if a != b:
            component = [a if t == b else t for t in component]
            chosen.append(e)
    return sorted(chosen)


SPECIAL = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, 5e-324, -5e-324, 1.7e308, -1.7e308, np.nextafter(1.0, 2.0))
weights = st.one_of(
    st.integers(-2, 2).map(float), st.sampled_from(SPECIAL), st.floats(allow_nan=False), st.floats(0.5, 0.5000001)
)


@st.composite
def graphs(draw):
    n_nodes = draw(st.integers(1, 12))
    node = st.integers(0, n_nodes - 1)
    rows = draw(st.lists(st.tuples(node, node, weights), max_size=60))
    edges = np.array([row[:2] for row in rows], dtype=np.int32).reshape(-1, 2)
    return n_nodes, edges, np.array([row[2] for row in rows])


@settings(deadline=None)
@given(graphs())
def test_edges_equal_those_of_a_stable_sort(graph):
    assert maximum_spanning_forest(*graph).tolist() == kruskal(*graph)


@settings(deadline=None)
@given(graphs(), st.lists(st.one_of(weights, st.just(np.nan)), max_size=5))
def test_thresholds_do_not_change_the_result(graph, thresholds):
    n_nodes, edges, weight = graph
    chosen = np.zeros(len(edges), dtype=np.bool_)
    thresholds = np.array(sorted(thresholds, reverse=True), dtype=float)
    assert spanning.maximum_forest(n_nodes, edges, weight, thresholds, chosen)
    assert np.flatnonzero(chosen).tolist() == kruskal(*graph)


@settings(deadline=None)
@given(st.lists(weights, max_size=200))
def test_the_sort_is_stable(values):
    weight = np.array(values)
    order = spanning._sort_by_weight(weight, np.arange(len(weight), dtype=np.int32))
    assert order.tolist() == np.argsort(-weight, kind="stable").tolist()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(("all equal", "few values", "normal", "rising", "one far above")))
def test_many_edges_with_thresholds(seed, kind):
    """Compare graphs with more edges than the threshold sample: dense, sparse, and with several components."""
    rng = np.random.default_rng(seed)
    n_edges = 12_000
    assert n_edges > spanning_forest.THRESHOLD_SAMPLE
    n_nodes = int(rng.choice([3, 50, 400]))
    edges = rng.integers(n_nodes, size=(n_edges, 2)).astype(np.int32)
    edges[edges[:, 0] % 5 == 0, 1] //= 5  # some nodes have more edges than others
    edges[edges == n_nodes - 1] = 0  # and one node has none
    weight = {
        "all equal": np.full(n_edges, -2.5),
        "few values": rng.integers(-2, 3, size=n_edges).astype(float),
        "normal": rng.normal(size=n_edges),
        "rising": np.arange(n_edges, dtype=float),
        "one far above": np.where(np.arange(n_edges) == 7, 1e300, rng.random(n_edges)),
    }[kind]
    assert len(spanning_forest._thresholds(n_nodes, weight)) >= 1
    assert maximum_spanning_forest(n_nodes, edges, weight).tolist() == kruskal(n_nodes, edges, weight)


@settings(deadline=None)
@given(graphs())
def test_total_weight_equals_networkx(graph):
    n_nodes, edges, weight = graph
    weight = np.clip(weight, -1e6, 1e6)
    multigraph = nx.MultiGraph()
    multigraph.add_nodes_from(range(n_nodes))
    multigraph.add_weighted_edges_from((int(i), int(j), w) for (i, j), w in zip(edges, weight, strict=True) if i != j)
    tree = nx.maximum_spanning_tree(multigraph)
    chosen = maximum_spanning_forest(n_nodes, edges, weight)
    assert len(chosen) == tree.number_of_edges()
    assert weight[chosen].sum() == pytest.approx(tree.size(weight="weight"), rel=1e-9, abs=1e-9)


def test_nonpositive_edges_are_used_and_loops_are_not():
    edges = np.array([(0, 0), (0, 1), (1, 2), (0, 2), (1, 0)], dtype=np.int32)
    assert maximum_spanning_forest(4, edges, np.array([9.0, 0.0, -1.0, -3.0, 0.0])).tolist() == [1, 2]


def test_nan_weight_raises():
    for n_edges in (3, 20_000):
        weight = np.ones(n_edges)
        weight[-1] = np.nan
        edges = np.tile(np.array([[0, 1]], dtype=np.int32), (n_edges, 1))
        with pytest.raises(ValueError, match="NaN"):
            maximum_spanning_forest(2, edges, weight)
    with pytest.raises(ValueError, match="there are 2 weights"):
        maximum_spanning_forest(2, edges, np.ones(2))


def test_empty_graphs():
    none = np.empty((0, 2), dtype=np.int32)
    assert maximum_spanning_forest(0, none, np.empty(0)).tolist() == []
    assert maximum_spanning_forest(5, none, np.empty(0)).tolist() == []
