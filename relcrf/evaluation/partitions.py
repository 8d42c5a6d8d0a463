"""Partitions of variables along edges and by time, and stratified samples; see `graph.folds` for other partitions."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from relcrf.graph.adjacency import list_neighbours
from relcrf.graph.folds import NO_FOLD
from relcrf.kernels.distinct import distinct


def stratified_sample(stratum: np.ndarray, fraction: float, rng: np.random.Generator) -> np.ndarray:
    """Return a mask of a random fraction of every stratum, shape (n,). For `stratum` see `graph.folds`."""
    shuffled = rng.permutation(np.flatnonzero(stratum >= 0))
    strata = stratum[shuffled]
    order = np.argsort(strata, kind="stable")
    sizes = np.bincount(strata)
    rank = np.arange(len(strata)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    chosen = np.zeros(len(stratum), dtype=bool)
    chosen[shuffled[order][rank < np.repeat(np.round(fraction * sizes), sizes)]] = True
    return chosen


def snowball_folds(adjacency: csr_array, labelled: np.ndarray, folds: int, rng: np.random.Generator) -> np.ndarray:
    """Grow each fold along edges from a random variable, so that few edges join folds; return the fold of each
    variable.

    A breadth-first search adds neighbours to a fold until the fold has its quota of labels. When a component is
    exhausted, the search continues from another random variable. Unlabelled variables are traversed, but are not in any
    fold.
    """
    fold = np.full(len(labelled), NO_FOLD)
    shuffled = rng.permutation(np.flatnonzero(labelled))
    seeds = iter(shuffled.tolist())
    n_left = len(shuffled)
    for number in range(folds):
        quota = round(n_left / (folds - number))
        n_left -= quota
        frontier = np.empty(0, dtype=np.int64)
        visited = np.zeros(len(labelled), dtype=bool)
        while quota:
            if not len(frontier):
                frontier = np.array([next(seed for seed in seeds if fold[seed] == NO_FOLD)])
            frontier = rng.permutation(frontier)
            added = frontier[labelled[frontier]][:quota]
            fold[added] = number
            visited[frontier] = True
            quota -= len(added)
            neighbours = distinct(list_neighbours(adjacency, frontier))
            frontier = neighbours[(fold[neighbours] == NO_FOLD) & ~visited[neighbours]]
    return fold


def time_periods(time: np.ndarray, labelled: np.ndarray, n: int) -> np.ndarray:
    """Assign variables to time periods with similar numbers of labels; return the period of each variable, 0: earliest.

    Equal times are in the same period.

    Args:
        time: The time of each variable, a number or date, shape (n_variables,); NaN or NaT for variables outside all
            periods.
    """
    has_time = time == time
    times, counts = np.unique(time[has_time & labelled], return_counts=True)
    before = np.cumsum(counts) - counts
    # A time belongs to the period that contains the median of the labels with this time.
    _, number = np.unique(((before + counts / 2) * n // max(counts.sum(), 1)).astype(np.int64), return_inverse=True)
    index = np.searchsorted(times, time[has_time], side="right") - 1
    out = np.full(len(time), NO_FOLD)
    out[has_time] = number[np.maximum(index, 0)]
    return out
