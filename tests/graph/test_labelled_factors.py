"""Statistics of factors over labelled variables, compared with loops over the factors."""

import math

import numpy as np
import pytest
from graphs import random_graph

from relcrf.graph.factor_graph import FactorGroup, RepeatedScope
from relcrf.graph.features import Ones
from relcrf.graph.labelled_factors import Homophily, count_seen_factors, labelled_neighbours, measure_homophily
from relcrf.graph.reduction import Role


def pairs_group(pairs, cardinality=2):
    scope = tuple(np.array(column, dtype=np.int32) for column in zip(*pairs, strict=True))
    return FactorGroup(scope, (cardinality, cardinality), Ones(len(pairs)), None, 0)


@pytest.mark.parametrize("seed", range(20))
def test_counts_equal_those_of_a_loop(seed):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, n_variables=8)
    roles = rng.integers(3, size=8).astype(np.int8)
    for group in graph.groups:
        scopes = list(zip(*(variable.tolist() for variable in group.scope), strict=True))
        expected = sum(
            any(roles[v] == Role.FREE for v in scope) and all(roles[v] != Role.ABSENT for v in scope)
            for scope in scopes
        )
        assert count_seen_factors([group], roles) == expected
        assert count_seen_factors([group, group], roles) == 2 * expected
        assert count_seen_factors([group], np.zeros(8, dtype=np.int8)) == group.n_factors


@pytest.mark.parametrize("seed", range(10))
def test_labelled_neighbours_equal_those_of_a_loop(seed):
    rng = np.random.default_rng(seed)
    graph, labelled = random_graph(rng, n_variables=8), rng.random(8) < 0.5
    expected = np.zeros((2, 8))
    for group in graph.groups:
        for scope in zip(*(variable.tolist() for variable in group.scope), strict=True):
            for k, variable in enumerate(scope):
                others = scope[:k] + scope[k + 1 :]
                expected[:, variable] += sum(labelled[other] for other in others), len(others)
    np.testing.assert_array_equal(labelled_neighbours(graph, labelled), expected)


def test_repeated_scope_is_counted_like_its_expansion():
    repeated = RepeatedScope(
        np.arange(5, dtype=np.int32), (0, 0), (3, 3), (np.array([0, 0], np.int32), np.array([1, 2], np.int32))
    )
    group = FactorGroup(repeated, (2, 2), Ones(10), None, 0)
    expanded = pairs_group(list(zip(repeated[0].tolist(), repeated[1].tolist(), strict=True)))
    rng = np.random.default_rng(3)
    roles = np.where(rng.random(15) < 0.7, Role.FREE, Role.ABSENT).astype(np.int8)
    labels, domain = rng.integers(-1, 2, size=15), np.zeros(15, dtype=np.int32)
    assert count_seen_factors([group], roles) == count_seen_factors([expanded], roles) > 0
    assert measure_homophily([group], labels, domain) == measure_homophily([expanded], labels, domain)


@pytest.mark.parametrize("seed", range(20))
def test_homophily_equals_that_of_a_loop(seed):
    rng = np.random.default_rng(seed)
    pairs = rng.integers(12, size=(30, 2)).tolist()
    labels = rng.integers(-1, 3, size=12)
    found = measure_homophily(
        [pairs_group(pairs[:20], 3), pairs_group(pairs[20:], 3)], labels, np.zeros(12, dtype=np.int32)
    )
    known = [(labels[a], labels[b]) for a, b in pairs if a != b and labels[a] >= 0 and labels[b] >= 0]
    assert (found.pairs, found.equal) == (len(known), sum(a == b for a, b in known))
    ends = [state for pair in known for state in pair]
    by_chance = sum((ends.count(state) / len(ends)) ** 2 for state in range(3))
    assert found.by_chance == pytest.approx(by_chance)
    assert found.adjusted == pytest.approx((found.fraction - by_chance) / (1 - by_chance))


def test_homophily_is_undefined_for_other_templates():
    labels, one_domain = np.zeros(4, dtype=np.int32), np.zeros(4, dtype=np.int32)
    pairs = pairs_group([(0, 1), (2, 3)])
    unary = FactorGroup((np.array([0], dtype=np.int32),), (2,), Ones(1), None, 0)
    assert measure_homophily([unary], labels, one_domain) is None
    assert measure_homophily([], labels, one_domain) is None
    assert measure_homophily([pairs], labels, np.array([0, 1, 0, 1])) is None
    assert measure_homophily([pairs], labels, np.array([0, 0, 1, 1])) is not None


def test_wilson_interval():
    """The interval of 81 of 263 is that of Newcombe (1998), Two-sided confidence intervals, table I."""
    assert Homophily(263, 81, 0.5).interval == pytest.approx((0.2553, 0.3662), abs=1e-4)
    low, high = Homophily(29, 0, 0.5).interval
    assert low == 0.0 and high == pytest.approx(0.1170, abs=1e-4)
    empty = Homophily(0, 0, 0.0)
    assert math.isnan(empty.fraction) and empty.interval == (0.0, 1.0)
    assert math.isnan(Homophily(3, 3, 1.0).adjusted)
