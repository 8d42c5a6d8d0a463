"""Gibbs sampling against enumeration of the definition, on graphs with cycles and factors over three variables."""

import itertools

import numpy as np
import pytest
from graphs import joint_score, random_graph

from relcrf.graph.reduction import Role
from relcrf.inference.gibbs import GibbsSampler


@pytest.mark.parametrize("seed", range(8))
def test_marginals_and_best_state(seed):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, n_variables=6, max_arity=3)
    roles = rng.choice([Role.FREE, Role.FREE, Role.FREE, Role.CLAMPED], size=6).astype(np.int8)
    states = np.array([rng.integers(k) for k in graph.cardinality])
    weights = 0.7 * rng.normal(size=graph.layout.size)
    free = np.flatnonzero(roles == Role.FREE)
    every = [s for s in itertools.product(*(range(k) for k in graph.cardinality)) if agrees(s, states, roles)]
    scores = np.array([joint_score(graph, weights, np.array(s)) for s in every])
    probability = np.exp(scores - np.logaddexp.reduce(scores))
    exact = [[probability[[s[v] == x for s in every]].sum() for x in range(graph.cardinality[v])] for v in free]

    marginals, best, verdict = GibbsSampler(graph, roles, states, sweeps=3000, seed=seed).run(weights)
    np.testing.assert_allclose(marginals, np.concatenate(exact), atol=0.03)
    assert verdict.status == "converged"
    assert tuple(best) == tuple(np.array(every[int(scores.argmax())])[free])


def agrees(state, states, roles):
    return all(s == t for s, t, role in zip(state, states, roles, strict=True) if role == Role.CLAMPED)


def test_the_same_seed_gives_the_same_sample():
    graph = random_graph(np.random.default_rng(0), n_variables=6)
    roles = np.full(6, Role.FREE, dtype=np.int8)
    weights = np.random.default_rng(1).normal(size=graph.layout.size)
    first, second, other = (
        GibbsSampler(graph, roles, np.full(6, -1), sweeps=20, seed=s).run(weights)[0] for s in (3, 3, 4)
    )
    np.testing.assert_array_equal(first, second)
    assert (first != other).any()


def test_chains_that_do_not_meet_are_told():
    """Two copies that a strong factor ties: single-site sampling never crosses from one state to the other."""
    graph = random_graph(np.random.default_rng(2), n_variables=6, max_arity=2)
    weights = 200.0 * np.random.default_rng(3).normal(size=graph.layout.size)
    roles = np.full(6, Role.FREE, dtype=np.int8)
    verdicts = [
        GibbsSampler(graph, roles, np.full(6, -1), sweeps=50, chains=6, seed=s).run(weights)[2] for s in range(6)
    ]
    assert any(v.status == "not converged" for v in verdicts)
