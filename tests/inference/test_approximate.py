"""Approximation of large graphs: choice among fixed points, bounds of the partition function, and remarks on reliability."""

from dataclasses import replace

import numba
import numpy as np
import pytest
from networks import CLIQUES, FORESTS, LOOPS, grid_edges, network

from relcrf.columns.offsets import offsets
from relcrf.graph.scopes import Potentials, Scopes, SharedPotentials
from relcrf.inference import pair_lanes
from relcrf.inference.approximate import Approximation, trivial_bounds
from relcrf.inference.auto import Auto
from relcrf.inference.belief_propagation import BeliefPropagation
from relcrf.inference.enumeration import Enumeration
from relcrf.inference.junction_tree import JunctionTree
from relcrf.inference.map_search import MapSearch
from relcrf.inference.marginal_map import MarginalMap
from relcrf.inference.mini_bucket import MiniBucket
from relcrf.kernels import threads

NETWORKS = {**FORESTS, **LOOPS, **CLIQUES}


def frustrated_grid(strength, seed=0, n=4):
    """Return a grid of binary nodes with couplings of random sign."""
    rng = np.random.default_rng(seed)
    edges = grid_edges(n, n)
    scopes, _ = network(rng, np.full(n * n, 2), edges)
    coupling = rng.normal(scale=strength, size=len(edges))
    factors = (coupling[:, None] * np.array([1.0, -1.0, -1.0, 1.0])).ravel()
    return scopes, Potentials(rng.normal(scale=0.1, size=2 * n * n), factors)


def attractive_pairs(n=6):
    """Return a complete graph without fields whose nodes prefer equal states: propagation has two fixed points."""
    edges = [(i, j) for i in range(n) for j in range(i)]
    scopes, _ = network(np.random.default_rng(0), np.full(n, 2), edges)
    nodes = np.tile([0.0, 0.02], n)
    return scopes, Potentials(nodes, np.tile([1.0, 0.0, 0.0, 1.0], len(edges)))


@pytest.mark.parametrize("name", NETWORKS)
def test_bounds_contain_the_partition_function(name):
    for seed in range(4):
        scopes, potentials = NETWORKS[name](np.random.default_rng(seed))
        exact = Enumeration(scopes).marginals(potentials).log_partition
        lower, upper = trivial_bounds(scopes, SharedPotentials.from_potentials(scopes, potentials))
        slack = 1e-9 * max(1.0, abs(exact))
        assert lower - slack <= exact <= upper + slack
        for method in (Approximation(scopes, restarts=2), Approximation(scopes, bound_cells=8)):
            found = method.marginals(potentials)
            assert lower - slack <= found.lower <= exact + slack and exact - slack <= found.upper
            assert found.lower <= found.log_partition <= found.upper


def test_mini_buckets_are_preferred_if_their_samples_converge():
    """On a frustrated grid, propagation does not converge; tables of 16 cells are too small for exact elimination."""
    scopes, potentials = frustrated_grid(2.0, seed=1, n=4)
    exact = Enumeration(scopes).marginals(potentials)
    propagated = Approximation(scopes).marginals(potentials)
    found = Approximation(scopes, bound_cells=16).marginals(potentials)
    assert propagated.verdict.status == "not converged" and found.verdict.status == "converged"
    assert found.upper < propagated.upper
    np.testing.assert_allclose(found.nodes, exact.nodes, atol=0.03)
    assert found.log_partition == pytest.approx(exact.log_partition, abs=0.1)


def test_damping_is_tried_where_propagation_does_not_converge():
    scopes, potentials = frustrated_grid(2.0, seed=3)
    plain = BeliefPropagation(scopes).marginals(potentials)
    found = Approximation(scopes).marginals(potentials)
    assert plain.verdict.status == "not converged" and found.verdict.status == "converged"


def test_sampling_replaces_propagation_that_does_not_converge():
    scopes, potentials = frustrated_grid(0.5)
    assert Approximation(scopes, max_iterations=3).marginals(potentials).verdict.status == "not converged"
    method = Approximation(scopes, max_iterations=3, sweeps=2000)
    found, exact = method.marginals(potentials), Enumeration(scopes).marginals(potentials)
    assert found.verdict.status == "converged"
    np.testing.assert_allclose(found.nodes, exact.nodes, atol=0.05)
    assert found.lower <= exact.log_partition <= found.upper


def test_other_fixed_points_are_reported():
    scopes, potentials = attractive_pairs()
    found = Approximation(scopes, restarts=8).marginals(potentials)
    single = Approximation(scopes).marginals(potentials)
    assert single.verdict.remark == ""
    assert "found other marginals" in str(found.verdict)
    assert found.log_partition >= single.log_partition


def test_restarts_of_a_graph_with_one_fixed_point_agree():
    scopes, potentials = LOOPS["grid, k = 3"](np.random.default_rng(0))
    found = Approximation(scopes, restarts=3).marginals(potentials)
    expected = BeliefPropagation(scopes, tolerance=1e-10).marginals(potentials)
    np.testing.assert_allclose(found.nodes, expected.nodes, atol=1e-5)
    assert found.verdict.remark == ""


def test_impossible_graph_is_exact():
    scopes = Scopes(np.array([2, 2]), np.array([0, 2]), np.array([0, 1]))
    found = Approximation(scopes).marginals(Potentials(np.zeros(4), np.full(4, -np.inf)))
    assert found.log_partition == -np.inf and found.verdict.status == "exact" and np.isnan(found.nodes).all()


def test_estimate_outside_the_bounds_is_replaced():
    """Colour a complete bipartite graph of 6 + 6 nodes with three colours: the Bethe approximation is less than one colouring."""
    edges = [(i, 6 + j) for i in range(6) for j in range(6)]
    scopes, _ = network(np.random.default_rng(0), np.full(12, 3), edges)
    differ = np.where(np.eye(3, dtype=bool), -np.inf, 0.0).ravel()
    potentials = Potentials(np.zeros(36), np.tile(differ, len(edges)))
    assert BeliefPropagation(scopes).marginals(potentials).log_partition < 0.0
    found, exact = Approximation(scopes).marginals(potentials), Enumeration(scopes).marginals(potentials)
    assert 0.0 <= found.lower <= found.log_partition <= exact.log_partition <= found.upper
    assert "outside its bounds" in str(found.verdict)


def test_interrupted_exact_inference_yields_a_quick_result(monkeypatch):
    """With `anytime`, Ctrl-C during exact inference, or between methods, returns a result with bounds."""
    scopes, potentials = frustrated_grid(0.5)
    exact = Enumeration(scopes).marginals(potentials)

    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(JunctionTree, "_sum_product", interrupt)
    method = Auto(scopes, anytime=True)
    for found in (method.marginals(potentials).partition, method.partition(potentials)):
        assert found.verdict.status == "interrupted"
        assert found.lower <= exact.log_partition <= found.upper
    np.testing.assert_allclose(method.marginals(potentials).nodes, exact.nodes, atol=0.1)
    with pytest.raises(KeyboardInterrupt):
        Auto(scopes).marginals(potentials)
    monkeypatch.setattr(JunctionTree, "_upward_pass", interrupt)
    best = method.map_states(potentials)
    assert best.verdict.status == "interrupted" and best.score <= best.bound < np.inf
    with pytest.raises(KeyboardInterrupt):
        Auto(scopes).map_states(potentials)
    monkeypatch.setattr(MiniBucket, "marginals", interrupt)
    found = Approximation(scopes, bound_cells=4).marginals(potentials)
    assert found.verdict.status == "interrupted" and np.isfinite(found.nodes).all()


def test_ctrl_c_during_propagation_ends_all_methods():
    scopes, potentials = frustrated_grid(2.0, seed=1)
    seen = []

    def observe(verdict):
        seen.append(verdict)
        if len(seen) == 3:
            raise KeyboardInterrupt

    found = Approximation(scopes, sweeps=10**9, observe=observe).marginals(potentials)
    assert found.verdict.status == "interrupted" and len(seen) == 3
    assert np.isfinite(found.nodes).all() and found.lower <= found.log_partition <= found.upper


def shared_components(rng, with_agreements):
    """Return a grid, a triangle and a chain, whose edges have three distinct tables."""
    grid = grid_edges(20, 20)
    edges = [*grid, (400, 401), (401, 402), (400, 402), *((i, i + 1) for i in range(403, 410))]
    table_class = rng.integers(3, size=len(edges)).astype(np.int32)
    scopes, potentials = network(rng, np.full(411, 3), edges, 0.3, table_class == 1 if with_agreements else None)
    sizes = np.array([9, 1 if with_agreements else 9, 9])
    shared = SharedPotentials(potentials.nodes, rng.normal(scale=0.3, size=sizes.sum()), offsets(sizes), table_class)
    return replace(scopes, table_class=table_class), shared


@pytest.mark.parametrize("with_agreements", [False, True])
@pytest.mark.parametrize("has_zero", [False, True])
def test_shared_tables_do_not_change_results(monkeypatch, has_zero, with_agreements):
    """Test components of the three kinds of methods, with one table for all edges of a class and with separate tables."""
    monkeypatch.setattr(pair_lanes, "MIN_SHARING_PAIRS", pair_lanes.LANES)
    scopes, shared = shared_components(np.random.default_rng(0), with_agreements)
    shared.tables[3] = -np.inf if has_zero else shared.tables[3]
    plain, separate = replace(scopes, table_class=None), shared.expand()
    for make in (Approximation, lambda scopes, **settings: Auto(scopes, max_cells=1000, **settings)):
        wanted = make(plain, tolerance=1e-10).marginals(separate)
        bits = set()
        for n_threads, min_cost in ((1, 0), (2, 0)):
            monkeypatch.setattr(threads, "MIN_PARALLEL_COST", min_cost)
            monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", n_threads)
            method = make(scopes, tolerance=1e-10)
            nodes = method.shared_marginals(shared, with_factors=False)
            both = method.shared_marginals(shared), nodes, method.node_marginals(separate)
            for found in both:
                np.testing.assert_allclose(found.nodes, wanted.nodes, atol=1e-9)
                for name in ("log_partition", "lower", "upper"):
                    assert getattr(found, name) == pytest.approx(getattr(wanted, name), rel=1e-10)
                assert found.verdict.status == wanted.verdict.status == "converged"
            np.testing.assert_allclose(both[0].factors, shared.sum_tables(wanted.factors), rtol=1e-8)
            assert not len(nodes.factors)
            bits.add((nodes.nodes.tobytes(), nodes.log_partition))
        assert len(bits) == 1


def test_impossible_shared_tables():
    scopes, shared = shared_components(np.random.default_rng(0), with_agreements=False)
    shared.tables[:9] = -np.inf
    for method in (Approximation(scopes), Auto(scopes, max_cells=1000)):
        found = method.shared_marginals(shared, with_factors=False)
        assert found.log_partition == -np.inf and np.isnan(found.nodes).all() and not len(found.factors)


def test_interrupted_marginal_map_is_reported(monkeypatch):
    """Ctrl-C ends the marginals; no search for joint states follows, and the result is that of the interrupted run."""
    scopes, potentials = network(np.random.default_rng(0), np.full(36, 2), grid_edges(6, 6), 1.0)
    monkeypatch.setattr(MapSearch, "map_states", lambda *arguments: pytest.fail("searched after Ctrl-C"))

    def interrupt(verdict):
        raise KeyboardInterrupt

    auto = Auto(scopes, max_cells=100, restarts=2, sweeps=100, anytime=True, observe=interrupt)
    found = MarginalMap(auto, np.arange(36) % 2 == 0).map_states(potentials)
    assert found.verdict.status == "interrupted" and np.isfinite(found.score) and found.score <= found.bound
    assert (found.states[::2] == -1).all() and (found.states[1::2] >= 0).all()
