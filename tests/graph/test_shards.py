"""Shards: every factor with a free variable and every free variable is in exactly one shard; sums are preserved."""

import numpy as np
import pytest
from graphs import random_graph
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from relcrf.graph.components import label_components
from relcrf.graph.factor_graph import FactorGraph, FactorGroup, RepeatedScope
from relcrf.graph.feature_scales import limit_extremes
from relcrf.graph.features import Keyed, Ones, Sparse, Tiled
from relcrf.graph.reduction import Role
from relcrf.graph.shards import cut_into_shards, load_shard
from relcrf.graph.weights import WeightBlock, WeightLayout


def factors(graph, roles, states, weights, names):
    """Return a sorted list of all factors with a free and without an absent variable: scope, clamped states, potentials."""
    out = []
    for group in graph.groups:
        matrix = graph.layout.matrix(weights, group.block)
        scope = np.column_stack([np.asarray(place) for place in group.scope])
        for n in range(group.n_factors):
            role = roles[scope[n]]
            if (role == Role.ABSENT).any() or not (role == Role.FREE).any():
                continue
            scores = np.asarray(group.features.scores(matrix, np.array([n])))[0]
            clamped = tuple(int(states[v]) if r == Role.CLAMPED else -1 for v, r in zip(scope[n], role, strict=True))
            out.append((group.block, tuple(int(names[v]) for v in scope[n]), clamped, tuple(np.round(scores, 9))))
    return sorted(out)


@settings(phases=[Phase.generate], deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 10**6), size=st.sampled_from([1, 3, 10, 1000]))
def test_shards_together_equal_the_graph(seed, size, tmp_path_factory):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, n_variables=int(rng.integers(4, 14)))
    roles = rng.choice([Role.FREE, Role.CLAMPED, Role.ABSENT], p=[0.6, 0.25, 0.15], size=graph.n_variables)
    roles = roles.astype(np.int8)
    states = (rng.random(graph.n_variables) * graph.cardinality).astype(np.int32)
    weights = rng.normal(size=graph.layout.size)
    folders = cut_into_shards(graph, roles, states, tmp_path_factory.mktemp("shards"), size)
    found, free = [], []
    for folder in folders:
        shard = load_shard(folder)
        assert (np.diff(shard.variables) > 0).all()
        assert (shard.graph.cardinality == graph.cardinality[shard.variables]).all()
        assert (shard.roles == roles[shard.variables]).all()
        assert (shard.states == states[shard.variables]).all()
        assert shard.graph.layout == graph.layout
        free += shard.variables[shard.roles == Role.FREE].tolist()
        found += factors(shard.graph, shard.roles, shard.states, weights, shard.variables)
    assert sorted(free) == np.flatnonzero(roles == Role.FREE).tolist()
    assert sorted(found) == factors(graph, roles, states, weights, np.arange(graph.n_variables))


def ratings(rows, items):
    """Return a graph with factors on every pair of items of every row, stored as rows x pairs."""
    a, b = np.triu_indices(items, 1)
    offsets = (a.astype(np.int32), b.astype(np.int32))
    scope = RepeatedScope(np.arange(rows, dtype=np.int32), (0, 0), (items, items), offsets)
    key = np.arange(len(a), dtype=np.int32)
    features = Tiled(Keyed(key, np.empty((0, 1), dtype=np.float32), len(a)), rows)
    layout = WeightLayout((WeightBlock("pair", len(a), 9), WeightBlock("level", 1, 3)))
    levels = FactorGroup((np.arange(rows * items, dtype=np.int32),), (3,), Ones(rows * items), None, 1)
    cardinality = np.full(rows * items, 3, dtype=np.int32)
    return FactorGraph(cardinality, (FactorGroup(scope, (3, 3), features, None, 0), levels), layout)


def test_repeated_structure_is_cut_by_rows(tmp_path):
    graph, rng = ratings(7, 5), np.random.default_rng(0)
    roles = rng.choice([Role.FREE, Role.ABSENT], p=[0.8, 0.2], size=35).astype(np.int8)
    states, weights = np.zeros(35, dtype=np.int32), rng.normal(size=graph.layout.size)
    folders = cut_into_shards(graph, roles, states, tmp_path, 20)
    assert len(folders) > 2
    found = []
    for folder in folders:
        shard = load_shard(folder)
        found += factors(shard.graph, shard.roles, shard.states, weights, shard.variables)
    assert sorted(found) == factors(graph, roles, states, weights, np.arange(35))


def test_clamped_variables_separate_components():
    pairs = (np.array([0, 1, 2, 3], dtype=np.int32), np.array([1, 2, 3, 4], dtype=np.int32))
    layout = WeightLayout((WeightBlock("pair", 1, 4),))
    graph = FactorGraph(np.full(5, 2, dtype=np.int32), (FactorGroup(pairs, (2, 2), Ones(4), None, 0),), layout)
    roles = np.full(5, Role.FREE, dtype=np.int8)
    assert label_components(graph, roles).tolist() == [0, 0, 0, 0, 0]
    for role in (Role.CLAMPED, Role.ABSENT):
        roles[2] = role
        assert label_components(graph, roles).tolist() == [0, 0, 2, 3, 3]


def test_missing_shard_file_raises(tmp_path):
    graph = ratings(3, 4)
    (folder,) = cut_into_shards(graph, np.zeros(12, dtype=np.int8), np.zeros(12, dtype=np.int32), tmp_path)
    (folder / "roles.npy").unlink()
    with pytest.raises(OSError, match="roles"):
        load_shard(folder)


@pytest.mark.parametrize("limit", [1.0, 1e38], ids=["unit", "largest"])
def test_limited_features_are_cut(limit, tmp_path):
    """Grounding stores the features of keys in single precision; a limit of extreme values must not change this."""
    values = np.full(8, limit, dtype=np.float32)
    values[3] = np.inf
    features = Sparse(np.arange(0, 9, 2), np.tile(np.arange(2, dtype=np.int32), 4), values, 2)
    group = FactorGroup((np.arange(4, dtype=np.int32),), (2,), features, None, 0)
    cardinality, layout = np.full(4, 2, dtype=np.int32), WeightLayout((WeightBlock("t", 2, 2),))
    graph = limit_extremes(FactorGraph(cardinality, (group,), layout))
    assert np.isfinite(graph.groups[0].features.values).all()
    roles, states, weights = np.zeros(4, dtype=np.int8), np.zeros(4, dtype=np.int32), np.array([1.0, 0.0, -2.0, 0.5])
    found = []
    for folder in cut_into_shards(graph, roles, states, tmp_path, 2):
        shard = load_shard(folder)
        found += factors(shard.graph, shard.roles, shard.states, weights, shard.variables)
    assert sorted(found) == factors(graph, roles, states, weights, np.arange(4))
