"""Propagation of zeros, compared with enumeration: removed states are impossible, and trees are decided exactly."""

import numpy as np
import pytest
from networks import CLIQUES, FORESTS, LOOPS, network

from relcrf.graph.possible_states import condition_on_possible, find_possible_states
from relcrf.graph.scopes import Potentials
from relcrf.inference.enumeration import Enumeration


def add_zeros(rng, potentials, probability):
    nodes, factors = (table.copy() for table in potentials)
    nodes[rng.random(len(nodes)) < probability / 4] = -np.inf
    factors[rng.random(len(factors)) < probability] = -np.inf
    return Potentials(nodes, factors)


@pytest.mark.parametrize("probability", [0.0, 0.2, 0.5])
@pytest.mark.parametrize("name", [*FORESTS, *LOOPS, *CLIQUES])
def test_removed_states_are_impossible(name, probability):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        scopes, potentials = {**FORESTS, **LOOPS, **CLIQUES}[name](rng)
        potentials = add_zeros(rng, potentials, probability)
        possible = find_possible_states(scopes, potentials)
        flat = Potentials(
            *(np.where(table > -np.inf, 0.0, -np.inf) for table in potentials)
        )  # no probability underflows
        exact = Enumeration(scopes).marginals(flat)
        if possible is None:
            assert exact.log_partition == -np.inf
            continue
        if exact.log_partition > -np.inf:
            assert (exact.nodes[~possible] == 0.0).all()
        if name in FORESTS:
            assert exact.log_partition > -np.inf and (exact.nodes[possible] > 0.0).all()


def test_a_chain_of_implications_is_followed():
    """Test equal neighbours on a chain: the state of the first node determines all nodes, and the last one contradicts it."""
    n = 50
    scopes, _ = network(np.random.default_rng(0), np.full(n, 2), [(v, v + 1) for v in range(n - 1)])
    equal = np.tile([0.0, -np.inf, -np.inf, 0.0], n - 1)
    nodes = np.zeros(2 * n)
    nodes[0] = -np.inf
    assert find_possible_states(scopes, Potentials(nodes, equal)).tolist() == [False, True] * n
    nodes[-1] = -np.inf
    assert find_possible_states(scopes, Potentials(nodes, equal)) is None


def test_an_odd_cycle_is_not_decided():
    """Local propagation finds no contradiction in a cycle of three unequal binary nodes, which is impossible."""
    scopes, _ = network(np.random.default_rng(0), np.full(3, 2), [(0, 1), (1, 2), (2, 0)])
    unequal = np.tile([-np.inf, 0.0, 0.0, -np.inf], 3)
    assert find_possible_states(scopes, Potentials(np.zeros(6), unequal)).all()


@pytest.mark.parametrize("name", ["hard transitivity", "forest with hard rules", "factors of any size"])
def test_conditioning_on_possible_states_keeps_the_distribution(name):
    n_determined = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        scopes, potentials = {**FORESTS, **LOOPS, **CLIQUES}[name](rng)
        potentials = add_zeros(rng, potentials, 0.3)
        states = np.full(scopes.n_nodes, -1)
        states[0] = 0
        exact = Enumeration(scopes).marginals(potentials.clamp(scopes, states))
        left = condition_on_possible(scopes, potentials, states)
        if exact.log_partition == -np.inf:
            assert left is None or Enumeration(left.scopes).marginals(left.potentials).log_partition == -np.inf
            continue
        found = Enumeration(left.scopes).marginals(left.potentials)
        assert found.log_partition + left.constant == pytest.approx(exact.log_partition)
        assert (states[left.free_nodes] == -1).all()
        n_determined += scopes.n_nodes - 1 - len(left.free_nodes)
        for node, start in zip(left.free_nodes, left.scopes.state_start[:-1], strict=True):
            n = scopes.cardinality[node]
            whole = exact.nodes[scopes.state_start[node] : scopes.state_start[node] + n]
            np.testing.assert_allclose(found.nodes[start : start + n], whole, atol=1e-9)
        for node in np.flatnonzero(states >= 0):
            assert exact.nodes[scopes.state_start[node] + states[node]] == pytest.approx(1.0)
    assert n_determined
