"""Gibbs sampling: accuracy, convergence verdicts, seeds, initial states and interruption."""

import numpy as np
import pytest
from networks import CLIQUES, LOOPS, forest, grid_edges, network

from relcrf.graph.scopes import Potentials, Scopes
from relcrf.inference.enumeration import Enumeration
from relcrf.inference.gibbs import Gibbs
from relcrf.inference.induced_forests import forest_cover


@pytest.mark.parametrize("blocks", ["tree", "single"])
@pytest.mark.parametrize("name", ["grid", "grid of agreements", "factors of any size", "larger agreements"])
def test_error_decreases_with_sweeps(name, blocks):
    scopes, potentials = {**LOOPS, **CLIQUES}[name](np.random.default_rng(3))
    exact = Enumeration(scopes).marginals(potentials)
    errors = []
    for sweeps in (40, 4000):
        found = [Gibbs(scopes, blocks=blocks, sweeps=sweeps, seed=s).marginals(potentials) for s in range(3)]
        errors.append(np.mean([np.abs(f.factors - exact.factors).mean() for f in found]))
    assert errors[1] < 0.005 and errors[1] < errors[0] / 4


def test_forest_is_sampled_jointly():
    scopes, potentials = forest(np.random.default_rng(0), n=9, scale=3.0)
    (sizes,) = np.diff(forest_cover(scopes.kernel_factors, np.random.default_rng(0)).start)
    assert sizes == 9
    found = Gibbs(scopes, blocks="tree", sweeps=20, chains=1).marginals(potentials)
    np.testing.assert_allclose(found.nodes, Enumeration(scopes).marginals(potentials).nodes, atol=1e-9)
    assert found.verdict.status == "converged" and found.r_hat.max() == 1.0 and found.effective_sample_size.min() == 20


def test_tree_blocks_mix_faster_than_single_nodes():
    """In a ring of strong agreements, single-node sampling mixes slowly, and tree blocks mix fast."""
    edges = [(v, (v + 1) % 12) for v in range(12)]
    scopes, potentials = network(np.random.default_rng(0), np.full(12, 2), edges, 0.2, agreement=[True] * 12)
    potentials = Potentials(potentials.nodes, np.full(12, 2.5))
    exact = Enumeration(scopes).marginals(potentials)
    trees, single = (Gibbs(scopes, sweeps=400, blocks=b).marginals(potentials) for b in ("tree", "single"))
    assert trees.verdict.status == "converged"
    np.testing.assert_allclose(trees.nodes, exact.nodes, atol=0.05)
    assert single.verdict.status == "not converged"
    assert trees.effective_sample_size.min() > 4 * single.effective_sample_size.min()
    assert trees.summary()["r_hat_worst"] == trees.r_hat.max() < 1.05 < single.summary()["r_hat_worst"]
    assert single.verdict.residual == pytest.approx(single.r_hat.max() - 1.0)


def test_same_seed_gives_same_sample():
    scopes, potentials = LOOPS["grid"](np.random.default_rng(0))
    for blocks in ("tree", "single"):
        first, second, other = (
            Gibbs(scopes, sweeps=20, seed=s, blocks=blocks).marginals(potentials).nodes for s in (3, 3, 4)
        )
        np.testing.assert_array_equal(first, second)
        assert (first != other).any()


def test_separated_chains_are_not_converged():
    """With a strong factor between two nodes, single-node chains do not move between the two joint states."""
    scopes = Scopes(np.array([2, 2], dtype=np.int32), np.array([0, 2]), np.array([0, 1], dtype=np.int32))
    for weight in (60.0, np.inf):
        potentials = Potentials(np.zeros(4), np.array([0.0, -weight, -weight, 0.0]))
        found = [Gibbs(scopes, blocks="single", sweeps=50, seed=s).marginals(potentials) for s in range(8)]
        separated = [f for f in found if 0.1 < f.nodes[0] < 0.9]
        assert len(separated) > 3
        assert all(f.verdict.status == "not converged" and f.verdict.residual > 1.0 for f in separated)
        assert Gibbs(scopes, blocks="tree", sweeps=50).marginals(potentials).verdict.status == "converged"


def test_single_possible_state_has_r_hat_one():
    scopes, potentials = LOOPS["grid"](np.random.default_rng(1))
    clamped = potentials.clamp(scopes, np.array([0, -1, 1, -1, 0, -1, 1, -1, -1]))
    found = Gibbs(scopes, sweeps=600).marginals(clamped)
    assert found.verdict.status == "converged"
    assert found.r_hat[0] == 1.0 and found.effective_sample_size[0] == 4 * 600


def test_feasible_initial_state_is_found():
    """A 3-colouring of a grid is found; a colouring of ten mutually different nodes with nine states does not exist."""
    edges = grid_edges(6, 6)
    differ = np.where(np.eye(3, dtype=bool), -np.inf, 0.0).ravel()
    scopes, _ = network(np.random.default_rng(0), np.full(36, 3), edges)
    potentials = Potentials(np.tile([5.0, 0.0, 0.0], 36), np.tile(differ, len(edges)))
    for blocks in ("tree", "single"):
        method = Gibbs(scopes, blocks=blocks, sweeps=100)
        assert np.isfinite(method.marginals(potentials).verdict.residual)
        assert method.map_states(potentials).score > -np.inf
    pigeons, _ = network(np.random.default_rng(0), np.full(10, 9), [(i, j) for i in range(10) for j in range(i)])
    differ = np.where(np.eye(9, dtype=bool), -np.inf, 0.0).ravel()
    none = Potentials(np.zeros(90), np.tile(differ, 45))
    found = Gibbs(pigeons, sweeps=20).marginals(none)
    assert found.verdict.status == "not converged" and found.verdict.residual == np.inf
    assert np.isfinite(found.nodes).all()
    best = Gibbs(pigeons, sweeps=20).map_states(none)
    assert best.score == -np.inf and best.verdict.status == "not converged"


def test_low_effective_sample_size_is_not_converged():
    scopes, potentials = LOOPS["grid"](np.random.default_rng(0))
    assert Gibbs(scopes, sweeps=600).marginals(potentials).verdict.status == "converged"
    found = Gibbs(scopes, sweeps=600, min_effective=2300).marginals(potentials)
    assert found.verdict.status == "not converged" and found.effective_sample_size.min() < 2300


def test_ctrl_c_returns_the_current_average():
    scopes, potentials = LOOPS["grid"](np.random.default_rng(0))
    seen = []

    def stop_after(n):
        seen.clear()

        def observe(verdict):
            seen.append(verdict.iterations)
            if len(seen) == n:
                raise KeyboardInterrupt

        return observe

    with pytest.raises(KeyboardInterrupt):
        Gibbs(scopes, sweeps=400, observe=stop_after(3)).marginals(potentials)
    found = Gibbs(scopes, sweeps=400, observe=stop_after(30)).marginals(potentials)
    assert found.verdict.status == "interrupted" and found.verdict.iterations == 30 * 20
    assert seen == [20 * k for k in range(1, 31)]
    np.testing.assert_allclose(found.nodes, Enumeration(scopes).marginals(potentials).nodes, atol=0.1)
    assert (found.r_hat >= 0.99).all()


def test_memory_is_linear_in_the_number_of_states():
    """A table of the pairs of states of one variable would need 3 TB."""
    scopes, potentials = network(np.random.default_rng(0), [600_000, 2], [(0, 1)])
    found = Gibbs(scopes, sweeps=1, chains=1).marginals(potentials)
    np.testing.assert_allclose(np.add.reduceat(found.nodes, scopes.state_start[:-1]), 1.0)


def test_unknown_blocks_raise():
    scopes, potentials = LOOPS["grid"](np.random.default_rng(0))
    with pytest.raises(ValueError, match="unknown blocks 'rows'"):
        Gibbs(scopes, blocks="rows").marginals(potentials)


@pytest.mark.parametrize("setting", [{"sweeps": 0}, {"chains": 0}])
def test_nonpositive_sweeps_or_chains_raise(setting):
    scopes, _ = LOOPS["grid"](np.random.default_rng(0))
    with pytest.raises(ValueError, match="must be at least 1"):
        Gibbs(scopes, **setting)
