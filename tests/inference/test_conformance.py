"""The conformance table: inference methods x small networks x evidence, compared with enumeration within tolerances.

To add a method, add a row to `METHODS`; to add a network, add it to `tests/support/networks.py`. A method must be accurate on the
networks listed in its row. On all other networks it must return probabilities and a correct verdict.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from networks import CLIQUES, FORESTS, LOOPS

from relcrf.graph.scopes import Potentials, Scopes
from relcrf.inference.auto import Auto
from relcrf.inference.belief_propagation import BeliefPropagation
from relcrf.inference.dual_decomposition import DualDecomposition
from relcrf.inference.enumeration import MAX_JOINT_STATES, Enumeration
from relcrf.inference.forest import ForestInference
from relcrf.inference.gibbs import Gibbs
from relcrf.inference.junction_tree import JunctionTree
from relcrf.inference.map_search import MapSearch
from relcrf.inference.mean_field import MeanField
from relcrf.inference.mini_bucket import MiniBucket
from relcrf.inference.result import AbstractInference, MapStates, Marginals

NETWORKS = {**FORESTS, **LOOPS, **CLIQUES}


@dataclass(frozen=True)
class Method:
    """A row of the table.

    Args:
        make: Creates the method for some scopes.
        takes: Supported networks; for all others the method must raise ValueError.
        marginals: Maximum error of a marginal by network; networks without an entry are not checked. None if the method
            computes only most probable states and must raise ValueError.
        log_partition: Maximum error of the log partition by network, relative to max(1, |log partition|).
        map_states: Networks on which the most probable state must be found.
    """

    make: Callable[[Scopes], AbstractInference]
    takes: tuple[str, ...]
    marginals: dict[str, float] | None
    log_partition: dict[str, float]
    map_states: tuple[str, ...]


def same_tolerance(networks, tolerance):
    return dict.fromkeys(networks, tolerance)


ISOLATED = ("nodes alone", "one node", "nothing")
MIXING = (*LOOPS, *(name for name in CLIQUES if name != "hard transitivity"))


def exact(make, networks):
    """Return the row of a method that is exact on all networks that it supports."""
    names = tuple(networks)
    return Method(make, names, same_tolerance(names, 1e-9), same_tolerance(names, 1e-12), names)


METHODS = {
    "auto": exact(Auto, NETWORKS),
    "forest": exact(ForestInference, FORESTS),
    "forest, cut into small blocks": exact(lambda scopes: ForestInference(scopes, block_size=12), FORESTS),
    "jt": exact(JunctionTree, NETWORKS),
    "mini-buckets of any size": exact(MiniBucket, NETWORKS),
    "mini-buckets of 4 cells": Method(
        lambda scopes: MiniBucket(scopes, max_cells=4, tolerance=1e-3),
        takes=tuple(NETWORKS),
        marginals={
            **same_tolerance(ISOLATED, 1e-9),
            **same_tolerance(("chain", "star"), 1e-9),
            **same_tolerance(("grid", "grid, k = 3", "grid of agreements"), 0.2),
        },
        log_partition={**same_tolerance(ISOLATED, 1e-12), "grid": 0.1, "grid, k = 3": 0.1, "grid of agreements": 0.1},
        map_states=(*ISOLATED, "chain", "star"),
    ),
    "mean field": Method(
        MeanField,
        takes=tuple(NETWORKS),
        marginals=same_tolerance(ISOLATED, 1e-9),
        log_partition=same_tolerance(ISOLATED, 1e-12),
        map_states=ISOLATED,
    ),
    "mean field, one block": Method(
        lambda scopes: MeanField(scopes, blocks=np.zeros(scopes.n_nodes, dtype=int)),
        takes=tuple(NETWORKS),
        marginals=same_tolerance(NETWORKS, 1e-9),
        log_partition=same_tolerance(NETWORKS, 1e-12),
        map_states=tuple(NETWORKS),
    ),
    "Gibbs over trees": Method(
        lambda scopes: Gibbs(scopes, blocks="tree", sweeps=600),
        takes=tuple(NETWORKS),
        marginals={**same_tolerance(FORESTS, 1e-9), **same_tolerance(MIXING, 0.03)},
        log_partition={},
        map_states=tuple(NETWORKS),
    ),
    "Gibbs node by node": Method(
        Gibbs,
        takes=tuple(NETWORKS),
        marginals={**same_tolerance(ISOLATED, 1e-9), **same_tolerance(LOOPS, 0.03)},
        log_partition={},
        map_states=(*ISOLATED, *LOOPS),
    ),
    "dual decomposition": Method(
        DualDecomposition,
        takes=tuple(NETWORKS),
        marginals=None,
        log_partition={},
        map_states=(*FORESTS, "a tree of triples"),
    ),
    "search": Method(MapSearch, tuple(NETWORKS), None, {}, tuple(NETWORKS)),
    "search without elimination": Method(
        lambda scopes: MapSearch(scopes, max_cells=0), tuple(NETWORKS), None, {}, tuple(NETWORKS)
    ),
}
TREES = (*FORESTS, "a tree of triples")
LOOPY = {
    "one loop": 0.1,
    "grid": 0.02,
    "grid, k = 3": 0.02,
    "grid of agreements": 0.03,
    "all pairs": 0.1,
    "larger agreements": 0.03,
}
"""Maximum error of the marginals of belief propagation on graphs with cycles."""
for schedule in ("flooding", "blocks", "sequential", "residual"):
    METHODS[f"belief propagation, {schedule}"] = Method(
        lambda scopes, schedule=schedule: BeliefPropagation(scopes, schedule=schedule),
        takes=tuple(NETWORKS),
        marginals={**same_tolerance(TREES, 1e-9), **LOOPY},
        log_partition={**same_tolerance(TREES, 1e-9), **same_tolerance(LOOPY, 0.05)},
        map_states=TREES,
    )
METHODS["belief propagation, damped"] = Method(
    lambda scopes: BeliefPropagation(scopes, damping=0.5, tolerance=1e-12),
    takes=tuple(NETWORKS),
    marginals=LOOPY,
    log_partition=same_tolerance(LOOPY, 0.05),
    map_states=(),
)
METHODS["belief propagation, tree-reweighted"] = Method(
    lambda scopes: BeliefPropagation(scopes, appearance="trees", damping=0.3),
    takes=(*FORESTS, *LOOPS),
    marginals={"nodes alone": 1e-9, "one node": 1e-9, "nothing": 1e-9, "grid": 0.1, "all pairs": 0.2},
    log_partition={"nodes alone": 1e-9, "one node": 1e-9, "nothing": 1e-9, "grid": 0.1, "all pairs": 0.2},
    map_states=("nodes alone", "one node", "nothing"),
)
EVIDENCE = {"no evidence": 0.0, "some evidence": 0.3}


SEEDS = {"no evidence": (0, 1), "some evidence": (2, 3)}
"""Seeds of the networks."""


@cache
def case(name: str, evidence: str, seed: int) -> tuple[Scopes, Potentials, Marginals, MapStates]:
    """Return a network with some nodes clamped to a possible joint state, and its results by enumeration."""
    rng = np.random.default_rng([zlib.crc32(name.encode()), seed])
    scopes, potentials = NETWORKS[name](rng)
    clamped = rng.random(scopes.n_nodes) < EVIDENCE[evidence]
    possible = Enumeration(scopes).map_states(potentials).states
    if clamped.any():
        potentials = potentials.clamp(scopes, np.where(clamped, possible, -1))
    reference = Enumeration(scopes)
    return scopes, potentials, reference.marginals(potentials), reference.map_states(potentials)


ROWS = [
    pytest.param(method, name, evidence, id=f"{method}-{name}-{evidence}")
    for method in METHODS
    for name in NETWORKS
    for evidence in EVIDENCE
]


@pytest.mark.parametrize(("method", "name", "evidence"), ROWS)
def test_method_conforms(method, name, evidence):
    row = METHODS[method]
    for seed in SEEDS[evidence]:
        scopes, potentials, exact, optimum = case(name, evidence, seed)
        inference = row.make(scopes)
        if name not in row.takes:
            with pytest.raises(ValueError):
                inference.marginals(potentials)
            with pytest.raises(ValueError):
                inference.map_states(potentials)
            continue
        if row.marginals is None:
            with pytest.raises(ValueError):
                inference.marginals(potentials)
        else:
            require_marginals(row, row.marginals, name, scopes, potentials, exact)
        best = inference.map_states(potentials)
        scale = max(1.0, abs(optimum.score))
        assert best.score == pytest.approx(scopes.score(potentials, best.states), abs=1e-9 * scale)
        assert best.bound >= optimum.score - 1e-9 * scale
        if name in row.map_states:
            assert best.score == pytest.approx(optimum.score, abs=1e-9 * scale)


def require_marginals(row, tolerances, name, scopes, potentials, exact):
    found = row.make(scopes).marginals(potentials)
    require_probabilities(scopes, potentials, found)
    if name in tolerances:
        assert found.verdict.is_good
        np.testing.assert_allclose(found.nodes, exact.nodes, atol=tolerances[name])
        np.testing.assert_allclose(found.factors, exact.factors, atol=tolerances[name])
    if name in row.log_partition:
        scale = max(1.0, abs(exact.log_partition))
        assert abs(found.log_partition - exact.log_partition) <= row.log_partition[name] * scale


def require_probabilities(scopes, potentials, found):
    """Check that marginals are distributions without mass on impossible states."""
    assert np.isfinite(found.nodes).all() and np.isfinite(found.factors).all()
    assert found.nodes.min(initial=0.0) >= 0.0 and found.factors.min(initial=0.0) >= 0.0
    if scopes.n_nodes:
        np.testing.assert_allclose(np.add.reduceat(found.nodes, scopes.state_start[:-1]), 1.0, atol=1e-6)
    assert (found.nodes[potentials.nodes == -np.inf] == 0.0).all()
    whole = np.arange(scopes.n_factors) if scopes.agreement is None else np.flatnonzero(~scopes.agreement)
    for factor in whole:
        table = found.factors[scopes.table_start[factor] : scopes.table_start[factor + 1]]
        assert table.sum() == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_impossible_evidence_is_reported(method):
    """If all joint states are impossible, the log partition is -inf, or the verdict is not good."""
    for scopes, potentials in impossible():
        inference = METHODS[method].make(scopes)
        assert inference.map_states(potentials).score == -np.inf
        if METHODS[method].marginals is not None:
            found = inference.marginals(potentials)
            assert found.log_partition == -np.inf or not found.verdict.is_good
            assert not np.isfinite(found.nodes).all() or not found.verdict.is_good


def impossible():
    """Yield a pair whose factor forbids all states, and two nodes whose only possible joint state the evidence excludes."""
    scopes = Scopes(np.array([2, 2], dtype=np.int32), np.array([0, 2]), np.array([0, 1], dtype=np.int32))
    yield scopes, Potentials(np.zeros(4), np.full(4, -np.inf))
    yield scopes, Potentials(np.array([0.0, -np.inf, 0.0, 0.0]), np.array([-np.inf, -np.inf, 0.0, 0.0]))


def test_enumeration_equals_the_definition():
    """The reference method equals a hand calculation for four joint states, and raises above its limit."""
    scopes = Scopes(np.array([2, 2], dtype=np.int32), np.array([0, 2]), np.array([1, 0], dtype=np.int32))
    potentials = Potentials(np.log([1.0, 2.0, 3.0, 4.0]), np.log([1.0, 5.0, 6.0, 7.0]))
    # joint weights of (node 0, node 1): (0, 0): 1*3*1, (0, 1): 1*4*6, (1, 0): 2*3*5, (1, 1): 2*4*7
    weight = np.array([3.0, 24.0, 30.0, 56.0])
    found, best = Enumeration(scopes).marginals(potentials), Enumeration(scopes).map_states(potentials)
    assert found.log_partition == pytest.approx(np.log(weight.sum()))
    p = weight / weight.sum()
    np.testing.assert_allclose(found.nodes, [p[0] + p[1], p[2] + p[3], p[0] + p[2], p[1] + p[3]])
    np.testing.assert_allclose(found.factors, [p[0], p[2], p[1], p[3]])
    assert tuple(best.states) == (1, 1) and best.score == pytest.approx(np.log(56.0))
    large = Scopes(np.full(21, 2, dtype=np.int32), np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.int32))
    with pytest.raises(ValueError, match=str(MAX_JOINT_STATES)):
        Enumeration(large).marginals(Potentials(np.zeros(42), np.empty(0)))
    cardinality = np.ones(100, dtype=np.int32)  # nodes of one state do not count, even if there are many
    cardinality[[20, 80]] = 3
    many = Scopes(cardinality, np.array([0, 3]), np.array([20, 50, 80], dtype=np.int32))
    potentials = Potentials(np.zeros(104), np.log(np.arange(1.0, 10.0)))
    found, best = Enumeration(many).marginals(potentials), Enumeration(many).map_states(potentials)
    np.testing.assert_allclose(found.factors, np.arange(1.0, 10.0) / 45.0)
    np.testing.assert_allclose(found.nodes[20:23], np.array([6.0, 15.0, 24.0]) / 45.0)
    assert best.score == pytest.approx(np.log(9.0)) and best.states[[20, 50, 80]].tolist() == [2, 0, 2]


def test_impossible_tree_makes_all_marginals_nan():
    """As in every exact method, marginals are nan if all joint states are impossible."""
    scopes = Scopes(np.array([2, 2], dtype=np.int32), np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.int32))
    potentials = Potentials(np.array([0.0, 1.0, -np.inf, -np.inf]), np.empty(0))
    found = ForestInference(scopes).marginals(potentials)
    assert found.log_partition == -np.inf and np.isnan(found.nodes).all()


def test_forest_accepts_any_block_size():
    scopes, potentials = FORESTS["chain"](np.random.default_rng(0))
    one, two = (ForestInference(scopes, block_size=n).marginals(potentials).log_partition for n in (1 << 16, 10**30))
    assert one == two
