"""Min-fill elimination, compared with a plain implementation on sets, and properties of the clique trees."""

from itertools import combinations, pairwise

import networkx as nx
import numpy as np
import pytest

from relcrf.kernels.elimination import eliminate, maximal_cliques

NO_LIMIT = 1 << 60


def random_graph(rng, n, density):
    pairs = np.array([p for p in combinations(range(n), 2) if rng.random() < density], dtype=np.int32).reshape(-1, 2)
    return np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1]), rng.integers(0, 5, size=n)


def components(n, first, second):
    graph = nx.Graph(zip(first.tolist(), second.tolist(), strict=True))
    graph.add_nodes_from(range(n))
    out = np.empty(n, dtype=np.int32)
    for nodes in nx.connected_components(graph):
        out[list(nodes)] = min(nodes)
    return out


def min_fill(n, first, second, weight, *, fill=True):
    """Eliminate nodes by min-fill, recounting the missing pairs around every node in each step."""
    near = {v: set() for v in range(n)}
    for a, b in zip(first.tolist(), second.tolist(), strict=True):
        near[a].add(b)
        near[b].add(a)
    order, cliques = [], []

    def key(v):
        missing = sum(b not in near[a] for a, b in combinations(near[v], 2)) if fill else 0
        return missing, int(weight[[v, *near[v]]].sum()), v

    while near:
        v = min(near, key=key)
        around = near.pop(v)
        order.append(v)
        cliques.append({v, *around})
        for a in around:
            near[a] |= around - {a} if fill else set()
            near[a].discard(v)
    return order, cliques


@pytest.mark.parametrize("fill", [True, False])
@pytest.mark.parametrize("seed", range(12))
def test_elimination_matches_reference(seed, fill):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 30))
    first, second, weight = random_graph(rng, n, rng.choice([0.05, 0.2, 0.5]))
    component = components(n, first, second)
    order, start, member, too_heavy = eliminate(
        weight, component, np.ones(n, dtype=bool), first, second, NO_LIMIT, fill
    )
    expected, cliques = min_fill(n, first, second, weight, fill=fill)
    assert order.tolist() == expected
    assert [set(member[a:b].tolist()) for a, b in pairwise(start)] == cliques
    assert member[start[:-1]].tolist() == expected
    assert (too_heavy == -1).all()


@pytest.mark.parametrize("seed", range(12))
def test_cliques_are_maximal_and_form_junction_trees(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 30))
    first, second, weight = random_graph(rng, n, rng.choice([0.05, 0.2, 0.5]))
    component = components(n, first, second)
    all_included = np.ones(n, dtype=bool)
    order, start, member, _ = eliminate(weight, component, all_included, first, second, NO_LIMIT, True)
    clique_start, clique_node, n_shared, parent, own = maximal_cliques(n, order, start, member, np.ones(n, dtype=bool))
    cliques = [clique_node[a:b].tolist() for a, b in pairwise(clique_start)]
    chordal = nx.Graph((a, b) for clique in cliques for a, b in combinations(clique, 2))
    chordal.add_nodes_from(range(n))
    assert {frozenset(c) for c in cliques} == {frozenset(c) for c in nx.find_cliques(chordal)}
    assert all(chordal.has_edge(a, b) for a, b in zip(first.tolist(), second.tolist(), strict=True))
    tree = nx.Graph()
    tree.add_nodes_from(range(len(cliques)))
    for c, above in enumerate(parent.tolist()):
        shared = set(cliques[c][: n_shared[c]])
        if above < 0:
            assert not shared
            continue
        assert above > c and shared == set(cliques[c]) & set(cliques[above])
        tree.add_edge(c, above)
    assert nx.is_forest(tree)
    for v in range(n):
        containing = [c for c, clique in enumerate(cliques) if v in clique]
        assert nx.is_connected(tree.subgraph(containing)), "running intersection"
        assert [c for c in containing if v in cliques[c][n_shared[c] :]] == [own[v]]


def test_component_beyond_the_limit_is_reported():
    """Test a clique of four and a chain: the chain is eliminated, and the clique is reported as too heavy."""
    pairs = np.array([*combinations(range(4), 2), (4, 5), (5, 6)], dtype=np.int32)
    first, second = np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])
    weight, component = np.ones(7, dtype=np.int64), np.array([0, 0, 0, 0, 4, 4, 4], dtype=np.int32)
    for fill in (True, False):
        order, start, member, too_heavy = eliminate(weight, component, np.ones(7, bool), first, second, 3, fill)
        assert (np.flatnonzero(too_heavy >= 0) == [0]).all()
        at = too_heavy[0]
        assert set(member[start[at] : start[at + 1]].tolist()) == {0, 1, 2, 3}
        assert set(order.tolist()) >= {4, 5, 6}
