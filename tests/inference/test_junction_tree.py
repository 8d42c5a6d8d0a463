"""Junction trees: memory limits, sampling and settings; and `auto`, which combines methods."""

import math
import tracemalloc
from itertools import combinations

import numpy as np
import pytest
from networks import CLIQUES, FORESTS, LOOPS, grid_edges, joint_states, network

from relcrf.errors import UsageError
from relcrf.graph.scopes import Potentials, Scopes
from relcrf.inference import clique_tree, junction_tree
from relcrf.inference.approximate import Approximation
from relcrf.inference.auto import Auto
from relcrf.inference.belief_propagation import BeliefPropagation
from relcrf.inference.clique_tree import CliqueTooLargeError
from relcrf.inference.elimination_order import search_order
from relcrf.inference.enumeration import Enumeration
from relcrf.inference.forest import ForestInference
from relcrf.inference.junction_tree import JunctionTree
from relcrf.inference.methods import METHODS, create_inference, text_setting_names
from relcrf.kernels import threads
from relcrf.kernels.junction_tree import LINEAR_SUM, LOG_SUM


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
    tree = JunctionTree(scopes, max_cells=1 << 17)
    tracemalloc.start()
    with pytest.raises(CliqueTooLargeError) as caught:
        tree.marginals(potentials)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    error = caught.value
    assert isinstance(error, ValueError)
    assert 1 << 17 < error.n_cells <= error.required and not error.is_memory
    assert error.n_cells == math.prod(scopes.cardinality[error.nodes].tolist())
    assert str(error.nodes[0]) in str(error) and peak < 20e6
    assert np.isinf(tree.clique_tree.component_bytes[0]) and np.isinf(tree.clique_tree.component_cells[0])


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
        JunctionTree(scopes).clique_tree.check_limits()
    assert caught.value.n_cells == 2**n and "1e451 cells" in str(caught.value)


def random_links(rng, n, n_links):
    """Return scopes of random pairs, and of a chain that joins all nodes."""
    pairs = np.sort(rng.integers(n, size=(n_links, 2)), axis=1)
    pairs = np.unique(np.concatenate((pairs[pairs[:, 0] < pairs[:, 1]], np.arange(n - 1)[:, None] + [0, 1])), axis=0)
    return Scopes(rng.integers(2, 4, size=n), 2 * np.arange(len(pairs) + 1), pairs.ravel())


def test_contraction_rejects_only_components_without_a_small_order(monkeypatch):
    """The lower bound never exceeds the largest clique of an order; on many graphs, it saves the search for orders."""
    monkeypatch.setattr(clique_tree, "MAX_SEARCHED_NODES", 0)
    rng, n_rejected = np.random.default_rng(0), 0
    for n_links in range(10, 250, 10):
        n = 30
        scopes = random_links(rng, n, n_links)
        stage, component = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int32)
        pairs = scopes.node.reshape(-1, 2)
        best = search_order(scopes.cardinality, stage, *np.ascontiguousarray(pairs.T), 1 << 60, 1 << 30)
        largest = max(math.prod(scopes.cardinality[c].tolist()) for c in np.split(best.member, best.start[1:-1]))
        assert clique_tree._hopeless_components(scopes.cardinality, component, pairs, largest) == {}
        limit = 2**6
        rejected = clique_tree._hopeless_components(scopes.cardinality, component, pairs, limit)
        assert all(limit < n_cells <= largest for n_cells in rejected.values())
        n_rejected += len(rejected)
    assert n_rejected >= 5


def test_large_random_graph_raises_without_elimination():
    scopes = random_links(np.random.default_rng(0), 20_000, 80_000)
    with pytest.raises(CliqueTooLargeError, match="each elimination order has a clique") as caught:
        JunctionTree(scopes, max_cells=2048).clique_tree.check_limits()
    assert caught.value.nodes == [] and caught.value.required > 2048


def test_single_large_factor_raises():
    scopes = Scopes(np.full(40, 2, dtype=np.int32), np.array([0, 40]), np.arange(40, dtype=np.int32), np.array([True]))
    with pytest.raises(CliqueTooLargeError) as caught:
        JunctionTree(scopes).marginals(Potentials(np.zeros(80), np.ones(1)))
    assert caught.value.nodes == list(range(40))


def test_total_limits_raise():
    """Test a chain: 99 cliques of 16 cells; 98 messages of 4 cells, and the partition function."""
    scopes, potentials = network(np.random.default_rng(0), np.full(100, 4), [(v, v + 1) for v in range(99)])
    n_bytes, n_cells = 16 * (98 * 4 + 1), 99 * 16
    assert JunctionTree(scopes, memory=n_bytes, max_cells=n_cells).marginals(potentials).verdict.status == "exact"
    with pytest.raises(CliqueTooLargeError, match=r"need at least 6,288 bytes, and the limit \(memory\)"):
        JunctionTree(scopes, memory=n_bytes - 1).marginals(potentials)
    with pytest.raises(CliqueTooLargeError, match=r"at least 1,584 cells, and the limit \(max_cells\)"):
        JunctionTree(scopes, max_cells=n_cells - 1).marginals(potentials)


def dense_network(rng, n=17, n_states=2):
    """Return a network whose only clique contains all nodes, with pairs, triples and an agreement of four nodes."""
    scopes = [
        *combinations(range(n), 2),
        *rng.permuted(np.tile(np.arange(n), (5, 1)), axis=1)[:, :3].tolist(),
        (0, 3, 5, n - 1),
    ]
    start = np.cumsum([0, *map(len, scopes)])
    agreement = np.arange(len(scopes)) == len(scopes) - 1
    graph = Scopes(np.full(n, n_states), start, np.concatenate(scopes), agreement)
    factors = rng.normal(scale=0.5, size=int(graph.table_start[-1]))
    factors[rng.random(len(factors)) < 0.02] = -np.inf
    return graph, Potentials(rng.normal(size=int(graph.state_start[-1])), factors)


def test_large_cliques_are_exact():
    """Test a clique of 2**17 cells, which is computed in blocks and has combined inputs."""
    scopes, potentials = dense_network(np.random.default_rng(3))
    tree = JunctionTree(scopes)
    cliques = tree.clique_tree.cliques
    assert (cliques.n_own == 0).sum() > 2 and tree.clique_tree.clique_cells.max() == 1 << 17
    found, exact = tree.marginals(potentials), Enumeration(scopes).marginals(potentials)
    assert found.log_partition == pytest.approx(exact.log_partition, rel=1e-12)
    np.testing.assert_allclose(found.nodes, exact.nodes, atol=1e-11)
    np.testing.assert_allclose(found.factors, exact.factors, atol=1e-11)
    best, optimum = tree.map_states(potentials), Enumeration(scopes).map_states(potentials)
    assert best.score == pytest.approx(optimum.score) and (best.states == optimum.states).all()


def test_wide_range_of_potentials_is_exact():
    """Test potentials whose products underflow in the linear domain: the messages are then logs."""
    scopes, potentials = dense_network(np.random.default_rng(4), n=10)
    wide = Potentials(400 * potentials.nodes, 400 * potentials.factors)
    wide.factors[-1] = 1000.0  # the agreement, a hard rule
    tree, enumeration = JunctionTree(scopes), Enumeration(scopes)
    for each, domain in ((potentials, LINEAR_SUM), (wide, LOG_SUM)):
        assert tree._sum_product(each).domain == domain
        found, exact = tree.marginals(each), enumeration.marginals(each)
        assert found.log_partition == pytest.approx(exact.log_partition, rel=1e-12)
        np.testing.assert_allclose(found.nodes, exact.nodes, atol=1e-9)
        np.testing.assert_allclose(found.factors, exact.factors, atol=1e-9)


def test_lanes_have_the_same_bits(monkeypatch):
    networks = dense_network(np.random.default_rng(5), n=16), grid(6)
    expected = [JunctionTree(scopes).marginals(potentials) for scopes, potentials in networks]
    monkeypatch.setattr(junction_tree, "MIN_THREADED_CELLS", 64)
    monkeypatch.setattr(threads, "MIN_PARALLEL_COST", 0)
    for (scopes, potentials), whole in zip(networks, expected, strict=True):
        found = JunctionTree(scopes).marginals(potentials)
        assert found.log_partition == whole.log_partition
        np.testing.assert_array_equal(found.nodes, whole.nodes)
        np.testing.assert_array_equal(found.factors, whole.factors)


@pytest.mark.parametrize("name", [*FORESTS, *LOOPS, *CLIQUES])
def test_marginal_map_is_exact(name):
    """Maximise over some nodes the sum over the others, compared with enumeration."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        check_marginal_map(*{**FORESTS, **LOOPS, **CLIQUES}[name](rng), rng)


def test_marginal_map_of_components_with_searched_orders_is_exact(monkeypatch):
    """Summed nodes of each component are eliminated before the other nodes of all components."""
    monkeypatch.setattr(clique_tree, "MIN_SEARCHED_CELLS", 10)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        searched, greedy = LOOPS["one loop"](rng), network(rng, [2, 2, 2], [(0, 1), (1, 2)])
        for parts in ((searched, greedy), (greedy, searched), (searched, greedy, searched)):
            check_marginal_map(*disjoint_union(*parts), rng)


def check_marginal_map(scopes, potentials, rng):
    """Compare the states that maximise the sum over random nodes with enumeration."""
    summed = rng.random(scopes.n_nodes) < 0.5
    found = JunctionTree(scopes, summed=summed).map_states(potentials)
    joint, scores = joint_states(scopes, potentials)
    _, group = np.unique(joint[~summed], axis=1, return_inverse=True)
    top = scores.max(initial=-np.inf)
    mass = np.zeros(group.max(initial=0) + 1)
    np.add.at(mass, group.ravel(), np.exp(scores - top))
    assert found.score == pytest.approx(top + np.log(mass.max()), rel=1e-12, abs=1e-9)
    assert (found.states[summed] == -1).all()
    chosen = (joint[~summed] == found.states[~summed, None]).all(axis=0)
    assert top + np.log(np.exp(scores[chosen] - top).sum()) == pytest.approx(found.score, rel=1e-9)


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
    auto, seen = Auto(scopes, max_cells=250, observe=lambda verdict: seen.append(verdict)), []
    nodes_by_method = {type(each.method): each.subset.nodes.tolist() for each in auto.assignments}
    n = large[0].n_nodes
    assert nodes_by_method == {
        Approximation: list(range(n)),
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
    limited = Auto(scopes, max_cells=250, max_iterations=1).marginals(potentials)
    assert limited.verdict.status == "not converged"


def test_auto_limits_totals():
    """Two of four equal loops, each with two cliques of 27 cells and ten cells of messages, are within the limits."""
    one = network(np.random.default_rng(0), np.full(4, 3), [(0, 1), (1, 2), (2, 3), (3, 0)])
    scopes, _ = disjoint_union(one, one, one, one)
    assert Auto(scopes, max_cells=2 * 2 * 27).n_exact_nodes == 8
    assert Auto(scopes, max_cells=4 * 2 * 27).n_exact_nodes == 16
    assert Auto(scopes, memory=2 * 10 * 16).n_exact_nodes == 8


def test_methods_by_name():
    scopes, potentials = LOOPS["grid"](np.random.default_rng(0))
    names = "auto", "bp", "dual", "enumeration", "forest", "gibbs", "jt", "mf", "search", "trw", "wmb"
    assert tuple(sorted(METHODS)) == names
    assert text_setting_names(JunctionTree) == ["memory", "max_cells"]
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
