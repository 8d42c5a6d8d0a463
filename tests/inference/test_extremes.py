"""Potentials at the limits of their range, for each method: results are correct or their verdict is not good."""

from __future__ import annotations

import numpy as np
import pytest
from networks import network

from relcrf.graph.scopes import Potentials
from relcrf.inference.enumeration import Enumeration
from relcrf.inference.methods import METHODS, create_inference

EXACT_ON_TREES = ("auto", "bp", "enumeration", "forest", "jt", "wmb")
WITHOUT_MARGINALS = ("dual", "search")
TREE = [(0, 1), (1, 2), (3, 1), (3, 4)]


def tree(scale):
    return network(np.random.default_rng(3), [2, 3, 2, 2, 3], TREE, scale)


def many_states():
    return network(np.random.default_rng(4), [10_000, 2, 1], [(0, 1), (1, 2)], 3.0)


def single_states():
    return network(np.random.default_rng(5), [1, 1, 1, 1, 1], TREE, 1e3)


def isolated():
    """Return variables without shared factors, one of them uniform and one with a single possible state."""
    scopes, potentials = network(np.random.default_rng(6), [2, 3, 4], [], 1.0)
    nodes = potentials.nodes.copy()
    nodes[:2], nodes[2:5] = 0.0, (-np.inf, 2.0, -np.inf)
    return scopes, Potentials(nodes, potentials.factors)


def certain():
    """Return a tree with hard factors that leave one possible joint state."""
    scopes, potentials = tree(1.0)
    factors = np.full(len(potentials.factors), -np.inf)
    factors[scopes.cells(np.array([1, 2, 0, 1, 2]))] = 0.0
    return scopes, Potentials(potentials.nodes, factors)


POSSIBLE = {
    "weights of 1e4": lambda: tree(1e4),
    "weights of 1e100": lambda: tree(1e100),
    "weights of 1e-300": lambda: tree(1e-300),
    "ten thousand states": many_states,
    "single states": single_states,
    "variables alone": isolated,
    "one joint state": certain,
}


@pytest.mark.parametrize("shape", POSSIBLE)
@pytest.mark.parametrize("name", [name for name in METHODS if name not in WITHOUT_MARGINALS])
def test_marginals_are_probabilities_and_exact_on_trees(name, shape):
    scopes, potentials = POSSIBLE[shape]()
    found = create_inference(name, scopes, {}).marginals(potentials)
    assert np.isfinite(found.nodes).all() and (found.nodes >= 0).all()
    np.testing.assert_allclose(np.add.reduceat(found.nodes, scopes.state_start[:-1]), 1.0, atol=1e-9)
    if name in EXACT_ON_TREES:
        truth = Enumeration(scopes).marginals(potentials)
        np.testing.assert_allclose(found.nodes, truth.nodes, atol=1e-8)
        np.testing.assert_allclose(found.log_partition, truth.log_partition, rtol=1e-9)
        assert found.verdict.is_good


@pytest.mark.parametrize("shape", POSSIBLE)
@pytest.mark.parametrize("name", [*EXACT_ON_TREES, *WITHOUT_MARGINALS])
def test_most_probable_states_are_exact_on_trees(name, shape):
    scopes, potentials = POSSIBLE[shape]()
    found = create_inference(name, scopes, {}).map_states(potentials)
    truth = Enumeration(scopes).map_states(potentials)
    assert found.score == pytest.approx(truth.score, rel=1e-12)
    assert scopes.score(potentials, found.states) == pytest.approx(found.score, rel=1e-12)


def contradiction():
    """Return two contradictory hard rules: the nodes must agree and must differ."""
    scopes, potentials = network(np.random.default_rng(7), [2, 2], [(0, 1), (0, 1)], 0.0)
    same = np.array([0.0, -np.inf, -np.inf, 0.0])
    return scopes, Potentials(potentials.nodes, np.concatenate((same, same[[1, 0, 0, 1]])))


def impossible():
    """Return a tree with a node whose states are all impossible."""
    scopes, potentials = tree(1.0)
    nodes = potentials.nodes.copy()
    nodes[scopes.state_start[2] : scopes.state_start[3]] = -np.inf
    return scopes, Potentials(nodes, potentials.factors)


UNDETECTED = ("bp", "trw")
"""Methods whose messages around a loop converge although all joint states are impossible.

See docs/explanation/inference/belief_propagation.md.
"""


@pytest.mark.parametrize("make_network", [contradiction, impossible])
@pytest.mark.parametrize("name", METHODS)
def test_contradiction_is_not_reported_as_good(name, make_network):
    scopes, potentials = make_network()
    try:
        found = create_inference(name, scopes, {}).marginals(potentials)
    except ValueError:
        return
    is_reported = found.log_partition == -np.inf or not found.verdict.is_good
    assert is_reported is not (make_network is contradiction and name in UNDETECTED)
