"""Links between variables of one domain, compared with loops over the factors."""

from itertools import combinations

import numpy as np
import pytest
from graphs import random_graph

from relcrf.graph.domains import Domains
from relcrf.graph.factor_graph import FactorGraph, FactorGroup, RepeatedScope
from relcrf.graph.features import Ones
from relcrf.graph.links import MAX_LINKED_ARITY, count_linking_pairs, link_matrix
from relcrf.graph.weights import WeightLayout


@pytest.mark.parametrize("seed", range(20))
def test_links_equal_those_of_a_loop(seed):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, n_variables=8)
    present = rng.random(8) < 0.8
    expected = np.zeros((8, 8))
    for group in graph.groups:
        for scope in zip(*(variable.tolist() for variable in group.scope), strict=True):
            for a, b in combinations(scope, 2):
                same = graph.cardinality[a] == graph.cardinality[b]
                if a != b and same and present[list(scope)].all():
                    expected[a, b] = expected[b, a] = 1.0
    found = link_matrix(graph, graph.domains, present)
    np.testing.assert_array_equal(found.toarray(), expected)
    assert found.nnz == expected.sum() <= 2 * count_linking_pairs(graph)


def chain(arity, domains=None):
    scope = tuple(np.array([k], dtype=np.int32) for k in range(arity))
    group = FactorGroup(scope, (2,) * arity, Ones(1), None, 0)
    return FactorGraph(np.full(arity, 2, dtype=np.int32), (group,), WeightLayout(()), domains)


def test_domains_limit_links():
    links = link_matrix(
        chain(3, Domains(np.array([0, 1, 0]), (2, 2))), Domains(np.array([0, 1, 0]), (2, 2)), np.ones(3, bool)
    )
    np.testing.assert_array_equal(links.toarray(), [[0, 0, 1], [0, 0, 0], [1, 0, 0]])


def test_large_factors_link_no_variables():
    for arity in (MAX_LINKED_ARITY, MAX_LINKED_ARITY + 1):
        graph = chain(arity)
        expected = arity * (arity - 1) // 2 if arity <= MAX_LINKED_ARITY else 0
        assert link_matrix(graph, graph.domains, np.ones(arity, bool)).nnz == 2 * expected
        assert count_linking_pairs(graph) == expected


def test_repeated_scope_is_expanded():
    columns = (np.array([0, 0], np.int32), np.array([1, 2], np.int32))
    scope = RepeatedScope(np.arange(4, dtype=np.int32), (0, 0), (3, 3), columns)
    graph = FactorGraph(np.full(12, 2, np.int32), (FactorGroup(scope, (2, 2), Ones(8), None, 0),), WeightLayout(()))
    links = link_matrix(graph, graph.domains, np.ones(12, bool))
    assert sorted(zip(*(part.tolist() for part in links.nonzero()), strict=True)) == sorted(
        pair for row in range(0, 12, 3) for k in (1, 2) for pair in ((row, row + k), (row + k, row))
    )


def test_domains_of_a_graph_without_names():
    found = Domains.from_cardinality(np.array([3, 2, 3], dtype=np.int32))
    assert (found.number.tolist(), found.sizes) == ([1, 0, 1], (2, 3))
