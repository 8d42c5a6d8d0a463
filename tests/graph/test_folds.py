"""Folds of labelled variables."""

import numpy as np

from relcrf.graph.folds import stratified_folds


def rng(seed=0):
    return np.random.default_rng(seed)


def test_strata_are_equally_distributed_over_folds():
    stratum = np.repeat([-1, 0, 1, 2], [7, 50, 23, 4])
    fold = stratified_folds(stratum, 5, rng())
    assert (fold[:7] == -1).all() and (fold[7:] >= 0).all()
    for number, size in ((0, 50), (1, 23), (2, 4)):
        counts = np.bincount(fold[stratum == number], minlength=5)
        assert counts.sum() == size and counts.max() - counts.min() <= 1
    counts = np.bincount(fold[7:])
    assert counts.max() - counts.min() <= 1
    assert not np.array_equal(fold, stratified_folds(stratum, 5, rng(1)))
    np.testing.assert_array_equal(fold, stratified_folds(stratum, 5, rng()))


def test_fold_numbers_are_fixed_by_the_seed():
    """Evaluations with a seed are comparable only with the same folds."""
    stratum = np.array([0, 0, 0, 1, 1, -1, 0, 1, 2])
    assert stratified_folds(stratum, 3, rng(7)).tolist() == [0, 0, 2, 0, 1, -1, 1, 2, 2]
