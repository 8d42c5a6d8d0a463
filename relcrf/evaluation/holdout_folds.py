"""Folds of the training labels that resemble the missing labels, for the choice of a backend and its settings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from relcrf.backends.base import Problem
from relcrf.evaluation.splits import Fold, labelled_in_problem, random_folds, validation_fold
from relcrf.graph.components import label_components
from relcrf.graph.folds import are_in_other_components, balanced_folds, stratified_folds
from relcrf.graph.labelled_factors import labelled_neighbours
from relcrf.graph.reduction import Role

FOLDS = 5
"""Number of folds; each holds out a fifth of the labels."""

MAX_COMPONENT_FRACTION = 0.6
"""Maximum fraction of the labels in one connected component if whole components are held out."""

MAX_EVIDENCE_RATE = 0.5
"""Fraction of labels as evidence from which all are evidence; smaller differences hardly change the best candidate."""

MIN_LINKED_LABELS = 600
"""Number of links between labels, in both directions, from which the fractions of labelled neighbours are compared."""


def automatic_folds(
    problem: Problem, few_labels: int, seed: int, *, thorough: bool = False
) -> tuple[Problem, list[Fold]]:
    """Return folds that hold out labels in the way in which labels are missing, and the problem with all their labels.

    The fold is the set of validation labels if the problem has any. Otherwise, the held-out labels belong to the domains of
    the unlabelled variables. If unlabelled variables have few labelled neighbours, the folds contain whole connected
    components; if nearly all labels are in one component, or if all variables have labels, the folds contain random
    labels, stratified by state, and only a part of the other labels is evidence, or none. Otherwise, they contain random
    labels. If there are many labels, only one of the folds is returned.

    Args:
        few_labels: Number of labels below which all folds are returned.
        thorough: Whether all folds are always returned.

    Raises:
        DataError: There are too few labels (E226).
    """
    if problem.validation is not None and problem.validation.any():
        extended, fold = validation_fold(problem)
        return extended, [fold]
    everything, labelled = labelled_in_problem(problem), _labels_to_hold_out(problem)
    rng = np.random.default_rng(seed)
    component = label_components(problem.graph, _all_free(problem))
    rate = 1.0 if problem.candidates else _evidence_rate(problem, labelled, component)
    sizes = np.bincount(component[labelled])
    if rate < 1.0 and (sizes > 0).sum() > 1 and sizes.max() <= MAX_COMPONENT_FRACTION * labelled.sum():
        fold_of = balanced_folds(component, labelled, min(FOLDS, len(np.unique(component[labelled]))), rng)
        masks = [labelled & (fold_of == number) for number in range(FOLDS)]
        folds = [Fold.from_test(str(k + 1), mask, whole=True) for k, mask in enumerate(masks) if mask.any()]
        evidence = _thin(everything, rate, rng) if rate else None  # other components do not matter
        return problem, [replace(fold, evidence=evidence) for fold in folds]
    folds = random_folds(problem, FOLDS, seed)  # validates the number of labels
    if not folds[0].whole_components or problem.unlabelled.any():
        # Labels with unlabelled neighbours are predicted in the graph of all variables, as unlabelled variables are.
        domains = problem.graph.domains
        stratum = problem.states + max(domains.sizes, default=0) * domains.number
        fold_of = stratified_folds(np.where(labelled, stratum, -1), FOLDS, rng)
        rate = rate if problem.unlabelled.any() else 0.0
        evidence = _thin(everything, rate, rng)
        masks = [labelled & (fold_of == k) for k in range(FOLDS)]
        folds = [replace(Fold.from_test(str(k + 1), mask), evidence=evidence) for k, mask in enumerate(masks)]
    use_all = thorough or labelled.sum() < few_labels
    return problem, folds if use_all else folds[:1]


def _thin(labelled: np.ndarray, rate: float, rng: np.random.Generator) -> np.ndarray | None:
    """Return the mask of a random fraction of the labels; None for all of them."""
    return None if rate == 1.0 else labelled & (rng.random(len(labelled)) < rate)


def _labels_to_hold_out(problem: Problem) -> np.ndarray:
    """Return the mask of the labels of those domains that have unlabelled variables, or of all labels."""
    labelled, number = labelled_in_problem(problem), problem.graph.domains.number
    found = labelled & np.isin(number, number[problem.unlabelled])
    return found if found.sum() >= FOLDS else labelled


def _all_free(problem: Problem) -> np.ndarray:
    return np.full_like(problem.roles, Role.FREE)


def _evidence_rate(problem: Problem, labelled: np.ndarray, component: np.ndarray) -> float:
    """Return the fraction of the labels that are evidence, so that held-out labels have as many labelled neighbours as
    unlabelled variables have.

    It is 0 if far fewer unlabelled variables than labelled ones are in components with (other) labels. It is between 0 and
    1 if a much smaller fraction of their neighbours is labelled than of the neighbours of labels, for example if whole
    folders of records are missing.

    Args:
        labelled: Mask of the labels that can be held out, shape (n_variables,).
    """
    unlabelled = problem.unlabelled
    if not unlabelled.any():
        return 1.0
    if are_in_other_components(component, labelled, unlabelled):
        return 0.0
    n_labelled, n_neighbours = labelled_neighbours(problem.graph, labelled_in_problem(problem))
    if n_labelled[labelled].sum() < MIN_LINKED_LABELS:
        return 1.0
    among_labels, among_unlabelled = (
        n_labelled[mask].sum() / max(n_neighbours[mask].sum(), 1) for mask in (labelled, unlabelled)
    )
    rate = float(among_unlabelled / among_labels)
    return rate if rate < MAX_EVIDENCE_RATE else 1.0
