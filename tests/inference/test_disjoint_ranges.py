"""Tests of `relcrf.inference.disjoint_ranges`."""

from itertools import combinations, pairwise

import numpy as np
import pytest

from relcrf.inference.disjoint_ranges import disjoint_ranges
from tests.support.networks import grid_edges


def random_ends(n_nodes, n_pairs, seed=0):
    return np.random.default_rng(seed).integers(n_nodes, size=(n_pairs, 2))


PAIRS = {
    "random": random_ends(300, 4_000),
    "two types": random_ends(200, 4_000) + np.array([0, 200]),
    "grid": np.array(grid_edges(40, 40)),
    "star": np.column_stack((np.zeros(500, dtype=int), np.arange(1, 501))),
    "few": random_ends(50, 20),
    "none": np.zeros((0, 2), dtype=int),
}


@pytest.mark.parametrize("name", PAIRS)
def test_ranges_of_a_step_have_no_node_in_common(name):
    ends, block = PAIRS[name], 16
    order, steps = disjoint_ranges(ends, block)
    assert sorted(order.tolist()) == list(range(len(ends)))
    bounds = [bound for step in steps for bound in step]
    assert bounds == sorted(bounds) and (not bounds or bounds[0] == 0)
    assert all(before[-1] == after[0] for before, after in pairwise(steps))
    # Each of the 28 ranges leaves less than a block.
    assert len(ends) - (bounds[-1] if bounds else 0) * block <= 28 * (block - 1)
    for step in steps:
        nodes = [set(ends[order[lo * block : hi * block]].ravel().tolist()) for lo, hi in pairwise(step)]
        assert not any(one & other for one, other in combinations(nodes, 2))


@pytest.mark.parametrize("name", ["random", "two types"])
def test_ranges_of_a_step_are_of_similar_length(name):
    _, steps = disjoint_ranges(PAIRS[name], 1)
    for step in steps:
        lengths = np.diff(step)
        assert len(lengths) == 4 and lengths.max() < 1.5 * lengths.min()
