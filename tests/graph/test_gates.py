"""Gate features compared with plain loops; classes of pairs with equal tables under any weights."""

import numpy as np
import pytest
from gated import log_odds, random_gating
from graphs import dense_features, random_graph
from hypothesis import given, settings
from hypothesis import strategies as st

from relcrf.graph import edge_classes as edge_classes_module
from relcrf.graph.edge_classes import edge_classes
from relcrf.graph.factor_graph import FactorGraph, FactorGroup, RepeatedScope
from relcrf.graph.features import Dense, Keyed, Ones, Sparse, Tiled
from relcrf.graph.gated_graph import GatedGraph
from relcrf.graph.gates import HIDDEN, QUERY, GateGroup, Gates, gate_weight_block
from relcrf.graph.reduction import Role, reduce_graph
from relcrf.graph.weights import WeightBlock, WeightLayout

SPARSE = Sparse(
    np.array([0, 2, 2, 3, 5, 5, 6]),
    np.array([0, 3, 1, 0, 2, 3], dtype=np.int32),
    np.array([1, 2, 0.5, -1, 3, 1], dtype=np.float32),
    4,
)
BY = {
    "statuses": None,
    "one": Ones(6),
    "numbers": Dense(np.random.default_rng(0).normal(size=(6, 2))),
    "bag": SPARSE,
    "set": Sparse(SPARSE.row_start, SPARSE.column, np.empty(0, dtype=np.float32), 4),
    "repeated": Tiled(Dense(np.random.default_rng(1).normal(size=(3, 2))), 2),
}
KEY = np.array([2, 0, 2, 1, 0, 2], dtype=np.int32)
FEATURES = {
    "plain": Ones(6),
    "numbers": Dense(np.random.default_rng(2).normal(size=(6, 3))),
    "keys": Keyed(KEY, np.empty((0, 1)), 3),
    "one key": Keyed(np.zeros(6, dtype=np.int32), np.empty((0, 1)), 1),
    "keys and numbers": Keyed(KEY, np.random.default_rng(3).normal(size=(6, 2)), 3),
    "repeated keys": Tiled(Keyed(KEY[:3], np.empty((0, 1)), 3), 2),
}
SCOPES = {
    "expanded": [np.array([0, 1, 2, 0, 4, 5], dtype=np.int32), np.array([3, 4, 5, 5, 3, 1], dtype=np.int32)],
    # Two rows of three variables each, with all pairs of a row.
    "repeated": RepeatedScope(
        np.arange(2, dtype=np.int32),
        (0, 0),
        (3, 3),
        (np.array([0, 0, 1], dtype=np.int32), np.array([1, 2, 2], dtype=np.int32)),
    ),
}


def graph_with_one_group(scope, features, by):
    """Return a graph of six variables with three states, one group of six factors, and its gates."""
    group = FactorGroup(scope, (3, 3), features, None, 0)
    layout = WeightLayout((WeightBlock("t", features.n_features, 9),))
    graph = FactorGraph(np.full(6, 3, dtype=np.int32), (group,), layout)
    return graph, Gates({0: GateGroup(0, by)}, WeightLayout((gate_weight_block(group, by, "gate"),)))


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("by", BY)
def test_log_odds_equal_plain_loops(scope, features, by):
    graph, gating = graph_with_one_group(SCOPES[scope], FEATURES[features], BY[by])
    rng = np.random.default_rng(4)
    roles = np.array([Role.FREE, Role.CLAMPED, Role.FREE, Role.FREE, Role.CLAMPED, Role.FREE])
    states, is_query = rng.integers(0, 3, size=6), np.array([True, False, False, True, True, False])
    status = np.where(roles == Role.FREE, 3 + np.where(is_query, QUERY, HIDDEN), states)
    weights = rng.normal(size=gating.layout.size)
    for factors in (np.arange(6), np.array([4, 1, 1]), np.empty(0, dtype=np.int64)):
        rows = gating.gate_features(graph, ((0, factors),), status)
        assert (len(rows), rows.n_weights) == (len(factors), gating.layout.size)
        expected = [log_odds(graph, gating, 0, int(factor), roles, states, is_query, weights) for factor in factors]
        np.testing.assert_allclose(rows.log_odds(weights), expected, atol=1e-6)
        unit = np.array([rows.log_odds(factor) for factor in np.eye(gating.layout.size)])  # log odds are linear
        slope = rng.normal(size=len(factors))
        np.testing.assert_allclose(rows.gradient(slope), unit.reshape(gating.layout.size, -1) @ slope, atol=1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_features_of_several_groups_are_concatenated(seed):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, n_variables=8, max_arity=2)
    gating = random_gating(rng, graph)
    roles = rng.choice([Role.FREE, Role.CLAMPED], size=8)
    states = np.array([rng.integers(k) for k in graph.cardinality])
    is_query = rng.random(8) < 0.5
    status = np.where(roles == Role.FREE, graph.cardinality + np.where(is_query, QUERY, HIDDEN), states)
    weights = rng.normal(size=gating.layout.size)
    factors = tuple(
        (number, rng.integers(group.n_factors, size=3))
        for number, group in enumerate(graph.groups)
        if len(group.scope) == 2
    )
    expected = [
        log_odds(graph, gating, number, int(one), roles, states, is_query, weights)
        for number, some in factors
        for one in some
    ]
    np.testing.assert_allclose(gating.gate_features(graph, factors, status).log_odds(weights), expected, atol=1e-6)


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("by", BY)
def test_masks_of_feature_and_key_weights(features, by):
    """With the bases only, log odds do not depend on the evidence; without key weights, they do not depend on the key."""
    graph, gating = graph_with_one_group(SCOPES["expanded"], FEATURES[features], BY[by])
    rng = np.random.default_rng(5)
    gates = rng.normal(size=gating.layout.size)
    feature_weight_mask, of_keys = gating.feature_weight_mask(graph), gating.key_weight_mask(graph)
    factors = ((0, np.arange(6)),)
    found = [gating.gate_features(graph, factors, rng.integers(0, 5, size=6)) for _ in range(5)]
    key = FEATURES[features].block_of(np.arange(6))
    for rows in found:
        bases = rows.log_odds(np.where(feature_weight_mask, 0.0, gates))
        assert all(len(np.unique(bases[key == k])) == 1 for k in key)
        assert len(np.unique(rows.log_odds(np.where(feature_weight_mask | of_keys, 0.0, gates)).round(12))) == 1
    n_bases = 1 + (FEATURES[features].n_blocks if "key" in features else 0)
    assert (~feature_weight_mask).sum() == n_bases
    assert (~feature_weight_mask & ~of_keys).sum() == 1


# Classes of pairs


@st.composite
def graphs_with_classes(draw):
    """Draw graphs whose pairs can have equal features: constants and keys, repeated or not, with patterns or full tables."""
    n, groups, blocks = draw(st.integers(3, 7)), [], []
    for block in range(draw(st.integers(1, 3))):
        pairs = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), min_size=1, max_size=12))
        pairs = [pair for pair in pairs if pair[0] != pair[1]] or [(0, 1)]
        n_keys = draw(st.integers(0, 3))
        features = Ones(len(pairs))
        if n_keys:
            key = draw(st.lists(st.integers(0, n_keys - 1), min_size=len(pairs), max_size=len(pairs)))
            features = Keyed(np.array(key, dtype=np.int32), np.empty((0, 1)), n_keys)
            if draw(st.booleans()):
                pairs, features = [*pairs, *pairs], Tiled(features, 2)
        one, other = np.array(pairs, dtype=np.int32).T
        patterns = draw(st.sampled_from([None, np.eye(3).reshape(9, 1), np.arange(18).reshape(9, 2) % 5.0]))
        blocks.append(WeightBlock(f"t{block}", features.n_features, 9 if patterns is None else patterns.shape[1]))
        groups.append(FactorGroup([one.copy(), other.copy()], (3, 3), features, patterns, block))
    return FactorGraph(np.full(n, 3, dtype=np.int32), tuple(groups), WeightLayout(tuple(blocks)))


def tables_of(reduced, weights):
    flat = reduced.edge_log_potentials(weights)
    return [flat[a:b] for a, b in zip(reduced.table_start[:-1], reduced.table_start[1:], strict=True)]


def count_distinct(tables):
    """Return the number of distinct tables up to rounding."""
    return len({tuple(table.round(8) + 0.0) for table in tables})


@given(graphs_with_classes(), st.integers(0, 1000))
@settings(max_examples=80, deadline=None)
def test_edge_classes_have_equal_tables_and_are_few(graph, seed):
    roles = np.zeros(graph.n_variables, dtype=np.int8)
    roles[:] = Role.FREE
    reduced = reduce_graph(graph, roles, np.full(graph.n_variables, -1))
    kind, first = edge_classes(reduced)
    rng = np.random.default_rng(seed)
    assert kind.shape == (reduced.n_edges,) and (np.diff(np.sort(first)) > 0).all()
    np.testing.assert_array_equal(kind[first], np.arange(len(first)))
    tables = tables_of(reduced, rng.normal(size=graph.layout.size))
    for table, k in zip(tables, kind, strict=True):
        np.testing.assert_allclose(table, tables[first[k]], atol=1e-12)
    # Edges with the same templates, keys and orientations of their factors have the same class.
    assert len(first) <= len({signature(graph, edge) for edge in reduced.edges})


def test_cost_of_edge_classes_does_not_depend_on_the_number_of_parallel_factors(monkeypatch):
    """One pair of variables has as many factors as all other pairs together, e.g. a message each."""
    numbered, number_rows = [], edge_classes_module.number_rows

    def count(*columns):
        numbered.append(len(columns[0]))
        return number_rows(*columns)

    monkeypatch.setattr(edge_classes_module, "number_rows", count)
    n = 200
    one = np.concatenate((np.arange(n), np.zeros(n))).astype(np.int32)
    other = np.concatenate((np.arange(1, n + 1), np.ones(n))).astype(np.int32)
    group = FactorGroup([one, other], (3, 3), Ones(2 * n), None, 0)
    graph = FactorGraph(np.full(n + 1, 3, dtype=np.int32), (group,), WeightLayout((WeightBlock("t", 1, 9),)))
    reduced = reduce_graph(graph, np.full(n + 1, Role.FREE, dtype=np.int8), np.full(n + 1, -1))
    assert edge_classes(reduced)[0].tolist() == [0, *[1] * (n - 1)]
    assert sum(numbered) <= 4 * 2 * n


def signature(graph, edge):
    out = []
    for number, group in enumerate(graph.groups):
        ends = np.column_stack([group.scope[0], group.scope[1]])
        for factor in np.flatnonzero((np.sort(ends, axis=1) == np.sort(edge)).all(axis=1)):
            key = int(group.features.block_of(np.array([factor]))[0])
            out.append((number, key, bool(ends[factor, 0] == edge[0])))
    return tuple(out)


@given(graphs_with_classes(), st.integers(0, 1000))
@settings(max_examples=80, deadline=None)
def test_pair_classes_equal_distinct_tables(graph, seed):
    """With random weights of full tables, tables of different classes differ almost surely."""
    roles = np.full(graph.n_variables, Role.FREE, dtype=np.int8)
    gated = GatedGraph.from_reduced(reduce_graph(graph, roles, np.full(graph.n_variables, -1)))
    weights = np.random.default_rng(seed).normal(size=graph.layout.size)
    tables, kinds = tables_of(gated.pairs, weights), tables_of(gated.distinct_pairs, weights)
    for table, k in zip(tables, gated.pair_class, strict=True):
        np.testing.assert_allclose(table, kinds[k], atol=1e-12)
    if all(group.patterns is None for group in graph.groups):
        assert len(kinds) == count_distinct(tables)


def test_individual_features_prevent_classes():
    graph, _ = graph_with_one_group(SCOPES["expanded"], FEATURES["keys and numbers"], None)
    reduced = reduce_graph(graph, np.full(6, Role.FREE, dtype=np.int8), np.full(6, -1))
    assert edge_classes(reduced) is None
    gated = GatedGraph.from_reduced(reduced)
    assert gated.distinct_pairs is gated.pairs
    np.testing.assert_array_equal(gated.pair_class, np.arange(6))


def test_repeated_rows_share_pair_classes():
    """The number of classes is the number of column pairs, independent of the number of rows."""
    n_rows, n_columns = 50, 4
    first, second = np.triu_indices(n_columns, 1)
    offsets = (first.astype(np.int32), second.astype(np.int32))
    scope = RepeatedScope(np.arange(n_rows, dtype=np.int32), (0, 0), (n_columns, n_columns), offsets)
    features = Tiled(Keyed(np.arange(6, dtype=np.int32), np.empty((0, 1)), 6), n_rows)
    group = FactorGroup(scope, (2, 2), features, None, 0)
    graph = FactorGraph(
        np.full(n_rows * n_columns, 2, dtype=np.int32), (group,), WeightLayout((WeightBlock("t", 6, 4),))
    )
    roles = np.full(graph.n_variables, Role.FREE, dtype=np.int8)
    gated = GatedGraph.from_reduced(reduce_graph(graph, roles, np.full(graph.n_variables, -1)))
    assert gated.n_pairs == 300 and gated.distinct_pairs.n_edges == 6
    assert dense_features(features)[gated.factors[0][1]].argmax(axis=1).tolist() == gated.pair_class.tolist()
