"""Partitions: every label is in one fold, folds are balanced, groups are whole, few edges are cut, periods are consecutive."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from relcrf.evaluation.partitions import (
    snowball_folds,
    stratified_sample,
    time_periods,
)
from relcrf.graph.folds import balanced_folds, stratified_folds


def rng(seed=0):
    return np.random.default_rng(seed)


def grid(n):
    """Return the adjacency of an n by n grid."""
    cell = np.arange(n * n).reshape(n, n)
    pairs = [(cell[:, :-1], cell[:, 1:]), (cell[:-1], cell[1:])]
    one = np.concatenate([a.ravel() for a, _ in pairs] + [b.ravel() for _, b in pairs])
    other = np.concatenate([b.ravel() for _, b in pairs] + [a.ravel() for a, _ in pairs])
    return csr_array((np.ones(len(one), dtype=bool), (one, other)), shape=(n * n, n * n))


def crossing(adjacency, fold):
    rows, columns = adjacency.nonzero()
    return int((fold[rows] != fold[columns]).sum()) // 2


def test_sample_contains_a_fraction_of_each_stratum():
    stratum = rng().permutation(np.repeat([-1, 0, 1], [10, 900, 40]))
    hidden = stratified_sample(stratum, 0.1, rng())
    assert [int(hidden[stratum == k].sum()) for k in (-1, 0, 1)] == [0, 90, 4]


def test_groups_are_whole_and_folds_are_balanced():
    sizes = np.array([40, 30, 20, 20, 10, 10, 5, 5, 1, 1])
    group = np.repeat(np.arange(10), sizes)
    labelled = np.ones(len(group), dtype=bool)
    fold = balanced_folds(group, labelled, 3, rng())
    for number in range(10):
        assert len(set(fold[group == number])) == 1
    assert max(np.bincount(fold)) - min(np.bincount(fold)) <= 5
    labelled[group == 0] = False  # unlabelled groups have no weight
    assert np.bincount(balanced_folds(group, labelled, 3, rng())[labelled]).max() <= 37
    assert (balanced_folds(np.where(group == 1, -1, group), labelled, 3, rng())[group == 1] == -1).all()


def test_snowball_cuts_fewer_edges_than_random_folds():
    adjacency, labelled = grid(20), np.ones(400, dtype=bool)
    labelled[::7] = False
    fold = snowball_folds(adjacency, labelled, 4, rng())
    assert (fold[~labelled] == -1).all()
    counts = np.bincount(fold[labelled])
    assert counts.sum() == labelled.sum() and counts.max() - counts.min() <= 1
    everything = snowball_folds(adjacency, np.ones(400, dtype=bool), 4, rng())
    chance = stratified_folds(np.zeros(400, dtype=np.int64), 4, rng())
    assert crossing(adjacency, everything) < 0.4 * crossing(adjacency, chance)


def test_snowball_continues_in_another_component():
    fold = snowball_folds(csr_array((6, 6), dtype=bool), np.ones(6, dtype=bool), 3, rng())
    assert np.bincount(fold).tolist() == [2, 2, 2]


@pytest.mark.parametrize("kind", [np.float64, "datetime64[s]"])
def test_periods_are_consecutive(kind):
    time = rng().permutation(np.repeat(np.arange(10), 10)).astype("int64").astype(kind)
    labelled = np.ones(100, dtype=bool)
    period = time_periods(time, labelled, 4)
    assert set(period) == {0, 1, 2, 3}
    for number in range(3):
        assert time[period == number].max() < time[period == number + 1].min()
    assert np.bincount(period).max() <= 30


def test_periods_of_unlabelled_and_untimed_variables():
    time = np.array([np.nan, 1.0, 1.0, 2.0, 3.0, 0.0, 9.0])
    labelled = np.array([False, True, True, True, True, False, False])
    assert time_periods(time, labelled, 3).tolist() == [-1, 0, 0, 1, 2, 0, 2]
