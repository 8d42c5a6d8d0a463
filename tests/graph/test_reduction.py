"""Reduction preserves score differences; potentials and counts are adjoint maps."""

import itertools

import numpy as np
import pytest
from graphs import joint_score, random_graph

from relcrf.graph.reduction import Role, reduce_graph
from relcrf.graph.scopes import Potentials


@pytest.mark.parametrize("seed", range(40))
def test_score_differences_equal_the_definition(seed):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng)
    weights = rng.normal(size=graph.layout.size)
    roles = np.full(graph.n_variables, Role.CLAMPED, dtype=np.int8)
    roles[rng.permutation(graph.n_variables)[:2]] = Role.FREE
    states = np.array([rng.integers(k) for k in graph.cardinality])
    reduced = reduce_graph(graph, roles, states)
    offsets = []
    for free in itertools.product(*(range(k) for k in reduced.cardinality)):
        full_states = states.copy()
        full_states[reduced.variables] = free
        offsets.append(
            joint_score(graph, weights, full_states) - reduced.scopes.score(reduced.potentials(weights), np.array(free))
        )
    np.testing.assert_allclose(offsets, offsets[0], atol=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_factors_of_absent_variables_are_removed(seed):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, max_arity=2)
    weights = rng.normal(size=graph.layout.size)
    absent = rng.permutation(graph.n_variables)[:2]
    roles = np.full(graph.n_variables, Role.FREE, dtype=np.int8)
    roles[absent] = Role.ABSENT
    reduced = reduce_graph(graph, roles, np.full(graph.n_variables, -1))
    expected = 0
    for group in graph.groups:
        touched = np.zeros(group.n_factors, dtype=bool)
        for variable in group.scope:
            touched |= np.isin(variable, absent)
        expected += int((~touched).sum())
    terms = sum(len(t.target) for t in (*reduced.node_terms, *reduced.edge_terms))
    assert terms == expected
    # The score is a linear function of the weights whose coefficients are the counts.
    states = np.array([rng.integers(k) for k in reduced.cardinality])
    assert reduced.scopes.score(reduced.potentials(weights), states) == pytest.approx(
        reduced.state_counts(states) @ weights
    )


@pytest.mark.parametrize("seed", range(20))
def test_with_edges_selects_edge_tables(seed):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, max_arity=2)
    weights = rng.normal(size=graph.layout.size)
    roles = np.zeros(graph.n_variables, dtype=np.int8)
    reduced = reduce_graph(graph, roles, roles)
    selected = np.flatnonzero(rng.random(reduced.n_edges) < 0.5)
    subgraph = reduced.with_edges(selected)
    whole = reduced.edge_log_potentials(weights)
    cells = [np.arange(reduced.table_start[e], reduced.table_start[e + 1]) for e in selected]
    expected = whole[np.concatenate(cells)] if len(selected) else np.empty(0)
    np.testing.assert_allclose(subgraph.edge_log_potentials(weights), expected)
    tables = [reduced.edge_log_potentials(weights, e, e + 1) for e in range(reduced.n_edges)]
    np.testing.assert_allclose(np.concatenate(tables), whole)


@pytest.mark.parametrize("seed", range(30))
def test_factors_over_three_free_variables_are_cliques(seed):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng)
    weights = rng.normal(size=graph.layout.size)
    roles = np.where(rng.random(graph.n_variables) < 0.2, Role.CLAMPED, Role.FREE).astype(np.int8)
    states = np.array([rng.integers(k) for k in graph.cardinality])
    reduced = reduce_graph(graph, roles, states)
    potentials, offsets = reduced.potentials(weights), []
    for free in itertools.product(*(range(k) for k in reduced.cardinality)):
        full_states = states.copy()
        full_states[reduced.variables] = free
        score = reduced.scopes.score(potentials, np.array(free))
        offsets.append(joint_score(graph, weights, full_states) - score)
        assert score == pytest.approx(reduced.state_counts(np.array(free)) @ weights, abs=1e-9)
    np.testing.assert_allclose(offsets, offsets[0], atol=1e-9)
    nodes, factors = rng.normal(size=len(potentials.nodes)), rng.normal(size=len(potentials.factors))
    adjoint = reduced.counts(Potentials(nodes, factors)) @ weights
    assert adjoint == pytest.approx(nodes @ potentials.nodes + factors @ potentials.factors)


def test_equal_strides_of_terms_share_memory():
    rng = np.random.default_rng(0)
    graph = random_graph(rng, n_variables=14, max_arity=2)
    roles = np.full(14, Role.FREE, dtype=np.int8)
    reduced = reduce_graph(graph, roles, np.zeros(14, dtype=np.int32))
    assert all(terms.base.strides == (0,) for terms in reduced.node_terms)  # no variable is clamped
    subset = reduced.with_edges(np.arange(reduced.n_edges)[::2])
    assert any(terms.stride_row.strides == (0,) and len(terms.target) for terms in subset.edge_terms)
    weights = rng.normal(size=graph.layout.size)
    start, table = reduced.table_start, reduced.edge_log_potentials(weights)
    expected = [table[start[edge] : start[edge + 1]] for edge in range(0, reduced.n_edges, 2)]
    np.testing.assert_array_equal(subset.edge_log_potentials(weights), np.concatenate(expected))
