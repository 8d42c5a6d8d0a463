"""Junction trees: memory limits, sampling and settings; and `auto`, which combines methods."""

import math
import tracemalloc

import numpy as np
import pytest
from networks import CLIQUES, FORESTS, LOOPS, grid_edges, network

from relcrf.errors import UsageError
from relcrf.graph.scopes import Potentials, Scopes
from relcrf.inference.auto import Auto
from relcrf.inference.belief_propagation import BeliefPropagation
from relcrf.inference.clique_tree import CliqueTooLargeError
from relcrf.inference.enumeration import Enumeration
from relcrf.inference.forest import ForestInference
from relcrf.inference.junction_tree import JunctionTree
from relcrf.inference.methods import METHODS, create_inference, text_setting_names


def disjoint_union(*networks):
    """Return the disjoint union of several networks."""
    offset = np.cumsum([0, *(s.n_nodes for s, _ in networks)])
    slots = np.cumsum([0, *(len(s.node) for s, _ in networks)])
    scopes = Scopes(
        np.concatenate([s.cardinality for s, _ in networks]),
        np.concatenate([[0], *(s.start[1:] + p for (s, _), p in zip(networks, slots, strict=False))]),
        np.concatenate([s.node + o for (s, _), o in zip(networks, offset, strict=False)]).astype(np.int32),
    )
    tables = [np.concatenate([getattr(p, name) for _, p in networks]) for name in ("nodes", "factors")]
    return scopes, Potentials(*tables)


def grid(n, k=2, seed=0):
    return network(np.random.default_rng(seed), np.full(n * n, k), grid_edges(n, n), 0.5)


def test_grid_equals_transfer_matrix():
    """A grid of 10 x 10 compared with a transfer matrix over rows of 2^10 states."""
    n = 10
    scopes, potentials = grid(n)
    tables = potentials.factors.reshape(-1, 2, 2)
    edges = {tuple(e): t for e, t in zip(scopes.node.reshape(-1, 2).tolist(), tables, strict=True)}
    rows = np.array(np.unravel_index(np.arange(1 << n), (2,) * n)).T
    total = np.zeros(1 << n)
    for i in range(n):
        if i:
            step = np.zeros((1 << n, 1 << n))
            for j in range(n):
                step += edges[(n * (i - 1) + j, n * i + j)][rows[:, j][:, None], rows[:, j][None, :]]
            top = total.max()
            total = top + np.log(np.exp(total - top) @ np.exp(step))
        for j in range(n):
            total += potentials.nodes[2 * (n * i + j) + rows[:, j]]
            if j:
                total += edges[(n * i + j - 1, n * i + j)][rows[:, j - 1], rows[:, j]]
    expected = total.max() + np.log(np.exp(total - total.max()).sum())
    found = JunctionTree(scopes).marginals(potentials)
    assert found.log_partition == pytest.approx(expected, rel=1e-12)
    last = np.exp(total - expected)  # the marginals of the last row
    for j in range(n):
        assert found.nodes[2 * (n * (n - 1) + j) + 1] == pytest.approx(last[rows[:, j] == 1].sum(), abs=1e-9)


def test_memory_limit_raises_before_allocation():
    scopes, potentials = grid(60)
    tree = JunctionTree(scopes, memory=1 << 20)
    tracemalloc.start()
    with pytest.raises(CliqueTooLargeError) as caught:
        tree.marginals(potentials)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    error = caught.value
    assert isinstance(error, ValueError)
    assert 1 << 20 < error.n_cells * 8 <= error.required_bytes
    assert error.n_cells == math.prod(scopes.cardinality[error.nodes].tolist())
    assert str(error.nodes[0]) in str(error) and peak < 20e6
    assert np.isinf(tree.clique_tree.component_bytes[0])


def test_dense_graph_raises_without_fill_in():
    """A lower bound suffices; min-fill would take minutes for a million pairs."""
    n = 1500
    i, j = np.triu_indices(n, 1)
    scopes = Scopes(
        np.full(n, 2, dtype=np.int32),
        np.arange(0, 2 * len(i) + 1, 2),
        np.stack([i, j], axis=1).ravel().astype(np.int32),
    )
    with pytest.raises(CliqueTooLargeError) as caught:
        JunctionTree(scopes).clique_tree.check_memory()
    assert caught.value.n_cells == 2**n and "1e451 cells" in str(caught.value)


def test_single_large_factor_raises():
    scopes = Scopes(np.full(40, 2, dtype=np.int32), np.array([0, 40]), np.arange(40, dtype=np.int32), np.array([True]))
    with pytest.raises(CliqueTooLargeError) as caught:
        JunctionTree(scopes).marginals(Potentials(np.zeros(80), np.ones(1)))
    assert caught.value.nodes == list(range(40))


def test_total_memory_limit_raises():
    scopes, potentials = network(np.random.default_rng(0), np.full(100, 4), [(v, v + 1) for v in range(99)])
    assert JunctionTree(scopes, memory=99 * 16 * 8).marginals(potentials).verdict.status == "exact"
    with pytest.raises(CliqueTooLargeError, match="need at least 12,672 bytes"):
        JunctionTree(scopes, memory=99 * 16 * 8 - 1).marginals(potentials)


@pytest.mark.parametrize("name", ["forest with hard rules", "grid, k = 3", "larger agreements", "hard transitivity"])
def test_samples_are_exact(name):
    scopes, potentials = {**FORESTS, **LOOPS, **CLIQUES}[name](np.random.default_rng(1))
    n = 40_000
    tree = JunctionTree(scopes)
    states = tree.sample(potentials, n, seed=0)
    assert (states == tree.sample(potentials, n, seed=0)).all()
    exact = Enumeration(scopes).marginals(potentials)
    for v in range(scopes.n_nodes):
        found = np.bincount(states[:, v], minlength=scopes.cardinality[v]) / n
        np.testing.assert_allclose(found, exact.nodes[scopes.state_start[v] : scopes.state_start[v + 1]], atol=0.012)
    # The frequency of the most probable joint state.
    best = Enumeration(scopes).map_states(potentials)
    frequency = (states == best.states).all(axis=1).mean()
    assert frequency == pytest.approx(math.exp(best.score - exact.log_partition), abs=0.012)
    assert all(scopes.score(potentials, some.astype(np.int64)) > -np.inf for some in states[:50])


def test_sampling_impossible_graph_raises():
    scopes = Scopes(np.array([2, 2], dtype=np.int32), np.array([0, 2]), np.array([0, 1], dtype=np.int32))
    with pytest.raises(ValueError, match="all joint states are impossible"):
        JunctionTree(scopes).sample(Potentials(np.zeros(4), np.full(4, -np.inf)), 1, seed=0)


def test_auto_chooses_a_method_per_component():
    rng = np.random.default_rng(0)
    tree, loop, large = FORESTS["forest, k = 3"](rng), LOOPS["one loop"](rng), grid(8)
    scopes, potentials = disjoint_union(large, tree, loop)
    auto, seen = Auto(scopes, memory=2000, observe=lambda verdict: seen.append(verdict)), []
    nodes_by_method = {type(each.marginal_method): each.subset.nodes.tolist() for each in auto.assignments}
    n = large[0].n_nodes
    assert nodes_by_method == {
        BeliefPropagation: list(range(n)),
        ForestInference: list(range(n, n + 7)),
        JunctionTree: list(range(n + 7, n + 12)),
    }
    assert auto.n_exact_nodes == 12
    found = auto.marginals(potentials)
    parts = [Enumeration(s).marginals(p) for s, p in (tree, loop)]
    left = BeliefPropagation(large[0]).marginals(large[1])
    assert found.log_partition == pytest.approx(left.log_partition + sum(p.log_partition for p in parts))
    np.testing.assert_allclose(found.nodes[2 * n :], np.concatenate([p.nodes for p in parts]), atol=1e-9)
    np.testing.assert_array_equal(found.nodes[: 2 * n], left.nodes)
    assert found.verdict == left.verdict and seen
    best, exact = auto.map_states(potentials), Auto(scopes).map_states(potentials)
    assert best.score == pytest.approx(scopes.score(potentials, best.states))
    assert exact.verdict.status == "exact" and best.score <= exact.score + 1e-9 <= best.bound + 1e-8
    assert best.bound < np.inf
    limited = Auto(scopes, memory=2000, max_iterations=1).marginals(potentials)
    assert limited.verdict.status == "not converged"


def test_auto_limits_total_memory():
    """Two of four equal loops fit into the memory limit."""
    one = network(np.random.default_rng(0), np.full(4, 3), [(0, 1), (1, 2), (2, 3), (3, 0)])
    scopes, _ = disjoint_union(one, one, one, one)
    assert Auto(scopes, memory=2 * 2 * 27 * 8).n_exact_nodes == 8
    assert Auto(scopes, memory=4 * 2 * 27 * 8).n_exact_nodes == 16


def test_methods_by_name():
    scopes, potentials = LOOPS["grid"](np.random.default_rng(0))
    assert set(METHODS) == {"auto", "bp", "dual", "enumeration", "forest", "gibbs", "jt", "mf", "trw", "wmb"}
    assert text_setting_names(JunctionTree) == ["memory"]
    method = create_inference("jt", scopes, {"memory": "4096"})
    assert isinstance(method, JunctionTree) and method.memory == 4096
    assert method.marginals(potentials).verdict.status == "exact"
    for name, settings, code in [
        ("jtt", {}, "E380"),
        ("jt", {"memry": "1"}, "E304"),
        ("jt", {"memory": "much"}, "E305"),
        ("jt", {"scopes": "1"}, "E304"),
        ("auto", {"observe": "bp"}, "E304"),
        ("bp", {"schedule": "any"}, "E305"),
        ("bp", {"damping": "1"}, "E305"),
        ("enumeration", {"memory": "1"}, "E304"),
    ]:
        with pytest.raises(UsageError, match=code):
            create_inference(name, scopes, settings)
