"""Weighted mini-buckets: bounds against enumeration, one pass against plain NumPy, derivatives, and settings."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from networks import CLIQUES, LOOPS, grid_edges, hard, network

from relcrf.graph.scopes import Potentials, Scopes
from relcrf.inference.enumeration import Enumeration
from relcrf.inference.junction_tree import JunctionTree
from relcrf.inference.mini_bucket import MiniBucket
from relcrf.inference.result import UnsupportedGraphError
from relcrf.kernels import mini_bucket as kernel


def triples(rng):
    """Return overlapping factors over three nodes, with an isolated node and a node with one state."""
    scopes = [(v, (v + 2) % 8, (v + 3) % 8) for v in range(8)]
    return network(rng, [2, 3, 2, 2, 3, 1, 2, 2, 4], scopes, 1.5)


def hard_grid(rng):
    return hard(rng, network(rng, np.full(12, 2), grid_edges(3, 4), 2.0), 0.25)


SPLIT = {**LOOPS, "larger agreements": CLIQUES["larger agreements"], "triples": triples, "hard grid": hard_grid}


@pytest.mark.parametrize("name", SPLIT)
@pytest.mark.parametrize("max_cells", [1, 4, 9])
def test_bounds_hold_and_never_increase(name, max_cells):
    for seed in range(6):
        scopes, potentials = SPLIT[name](np.random.default_rng(seed))
        exact, optimum = Enumeration(scopes).marginals(potentials), Enumeration(scopes).map_states(potentials)
        log_partitions, score_bounds = [], []
        for n in (1, 2, 3, 5, 8, 20):
            method = MiniBucket(scopes, max_cells=max_cells, max_iterations=n, tolerance=0.0)
            log_partitions.append(method.marginals(potentials).log_partition)
            best = method.map_states(potentials)
            assert best.score <= optimum.score + 1e-9
            score_bounds.append(best.bound)
        for bounds, true in ((log_partitions, exact.log_partition), (score_bounds, optimum.score)):
            assert min(bounds) >= true - 1e-9
            assert all(later <= earlier + 1e-9 for earlier, later in pairwise(bounds))


def test_iterations_and_cells_improve_results():
    """On a grid of 8 x 8, optimisation reduces the gap, and larger tables reduce the gap and the error of marginals."""
    scopes, potentials = network(np.random.default_rng(0), np.full(64, 2), grid_edges(8, 8), 1.0)
    exact = JunctionTree(scopes).marginals(potentials)
    gaps, errors = {}, {}
    for cells in (4, 32, 128):
        for n in (1, 30):
            found = MiniBucket(scopes, max_cells=cells, max_iterations=n).marginals(potentials)
            gaps[cells, n] = found.log_partition - exact.log_partition
            errors[cells, n] = np.abs(found.nodes - exact.nodes).mean()
    assert all(gaps[cells, 30] < gaps[cells, 1] / 2 for cells in (4, 32, 128))
    assert gaps[128, 30] < gaps[32, 30] < gaps[4, 30]
    assert errors[128, 30] < errors[32, 30] < errors[4, 30]
    whole = MiniBucket(scopes, max_cells=1 << 14).marginals(potentials)
    assert whole.verdict.status == "exact"
    np.testing.assert_allclose(whole.nodes, exact.nodes, atol=1e-9)
    np.testing.assert_allclose(whole.factors, exact.factors, atol=1e-9)


def plain_bound(scopes, potentials, order, max_cells, weights, maximum):
    """Eliminate in NumPy; `weights` contains the weights of the mini-buckets in order of elimination."""
    cardinality = scopes.cardinality

    def n_cells(nodes):
        return np.prod(cardinality[list(nodes)])

    def expand(table, scope, axes):
        return table.transpose(np.argsort(scope)).reshape([cardinality[v] if v in scope else 1 for v in axes])

    functions = [((v,), potentials.nodes[scopes.state_start[v] : scopes.state_start[v + 1]]) for v in range(len(order))]
    for f in range(scopes.n_factors):
        scope = tuple(scopes.node[scopes.start[f] : scopes.start[f + 1]].tolist())
        table = potentials.factors[scopes.table_start[f] : scopes.table_start[f + 1]]
        functions.append((scope, table.reshape(cardinality[list(scope)])))
    total, weights = 0.0, list(weights)
    for v in order:
        # Mini-buckets of equal size are in descending order of creation of their first functions, as in the kernel.
        bucket = sorted((f for f in reversed(functions) if v in f[0]), key=lambda f: -f[1].size)
        functions = [f for f in functions if v not in f[0]]
        minis = []
        for scope, table in bucket:
            growth = []
            for mini in minis:
                union = set().union(*(s for s, _ in mini))
                factor = n_cells(union.union(scope)) / n_cells(union)
                growth.append(factor if factor == 1.0 or n_cells(union.union(scope)) <= max_cells else np.inf)
            if min(growth, default=np.inf) < np.inf:
                minis[int(np.argmin(growth))].append((scope, table))
            else:
                minis.append([(scope, table)])
        for mini in minis:
            axes = sorted(set().union(*(s for s, _ in mini)))
            joint, weight, axis = (
                sum(expand(table, scope, axes) for scope, table in mini),
                weights.pop(0),
                axes.index(v),
            )
            top = joint.max(axis)
            with np.errstate(invalid="ignore"):
                power = top + weight * np.log(np.exp((joint - np.expand_dims(top, axis)) / weight).sum(axis))
            message = top if maximum else np.where(top == -np.inf, -np.inf, power)
            if len(axes) > 1:
                functions.append((tuple(u for u in axes if u != v), message))
            else:
                total += float(message)
    assert not weights
    return total


@pytest.mark.parametrize("maximum", [False, True])
def test_one_pass_equals_plain_numpy(maximum):
    rng = np.random.default_rng(5)
    grid = network(rng, rng.integers(2, 4, size=12), grid_edges(3, 4), 1.0)
    quads = network(rng, np.full(7, 3), [(0, 3, 5), (4, 1), (6, 2, 0), (1, 2, 5), (5, 6), (4, 3, 2, 1)], 2.0)
    for scopes, potentials in (grid, quads, hard_grid(rng)):
        for max_cells in (4, 12):
            minis = MiniBucket(scopes, max_cells=max_cells).mini_buckets
            counts = np.diff(minis.bucket_start)
            assert (counts > 1).any()
            weight = np.concatenate([rng.dirichlet(np.ones(n)) for n in counts])
            values = np.concatenate((*potentials, np.zeros(minis.region[3] - minis.region[1])))
            found = kernel.eliminate(minis, weight, maximum, 0.0, False, values, np.zeros_like(values))
            order = minis.node[minis.start[minis.bucket_start[:-1]]].tolist()
            expected = plain_bound(scopes, potentials, order, max_cells, weight, maximum)
            assert found == pytest.approx(expected, rel=1e-12)


def test_pseudo_marginals_are_derivatives_of_the_bound():
    """Pseudo-marginals and entropies equal finite differences of the bound by tables, shifts and weights."""
    rng = np.random.default_rng(2)
    scopes, potentials = network(rng, np.full(9, 2), grid_edges(3, 3), 1.0)
    minis = MiniBucket(scopes, max_cells=4).mini_buckets
    counts = np.diff(minis.bucket_start)
    weight = np.concatenate([rng.dirichlet(np.ones(n)) for n in counts])
    inputs = np.concatenate((*potentials, rng.normal(size=minis.region[2] - minis.region[1])))
    marginal, entropy = np.zeros(minis.region[3]), np.zeros_like(weight)

    def bound(inputs, weight):
        values = np.concatenate((inputs, np.zeros(minis.region[3] - minis.region[2])))
        total = kernel.eliminate(minis, weight, False, 0.0, False, values, np.zeros_like(values))
        kernel.return_messages(minis, weight, False, values, marginal, entropy)
        return total

    step = 1e-6
    for k in range(len(inputs)):
        change = step * (np.arange(len(inputs)) == k)
        slope = (bound(inputs + change, weight) - bound(inputs - change, weight)) / (2 * step)
        bound(inputs, weight)
        assert marginal[k] == pytest.approx(slope, abs=1e-7)
    split = np.flatnonzero(np.repeat(counts > 1, counts))
    assert len(split)
    for c in split:
        change = step * (np.arange(len(weight)) == c)
        slope = (bound(inputs, weight + change) - bound(inputs, weight - change)) / (2 * step)
        bound(inputs, weight)
        assert entropy[c] == pytest.approx(slope, abs=1e-7)


def test_larger_factor_keeps_its_table():
    """A factor above `max_cells` is a mini-bucket of its nodes; without a cycle, nothing is split."""
    scopes, potentials = network(np.random.default_rng(0), np.full(7, 3), [(0, 1, 2, 3), (3, 4), (4, 5, 6)])
    found = MiniBucket(scopes, max_cells=27).marginals(potentials)
    assert found.verdict.status == "exact"
    np.testing.assert_allclose(found.factors, Enumeration(scopes).marginals(potentials).factors, atol=1e-9)


def test_results_are_deterministic():
    scopes, potentials = network(np.random.default_rng(0), np.full(25, 2), grid_edges(5, 5), 1.0)
    first, second = (MiniBucket(scopes, max_cells=8).marginals(potentials) for _ in range(2))
    assert first.log_partition == second.log_partition and (first.nodes == second.nodes).all()


def test_impossible_loop_is_proved():
    """Three nodes with two states cannot differ pairwise; with a split bucket, this needs a forbidden state of its node."""
    differ = np.array([-np.inf, 0.0, 0.0, -np.inf])
    scopes = Scopes(np.full(3, 2), np.array([0, 2, 4, 6]), np.array([0, 1, 1, 2, 2, 0]))
    for max_cells, nodes in ((8, np.zeros(6)), (4, np.array([-np.inf, 0.0, 0.0, 0.0, 0.0, 0.0]))):
        method = MiniBucket(scopes, max_cells=max_cells)
        found = method.marginals(Potentials(nodes, np.tile(differ, 3)))
        assert method.is_exact is (max_cells == 8)
        assert found.log_partition == -np.inf and np.isnan(found.nodes).all() and found.verdict.status == "exact"


def test_interrupted_run_returns_a_bound():
    scopes, potentials = network(np.random.default_rng(0), np.full(25, 2), grid_edges(5, 5), 1.0)

    def interrupt(verdict):
        raise KeyboardInterrupt

    found = MiniBucket(scopes, max_cells=8, observe=interrupt).marginals(potentials)
    assert found.verdict.status == "interrupted" and found.verdict.iterations == 1
    once = MiniBucket(scopes, max_cells=8, max_iterations=1).marginals(potentials)
    assert found.log_partition == once.log_partition


def test_limits():
    scopes, potentials = network(np.random.default_rng(0), np.full(100, 2), grid_edges(10, 10), 1.0)
    with pytest.raises(UnsupportedGraphError, match="lower max_cells"):
        MiniBucket(scopes, max_cells=1 << 10, memory=10_000).marginals(potentials)
    with pytest.raises(ValueError, match="max_cells must be at least 1"):
        MiniBucket(scopes, max_cells=0)
    large = Scopes(np.full(60, 2), np.array([0, 60]), np.arange(60), np.array([True]))
    with pytest.raises(UnsupportedGraphError, match=r"need 9.22e\+18 bytes"):
        MiniBucket(large).map_states(Potentials(np.zeros(120), np.ones(1)))


@pytest.mark.parametrize("name", SPLIT)
def test_importance_samples_are_unbiased(name):
    """The estimate is close to the exact log partition, within its standard error; marginals are more accurate."""
    for seed in range(3):
        scopes, potentials = SPLIT[name](np.random.default_rng(seed))
        exact = Enumeration(scopes).marginals(potentials)
        plain, sampled = (
            MiniBucket(scopes, max_cells=4, samples=n, seed=seed).marginals(potentials) for n in (0, 40_000)
        )
        assert plain.upper == plain.log_partition == pytest.approx(sampled.upper, rel=1e-12)
        assert sampled.log_partition <= sampled.upper
        if plain.verdict.status == "exact":
            assert sampled.verdict.status == "exact" and sampled.log_partition == plain.log_partition
            continue
        assert 0.0 < sampled.verdict.residual < 0.1 and sampled.verdict.status == "converged"
        assert abs(sampled.log_partition - exact.log_partition) < 5 * sampled.verdict.residual
        for found, true in ((sampled.nodes, exact.nodes), (sampled.factors, exact.factors)):
            np.testing.assert_allclose(found, true, atol=0.02)
            assert (found[true == 0.0] < 1e-3).all()


def test_joint_states_are_weighted_by_score_and_proposal():
    """Weights equal exp(score) / proposal: the mean over the proposal of any function is the sum over joint states."""
    scopes, potentials = hard_grid(np.random.default_rng(3))
    method = MiniBucket(scopes, max_cells=4, max_iterations=3)
    minis, rng = method.mini_buckets, np.random.default_rng(0)
    counts = np.diff(minis.bucket_start)
    weight, n = np.repeat(1.0 / counts, counts), 200_000
    values = np.concatenate((*potentials, np.zeros(minis.region[3] - minis.region[1])))
    kernel.eliminate(minis, weight, False, 1.0, True, values, np.zeros_like(values))
    states, log_weight = np.empty((n, scopes.n_nodes), dtype=np.int32), np.empty(n)
    kernel.draw_states(minis, weight, values, rng.random((n, scopes.n_nodes, 2)), states, log_weight)
    possible = log_weight > -np.inf
    scores = np.array([scopes.score(potentials, some) for some in states[possible].astype(np.int64)[:100]])
    assert np.isfinite(scores).all()
    proposal, index = np.exp(scores - log_weight[possible][:100]), states @ (1 << np.arange(scopes.n_nodes))
    frequency = np.array([(index == i).mean() for i in index[possible][:100]])
    np.testing.assert_allclose(frequency, proposal, atol=0.01)


def test_impossible_samples_prove_nothing():
    """Test a model with few possible joint states among many: all samples may be impossible, but the model is possible."""
    n = 12
    edges = [(i, j) for i in range(n) for j in range(i)]
    scopes, _ = network(np.random.default_rng(0), np.full(n, n), edges)
    differ = np.where(np.eye(n, dtype=bool), -np.inf, 0.0).ravel()
    potentials = Potentials(np.zeros(n * n), np.tile(differ, len(edges)))
    found = MiniBucket(scopes, max_cells=n**2, max_iterations=2, samples=10).marginals(potentials)
    assert found.verdict.status == "not converged" and found.verdict.residual == 1.0
    assert found.log_partition == found.upper >= math.lgamma(n + 1)
