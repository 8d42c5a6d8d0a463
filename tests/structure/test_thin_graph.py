"""Graphs of bounded treewidth: forests compared with Kruskal's algorithm, wider graphs with the bound and the optimum."""

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
    """Compute the treewidth as the best elimination order, by dynamic programming over subsets (Bodlaender et al. 2012)."""
    neighbours = [0] * n
    for a, b in edges:
        neighbours[a] |= 1 << b
        neighbours[b] |= 1 << a

    def degree_after(eliminated, v):
        """Return the degree of v after the nodes of the bit set `eliminated` have been eliminated."""
        seen, stack, out = 1 << v, [v], 0
        while stack:
            for u in range(n):
                if neighbours[stack[-1]] >> u & 1 and not seen >> u & 1:
                    break
            else:
                stack.pop()
                continue
            seen |= 1 << u
            if eliminated >> u & 1:
                stack.append(u)
            else:
                out |= 1 << u
        return out.bit_count()

    best = {0: 0}
    for subset in range(1, 1 << n):
        best[subset] = min(
            max(best[subset & ~(1 << v)], degree_after(subset & ~(1 << v), v)) for v in range(n) if subset >> v & 1
        )
    return best[(1 << n) - 1]


@settings(deadline=None, max_examples=60)
@given(graphs(), st.integers(1, 4))
def test_treewidth_is_at_most_the_limit(graph, width):
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
def test_total_weight_increases_with_width(graph):
    n, edges, weight = graph
    one, two = (weight[thin_graph(n, edges, weight, width)].sum() for width in (1, 2))
    assert two >= one


@pytest.mark.parametrize("seed", range(2))
def test_result_is_close_to_the_optimum_of_width_2(seed):
    rng = np.random.default_rng(seed)
    n = 6
    edges = np.array(list(combinations(range(n), 2)), dtype=np.int32)
    weight = rng.random(len(edges))
    heaviest_first = sorted(
        combinations(range(len(edges)), 2 * n - 3), key=lambda some: weight[list(some)].sum(), reverse=True
    )
    optimum = next(some for some in heaviest_first if treewidth(n, edges[list(some)].tolist()) <= 2)
    assert weight[thin_graph(n, edges, weight, 2)].sum() >= 0.8 * weight[list(optimum)].sum()


def test_large_graph_with_a_hub():
    """A hub with more bags than are examined: the result is still connected and of bounded treewidth."""
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
