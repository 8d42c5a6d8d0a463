"""The search never returns a score above the optimum or a bound below it, and `exact` means that they are equal."""

import numpy as np
import pytest
from networks import agreements, grid_edges, hard, network

from relcrf.graph.scopes import Potentials, Scopes
from relcrf.inference.enumeration import Enumeration
from relcrf.inference.junction_tree import JunctionTree
from relcrf.inference.map_search import MapSearch
from relcrf.inference.node_elimination import eliminate_nodes


def random_network(seed):
    """Return a small network with factors of any size, ties and zeros."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 9))
    sets = [rng.permutation(n)[: rng.integers(2, min(n, 4) + 1)].tolist() for _ in range(rng.integers(1, 3 * n))]
    made = network(rng, rng.integers(1, 5, size=n), sets, float(rng.choice([0.1, 1.0, 5.0, 50.0])))
    if seed % 3:
        made = hard(rng, made, float(rng.choice([0.1, 0.3, 0.5])))
    scopes, potentials = made
    return scopes, Potentials(*(np.round(table) for table in potentials)) if seed % 5 == 0 else potentials


def spin_glass(side, seed=0, scale=1.0):
    """Return a grid with random signs and fields, whose dual bound is above the best score."""
    rng = np.random.default_rng(seed)
    edges = grid_edges(side, side)
    scopes, potentials = network(rng, np.full(side * side, 2), edges)
    spins = np.array([1.0, -1.0, -1.0, 1.0])
    signs = rng.choice([-1.0, 1.0], size=len(edges))
    return scopes, Potentials(scale * 0.1 * potentials.nodes, scale * np.outer(signs, spins).ravel())


@pytest.mark.parametrize("max_cells", [0, 8, 128])
@pytest.mark.parametrize("seed", range(40))
def test_random_networks_are_solved(seed, max_cells):
    scopes, potentials = random_network(seed)
    best = Enumeration(scopes).map_states(potentials)
    found = MapSearch(scopes, max_cells=max_cells).map_states(potentials)
    slack = 1e-9 * max(1.0, abs(best.score))
    assert found.verdict.status == "exact"
    assert found.score == pytest.approx(best.score, abs=slack)
    assert found.score == scopes.score(potentials, found.states)
    assert found.bound == found.score


@pytest.mark.parametrize("seed", range(6))
def test_interrupted_search_has_a_valid_bound(seed):
    """After any number of rounds, the optimum is between the score and the bound, and the bound never increases."""
    scopes, potentials = spin_glass(12, seed)
    best = JunctionTree(scopes).map_states(potentials).score
    verdicts = []

    def stop(verdict):
        verdicts.append(verdict)
        if len(verdicts) % 3 == 0:
            raise KeyboardInterrupt

    method = MapSearch(scopes, max_cells=4, seed=seed, observe=stop)
    found = method.map_states(potentials)
    assert found.score <= best + 1e-9 * abs(best) and found.bound >= best - 1e-9 * abs(best)
    assert found.verdict.status == ("interrupted" if len(verdicts) == 3 else "exact")
    residuals = [verdict.residual for verdict in verdicts]
    assert residuals == sorted(residuals, reverse=True)


def test_search_closes_the_gap_of_the_dual():
    scopes, potentials = spin_glass(10)
    found = MapSearch(scopes).map_states(potentials)
    best = JunctionTree(scopes).map_states(potentials)
    assert found.verdict.status == "exact"
    assert found.score == pytest.approx(best.score, rel=1e-12)


def test_few_rounds_and_tolerance():
    scopes, potentials = spin_glass(24)
    found = MapSearch(scopes, max_iterations=1).map_states(potentials)
    assert found.verdict.status == "not converged"
    gap = (found.bound - found.score) / abs(found.score)
    assert found.verdict.residual == pytest.approx(gap) and gap > 0.0
    assert MapSearch(scopes, tolerance=gap).map_states(potentials).verdict.status == "converged"


def test_results_depend_on_the_seed_only():
    scopes, potentials = spin_glass(24, scale=3.0)
    first, again, other = (MapSearch(scopes, max_iterations=2, seed=s).map_states(potentials) for s in (0, 0, 1))
    assert (first.score, first.bound) == (again.score, again.bound)
    np.testing.assert_array_equal(first.states, again.states)
    assert (other.states != first.states).any()


def test_odd_cycle_of_inequalities_is_impossible():
    """The search proves that no joint state is possible, although every pair of states is locally possible."""
    differ = np.array([-np.inf, 0.0, 0.0, -np.inf])
    edges = np.array([(v, (v + 1) % 7) for v in range(7)], dtype=np.int32)
    scopes = Scopes(np.full(7, 2, dtype=np.int32), 2 * np.arange(8), edges.ravel())
    for max_cells in (0, 128):
        found = MapSearch(scopes, max_cells=max_cells).map_states(Potentials(np.zeros(14), np.tile(differ, 7)))
        assert (found.score, found.bound, found.verdict.status) == (-np.inf, -np.inf, "exact")


def test_ctrl_c_during_the_first_round(monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("relcrf.inference.map_search.eliminate_nodes", interrupt)
    scopes, potentials = spin_glass(3)
    found = MapSearch(scopes).map_states(potentials)
    assert found.verdict.status == "interrupted" and found.bound == np.inf
    assert found.score == scopes.score(potentials, found.states)


def test_marginals_raise():
    scopes, potentials = spin_glass(3)
    with pytest.raises(ValueError, match="does not compute marginals"):
        MapSearch(scopes).marginals(potentials)


@pytest.mark.parametrize("max_cells", [0, 12, 60, 1000])
@pytest.mark.parametrize("seed", range(10))
def test_elimination_preserves_the_best_score(seed, max_cells):
    scopes, potentials = random_network(seed)
    if seed % 2:
        scopes, potentials = agreements(np.random.default_rng(seed), grid_edges(2, 4), 8)
    graph = eliminate_nodes(scopes, potentials, max_cells)
    assert graph.scopes.n_nodes + len(graph.eliminated) == scopes.n_nodes
    rest = Enumeration(graph.scopes).map_states(graph.potentials)
    best = Enumeration(scopes).map_states(potentials).score
    assert rest.score + graph.constant == pytest.approx(best, abs=1e-9)
    assert scopes.score(potentials, graph.extend_states(rest.states)) == pytest.approx(best, abs=1e-9)
    node_sets = [set(nodes.tolist()) for nodes in np.split(graph.scopes.node, graph.scopes.start[1:-1])]
    if graph.scopes.agreement is None:
        assert not any(a < b for a in node_sets for b in node_sets)


def test_agreements_with_many_nodes_need_no_table():
    """An agreement of 40 nodes would have 2**40 cells."""
    n = 40
    scopes, potentials = network(
        np.random.default_rng(0),
        np.full(n, 2),
        [tuple(range(n)), *[(v, v + 1) for v in range(n - 1)]],
        agreement=[True, *[False] * (n - 1)],
    )
    found = MapSearch(scopes).map_states(potentials)
    assert found.verdict.status == "exact"
    chain = scopes.with_factors(np.arange(1, n))
    without = Potentials(potentials.nodes, potentials.factors[1:])
    free = JunctionTree(chain).map_states(without)
    same = [scopes.score(potentials, np.full(n, x)) for x in range(2)]
    assert len(np.unique(free.states)) == 2  # the agreement does not apply to the best state of the chain
    assert found.score == pytest.approx(max(free.score, *same))
