"""Partitions of variables into folds of similar size that do not divide groups of variables."""

from __future__ import annotations

import numpy as np

NO_FOLD = -1
"""Fold index of a variable that is never held out."""


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


def stratified_folds(labels: np.ndarray, labelled: np.ndarray, folds: int, rng: np.random.Generator) -> np.ndarray:
    """Assign labelled variables to folds of equal size, each with about the same fraction of every label.

    Args:
        labels: Label of each variable, shape (n_variables,).
        labelled: Indices of the variables to assign, shape (n,).

    Returns:
        The fold of each variable, shape (n_variables,); `NO_FOLD` for other variables.
    """
    shuffled = rng.permutation(labelled)
    by_label = shuffled[np.argsort(labels[shuffled], kind="stable")]
    fold = np.full(len(labels), NO_FOLD)
    fold[by_label] = np.arange(len(by_label)) % folds
    return fold
