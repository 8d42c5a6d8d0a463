"""Folds of the training labels that resemble the missing labels, for the choice of a backend and its settings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from relcrf.backends.base import Problem
from relcrf.evaluation.splits import Fold, labelled_in_problem, random_folds, validation_fold
from relcrf.graph.components import label_components
from relcrf.graph.folds import balanced_folds, stratified_folds
from relcrf.graph.reduction import Role

FOLDS = 5
"""Number of folds; each holds out a fifth of the labels."""

MAX_COMPONENT_FRACTION = 0.6
"""Maximum fraction of the labels in one connected component if whole components are held out."""


def automatic_folds(
    problem: Problem, few_labels: int, seed: int, *, thorough: bool = False
) -> tuple[Problem, list[Fold]]:
    """Return folds that hold out labels in the way in which labels are missing, and the problem with all their labels.

    The fold is the set of validation labels if the problem has any. Otherwise, the folds contain whole connected
    components if unlabelled variables are mostly in components without labels, and else random labels, stratified by
    state. If all variables have labels, the model will predict other data; the folds then have no evidence. If there are
    many labels, only one of the folds is returned.

    Args:
        few_labels: Number of labels below which all folds are returned.
        thorough: Whether all folds are always returned.

    Raises:
        DataError: There are too few labels (E226).
    """
    if problem.validation is not None and problem.validation.any():
        extended, fold = validation_fold(problem)
        return extended, [fold]
    labelled = labelled_in_problem(problem)
    rng = np.random.default_rng(seed)
    component = label_components(problem.graph, _all_free(problem))
    if not problem.candidates and _are_missing_by_component(problem, labelled, component):
        fold_of = balanced_folds(component, labelled, min(FOLDS, len(np.unique(component[labelled]))), rng)
        masks = [labelled & (fold_of == number) for number in range(FOLDS)]
        folds = [Fold.from_test(str(k + 1), mask, whole=True) for k, mask in enumerate(masks) if mask.any()]
        return problem, folds
    folds = random_folds(problem, FOLDS, seed)  # validates the number of labels
    if not folds[0].whole_components or problem.unlabelled.any():
        # Labels with unlabelled neighbours are predicted in the graph of all variables, as unlabelled variables are.
        domains = problem.graph.domains
        stratum = problem.states + max(domains.sizes, default=0) * domains.number
        fold_of = stratified_folds(np.where(labelled, stratum, -1), FOLDS, rng)
        folds = [Fold.from_test(str(k + 1), labelled & (fold_of == k)) for k in range(FOLDS)]
        if not problem.unlabelled.any():
            folds = [replace(fold, has_evidence=False) for fold in folds]
    use_all = thorough or labelled.sum() < few_labels
    return problem, folds if use_all else folds[:1]


def _all_free(problem: Problem) -> np.ndarray:
    return np.full_like(problem.roles, Role.FREE)


def _are_missing_by_component(problem: Problem, labelled: np.ndarray, component: np.ndarray) -> bool:
    """Return True if most unlabelled variables are in components without labels, and components can be held out."""
    unlabelled = problem.unlabelled
    with_labels = np.isin(component, component[labelled])
    if not unlabelled.any() or with_labels[unlabelled].mean() > 0.5:
        return False
    sizes = np.bincount(component[labelled])
    return bool((sizes > 0).sum() > 1 and sizes.max() <= MAX_COMPONENT_FRACTION * labelled.sum())
