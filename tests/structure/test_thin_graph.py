"""Graphs of small treewidth: forests against Kruskal's algorithm, wider ones against their bound and the best there is."""

from itertools import combinations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relcrf.kernels import bounded_treewidth
from relcrf.structure.spanning_forest import maximum_spanning_forest
from relcrf.structure.thin_graph import thin_graph


@st.composite
def graphs(draw):
    n = draw(st.integers(1, 9))
    pairs = list(combinations(range(n), 2))
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=len(pairs))) if pairs else []
    weight = draw(st.lists(st.integers(0, 6), min_size=len(chosen), max_size=len(chosen)))
    return n, np.array(sorted(chosen), dtype=np.int32).reshape(-1, 2), np.array(weight, dtype=float)


def treewidth(n, edges):
    """By the best of all orders of elimination: dynamic programming over subsets (Bodlaender et al. 2012)."""
    neighbours = [0] * n
    for a, b in edges:
        neighbours[a] |= 1 << b
        neighbours[b] |= 1 << a

    def reached(done, v):
        """The nodes that v meets when those of `done` have been eliminated."""
        seen, stack, out = 1 << v, [v], 0
        while stack:
            for u in range(n):
                if neighbours[stack[-1]] >> u & 1 and not seen >> u & 1:
                    break
            else:
                stack.pop()
                continue
            seen |= 1 << u
            if done >> u & 1:
                stack.append(u)
            else:
                out |= 1 << u
        return out.bit_count()

    best = {0: 0}
    for done in range(1, 1 << n):
        best[done] = min(max(best[done & ~(1 << v)], reached(done & ~(1 << v), v)) for v in range(n) if done >> v & 1)
    return best[(1 << n) - 1]


@settings(deadline=None, max_examples=60)
@given(graphs(), st.integers(1, 4))
def test_the_treewidth_is_kept(graph, width):
    n, edges, weight = graph
    chosen = thin_graph(n, edges, weight, width)
    assert treewidth(n, edges[chosen].tolist()) <= width
    assert (weight[chosen] > 0).all()
    if width >= n - 1:
        assert chosen.tolist() == np.flatnonzero(weight > 0).tolist()


@settings(deadline=None)
@given(graphs())
def test_width_1_is_a_maximum_spanning_forest(graph):
    n, edges, weight = graph
    thin_one = thin_graph(n, edges, weight, 1)
    assert weight[thin_one].sum() == weight[maximum_spanning_forest(n, edges, weight)].sum()


@settings(deadline=None, max_examples=40)
@given(graphs())
def test_more_width_is_worth_more_in_total(graph):
    n, edges, weight = graph
    one, two = (weight[thin_graph(n, edges, weight, width)].sum() for width in (1, 2))
    assert two >= one


@pytest.mark.parametrize("seed", range(2))
def test_it_is_near_the_best_of_width_2(seed):
    rng = np.random.default_rng(seed)
    n = 6
    edges = np.array(list(combinations(range(n), 2)), dtype=np.int32)
    weight = rng.random(len(edges))
    best = max(
        weight[list(some)].sum()
        for some in combinations(range(len(edges)), 2 * n - 3)
        if treewidth(n, edges[list(some)].tolist()) <= 2
    )
    assert weight[thin_graph(n, edges, weight, 2)].sum() >= 0.8 * best


def test_hubs_and_many_nodes():
    """More bags at a hub than are looked at: still thin, and still spanning."""
    rng = np.random.default_rng(0)
    n = 3000
    spokes = np.column_stack((np.zeros(n - 1), np.arange(1, n))).astype(np.int32)
    others = np.unique(np.sort(rng.integers(1, n, size=(4 * n, 2)).astype(np.int32), axis=1), axis=0)
    others = others[others[:, 0] < others[:, 1]]
    edges = np.concatenate((spokes, others))
    assert n > 10 * bounded_treewidth.MAX_BAGS
    chosen = thin_graph(n, edges, rng.random(len(edges)) + 0.1, 2)
    graph = nx.Graph(edges[chosen].tolist())
    assert nx.is_connected(graph) and len(graph) == n
    assert n - 1 < len(chosen) <= 2 * n - 3
    assert nx.approximation.treewidth_min_fill_in(graph)[0] <= 3
