"""Tests of `datasets/sparse_networks.py`: both samplers have the distribution of the model, which can be trained on the rows."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

import relcrf

sys.path.insert(0, str(Path(__file__).parents[2] / "datasets"))
import sparse_networks


def probabilities(network):
    """Return the probabilities of all joint states, shape (2**n_states,), and the states in the order of `itertools.product`."""
    states = np.array(list(itertools.product((0.0, 1.0), repeat=len(network.bias))))
    products = states[:, network.edges[:, 0]] * states[:, network.edges[:, 1]]
    potential = np.exp(states @ network.bias + products @ network.weight)
    return potential / potential.sum(), states


@pytest.mark.parametrize("draw", [sparse_networks.draw_gibbs, sparse_networks.draw_exact])
@pytest.mark.parametrize("block", [None, 3])
def test_sample_frequencies_match_the_distribution(draw, block):
    network = sparse_networks.make_network(7, np.random.default_rng(1), block)
    assert len(network.edges) >= 4
    expected, states = probabilities(network)
    on = draw(network, 200_000, np.random.default_rng(2))
    assert on.shape == (200_000, 7)
    assert on.dtype == bool
    frequencies = np.bincount(on @ (1 << np.arange(6, -1, -1)), minlength=128) / len(on)
    assert states @ (1 << np.arange(6, -1, -1)) == pytest.approx(np.arange(128))
    assert frequencies == pytest.approx(expected, abs=0.005)


def test_network_is_sparse_with_both_signs():
    network = sparse_networks.make_network(2_000, np.random.default_rng(0))
    assert len(network.edges) == 2_500
    assert (network.edges[:, 0] < network.edges[:, 1]).all()
    assert len(np.unique(network.edges, axis=0)) == 2_500
    assert network.edges.max() > 1_900
    assert 0.4 < (network.weight > 0).mean() < 0.6
    assert ((np.abs(network.weight) >= 1) & (np.abs(network.weight) <= 2)).all()


def test_bernoulli_networks_have_five_neighbours_and_weights_of_both_signs():
    network = sparse_networks.make_bernoulli_network(400, np.random.default_rng(0))
    assert 2 * len(network.edges) / 400 == pytest.approx(5.0, abs=4 * np.sqrt(2 * 5.0 / 400))
    assert (network.edges[:, 0] < network.edges[:, 1]).all()
    assert len(np.unique(network.edges, axis=0)) == len(network.edges)
    assert 4.9 < network.weight.max() <= 5.0
    assert -5.0 <= network.weight.min() < -4.9
    assert abs(network.weight.mean()) < 4 * (10 / np.sqrt(12)) / np.sqrt(len(network.weight))
    assert not network.bias.any()


def test_restricted_network_has_the_edges_between_its_states():
    network = sparse_networks.SparseNetwork(
        np.array([0.1, 0.2, 0.3, 0.4]), np.array([[0, 1], [0, 3], [2, 3]]), np.array([1.0, 2.0, 3.0])
    )
    part = network.restrict_to(np.array([True, False, True, True]))
    np.testing.assert_array_equal(part.bias, [0.1, 0.3, 0.4])
    np.testing.assert_array_equal(part.edges, [[0, 2], [1, 2]])
    np.testing.assert_array_equal(part.weight, [2.0, 3.0])


def test_blocks_are_independent_and_sampled_in_chunks(monkeypatch):
    monkeypatch.setattr(sparse_networks, "CHUNK_CELLS", 100_000)
    network = sparse_networks.make_network(20_003, np.random.default_rng(0), block=10)
    assert (network.edges[:, 0] // 10 == network.edges[:, 1] // 10).all()
    assert len(network.edges) > 1.1 * 20_003
    on = sparse_networks.draw_exact(network, 300, np.random.default_rng(1))
    assert 0.05 < on.mean() < 0.4
    joint = (on[:, network.edges[:, 0]] & on[:, network.edges[:, 1]]).mean(axis=0)
    marginal = on.mean(axis=0)
    covariance = joint - marginal[network.edges[:, 0]] * marginal[network.edges[:, 1]]
    assert covariance[network.weight > 0].mean() > 0.02
    assert covariance[network.weight < 0].mean() < 0
    rng = np.random.default_rng(2)
    permutation = rng.permutation(20_003)
    covariance_across_blocks = (on & on[:, permutation]).mean(axis=0) - marginal * marginal[permutation]
    assert abs(covariance_across_blocks.mean()) < 0.001


def test_large_component_cannot_be_sampled_exactly():
    network = sparse_networks.make_network(100, np.random.default_rng(0))
    with pytest.raises(ValueError, match="supports at most 12"):
        sparse_networks.draw_exact(network, 10, np.random.default_rng(0))


def test_model_can_be_trained_on_the_tables():
    network = sparse_networks.make_network(12, np.random.default_rng(0))
    rng = np.random.default_rng(1)
    rows, test = (sparse_networks.draw_gibbs(network, n, rng) for n in (200, 50))
    model = relcrf.parse(sparse_networks.MODEL)
    assert model.warnings == ()
    fit = model.fit(relcrf.Dataset(sparse_networks.tables(rows)), "pseudo", l2=1.0, max_iterations=20)
    assert fit.ground(relcrf.Dataset(sparse_networks.tables(test))).graph.n_variables == 50 * 12
