"""Breadth-first regions."""

import numpy as np
import pytest

from relcrf.graph.regions import breadth_first_region

GRID = 20


def grid_edges():
    """Return the edges of a square grid of GRID x GRID nodes."""
    node = np.arange(GRID * GRID, dtype=np.int32).reshape(GRID, GRID)
    pairs = (node[:, :-1], node[:, 1:]), (node[:-1], node[1:])
    return np.concatenate([np.column_stack((a.ravel(), b.ravel())) for a, b in pairs])


def count_inside(edges, region):
    return int(np.isin(edges, region).all(axis=1).sum())


def test_region_of_a_corner_is_a_triangle():
    edges = grid_edges()
    row, column = np.divmod(np.arange(GRID * GRID), GRID)
    triangle = np.flatnonzero(row + column <= 5)
    n_edges = count_inside(edges, triangle)
    np.testing.assert_array_equal(breadth_first_region(GRID * GRID, edges, np.array([0]), n_edges), triangle)


@pytest.mark.parametrize("max_edges", [0, 1, 17, 200, 10_000])
def test_regions_are_as_large_as_permitted(max_edges):
    edges = grid_edges()
    starts = np.array([0, 399, 210, 0])
    region = breadth_first_region(GRID * GRID, edges, starts, max_edges)
    assert count_inside(edges, region) <= max_edges
    distance = sum(np.abs(x[:, None] - x[starts]) for x in np.divmod(np.arange(GRID * GRID), GRID)).min(axis=1)
    outside = np.setdiff1d(np.arange(GRID * GRID), region)
    if max_edges == 10_000:
        assert not len(outside)
        return
    assert distance[region].max(initial=0) <= distance[outside].min()
    nearest = outside[distance[outside] == distance[outside].min()]
    assert any(count_inside(edges, np.append(region, node)) > max_edges for node in nearest)


def test_nodes_of_other_components_are_excluded():
    edges = np.array([[0, 1], [2, 3]], dtype=np.int32)
    np.testing.assert_array_equal(breadth_first_region(5, edges, np.array([3]), 10), [2, 3])
