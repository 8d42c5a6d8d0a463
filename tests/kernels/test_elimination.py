"""Greedy elimination, compared with a plain implementation on sets, and properties of the clique trees."""

from itertools import combinations, pairwise

import networkx as nx
import numpy as np
import pytest

from relcrf.kernels.elimination import LOG2_SCALE, EliminationRule, contract_matching, eliminate, maximal_cliques

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


def eliminate_plainly(n, first, second, weight, rule):
    """Eliminate nodes by a rule, recomputing the fill of every node in each step."""
    near = {v: set() for v in range(n)}
    for a, b in zip(first.tolist(), second.tolist(), strict=True):
        near[a].add(b)
        near[b].add(a)
    order, cliques = [], []

    def key(v):
        missing = [(a, b) for a, b in combinations(near[v], 2) if b not in near[a]]
        fill = sum(int(rule.factor[a] * rule.factor[b]) for a, b in missing) if rule.add_edges else 0
        clique_weight = int(weight[[v, *near[v]]].sum())
        keys = (clique_weight, fill) if rule.lightest_clique else (fill, clique_weight)
        return int(rule.stage[v]), *keys, int(rule.priority[v])

    while near:
        v = min(near, key=key)
        around = near.pop(v)
        order.append(v)
        cliques.append({v, *around})
        for a in around:
            near[a] |= around - {a} if rule.add_edges else set()
            near[a].discard(v)
    return order, cliques


def min_fill(n, add_edges=True):
    return EliminationRule(np.ones(n, dtype=np.int64), np.zeros(n, dtype=np.int64), np.arange(n), False, add_edges)


def random_rule(rng, n, add_edges):
    stage = rng.integers(0, 2, size=n)
    return EliminationRule(rng.integers(1, 9, size=n), stage, rng.permutation(n), bool(rng.integers(2)), add_edges)


@pytest.mark.parametrize("is_min_fill", [True, False])
@pytest.mark.parametrize("add_edges", [True, False])
@pytest.mark.parametrize("seed", range(12))
def test_elimination_matches_reference(seed, add_edges, is_min_fill):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 30))
    first, second, weight = random_graph(rng, n, rng.choice([0.05, 0.2, 0.5]))
    component = components(n, first, second)
    rule = min_fill(n, add_edges) if is_min_fill else random_rule(rng, n, add_edges)
    order, start, member, too_heavy, n_cells, n_steps = eliminate(
        weight, component, np.ones(n, dtype=bool), first, second, NO_LIMIT, np.inf, rule
    )
    expected, cliques = eliminate_plainly(n, first, second, weight, rule)
    assert order.tolist() == expected
    assert [set(member[a:b].tolist()) for a, b in pairwise(start)] == cliques
    assert member[start[:-1]].tolist() == expected
    assert (too_heavy == -1).all()
    assert n_cells == pytest.approx(sum(2 ** (sum(weight[list(c)]) / LOG2_SCALE) for c in cliques))
    assert n_steps == sum(len(c) ** 2 for c in cliques)


def test_elimination_stops_at_maximum_cells():
    """Test a chain: each of the cliques has four cells, and elimination stops after the clique that exceeds the maximum."""
    n = 10
    first, second = np.arange(n - 1, dtype=np.int32), np.arange(1, n, dtype=np.int32)
    weight, component = np.full(n, LOG2_SCALE), np.zeros(n, dtype=np.int32)
    order, _, _, _, n_cells, _ = eliminate(
        weight, component, np.ones(n, dtype=bool), first, second, NO_LIMIT, 13.0, min_fill(n)
    )
    assert len(order) == 4 and n_cells == 16.0


@pytest.mark.parametrize("seed", range(12))
def test_cliques_are_maximal_and_form_junction_trees(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 30))
    first, second, weight = random_graph(rng, n, rng.choice([0.05, 0.2, 0.5]))
    component = components(n, first, second)
    all_included = np.ones(n, dtype=bool)
    order, start, member, *_ = eliminate(weight, component, all_included, first, second, NO_LIMIT, np.inf, min_fill(n))
    clique_start, clique_node, n_shared, parent, own = maximal_cliques(
        np.zeros(n, dtype=np.int64), order, start, member, np.ones(n, dtype=bool)
    )
    cliques = [clique_node[a:b].tolist() for a, b in pairwise(clique_start)]
    chordal = nx.Graph((a, b) for clique in cliques for a, b in combinations(clique, 2))
    chordal.add_nodes_from(range(n))
    assert {frozenset(c) for c in cliques} == {frozenset(c) for c in nx.find_cliques(chordal)}
    assert all(chordal.has_edge(a, b) for a, b in zip(first.tolist(), second.tolist(), strict=True))
    tree = nx.Graph()
    tree.add_nodes_from(range(len(cliques)))
    for c, above in enumerate(parent.tolist()):
        shared = set(cliques[c][len(cliques[c]) - n_shared[c] :])
        if above < 0:
            assert not shared
            continue
        assert above > c and shared == set(cliques[c]) & set(cliques[above])
        tree.add_edge(c, above)
    assert nx.is_forest(tree)
    for v in range(n):
        containing = [c for c, clique in enumerate(cliques) if v in clique]
        assert nx.is_connected(tree.subgraph(containing)), "running intersection"
        assert [c for c in containing if v in cliques[c][: len(cliques[c]) - n_shared[c]]] == [own[v]]


def test_component_beyond_the_limit_is_reported():
    """Test a clique of four and a chain: the chain is eliminated, and the clique is reported as too heavy."""
    pairs = np.array([*combinations(range(4), 2), (4, 5), (5, 6)], dtype=np.int32)
    first, second = np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])
    weight, component = np.ones(7, dtype=np.int64), np.array([0, 0, 0, 0, 4, 4, 4], dtype=np.int32)
    for add_edges in (True, False):
        order, start, member, too_heavy, *_ = eliminate(
            weight, component, np.ones(7, bool), first, second, 3, np.inf, min_fill(7, add_edges)
        )
        assert (np.flatnonzero(too_heavy >= 0) == [0]).all()
        at = too_heavy[0]
        assert set(member[start[at] : start[at + 1]].tolist()) == {0, 1, 2, 3}
        assert set(order.tolist()) >= {4, 5, 6}


def test_contracted_edges_form_a_matching():
    first, second = (np.array(ends, dtype=np.int32) for ends in zip(*[(0, 1), (1, 2), (2, 3), (0, 4)], strict=True))
    parent = np.arange(6, dtype=np.int32)
    contract_matching(first, second, parent)
    assert parent.tolist() == [0, 0, 2, 2, 4, 5]
