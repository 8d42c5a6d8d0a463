"""The search for elimination orders: never worse than greedy orders, deterministic, and good on grids."""

import numpy as np
import pytest
from networks import grid_edges

from relcrf.inference.elimination_order import HOPELESS_ORDERS, greedy_rule, node_weights, search_order
from relcrf.kernels import elimination
from relcrf.kernels.elimination import LOG2_SCALE, eliminate

NO_LIMIT = 1 << 60


def edges_of_grid(n):
    edges = np.array(grid_edges(n, n), dtype=np.int32)
    return np.ascontiguousarray(edges[:, 0]), np.ascontiguousarray(edges[:, 1])


def random_connected_graph(rng, n, n_extra):
    chain = np.stack([np.arange(n - 1), np.arange(1, n)], axis=1)
    extra = np.sort(rng.permuted(np.tile(np.arange(n), (n_extra, 1)), axis=1)[:, :2], axis=1)
    edges = np.unique(np.concatenate((chain, extra)), axis=0).astype(np.int32)
    return np.ascontiguousarray(edges[:, 0]), np.ascontiguousarray(edges[:, 1])


@pytest.mark.parametrize("seed", range(5))
def test_search_improves_min_fill(seed):
    rng = np.random.default_rng(seed)
    n = 60
    first, second = random_connected_graph(rng, n, 90)
    cardinality = rng.integers(1, 5, size=n)
    greedy = eliminate(
        node_weights(cardinality),
        np.zeros(n, dtype=np.int32),
        np.ones(n, dtype=bool),
        first,
        second,
        NO_LIMIT,
        np.inf,
        greedy_rule(np.zeros(n, dtype=np.int64)),
    )
    best = search_order(cardinality, np.zeros(n, dtype=np.int64), first, second, NO_LIMIT, 1 << 24)
    again = search_order(cardinality, np.zeros(n, dtype=np.int64), first, second, NO_LIMIT, 1 << 24)
    assert sorted(best.order.tolist()) == list(range(n))
    assert best.n_cells <= greedy[4]
    assert (best.order == again.order).all()
    cliques = np.split(best.member, best.start[1:-1])
    assert best.n_cells == pytest.approx(
        sum(float(np.prod(cardinality[c])) for c in cliques), rel=1e-5
    )  # weights are rounded


def test_search_finds_a_better_order_than_rows_of_a_grid():
    """Elimination of a grid row by row has cliques of n + 1 nodes, the smallest maximum."""
    n = 8
    best = search_order(np.full(n * n, 2), np.zeros(n * n, dtype=np.int64), *edges_of_grid(n), NO_LIMIT, 1 << 26)
    assert best.n_cells < (n * n - n) * 2 ** (n + 1)


def test_search_respects_the_limit():
    n = 8
    edges = edges_of_grid(n)
    assert search_order(np.full(n * n, 2), np.zeros(n * n, dtype=np.int64), *edges, n * LOG2_SCALE, 1 << 24) is None
    assert (
        search_order(np.full(n * n, 2), np.zeros(n * n, dtype=np.int64), *edges, (n + 4) * LOG2_SCALE, 1 << 24)
        is not None
    )


def test_search_of_a_hopeless_graph_ends_early(monkeypatch):
    n, n_orders = 300, 0
    first, second = random_connected_graph(np.random.default_rng(0), n, 4 * n)

    def count(*arguments):
        nonlocal n_orders
        n_orders += 1
        return eliminate(*arguments)

    monkeypatch.setattr(elimination, "eliminate", count)
    assert search_order(np.full(n, 5), np.zeros(n, dtype=np.int64), first, second, NO_LIMIT, 1 << 25) is None
    assert n_orders == HOPELESS_ORDERS


def test_stages_follow_one_another():
    rng = np.random.default_rng(0)
    n = 40
    first, second = random_connected_graph(rng, n, 40)
    stage = rng.integers(0, 2, size=n)
    best = search_order(np.full(n, 2), stage, first, second, NO_LIMIT, 1 << 24)
    assert (np.diff(stage[best.order]) >= 0).all()
