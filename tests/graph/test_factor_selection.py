"""Selection of the factors that learning reads: reductions of the graph do not change, whether columns are in files or not."""

from dataclasses import replace

import numpy as np
import pytest
from graphs import random_graph

from relcrf.columns.storage import Storage
from relcrf.graph import factor_selection
from relcrf.graph.factor_graph import FactorGroup
from relcrf.graph.factor_selection import select_used_factors
from relcrf.graph.features import Sparse, Tiled
from relcrf.graph.reduction import Role, reduce_graph
from relcrf.graph.scopes import Potentials


def stored(column, storage):
    builder = storage.column(column.dtype, column.shape[1] if column.ndim == 2 else 0)
    builder.append(column)
    return builder.finish()


def with_columns_in(graph, folder, max_bytes):
    """Return a graph whose columns are in files or in memory."""
    storage = Storage(folder, max_bytes)

    def store(group):
        if isinstance(group.features, Tiled):
            return group
        columns = {name: stored(column, storage) for name, column in group.features.columns().items()}
        scope = tuple(stored(np.asarray(column, dtype=np.int32), storage) for column in group.scope)
        return replace(group, scope=scope, features=group.features.from_columns(group.n_factors, columns))

    return replace(graph, groups=tuple(map(store, graph.groups)))


@pytest.mark.parametrize("max_bytes", [0, 1 << 20])
@pytest.mark.parametrize("seed", range(12))
def test_reduced_graph_is_equal(seed, max_bytes, tmp_path, monkeypatch):
    monkeypatch.setattr(factor_selection, "FACTORS_PER_CHUNK", 3)
    rng = np.random.default_rng(seed)
    graph = with_columns_in(random_graph(rng, n_variables=12), tmp_path, max_bytes)
    roles = rng.choice([Role.FREE, Role.CLAMPED, Role.ABSENT], p=[0.4, 0.3, 0.3], size=12).astype(np.int8)
    states = (rng.random(12) * graph.cardinality).astype(np.int32)
    weights = rng.normal(size=graph.layout.size)
    selected = select_used_factors(graph, roles)
    assert selected.layout is graph.layout and selected.cardinality is graph.cardinality
    assert 0 < selected.n_factors < graph.n_factors
    expected, found = (reduce_graph(each, roles, states) for each in (graph, selected))
    assert np.array_equal(found.edges, expected.edges) and np.array_equal(found.variables, expected.variables)
    for new, old in zip(found.potentials(weights), expected.potentials(weights), strict=True):
        assert np.array_equal(new, old)
    marginals = Potentials(*(rng.random(len(part)) for part in expected.potentials(weights)))
    assert np.array_equal(found.counts(marginals), expected.counts(marginals))


def bag_group(n):
    """Return a group of n bags, of which bag k has k + 1 words."""
    start = np.concatenate(([0], np.cumsum(np.arange(1, n + 1))))
    features = Sparse(start, np.arange(start[-1], dtype=np.int32), np.empty(0, dtype=np.float32), int(start[-1]))
    return FactorGroup((np.arange(n, dtype=np.int32),), (2,), features, None, 0)


def test_only_used_rows_of_large_groups_are_copied():
    graph = random_graph(np.random.default_rng(0), n_variables=10)
    graph = replace(graph, groups=(bag_group(10),))
    roles = np.full(10, Role.FREE, dtype=np.int8)
    assert select_used_factors(graph, roles) is graph
    roles[[0, 9]] = Role.ABSENT
    assert select_used_factors(graph, roles) is graph  # too few unused factors
    roles[:5] = Role.ABSENT
    (group,) = select_used_factors(graph, roles).groups
    assert group.scope[0].tolist() == [5, 6, 7, 8]
    assert np.diff(group.features.row_start).tolist() == [6, 7, 8, 9]
    assert group.features.column.tolist() == graph.groups[0].features.column[15:45].tolist()
    roles[:] = Role.CLAMPED  # factors without a free variable are constant
    assert select_used_factors(graph, roles).n_factors == 0
