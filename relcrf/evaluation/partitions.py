"""Ways to divide variables into folds of like size: at random, by groups, along links, by time."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from relcrf.graph.adjacency import list_neighbours
from relcrf.kernels.distinct import distinct

NO_FOLD = -1
"""The fold of a variable that is never held out."""


def stratified_folds(stratum: np.ndarray, folds: int, rng: np.random.Generator) -> np.ndarray:
    """Folds at random in which every stratum has its share, shape (n,).

    Args:
        stratum: of each variable; below 0 for those that are in no fold.
    """
    fold = np.full(len(stratum), NO_FOLD)
    shuffled = rng.permutation(np.flatnonzero(stratum >= 0))
    # Strata after each other are dealt out in one round, so that small ones do not all begin with the first fold.
    dealt = shuffled[np.argsort(stratum[shuffled], kind="stable")]
    fold[dealt] = rng.permutation(folds)[np.arange(len(dealt)) % folds]
    return fold


def stratified_sample(stratum: np.ndarray, fraction: float, rng: np.random.Generator) -> np.ndarray:
    """A share of every stratum, at random: which variables, shape (n,), bool. For the argument see `stratified`."""
    shuffled = rng.permutation(np.flatnonzero(stratum >= 0))
    of = stratum[shuffled]
    order = np.argsort(of, kind="stable")
    sizes = np.bincount(of)
    rank = np.arange(len(of)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    chosen = np.zeros(len(stratum), dtype=bool)
    chosen[shuffled[order][rank < np.repeat(np.round(fraction * sizes), sizes)]] = True
    return chosen


def balanced_folds(group: np.ndarray, labelled: np.ndarray, folds: int, rng: np.random.Generator) -> np.ndarray:
    """Whole groups in folds, shape (n,): the largest first, each to the fold that has the fewest labels.

    Args:
        group: of each variable, a number from 0; below 0 for those that are in no fold.
        labelled: shape (n,), bool.
    """
    among = group >= 0
    labels = np.bincount(group[among & labelled], minlength=int(group.max(initial=-1)) + 1)
    shuffled = rng.permutation(len(labels))
    of_group, load = np.zeros(len(labels), dtype=np.int64), np.zeros(folds)
    for chosen in shuffled[np.argsort(-labels[shuffled], kind="stable")]:
        of_group[chosen] = load.argmin()
        load[of_group[chosen]] += labels[chosen]
    return np.where(among, of_group[group], NO_FOLD)


def snowball_folds(adjacency: csr_array, labelled: np.ndarray, folds: int, rng: np.random.Generator) -> np.ndarray:
    """Folds that grow along links from a random variable each, shape (n,), so that few links cross their borders.

    A fold takes the neighbours of what it has, ring by ring, until it has its share of the labels; where a component is used up
    it begins anew in another. Variables without a label are passed through.
    """
    fold = np.full(len(labelled), NO_FOLD)
    waiting = rng.permutation(np.flatnonzero(labelled))
    seeds = iter(waiting.tolist())
    left = len(waiting)
    for number in range(folds):
        quota = round(left / (folds - number))
        left -= quota
        ring = np.empty(0, dtype=np.int64)
        passed = np.zeros(len(labelled), dtype=bool)
        while quota:
            if not len(ring):
                ring = np.array([next(seed for seed in seeds if fold[seed] == NO_FOLD)])
            ring = rng.permutation(ring)
            wanted = ring[labelled[ring]][:quota]
            fold[wanted] = number
            passed[ring] = True
            quota -= len(wanted)
            around = distinct(list_neighbours(adjacency, ring))
            ring = around[(fold[around] == NO_FOLD) & ~passed[around]]
    return fold


def time_periods(time: np.ndarray, labelled: np.ndarray, n: int) -> np.ndarray:
    """Periods of like numbers of labels, shape (n_variables,), from 0 for the earliest; equal times are in one.

    Args:
        time: of each variable, shape (n_variables,): numbers, or dates; NaN or NaT of those that are in no period.
    """
    known = time == time
    times, counts = np.unique(time[known & labelled], return_counts=True)
    before = np.cumsum(counts) - counts
    # A time goes to the period in which the middle of its labels lies.
    _, number = np.unique(((before + counts / 2) * n // max(counts.sum(), 1)).astype(np.int64), return_inverse=True)
    place = np.searchsorted(times, time[known], side="right") - 1
    out = np.full(len(time), NO_FOLD)
    out[known] = number[np.maximum(place, 0)]
    return out
