"""Sums over shards, which must not depend on the assignment of shards to workers."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relcrf.execution.base import shard_ranges
from relcrf.execution.summation import ShardSum, merge_nodes, sum_shards


def leaves(values: np.ndarray, positions: range) -> list[ShardSum]:
    return [ShardSum(k, 1, (float(values[k, 0]), values[k, 1:])) for k in positions]


@given(n_shards=st.integers(1, 70), cuts=st.sets(st.integers(0, 70)), seed=st.integers(0, 99))
def test_any_partition_into_ranges_gives_same_bits(n_shards, cuts, seed):
    random = np.random.default_rng(seed)
    values = random.normal(size=(n_shards, 4)) * 10.0 ** random.integers(-8, 8, (n_shards, 4))
    value, gradient = sum_shards(leaves(values, range(n_shards)))
    bounds = [0, *sorted(c for c in cuts if c < n_shards), n_shards]
    runs = [merge_nodes(leaves(values, range(a, b))) for a, b in pairwise(bounds)]
    other_value, other_gradient = sum_shards([node for run in runs for node in run])
    assert (value, gradient.tolist()) == (other_value, other_gradient.tolist())
    exact = [math.fsum(values[:, j]) for j in range(4)]
    np.testing.assert_allclose(
        [value, *gradient], exact, rtol=0, atol=1e-15 * 8 * np.abs(values).sum(axis=0).max(initial=1)
    )


def test_sequential_sum_has_other_bits():
    values = np.random.default_rng(0).normal(size=(50, 2))
    assert sum_shards(leaves(values, range(50)))[0] != sum(values[:, 0])


@pytest.mark.parametrize("n_shards", [1, 2, 64, 100, 1000])
def test_worker_returns_few_gradients(n_shards):
    values = np.zeros((n_shards, 2))
    for run in shard_ranges(n_shards, 3):
        assert len(merge_nodes(leaves(values, run))) <= 2 * math.log2(len(run)) + 1


def test_shard_ranges_are_even_and_complete():
    assert shard_ranges(7, 3) == [range(0, 2), range(2, 4), range(4, 7)]
    assert shard_ranges(2, 3) == [range(0, 1), range(1, 2)]
    assert shard_ranges(0, 3) == []
