"""Belief propagation with the potentials of absent links, compared with a plain implementation of its equations."""

import numpy as np
import pytest
from networks import CLIQUES, FORESTS, LOOPS, network

from relcrf.graph.scopes import Potentials
from relcrf.inference import linear_range
from relcrf.inference.balance import Balance
from relcrf.inference.belief_propagation import BeliefPropagation

NETWORKS = {name: network for name, network in {**FORESTS, **LOOPS, **CLIQUES}.items() if name != "nothing"}
WITH_TABLES = ("forest of mixed cardinalities", "chain", "star", *(name for name in LOOPS if "agreements" not in name))
"""Networks of factors over two nodes with finite tables."""


def weak(network, seed):
    """Return a network with weak potentials, so that the fixed point is unique, and a balance with random numbers."""
    rng = np.random.default_rng(seed)
    scopes, potentials = network(rng)
    factors = np.where(np.isneginf(potentials.factors), -2.0, 0.3 * potentials.factors)
    first = {k: 10 * k for k in np.unique(scopes.cardinality).tolist()}
    classes = np.concatenate([first[k] + np.arange(k) for k in scopes.cardinality.tolist()])
    _, classes = np.unique(classes, return_inverse=True)
    n = int(classes.max()) + 1
    balance = Balance(classes, rng.uniform(0.0, scopes.n_nodes / 2, n), rng.uniform(0.0, 2.0, n))
    return scopes, Potentials(potentials.nodes, factors), balance


def plain_marginals(scopes, potentials, balance):
    """Return the marginals by messages in a dictionary; the potentials of classes follow their sizes slowly."""
    nodes = np.split(potentials.nodes, scopes.state_start[1:-1])
    classes = np.split(balance.state_class, scopes.state_start[1:-1])
    pairs = scopes.node.reshape(-1, 2)
    tables = [
        table.reshape(scopes.cardinality[one], scopes.cardinality[other])
        for table, (one, other) in zip(np.split(potentials.factors, scopes.table_start[1:-1]), pairs, strict=True)
    ]
    message = {(f, side): np.zeros(scopes.cardinality[pairs[f][side]]) for f in range(len(pairs)) for side in (0, 1)}
    values = np.zeros(len(balance.expected))
    for _ in range(3000):
        logs = [own + values[kind] for own, kind in zip(nodes, classes, strict=True)]
        for (f, side), sent in message.items():
            logs[pairs[f][side]] = logs[pairs[f][side]] + sent
        new = {}
        for f, side in message:
            joint = np.exp(tables[f] if side else tables[f].T)
            new[f, side] = np.log(np.exp(logs[pairs[f][1 - side]] - message[f, 1 - side]) @ joint)
            new[f, side] -= new[f, side].max()
        message, before = new, message
        marginals = [np.exp(each - each.max()) / np.exp(each - each.max()).sum() for each in logs]
        sizes = np.bincount(balance.state_class, np.concatenate(marginals), len(values))
        step = 0.05 * (balance.strength * (balance.expected - sizes) - values)
        values += step
        moves = [abs(step).max(), *(abs(new[key] - before[key]).max() for key in new)]
        if max(moves) < 1e-12:
            return np.concatenate(marginals)
    raise AssertionError("the potentials of the classes oscillate")


@pytest.mark.parametrize("name", WITH_TABLES)
def test_marginals_equal_those_of_a_plain_implementation(name):
    scopes, potentials, balance = weak(NETWORKS[name], 1)
    found = BeliefPropagation(scopes, balance=balance, tolerance=1e-10).marginals(potentials)
    assert found.verdict.status == "converged" and np.isnan(found.log_partition)
    np.testing.assert_allclose(found.nodes, plain_marginals(scopes, potentials, balance), atol=1e-7)
    unbalanced = BeliefPropagation(scopes).marginals(potentials).nodes
    assert np.abs(found.nodes - unbalanced).max() > 1e-3


@pytest.mark.parametrize("name", NETWORKS)
def test_log_messages_give_the_same_marginals(name, monkeypatch):
    scopes, potentials, balance = weak(NETWORKS[name], 2)
    method = BeliefPropagation(scopes, balance=balance, tolerance=1e-10)
    linear = method.marginals(potentials)
    monkeypatch.setattr(linear_range, "MAX_LINEAR_SPREAD", -1.0)
    logs = method.marginals(potentials)
    np.testing.assert_allclose(logs.nodes, linear.nodes, atol=1e-7)
    np.testing.assert_allclose(logs.factors, linear.factors, atol=1e-7)


@pytest.mark.parametrize(("n", "mean", "expected"), [(300, 6.0, 10.0), (1000, 4.0, 50.0), (10_000, 12.0, 50.0)])
def test_propagation_converges_where_nearly_all_nodes_prefer_a_rare_class(n, mean, expected):
    """Without a limit of the steps, the size of the class oscillates between 0 and n, or its potential overflows."""
    rng = np.random.default_rng(0)
    nodes = np.column_stack((np.zeros(n), mean + rng.normal(size=n)))
    pairs = rng.integers(n, size=(2 * n, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    scopes, potentials = network(rng, np.full(n, 2), pairs)
    potentials = Potentials(nodes.ravel(), np.tile([1.0, 0.0, 0.0, 1.0], len(pairs)))
    sizes = np.array([n - expected, expected])
    balance = Balance(np.tile([0, 1], n), sizes, 6.4 / sizes)
    found = BeliefPropagation(scopes, balance=balance, max_iterations=200).marginals(potentials)
    assert found.verdict.status == "converged"
    assert expected < found.nodes[1::2].sum() < 5.0 * expected


def test_without_strength_the_marginals_are_those_of_ordinary_propagation():
    scopes, potentials, balance = weak(LOOPS["one loop"], 3)
    balance = Balance(balance.state_class, balance.expected, np.zeros_like(balance.strength))
    found = BeliefPropagation(scopes, balance=balance).marginals(potentials)
    np.testing.assert_allclose(found.nodes, BeliefPropagation(scopes).marginals(potentials).nodes, atol=1e-12)


@pytest.mark.parametrize("settings", [{"schedule": "sequential"}, {"appearance": "trees"}])
def test_rejects_other_propagation(settings):
    scopes, _, balance = weak(LOOPS["one loop"], 3)
    with pytest.raises(ValueError, match="'balance' supports only ordinary propagation"):
        BeliefPropagation(scopes, balance=balance, **settings)
