"""Partitions of variables into folds of similar size, stratified or by group.

A *stratum* is one of several disjoint sets of variables, such as the variables with a certain label. A stratified fold
contains the same fraction of every stratum.
"""

from __future__ import annotations

import numpy as np

NO_FOLD = -1
"""Fold index of a variable that is never held out."""

MAX_REACHED_RATE = 0.5
"""Ratio of the fractions of unlabelled and of labelled variables in components with other labels up to which unlabelled
variables are in other components. If labels are missing at random, the ratio is about 1, also if most components are small."""


def are_in_other_components(component: np.ndarray, labelled: np.ndarray, unlabelled: np.ndarray) -> bool:
    """Return True if far fewer unlabelled variables than labelled ones are in components with (other) labels.

    Args:
        component: The component of each variable, from 0, shape (n,).
        labelled, unlabelled: Masks of variables, shape (n,); some variable is unlabelled.
    """
    sizes = np.bincount(component[labelled], minlength=component.max() + 1)
    reached, reached_labelled = (sizes[component[unlabelled]] > 0).mean(), (sizes[component[labelled]] > 1).mean()
    return bool(reached <= MAX_REACHED_RATE * reached_labelled)


def balanced_folds(group: np.ndarray, labelled: np.ndarray, folds: int, rng: np.random.Generator) -> np.ndarray:
    """Assign whole groups, largest first, to the fold with the fewest labels; return the fold of each variable.

    Args:
        group: The group of each variable, from 0; negative for variables outside all folds.
        labelled: Mask of labelled variables, shape (n,).
    """
    in_fold = group >= 0
    labels = np.bincount(group[in_fold & labelled], minlength=int(group.max(initial=-1)) + 1)
    shuffled = rng.permutation(len(labels))
    fold_of_group, load = np.zeros(len(labels), dtype=np.int64), np.zeros(folds)
    for chosen in shuffled[np.argsort(-labels[shuffled], kind="stable")]:
        fold_of_group[chosen] = load.argmin()
        load[fold_of_group[chosen]] += labels[chosen]
    return np.where(in_fold, fold_of_group[group], NO_FOLD)


def stratified_folds(stratum: np.ndarray, folds: int, rng: np.random.Generator) -> np.ndarray:
    """Assign variables to random stratified folds of equal size; return the fold of each variable, shape (n,).

    Args:
        stratum: The stratum of each variable; negative for variables outside all folds.
    """
    fold = np.full(len(stratum), NO_FOLD)
    shuffled = rng.permutation(np.flatnonzero(stratum >= 0))
    # The round-robin assignment continues across strata; otherwise all strata would start with the first fold.
    ordered = shuffled[np.argsort(stratum[shuffled], kind="stable")]
    fold[ordered] = rng.permutation(folds)[np.arange(len(ordered)) % folds]
    return fold
