"""Optimised appearance probabilities of tree-reweighted propagation, compared with enumeration and with plain NumPy."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from networks import LOOPS, agreements, grid_edges, network
from scipy.optimize import minimize
from scipy.special import entr

from relcrf.inference.belief_propagation import TreeReweighted
from relcrf.inference.enumeration import Enumeration
from relcrf.inference.spanning_trees import SpanningTrees, pair_information

GRAPHS = {"a grid": (9, grid_edges(3, 3)), "a complete graph": (5, list(combinations(range(5), 2)))}


def spanning_trees(n, edges):
    """Return a matrix of all spanning trees, shape (n_trees, n_edges), with 1 for the edges of a tree."""
    out = []
    for chosen in combinations(range(len(edges)), n - 1):
        label = list(range(n))
        for e in chosen:
            a, b = label[edges[e][0]], label[edges[e][1]]
            label = [b if v == a else v for v in label]
        if len(set(label)) == 1:
            out.append(np.isin(np.arange(len(edges)), chosen))
    return np.array(out, dtype=float)


def reweighted(unary, tables, edges, appearance, rounds=200):
    """Return the bound (equation 40 of Wainwright et al. 2005) and the mutual information of the pairs."""
    messages = np.zeros((2, len(edges), unary.shape[1]))  # to the first and to the second node
    ends = np.array(edges)
    scaled = tables / appearance[:, None, None]

    def beliefs():
        nodes = unary.copy()
        for side in range(2):
            np.add.at(nodes, ends[:, side], appearance[:, None] * messages[side])
        return nodes, [nodes[ends[:, side]] - messages[side] for side in range(2)]

    for _ in range(rounds):
        _, (first, second) = beliefs()
        sums = (scaled + second[:, None], 2), (scaled + first[:, :, None], 1)
        new = np.stack([np.logaddexp.reduce(terms, axis=axis) for terms, axis in sums])
        step = 0.5 * (new - new.max(axis=2, keepdims=True) - messages)
        messages += step
        if np.abs(step).max() < 1e-13:
            break
    nodes, (first, second) = beliefs()
    p = np.exp(nodes - np.logaddexp.reduce(nodes, axis=1, keepdims=True))
    pair = scaled + first[:, :, None] + second[:, None]
    q = np.exp(pair - pair.max(axis=(1, 2), keepdims=True))
    q /= q.sum(axis=(1, 2), keepdims=True)
    a, b = q.sum(axis=2), q.sum(axis=1)
    information = entr(a).sum(axis=1) + entr(b).sum(axis=1) - entr(q).sum(axis=(1, 2))
    value = (p * unary).sum() + (q * tables).sum() + entr(p).sum() - appearance @ information
    return value, information, p


@pytest.mark.parametrize("name", GRAPHS)
def test_optimised_bound_equals_that_of_numpy(name):
    n, edges = GRAPHS[name]
    scopes, potentials = network(np.random.default_rng(3), np.full(n, 2), edges, 1.0)
    unary, tables = potentials.nodes.reshape(n, 2), potentials.factors.reshape(-1, 2, 2)
    trees = spanning_trees(n, edges)

    def bound(weights):
        appearance = weights @ trees / weights.sum()
        value, information, _ = reweighted(unary, tables, edges, appearance)
        gradient = -trees @ information
        return value, gradient - weights @ gradient / weights.sum()

    start = np.full(len(trees), 1.0 / len(trees))
    best = minimize(
        bound,
        start,
        jac=True,
        method="SLSQP",
        bounds=[(1e-5, 1.0)] * len(trees),
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1.0, "jac": np.ones_like},
        options={"maxiter": 25, "ftol": 1e-7},
    )
    exact = Enumeration(scopes).marginals(potentials).log_partition
    uniform = TreeReweighted(scopes, appearance_steps=0).marginals(potentials)
    some = TreeReweighted(scopes, appearance_steps=5, tolerance=1e-4).marginals(potentials)
    found = TreeReweighted(scopes, appearance_steps=100, tolerance=1e-4).marginals(potentials)
    assert exact <= found.log_partition <= some.log_partition < uniform.log_partition
    assert found.log_partition == pytest.approx(best.fun, abs=1e-3)
    marginals = reweighted(unary, tables, edges, best.x @ trees / best.x.sum())[2]
    np.testing.assert_allclose(found.nodes.reshape(n, 2), marginals, atol=0.01)


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("rounds", [3, 500])
def test_each_step_lowers_the_bound(name, rounds):
    """The value is an upper bound that no step raises, with agreements and impossible states, converged or not."""
    for seed in range(2):
        scopes, potentials = LOOPS[name](np.random.default_rng(seed))
        exact = Enumeration(scopes).marginals(potentials).log_partition
        bounds = [
            TreeReweighted(scopes, appearance_steps=k, max_iterations=rounds).marginals(potentials).log_partition
            for k in (0, 1, 4)
        ]
        slack = 1e-9 * max(1.0, abs(exact))
        assert all(later <= earlier + slack for earlier, later in pairwise(bounds))
        assert bounds[-1] >= exact - slack


def test_forests_without_cycles_need_no_steps():
    scopes, potentials = network(np.random.default_rng(0), np.full(4, 3), [(0, 1), (1, 2), (1, 3)])
    assert TreeReweighted(scopes, appearance_steps=5).marginals(potentials).log_partition == pytest.approx(
        Enumeration(scopes).marginals(potentials).log_partition, abs=1e-9
    )


def test_pair_information_equals_enumeration():
    """The mutual information of each pair alone, from the joint table of the pair."""
    scopes, potentials = network(np.random.default_rng(1), np.array([2, 4, 3]), [(0, 1), (2, 1), (0, 2)])
    found = pair_information(scopes, potentials)
    for pair, (i, j) in enumerate([(0, 1), (2, 1), (0, 2)]):
        start = scopes.state_start
        table = potentials.factors[scopes.table_start[pair] : scopes.table_start[pair + 1]]
        table = table.reshape(scopes.cardinality[i], scopes.cardinality[j]).copy()
        table += potentials.nodes[start[i] : start[i + 1], None] + potentials.nodes[start[j] : start[j + 1]]
        p = np.exp(table) / np.exp(table).sum()
        expected = (p * np.log(p / (p.sum(axis=1, keepdims=True) * p.sum(axis=0)))).sum()
        assert found[pair] == pytest.approx(expected, abs=1e-12)


def test_mixture_contains_each_forest_once():
    scopes, _ = agreements(np.random.default_rng(0), grid_edges(2, 3), 6)
    trees = SpanningTrees.sample(scopes, 0)
    forest, gap = trees.descent_direction(np.arange(scopes.n_factors, dtype=float))
    mixed = trees.mix(forest, 0.25).mix(forest, 0.25)
    assert gap > 0.0
    assert len(mixed.forests) <= len(trees.forests) + 1
    assert mixed.probabilities.sum() == pytest.approx(1.0)
    assert mixed.appearance.sum() == pytest.approx(scopes.n_nodes - 1)
    assert (mixed.appearance[forest.pairs] >= 1 - 0.75**2).all()
