"""Likelihoods in which terms with equal tables are counted, compared with those of single terms."""

import numba
import numpy as np
import pytest
from graphs import random_graph
from objectives import finite_differences

from relcrf.graph.blanket import blanket_graph
from relcrf.graph.factor_graph import FactorGraph, FactorGroup
from relcrf.graph.features import Dense, Keyed, Ones
from relcrf.graph.reduction import Role
from relcrf.graph.weights import WeightBlock, WeightLayout
from relcrf.kernels import threads
from relcrf.learning import counted_terms
from relcrf.learning.counted_terms import CountedLikelihood, conditional_likelihood
from relcrf.learning.likelihood import ForestLikelihood


@pytest.fixture
def counts_all(monkeypatch):
    monkeypatch.setattr(counted_terms, "MIN_COUNTED_TERMS", 0)
    monkeypatch.setattr(counted_terms, "MAX_COUNTS_PER_TERM", 1000)


def linked_graph(rng, n):
    """Return a graph of variables with three and two states, with full and agreement tables of links."""
    n_binary = n // 4
    cardinality = np.repeat([3, 2], [n - n_binary, n_binary]).astype(np.int32)
    first, second = rng.integers(n - n_binary, size=(2, 6 * n)).astype(np.int32)
    mixed = (
        rng.integers(n - n_binary, size=2 * n).astype(np.int32),
        rng.integers(n - n_binary, n, 2 * n).astype(np.int32),
    )
    key, ones = rng.integers(2, size=6 * n).astype(np.int32), np.ones((6 * n, 1))
    agreement = np.eye(3).reshape(9, 1)
    every = np.arange(n - n_binary, dtype=np.int32)
    groups = (
        FactorGroup((every,), (3,), Dense(rng.normal(size=(n - n_binary, 2))), None, 0),
        FactorGroup((first, second), (3, 3), Keyed(key, ones[:0], 2), None, 1),
        FactorGroup((first, second), (3, 3), Ones(6 * n), agreement, 2),
        FactorGroup(mixed, (3, 2), Ones(2 * n), None, 3),
        FactorGroup((first, second), (3, 3), Dense(rng.normal(size=(6 * n, 1))), agreement, 4),
    )
    sizes = ((2, 3), (2, 9), (1, 1), (1, 6), (1, 1))
    layout = WeightLayout(tuple(WeightBlock(str(k), *size) for k, size in enumerate(sizes)))
    return FactorGraph(cardinality, groups, layout)


@pytest.mark.parametrize("has_latent", [False, True])
def test_counts_do_not_change_the_likelihood(counts_all, monkeypatch, has_latent):
    rng = np.random.default_rng(0)
    graph = linked_graph(rng, 40)
    states = rng.integers(graph.cardinality)
    roles = rng.choice([Role.FREE, Role.FREE, Role.CLAMPED, Role.ABSENT], size=40).astype(np.int8)
    blanket = blanket_graph(graph, roles, states)
    known = states[blanket.variables]
    known[::5] = -1 if has_latent else known[::5]
    weights = rng.normal(size=graph.layout.size)
    found, wanted = conditional_likelihood(blanket, known), ForestLikelihood.build(blanket, known)
    assert isinstance(found, CountedLikelihood)
    assert len(found.counted.graph.node_terms) == len(blanket.node_terms)
    assert found(weights)[0] == pytest.approx(wanted(weights)[0], rel=1e-12)
    np.testing.assert_allclose(found(weights)[1], wanted(weights)[1], atol=1e-10)
    np.testing.assert_allclose(found(weights)[1], finite_differences(found, weights), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", range(10))
def test_random_graphs(counts_all, seed):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, n_variables=5, max_arity=3)
    roles = rng.choice([Role.FREE, Role.FREE, Role.CLAMPED], size=5).astype(np.int8)
    states = np.array([rng.integers(k) for k in graph.cardinality])
    blanket = blanket_graph(graph, roles, states)
    weights = rng.normal(size=graph.layout.size)
    found, wanted = (
        each(blanket, states[blanket.variables])(weights) for each in (conditional_likelihood, ForestLikelihood.build)
    )
    assert found[0] == pytest.approx(wanted[0], rel=1e-12)
    np.testing.assert_allclose(found[1], wanted[1], atol=1e-10)


def test_same_bits_on_any_number_of_threads(monkeypatch):
    rng = np.random.default_rng(0)
    graph = linked_graph(rng, 20_000)
    states = rng.integers(graph.cardinality)
    blanket = blanket_graph(graph, np.zeros(20_000, dtype=np.int8), states)
    weights = rng.normal(size=graph.layout.size)
    monkeypatch.setattr(threads, "MIN_PARALLEL_COST", 0)
    results = []
    for n_threads in (1, 2):
        monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", n_threads)
        likelihood = conditional_likelihood(blanket, states)
        assert isinstance(likelihood, CountedLikelihood)
        results.append(likelihood(weights))
    assert results[0][0] == results[1][0]
    np.testing.assert_array_equal(results[0][1], results[1][1])


def test_individual_features_and_many_views_are_not_counted():
    """Terms of links with 100 keys have more counts than four times their number."""
    rng = np.random.default_rng(0)
    n = 10_000
    first, second = rng.integers(n, size=(2, n)).astype(np.int32)
    layout = WeightLayout((WeightBlock("link", 100, 4),))
    for features in (
        Keyed(rng.integers(100, size=n).astype(np.int32), np.ones((0, 1)), 100),
        Dense(rng.normal(size=(n, 100))),
    ):
        graph = FactorGraph(
            np.full(n, 2, dtype=np.int32), (FactorGroup((first, second), (2, 2), features, None, 0),), layout
        )
        states = rng.integers(2, size=n)
        blanket = blanket_graph(graph, np.zeros(n, dtype=np.int8), states)
        assert isinstance(conditional_likelihood(blanket, states), ForestLikelihood)
