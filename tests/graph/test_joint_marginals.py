"""Joint marginals of factors, compared with the enumeration of all joint states."""

from itertools import product

import numpy as np
import pytest
from graphs import joint_score, random_graph

from relcrf.graph.factor_graph import FactorGroup
from relcrf.graph.features import Keyed
from relcrf.graph.joint_marginals import joint_marginals
from relcrf.graph.reduction import Role, reduce_graph
from relcrf.graph.weights import WeightBlock
from relcrf.inference.enumeration import Enumeration

SCOPES = (((0, 3), (1, 4), (2, 5)), ((0, 1, 3), (1, 2, 5)))
"""Scopes of additional factors over two and over three variables; the first three variables have 2 states, the others 3."""


@pytest.mark.parametrize("seed", range(10))
def test_joint_marginals_equal_enumeration(seed):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng)
    for scopes in SCOPES:
        sizes = tuple(graph.cardinality[list(scopes[0])].tolist())
        n, n_states = len(scopes), int(np.prod(sizes))
        features = Keyed(np.arange(n, dtype=np.int32), np.ones((n, 1)), n)
        scope = tuple(np.array(scopes, dtype=np.int32).T)
        group = FactorGroup(scope, sizes, features, None, len(graph.layout.blocks), needs_marginals=True)
        graph = graph.with_groups((group,), WeightBlock("added", n, n_states))
    weights = rng.normal(size=graph.layout.size)
    states = np.array(list(product(*map(range, graph.cardinality.tolist()))))
    share = np.exp([joint_score(graph, weights, one) for one in states])
    share /= share.sum()
    roles = np.full(graph.n_variables, Role.FREE, dtype=np.int8)
    reduced = reduce_graph(graph, roles, np.full(graph.n_variables, -1))
    found = Enumeration(reduced.scopes).marginals(reduced.potentials(weights))
    expected, independent = [], []
    for one in (scope for scopes in SCOPES for scope in scopes):
        sizes = graph.cardinality[list(one)]
        joint = np.ravel_multi_index(tuple(states[:, list(one)].T), sizes)
        expected.append(np.bincount(joint, share, int(sizes.prod())))
        table = expected[-1].reshape(sizes)
        own = [table.sum(axis=tuple(set(range(len(one))) - {k})) for k in range(len(one))]
        independent.append(np.multiply.outer(own[0], own[1]) if len(one) == 2 else np.einsum("a,b,c->abc", *own))
    np.testing.assert_allclose(joint_marginals(reduced, found.nodes, found.factors), np.concatenate(expected))
    # Without the factors in the reduced graph, the joint marginals are products.
    without = reduced.with_edges(np.empty(0, dtype=np.int64))
    products = np.concatenate([table.ravel() for table in independent])
    np.testing.assert_allclose(joint_marginals(without, found.nodes, np.empty(0)), products)


def test_a_graph_without_such_factors_has_no_joint_marginals():
    graph = random_graph(np.random.default_rng(0))
    roles = np.full(graph.n_variables, Role.FREE, dtype=np.int8)
    reduced = reduce_graph(graph, roles, np.full(graph.n_variables, -1))
    assert len(joint_marginals(reduced, np.ones(int(reduced.state_start[-1])), np.empty(0))) == 0
