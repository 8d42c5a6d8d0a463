"""The dual bound is valid and never increases, and a state whose score equals the bound is optimal."""

from itertools import pairwise

import numpy as np
import pytest
from networks import CLIQUES, FORESTS, LOOPS, grid_edges, hard, network

from relcrf.graph.scopes import Potentials, Scopes
from relcrf.inference.dual_decomposition import DualDecomposition
from relcrf.inference.enumeration import Enumeration

NETWORKS = {**FORESTS, **LOOPS, **CLIQUES}


@pytest.mark.parametrize("name", NETWORKS)
def test_bound_is_valid_and_never_increases(name):
    for seed in range(6):
        rng = np.random.default_rng(seed)
        scopes, potentials = NETWORKS[name](rng)
        if scopes.agreement is None and "hard" not in name and scopes.n_nodes:
            scopes, potentials = hard(rng, (scopes, potentials), 0.1)
        potentials = Potentials(potentials.nodes, 5.0 * potentials.factors)
        best = Enumeration(scopes).map_states(potentials).score
        slack = 1e-9 * max(1.0, abs(best))
        found = [
            DualDecomposition(scopes, tolerance=-1.0, max_iterations=n).map_states(potentials) for n in (1, 2, 5, 50)
        ]
        bounds = [f.bound for f in found]
        assert all(b >= best - slack for b in bounds)
        assert all(later <= earlier + slack for earlier, later in pairwise(bounds))
        for f in found:
            assert f.score == pytest.approx(scopes.score(potentials, f.states), abs=slack)
            if f.verdict.status == "exact":
                assert f.score == pytest.approx(best, abs=slack)


def test_forest_converges_in_one_round():
    rng = np.random.default_rng(0)
    n = 20_000
    edges = np.array([(rng.integers(v), v) for v in range(1, n)], dtype=np.int32)
    scopes = Scopes(np.full(n, 4, dtype=np.int32), 2 * np.arange(n), edges.ravel())
    potentials = Potentials(rng.normal(size=4 * n), rng.normal(size=16 * (n - 1)))
    found = DualDecomposition(scopes).map_states(potentials)
    assert found.verdict.status == "exact" and found.verdict.iterations == 1
    assert found.bound == pytest.approx(found.score, rel=1e-9)


def test_relaxation_gap_is_reported():
    """In a triangle whose neighbours prefer to differ, two of three pairs can, but the relaxation satisfies all three."""
    differ = np.array([0.0, 1.0, 1.0, 0.0])
    scopes = Scopes(np.full(3, 2, dtype=np.int32), 2 * np.arange(4), np.array([0, 1, 1, 2, 2, 0], dtype=np.int32))
    found = DualDecomposition(scopes).map_states(Potentials(np.array([0.1, 0, 0, 0, 0, 0]), np.tile(differ, 3)))
    assert found.score == pytest.approx(2.1)
    assert found.bound == pytest.approx(3.05, abs=1e-6), (
        "optimum of the linear relaxation: each node is half in each state"
    )
    assert found.verdict.status == "converged"
    few = DualDecomposition(scopes, tolerance=-1.0, max_iterations=3)
    assert (
        few.map_states(Potentials(np.array([0.1, 0, 0, 0, 0, 0]), np.tile(differ, 3))).verdict.status == "not converged"
    )


def test_attractive_binary_pairs_have_no_gap():
    """The relaxation is tight for attractive binary pairs (Greig, Porteous & Seheult 1989)."""
    rng = np.random.default_rng(1)
    edges = grid_edges(4, 4)
    scopes, potentials = network(rng, np.full(16, 2), edges, 1.0, agreement=[True] * len(edges))
    potentials = Potentials(potentials.nodes, np.abs(potentials.factors))
    found = DualDecomposition(scopes).map_states(potentials)
    assert found.verdict.status == "exact"
    assert found.score == pytest.approx(Enumeration(scopes).map_states(potentials).score)


def test_ctrl_c_returns_the_best_state():
    scopes, potentials = network(np.random.default_rng(0), np.full(64, 4), grid_edges(8, 8), 3.0)

    def stop(verdict):
        raise KeyboardInterrupt

    found = DualDecomposition(scopes, observe=stop).map_states(potentials)
    assert found.verdict.status == "interrupted" and found.verdict.iterations == 1
    assert found.score < found.bound < np.inf


def test_marginals_raise():
    scopes, potentials = LOOPS["grid"](np.random.default_rng(0))
    with pytest.raises(ValueError, match="does not compute marginals"):
        DualDecomposition(scopes).marginals(potentials)


@pytest.mark.parametrize("seed", [13, 37, 71, 75, 97, 101])
def test_missing_feasible_state_is_not_reported_as_exact(seed):
    """Decoding only impossible states does not prove that all joint states are impossible."""
    rng = np.random.default_rng(seed)
    triples = network(rng, [4, 2, 2, 4], [(1, 0, 3, 2), (3, 2, 0), (1, 2, 0), (3, 1)])
    scopes, potentials = hard(rng, triples, 0.6)
    best = Enumeration(scopes).map_states(potentials).score
    found = DualDecomposition(scopes).map_states(potentials)
    assert found.verdict.status != "exact" or found.score == pytest.approx(best, abs=1e-9)
    assert found.bound >= best - 1e-9


@pytest.mark.parametrize("seed", [221, 1085])
def test_impossible_state_is_not_reported_as_converged(seed):
    """The bound converges before a possible joint state is found."""
    rng = np.random.default_rng(seed)
    pairs = network(rng, np.full(4, 4), [(i, j) for i in range(4) for j in range(i)])
    scopes, potentials = hard(rng, pairs, 0.72)
    found = DualDecomposition(scopes).map_states(potentials)
    assert found.score == -np.inf and found.bound > -np.inf
    assert found.verdict.status == "not converged"
