"""Belief propagation beyond the conformance table: bounds, agreement of schedules, verdicts and settings."""

from dataclasses import replace
from pathlib import Path

import numba
import numpy as np
import pytest
from networks import CLIQUES, FORESTS, LOOPS, agreements, grid_edges, hard, network

import relcrf
from relcrf.columns.offsets import offsets
from relcrf.graph.scopes import Potentials, Scopes, SharedPotentials
from relcrf.inference import belief_propagation, pair_lanes
from relcrf.inference.belief_propagation import BeliefPropagation
from relcrf.inference.enumeration import Enumeration
from relcrf.kernels import pair_flooding, threads

LOOPY = {**LOOPS, **CLIQUES}


@pytest.mark.parametrize("name", [*FORESTS, *LOOPS])
@pytest.mark.parametrize("rounds", [1, 200])
def test_reweighted_values_are_bounds(name, rounds):
    """The log partition and the score are bounded from above, whether or not messages have converged."""
    for seed in range(6):
        scopes, potentials = {**FORESTS, **LOOPS}[name](np.random.default_rng(seed))
        method = BeliefPropagation(scopes, appearance="trees", damping=0.2, max_iterations=rounds, seed=seed)
        exact, best = Enumeration(scopes).marginals(potentials), Enumeration(scopes).map_states(potentials)
        found, decoded = method.marginals(potentials), method.map_states(potentials)
        slack = 1e-9 * max(1.0, abs(exact.log_partition))
        assert found.log_partition >= exact.log_partition - slack
        assert best.score - slack <= decoded.bound < np.inf
        assert decoded.score <= decoded.bound + slack


def test_reweighted_bound_is_tight_on_a_grid():
    scopes, potentials = network(np.random.default_rng(0), np.full(9, 2), grid_edges(3, 3), 0.5)
    found = BeliefPropagation(scopes, appearance="trees", damping=0.2).marginals(potentials)
    assert found.verdict.is_good
    assert 0.0 < found.log_partition - Enumeration(scopes).marginals(potentials).log_partition < 0.1


def test_reweighted_messages_require_pairs():
    scopes, potentials = CLIQUES["a tree of triples"](np.random.default_rng(0))
    with pytest.raises(ValueError, match="more than two nodes"):
        BeliefPropagation(scopes, appearance="trees").marginals(potentials)


@pytest.mark.parametrize("name", LOOPY)
def test_schedules_have_the_same_fixed_point(name):
    for seed in range(4):
        scopes, potentials = LOOPY[name](np.random.default_rng(seed))
        potentials = Potentials(potentials.nodes, 0.5 * potentials.factors)  # weak enough for a unique fixed point
        found = [
            BeliefPropagation(scopes, schedule=s, damping=d, tolerance=1e-12).marginals(potentials)
            for s, d in (
                ("flooding", 0.0),
                ("flooding", 0.4),
                ("blocks", 0.0),
                ("blocks", 0.4),
                ("sequential", 0.0),
                ("residual", 0.0),
                ("residual", 0.4),
            )
        ]
        for other in found[1:]:
            assert other.verdict.status == "converged"
            np.testing.assert_allclose(other.nodes, found[0].nodes, atol=1e-10)
            np.testing.assert_allclose(other.factors, found[0].factors, atol=1e-10)
            assert other.log_partition == pytest.approx(found[0].log_partition, abs=1e-10)


@pytest.mark.parametrize("schedule", ["flooding", "blocks", "sequential", "residual"])
def test_linear_and_log_domain_agree(schedule):
    """One pair out of the linear range moves the whole graph to the log domain, without effect on the other messages."""
    rng = np.random.default_rng(1)
    scopes, potentials = agreements(rng, [*grid_edges(2, 4), (8, 9)], 10, 3, 0.5)
    weights = potentials.factors.copy()
    weights[scopes.table_start[-2]] = 0.0
    narrow = BeliefPropagation(scopes, schedule=schedule, tolerance=1e-12).marginals(
        Potentials(potentials.nodes, weights)
    )
    weights = weights.copy()
    weights[scopes.table_start[-2]] = 2000.0
    wide = BeliefPropagation(scopes, schedule=schedule, tolerance=1e-12).marginals(
        Potentials(potentials.nodes, weights)
    )
    np.testing.assert_allclose(wide.nodes[:24], narrow.nodes[:24], atol=1e-10)
    assert abs(wide.nodes[24:27] - wide.nodes[27:]).max() < 1e-12


@pytest.mark.parametrize("schedule", ["flooding", "blocks", "sequential", "residual"])
def test_ctrl_c_returns_the_current_state(schedule):
    """Ctrl-C stops propagation and returns the current marginals."""
    scopes, potentials = LOOPS["grid"](np.random.default_rng(0))
    seen = []

    def observe(verdict):
        seen.append(verdict.status)
        if len(seen) == 2:
            raise KeyboardInterrupt

    method = BeliefPropagation(scopes, schedule=schedule, damping=0.9, tolerance=1e-12, observe=observe)
    found = method.marginals(potentials)
    assert found.verdict.status == "interrupted" and found.verdict.residual > 0.0
    assert seen == ["running", "running"]
    np.testing.assert_allclose(np.add.reduceat(found.nodes, scopes.state_start[:-1]), 1.0)


def similar_potentials(rng, scopes, potentials):
    nodes = potentials.nodes + rng.normal(scale=0.01, size=len(potentials.nodes))
    return SharedPotentials.from_potentials(scopes, Potentials(nodes, 1.01 * potentials.factors))


@pytest.mark.parametrize("schedule", ["flooding", "blocks"])
def test_coarse_propagation_starts_from_messages_of_similar_potentials(schedule, monkeypatch):
    monkeypatch.setattr(belief_propagation, "COARSE_TOLERANCE", 1e-5)
    monkeypatch.setattr(belief_propagation, "MAX_ROUNDS_PER_STEP", 1)
    rng = np.random.default_rng(0)
    scopes, potentials = LOOPS["grid"](rng)
    method = BeliefPropagation(scopes, schedule=schedule)
    near = method.coarse(similar_potentials(rng, scopes, potentials))
    uniform, found = method.coarse().marginals(potentials), near.marginals(potentials)
    assert found.verdict.status == "converged"
    assert found.verdict.iterations < uniform.verdict.iterations
    np.testing.assert_allclose(found.nodes, uniform.nodes, atol=1e-4)
    assert found.log_partition == pytest.approx(uniform.log_partition, abs=1e-4)
    np.testing.assert_array_equal(found.nodes, near.marginals(potentials).nodes)


def test_coarse_propagation_ignores_messages_that_do_not_converge():
    rng = np.random.default_rng(0)
    scopes, potentials = LOOPS["grid"](rng)
    method = BeliefPropagation(scopes, schedule="blocks", max_iterations=2)
    found = method.coarse(similar_potentials(rng, scopes, potentials)).marginals(potentials)
    np.testing.assert_array_equal(found.nodes, method.coarse().marginals(potentials).nodes)


@pytest.mark.parametrize("n_rounds", [1, 2, 5])
@pytest.mark.parametrize("schedule", ["flooding", "blocks"])
def test_ctrl_c_within_a_round_returns_consistent_marginals(schedule, n_rounds, monkeypatch):
    """After the messages of a round, and before their products become those of the next round, Ctrl-C changes nothing."""
    scopes, potentials = LOOPS["grid"](np.random.default_rng(0))
    whole = BeliefPropagation(scopes, schedule=schedule, max_iterations=n_rounds).marginals(potentials)
    flood, calls = pair_flooding.flood, []

    def interrupt(*arguments):
        ratio = flood(*arguments)
        calls.append(ratio)
        if len(calls) == n_rounds:
            raise KeyboardInterrupt
        return ratio

    monkeypatch.setattr(pair_flooding, "flood", interrupt)
    found = BeliefPropagation(scopes, schedule=schedule).marginals(potentials)
    assert found.verdict.status == "interrupted"
    assert found.log_partition == pytest.approx(whole.log_partition, rel=1e-12)
    np.testing.assert_allclose(found.nodes, whole.nodes, atol=1e-12)
    np.testing.assert_allclose(found.factors, whole.factors, atol=1e-12)


def test_iteration_limit_is_reported():
    scopes, potentials = LOOPS["all pairs"](np.random.default_rng(0))
    verdict = BeliefPropagation(scopes, max_iterations=2).marginals(potentials).verdict
    assert verdict.status == "not converged" and verdict.iterations == 2 and verdict.residual > 1e-6


@pytest.mark.parametrize("table", [[-np.inf, 0.0, 0.0, 0.0], [-np.inf] * 4])
def test_impossible_graph_has_nan_marginals(table):
    """The nodes allow one joint state, and the pair forbids it, or all states."""
    scopes, _ = network(np.random.default_rng(0), [2, 2], [(0, 1)])
    found = BeliefPropagation(scopes).marginals(Potentials(np.array([0.0, -np.inf, 0.0, -np.inf]), np.array(table)))
    assert found.log_partition == -np.inf and np.isnan(found.nodes).all()


def test_tie_is_decoded_consistently():
    """Neighbours in a chain must differ and all states are tied: single beliefs do not determine a joint state."""
    scopes, _ = network(np.random.default_rng(0), [2, 2, 2], [(0, 1), (1, 2)])
    differ = np.array([-1.0, 0.0, 0.0, -1.0])
    best = BeliefPropagation(scopes).map_states(Potentials(np.zeros(6), np.concatenate((differ, differ))))
    assert best.score == 0.0 == best.bound


@pytest.mark.parametrize("setting", [{"schedule": "random"}, {"damping": 1.0}, {"appearance": "stars"}])
def test_invalid_setting_raises(setting):
    scopes, _ = LOOPS["grid"](np.random.default_rng(0))
    with pytest.raises(ValueError, match=next(iter(setting))):
        BeliefPropagation(scopes, **setting)


def test_documentation_example_runs(capsys):
    """The first Python example of the documentation page runs."""
    text = (Path(relcrf.__file__).parent.parent / "docs/explanation/inference/belief_propagation.md").read_text()
    exec(text.split("```python\n")[1].split("```")[0], {})
    assert capsys.readouterr().out.startswith("converged [")


@pytest.mark.parametrize(("appearance", "seed"), [(None, 108), (None, 1436), ("trees", 165), ("trees", 221)])
def test_impossible_state_is_not_reported_as_converged(appearance, seed):
    """Messages converge, but the decoded state is impossible, although a possible joint state exists."""
    rng = np.random.default_rng(seed)
    pairs = network(rng, np.full(4, 4), [(i, j) for i in range(4) for j in range(i)])
    scopes, potentials = hard(rng, pairs, 0.72)
    found = BeliefPropagation(scopes, appearance=appearance, damping=0.3).map_states(potentials)
    assert found.score == -np.inf and found.bound > -np.inf
    assert found.verdict.status == "not converged"


@pytest.mark.parametrize("schedule", ["flooding", "blocks"])
@pytest.mark.parametrize("damping", [0.0, 0.3])
def test_threads_share_a_large_graph_with_the_same_bits(damping, schedule, monkeypatch):
    side, k = 24, 3
    edges = np.array(grid_edges(side, side), dtype=np.int32)
    rng = np.random.default_rng(1)
    scopes = Scopes(np.full(side * side, k, dtype=np.int32), 2 * np.arange(len(edges) + 1), edges.ravel())
    potentials = Potentials(rng.normal(size=side * side * k), rng.normal(scale=0.3, size=len(edges) * k * k))
    potentials.nodes[0] = -np.inf
    method = BeliefPropagation(scopes, schedule=schedule, damping=damping, max_iterations=60, tolerance=0.0)
    alone = method.marginals(potentials)
    monkeypatch.setattr(threads, "MIN_PARALLEL_COST", 0)
    found = []
    for n_threads in (1, 2, 3):
        monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", n_threads)
        found.append(method.marginals(potentials))
    assert found[0].nodes[0] == 0.0
    np.testing.assert_allclose(found[0].nodes, alone.nodes, rtol=1e-12)
    assert found[0].log_partition == pytest.approx(alone.log_partition, rel=1e-12)
    for other in found[1:]:
        assert other.log_partition == found[0].log_partition
        np.testing.assert_array_equal(other.nodes, found[0].nodes)


@pytest.mark.parametrize("appearance", [None, "trees"])
@pytest.mark.parametrize("with_agreements", [False, True])
def test_shared_tables_do_not_change_results(monkeypatch, with_agreements, appearance):
    """Test pairs with four tables on a grid, of which three tables fill one or more blocks of lanes."""
    monkeypatch.setattr(pair_lanes, "MIN_SHARING_PAIRS", pair_lanes.LANES)
    rng = np.random.default_rng(0)
    edges = grid_edges(20, 30)
    table_class = rng.choice(4, size=len(edges), p=[0.5, 0.25, 0.2, 0.05])
    is_agreement = table_class == 1 if with_agreements else None
    scopes, potentials = network(rng, np.full(600, 3), edges, 0.4, is_agreement)
    tables = rng.normal(scale=0.4, size=(4, 9))
    sizes = np.diff(scopes.table_start)
    potentials = Potentials(
        potentials.nodes, np.concatenate([tables[c][:n] for c, n in zip(table_class, sizes, strict=True)])
    )
    shared = replace(scopes, table_class=table_class)
    assert sum(lanes.shares_table for lanes in pair_lanes.PairLanes.from_scopes(shared)) == 3
    settings = {"tolerance": 1e-12, "damping": 0.1, "appearance": appearance}
    wanted, found, nodes = (
        BeliefPropagation(scopes, **settings).marginals(potentials),
        BeliefPropagation(shared, **settings).marginals(potentials),
        BeliefPropagation(shared, **settings).node_marginals(potentials),
    )
    assert found.verdict.is_good and nodes.factors.size == 0
    for each in (found, nodes):
        np.testing.assert_allclose(each.nodes, wanted.nodes, atol=1e-10)
        assert each.log_partition == pytest.approx(wanted.log_partition, rel=1e-10)
    np.testing.assert_allclose(found.factors, wanted.factors, atol=1e-10)
    score = BeliefPropagation(shared, **settings).map_states(potentials).score
    assert score == pytest.approx(BeliefPropagation(scopes, **settings).map_states(potentials).score)


def shared_network(rng, with_agreements):
    """Return a grid with four distinct tables, as scopes with table classes and shared potentials."""
    edges = grid_edges(20, 30)
    table_class = rng.choice(4, size=len(edges), p=[0.5, 0.25, 0.2, 0.05])
    is_agreement = table_class == 1 if with_agreements else None
    scopes, potentials = network(rng, np.full(600, 3), edges, 0.4, is_agreement)
    sizes = np.array([9, 1 if with_agreements else 9, 9, 9])
    tables = rng.normal(scale=0.4, size=int(sizes.sum()))
    shared = SharedPotentials(potentials.nodes, tables, offsets(sizes), table_class.astype(np.int32))
    return replace(scopes, table_class=table_class), shared


@pytest.mark.parametrize("hard_nodes", [False, True])
@pytest.mark.parametrize("with_agreements", [False, True])
def test_sums_of_shared_tables(monkeypatch, with_agreements, hard_nodes):
    """The lanes and the default implementation add up the same tables; a forbidden pair selects messages in logs."""
    monkeypatch.setattr(pair_lanes, "MIN_SHARING_PAIRS", pair_lanes.LANES)
    scopes, shared = shared_network(np.random.default_rng(1), with_agreements)
    shared.nodes[:2] = -np.inf
    shared.tables[1] = -np.inf if hard_nodes else shared.tables[1]
    method = BeliefPropagation(scopes, schedule="blocks", damping=0.1, tolerance=1e-12)
    wanted = method.marginals(shared.expand())
    for n_threads, min_cost in ((1, threads.MIN_PARALLEL_COST), (2, 0)):
        monkeypatch.setattr(threads, "MIN_PARALLEL_COST", min_cost)
        monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", n_threads)
        found, nodes = method.shared_marginals(shared), method.shared_marginals(shared, with_factors=False)
        assert found.verdict.is_good and not len(nodes.factors)
        np.testing.assert_allclose(found.factors, shared.sum_tables(wanted.factors), rtol=1e-9)
        for each in (found, nodes):
            np.testing.assert_allclose(each.nodes, wanted.nodes, atol=1e-10)
            assert each.log_partition == pytest.approx(wanted.log_partition, rel=1e-10)


def test_blocks_converge_faster_than_flooding():
    scopes, shared = shared_network(np.random.default_rng(2), with_agreements=False)
    residuals = [
        BeliefPropagation(scopes, schedule=schedule, max_iterations=10, tolerance=0.0)
        .shared_marginals(shared)
        .verdict.residual
        for schedule in ("blocks", "flooding")
    ]
    assert 0.0 < residuals[0] < 0.5 * residuals[1]
