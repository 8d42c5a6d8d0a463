"""Exact sampling of joint states with junction trees, compared with enumeration."""

import numpy as np
import pytest
from networks import FORESTS, network

from relcrf.graph.scopes import Potentials, Scopes
from relcrf.inference.enumeration import Enumeration
from relcrf.inference.junction_tree import JunctionTree

N = 20_000


@pytest.mark.parametrize("name", FORESTS)
def test_frequencies_equal_exact_marginals(name):
    """Compare the frequencies of every node and every factor."""
    scopes, potentials = FORESTS[name](np.random.default_rng(5))
    exact = Enumeration(scopes).marginals(potentials)
    states = JunctionTree(scopes).sample(potentials, N, seed=1)
    assert states.shape == (N, scopes.n_nodes)
    for v in range(scopes.n_nodes):
        frequency = np.bincount(states[:, v], minlength=scopes.cardinality[v]) / N
        np.testing.assert_allclose(frequency, exact.nodes[scopes.state_start[v] :][: len(frequency)], atol=0.02)
    full, _ = scopes.expand_agreements(potentials)
    wanted = Enumeration(full).marginals(scopes.expand_agreements(potentials)[1]).factors
    for f in range(full.n_factors):
        places = slice(full.start[f], full.start[f + 1])
        cells = states[:, full.node[places]] @ full.stride[places]
        frequency = np.bincount(cells, minlength=full.table_start[f + 1] - full.table_start[f]) / N
        np.testing.assert_allclose(frequency, wanted[full.table_start[f] :][: len(frequency)], atol=0.02)


def test_parallel_factors_are_summed():
    scopes, potentials = network(np.random.default_rng(0), [2, 3, 2], [(0, 1), (1, 0), (1, 2), (0, 1)])
    exact = Enumeration(scopes).marginals(potentials).nodes
    states = JunctionTree(scopes).sample(potentials, N, seed=0)
    np.testing.assert_allclose(np.bincount(states[:, 1], minlength=3) / N, exact[2:5], atol=0.02)


def test_successive_samples_are_independent():
    scopes, potentials = FORESTS["chain"](np.random.default_rng(0))
    states = JunctionTree(scopes).sample(potentials, N, seed=2).astype(float)
    for v in range(scopes.n_nodes):
        assert abs(np.corrcoef(states[1:, v], states[:-1, v])[0, 1]) < 0.03
    np.testing.assert_array_equal(
        JunctionTree(scopes).sample(potentials, 5, seed=2),
        states[:5] * 0 + JunctionTree(scopes).sample(potentials, 5, seed=2),
    )


def test_impossible_graph_raises():
    pair = Scopes(np.array([2, 2], dtype=np.int32), np.array([0, 2]), np.array([0, 1], dtype=np.int32))
    with pytest.raises(ValueError, match="all joint states are impossible"):
        JunctionTree(pair).sample(Potentials(np.zeros(4), np.full(4, -np.inf)), 1, seed=0)
