"""Folds of labelled variables."""

import numpy as np

from relcrf.graph.folds import NO_FOLD, stratified_folds


def test_stratified_folds_have_equal_sizes_and_fractions():
    rng = np.random.default_rng(0)
    labels = rng.choice(3, p=(0.6, 0.3, 0.1), size=500)
    labelled = np.flatnonzero(rng.random(500) < 0.7)
    fold = stratified_folds(labels, labelled, 5, rng)
    assert (fold[np.setdiff1d(np.arange(500), labelled)] == NO_FOLD).all()
    sizes = np.bincount(fold[labelled], minlength=5)
    assert np.ptp(sizes) <= 1 and sizes.sum() == len(labelled)
    for label in range(3):
        assert np.ptp(np.bincount(fold[labelled][labels[labelled] == label], minlength=5)) <= 1
    other = stratified_folds(labels, labelled, 5, rng)
    assert (fold != other).any()
