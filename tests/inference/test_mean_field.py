"""Mean field: the ELBO is a lower bound and never decreases; enumeration and junction trees of blocks agree."""

from itertools import pairwise

import numpy as np
import pytest
from networks import CLIQUES, FORESTS, LOOPS, grid_edges, hard, network

from relcrf.graph.scopes import Potentials, Scopes
from relcrf.inference import mean_field
from relcrf.inference.enumeration import Enumeration
from relcrf.inference.mean_field import MeanField

NETWORKS = {**FORESTS, **LOOPS, **CLIQUES}


def random_blocks(rng, scopes):
    return None if rng.random() < 0.4 else rng.integers(3, size=scopes.n_nodes) * 7 - 3


@pytest.mark.parametrize("schedule", ["sequential", "parallel"])
@pytest.mark.parametrize("name", NETWORKS)
def test_elbo_is_a_lower_bound(name, schedule):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        scopes, potentials = NETWORKS[name](rng)
        exact = Enumeration(scopes).marginals(potentials).log_partition
        found = MeanField(scopes, blocks=random_blocks(rng, scopes), schedule=schedule).marginals(potentials)
        assert found.log_partition <= exact + 1e-9 * max(1.0, abs(exact))
        if schedule == "sequential" and found.log_partition > -np.inf:
            assert found.verdict.status == "converged"


@pytest.mark.parametrize("name", NETWORKS)
def test_elbo_never_decreases(name):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        scopes, potentials = NETWORKS[name](rng)
        blocks = random_blocks(rng, scopes)
        bounds = [
            MeanField(scopes, blocks=blocks, max_iterations=n, tolerance=0.0).marginals(potentials).log_partition
            for n in range(1, 8)
        ]
        if "hard" not in name:  # with violated rules the ascent restarts
            assert all(b >= a - 1e-9 * max(1.0, abs(a)) for a, b in pairwise(bounds)), bounds


def test_two_nodes_equal_fixed_point_equation():
    """For two attracting binary nodes, mu solves mu = sigmoid(w (2 mu - 1) + b) in both schedules."""
    scopes = Scopes(np.array([2, 2], dtype=np.int32), np.array([0, 2]), np.array([0, 1], dtype=np.int32))
    w, b = 1.2, 0.3
    potentials = Potentials(np.array([0.0, b, 0.0, b]), np.array([w, 0.0, 0.0, w]))
    for schedule in ("sequential", "parallel"):
        found = MeanField(scopes, schedule=schedule, tolerance=1e-12).marginals(potentials)
        mu = found.nodes[1]
        assert mu == pytest.approx(1.0 / (1.0 + np.exp(-(w * (2 * mu - 1) + b))))
        np.testing.assert_allclose(found.factors, np.outer([1 - mu, mu], [1 - mu, mu]).ravel(), atol=1e-9)
        entropy = -2 * (mu * np.log(mu) + (1 - mu) * np.log(1 - mu))
        energy = 2 * b * mu + w * (mu**2 + (1 - mu) ** 2)
        assert found.log_partition == pytest.approx(energy + entropy)


def test_agreements_equal_full_tables():
    for name in ("grid of agreements", "larger agreements", "forest of agreements"):
        for seed in range(4):
            rng = np.random.default_rng(seed)
            scopes, potentials = NETWORKS[name](rng)
            full, tables = scopes.expand_agreements(potentials)
            blocks = random_blocks(rng, scopes)
            compact, expanded = (
                MeanField(s, blocks=blocks).marginals(p) for s, p in ((scopes, potentials), (full, tables))
            )
            np.testing.assert_allclose(compact.nodes, expanded.nodes, atol=1e-5)
            np.testing.assert_allclose(compact.factors, scopes.collapse_agreements(expanded.factors), atol=1e-5)


@pytest.mark.parametrize("seed", range(8))
def test_junction_tree_block_equals_enumeration(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    edges = [*grid_edges(2, 4), (5, 1), (1, 0)]
    base_network = network(rng, rng.integers(1, 4, size=8), edges)
    scopes, potentials = hard(rng, base_network, 0.1) if seed % 2 else base_network
    blocks = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    by_enumeration = MeanField(scopes, blocks=blocks, tolerance=1e-10)
    enumerated, map_states = by_enumeration.marginals(potentials), by_enumeration.map_states(potentials)
    monkeypatch.setattr(mean_field, "MAX_ENUMERATED_STATES", 0)
    by_junction_tree = MeanField(scopes, blocks=blocks, tolerance=1e-10)
    found = by_junction_tree.marginals(potentials)
    assert all(isinstance(step, mean_field._JunctionTreeBlock) for step in by_junction_tree._update_steps)
    assert found.log_partition == pytest.approx(enumerated.log_partition)
    np.testing.assert_allclose(found.nodes, enumerated.nodes, atol=1e-7)
    np.testing.assert_allclose(found.factors, enumerated.factors, atol=1e-7)
    assert by_junction_tree.map_states(potentials).score == pytest.approx(map_states.score)


def test_larger_blocks_have_smaller_gap():
    scopes, potentials = network(np.random.default_rng(0), np.full(12, 2), grid_edges(3, 4), 1.0)
    exact = Enumeration(scopes).marginals(potentials).log_partition
    gaps = [
        exact - MeanField(scopes, blocks=np.arange(12) // size, restarts=5).marginals(potentials).log_partition
        for size in (1, 4, 12)
    ]
    assert gaps[0] > gaps[1] > gaps[2] == pytest.approx(0.0, abs=1e-9)


def test_restarts_find_a_better_optimum():
    """The nodes weakly prefer one state, and the pair strongly prefers the other."""
    scopes = Scopes(np.full(2, 2, dtype=np.int32), np.array([0, 2]), np.array([0, 1], dtype=np.int32))
    potentials = Potentials(np.array([2.0, 0.0, 2.0, 0.0]), np.array([4.0, 0.0, 0.0, 9.0]))
    single, several = (MeanField(scopes, restarts=n).marginals(potentials) for n in (0, 20))
    assert several.log_partition > single.log_partition + 0.5
    repeated = MeanField(scopes, restarts=20).marginals(potentials)
    np.testing.assert_array_equal(repeated.nodes, several.nodes)


def test_hard_rules_have_feasible_solutions():
    """In a ring whose neighbours must differ, the first start violates rules, and a feasible joint state is then found."""
    differ = np.where(np.eye(2, dtype=bool), -np.inf, 0.0).ravel()
    edges = np.array([(v, (v + 1) % 6) for v in range(6)], dtype=np.int32)
    scopes = Scopes(np.full(6, 2, dtype=np.int32), 2 * np.arange(7), edges.ravel())
    found = MeanField(scopes).marginals(Potentials(np.zeros(12), np.tile(differ, 6)))
    assert found.verdict.status == "converged"
    assert found.log_partition == pytest.approx(0.0), "the log weight of one of the two colourings"
    ring = MeanField(scopes, blocks=np.zeros(6)).marginals(Potentials(np.zeros(12), np.tile(differ, 6)))
    assert ring.log_partition == pytest.approx(np.log(2.0))


def test_large_block_and_unknown_schedule_raise():
    n = 30
    edges = [(i, j) for i in range(n) for j in range(i)]
    scopes, potentials = network(np.random.default_rng(0), np.full(n, 2), edges)
    with pytest.raises(
        ValueError, match=r"block 5 of 30 nodes is too large: a clique over .* 1,073,741,824 cells|1.07e\+09"
    ):
        MeanField(scopes, blocks=np.full(n, 5)).marginals(potentials)
    with pytest.raises(ValueError, match="unknown schedule 'flooding'"):
        MeanField(scopes, schedule="flooding").map_states(potentials)


def test_ctrl_c_returns_the_current_state():
    scopes, potentials = network(np.random.default_rng(0), np.full(9, 2), grid_edges(3, 3))
    seen = []

    def observe(verdict):
        seen.append(verdict.status)
        if len(seen) == 2:
            raise KeyboardInterrupt

    found = MeanField(scopes, tolerance=0.0, restarts=3, observe=observe).marginals(potentials)
    assert found.verdict.status == "interrupted" and found.verdict.iterations == 2
    assert found.log_partition <= Enumeration(scopes).marginals(potentials).log_partition
    assert seen == ["running", "running"]
