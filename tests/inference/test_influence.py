"""Mutual information along paths: exact on forests, bounded where paths end."""

import numpy as np
import pytest
from networks import CLIQUES, FORESTS, LOOPS, joint_states

from relcrf.inference.influence import PairConditionals, node_entropies
from relcrf.inference.junction_tree import JunctionTree


def enumerated_information(scopes, potentials):
    """Return the mutual information of each pair of nodes from the table of all joint states, shape (n_nodes, n_nodes)."""
    n = scopes.n_nodes
    states, scores = joint_states(scopes, potentials)
    joint = np.exp(scores - scores.max())
    joint /= joint.sum()
    out = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            both = np.zeros((scopes.cardinality[i], scopes.cardinality[j]))
            np.add.at(both, (states[i], states[j]), joint)
            independent = np.outer(both.sum(axis=1), both.sum(axis=0))
            possible = (both > 0.0) & (independent > 0.0)
            out[i, j] = (both[possible] * np.log(both[possible] / independent[possible])).sum()
    return out


def conditionals(scopes, potentials):
    scopes, potentials = scopes.expand_agreements(potentials)
    return PairConditionals.from_marginals(scopes, JunctionTree(scopes).marginals(potentials))


@pytest.mark.parametrize("name", FORESTS)
@pytest.mark.parametrize("seed", range(3))
def test_information_is_exact_on_forests(name, seed):
    scopes, potentials = FORESTS[name](np.random.default_rng(seed))
    expected = enumerated_information(scopes, potentials)
    np.fill_diagonal(expected, 0.0)
    found = conditionals(scopes, potentials).information(
        np.arange(scopes.n_nodes), min_information=0.0, max_products=1 << 40
    )
    assert np.abs(found.toarray() - expected).max(initial=0.0) < 1e-9


@pytest.mark.parametrize("limit", [0.3, 0.02])
def test_omitted_information_is_below_the_limit(limit):
    scopes, potentials = FORESTS["chain"](np.random.default_rng(4))
    expected = enumerated_information(scopes, potentials)
    np.fill_diagonal(expected, 0.0)
    found = conditionals(scopes, potentials).information(np.arange(8), min_information=limit).toarray()
    assert np.array_equal(found > 0.0, expected >= limit)
    assert found[found > 0.0] == pytest.approx(expected[found > 0.0], abs=1e-9)


def test_work_is_limited_beyond_neighbours():
    scopes, potentials = FORESTS["chain"](np.random.default_rng(5))
    found = conditionals(scopes, potentials)
    near = found.information(np.array([0, 4]), min_information=0.0, max_products=0).toarray() > 0.0
    assert [np.flatnonzero(row).tolist() for row in near] == [[1], [3, 5]]
    reach = found.information(np.array([0]), min_information=0.0, max_reach=2).toarray() > 0.0
    assert np.flatnonzero(reach[0]).tolist() == [1, 2, 3]  # its neighbour and two more


@pytest.mark.parametrize("name", ["one loop", "grid"])
def test_neighbours_in_loops_have_the_information_of_their_factor(name):
    scopes, potentials = LOOPS[name](np.random.default_rng(0))
    expected = enumerated_information(scopes, potentials)
    found = conditionals(scopes, potentials).information(np.arange(scopes.n_nodes), min_information=0.0).toarray()
    for a, b in scopes.node.reshape(-1, 2):
        assert found[a, b] == pytest.approx(expected[a, b], abs=1e-9)
        assert found[b, a] == pytest.approx(expected[a, b], abs=1e-9)


@pytest.mark.parametrize("name", CLIQUES)
def test_nodes_of_a_clique_have_the_information_of_its_table(name):
    scopes, potentials = CLIQUES[name](np.random.default_rng(0))
    expected = enumerated_information(scopes, potentials)
    found = conditionals(scopes, potentials).information(np.arange(scopes.n_nodes), min_information=0.0).toarray()
    checked = 0
    for factor in range(scopes.n_factors):
        nodes = scopes.node[scopes.start[factor] : scopes.start[factor + 1]]
        for a in nodes:
            for b in nodes:
                if a != b:
                    assert found[a, b] == pytest.approx(expected[a, b], abs=1e-9)
                    checked += 1
    assert checked


def test_entropies():
    found = node_entropies(np.array([0.5, 0.5, 1.0, 0.0, 0.0, 1.0]), np.array([0, 2, 5, 6]))
    assert found == pytest.approx([np.log(2.0), 0.0, 0.0])
    assert len(node_entropies(np.empty(0), np.array([0]))) == 0
