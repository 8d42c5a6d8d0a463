"""Application of learned features to a ground graph: training on its labels, or scoring by trained features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from relcrf.grounding.grounding import Grounding
from relcrf.grounding.learned_values import (
    LearnedInput,
    LearnedTarget,
    read_inputs,
    read_target,
    with_known_labels,
    with_learned_values,
)
from relcrf.model.learned import learned_features
from relcrf.model.spec import Feature, LearnedDefinition
from relcrf.unaries.estimators import require_scikit_learn
from relcrf.unaries.fitting import FittedFeature, cross_fit

Marginals: TypeAlias = Callable[[np.ndarray, slice, int], np.ndarray]
"""A function that returns the probabilities of some variables given labels, shape (n, n_states). Its arguments are the mask of
the labels, shape (n_variables,), the variables, and the number of their states."""

Teacher: TypeAlias = Callable[[Grounding, np.ndarray], Marginals]
"""A function that learns a model from a ground graph and the mask of its training labels."""


def learn_features(
    grounding: Grounding, training: np.ndarray, teach: Teacher, seed: int = 0
) -> tuple[Grounding, tuple[FittedFeature, ...]]:
    """Train the learned features of a model; return the ground graph with their values, and the features.

    A feature with joint rounds is trained again with the marginals of a model as targets of the entities without training
    labels. A round is kept if it decreases the out-of-fold error of the training labels; otherwise the rounds end. The
    marginals for the estimator that scores a fold are computed without the labels of this fold.

    Args:
        training: mask of the variables with training labels, shape (n_variables,), bool.
        teach: a function that learns the model whose marginals are targets.

    Raises:
        UsageError: if an estimator is unknown or not installed.
        DataError: if a feature has too few labels, or an estimator cannot be fitted.
    """
    declared = learned_features(grounding.spec)
    if not declared:
        return grounding, ()
    require_scikit_learn()
    tasks = [_Task.read(grounding, feature, training) for feature in declared]
    trained = [task.train(seed, 0) for task in tasks]
    active = set(range(len(tasks)))
    for number in range(1, 1 + max(task.n_rounds for task in tasks)):
        values = {fitted.name: values for fitted, values in trained}
        active = {k for k in active if tasks[k].n_rounds >= number and not tasks[k].labelled.all()}
        if not active:
            break
        marginals = teach(with_learned_values(grounding, values), training)
        for k in sorted(active):
            found = tasks[k].train(seed, number, marginals)
            if found[0].out_of_fold_error < trained[k][0].out_of_fold_error:
                trained[k] = found
            else:
                active.remove(k)
    return with_learned_values(grounding, {f.name: values for f, values in trained}), tuple(f for f, _ in trained)


@dataclass(frozen=True)
class _Task:
    """The inputs and the labels of a learned feature.

    Args:
        labelled: mask of the entities with training labels, shape (n_entities,).
        component: number of the component of each entity, shape (n_entities,).
        training: mask of the variables with training labels, shape (n_variables,).
    """

    feature: Feature
    inputs: Sequence[LearnedInput]
    target: LearnedTarget
    labelled: np.ndarray
    component: np.ndarray
    training: np.ndarray

    @classmethod
    def read(cls, grounding: Grounding, feature: Feature, training: np.ndarray) -> _Task:
        inputs, target = read_inputs(grounding.bound, feature, grounding.budget), read_target(grounding, feature)
        n = len(target.values)
        labelled, component = ~np.isnan(target.values), np.arange(n)
        if target.first_variable is not None:
            variables = slice(target.first_variable, target.first_variable + n)
            labelled, component = labelled & training[variables], grounding.component[variables]
        return cls(feature, inputs, target, labelled, _joined_by_inputs(component, inputs), training)

    @property
    def n_rounds(self) -> int:
        """The maximum number of joint rounds."""
        definition = self.feature.definition
        return definition.joint if isinstance(definition, LearnedDefinition) else 0

    def train(self, seed: int, number: int, marginals: Marginals | None = None) -> tuple[FittedFeature, np.ndarray]:
        """Train the feature; see `cross_fit`.

        Args:
            number: the number of the joint round; 0 before the first one.
            marginals: the probabilities of the entities without training labels; None to train on labels only.
        """
        soft_targets = None if marginals is None else partial(self._probabilities, marginals)
        inputs, target, labelled = self.inputs, self.target, self.labelled
        fitted, values = cross_fit(self.feature, inputs, target, labelled, self.component, seed, soft_targets)
        rounds = {"joint_rounds": number} if self.n_rounds else {}
        return replace(fitted, summary={**fitted.summary, **rounds}), values

    def _probabilities(self, marginals: Marginals, known: np.ndarray) -> np.ndarray:
        """Return the probabilities of the entities without training labels, given the training labels of some entities."""
        first, n = self.target.first_variable, len(self.labelled)
        assert first is not None and self.target.categories is not None
        evidence = self.training.copy()
        evidence[first : first + n] = known
        return np.asarray(marginals(evidence, slice(first, first + n), len(self.target.categories))[~self.labelled])


def _joined_by_inputs(component: np.ndarray, inputs: Sequence[LearnedInput]) -> np.ndarray:
    """Return the components after joining those of entities that are neighbours in an input, shape (n_entities,)."""
    names, component = np.unique(component, return_inverse=True)
    for each in inputs:
        if each.neighbours is not None:
            first, second = each.neighbours.pairs.nonzero()
            shape = (len(names), len(names))
            links = csr_array((np.ones(len(first)), (component[first], component[second])), shape=shape)
            component = connected_components(links, directed=False)[1][component]
    return component


def apply_features(grounding: Grounding, fitted: Sequence[FittedFeature], observed: np.ndarray) -> Grounding:
    """Return the ground graph with the values that trained features compute for its entities.

    Args:
        observed: mask of the variables whose labels are evidence, shape (n_variables,), bool.
    """
    if not fitted:
        return grounding
    require_scikit_learn()
    by_name = {each.name: each for each in fitted}
    values = {}
    for feature in learned_features(grounding.spec):
        target, trained = read_target(grounding, feature), by_name[feature.name]
        n_categories = 0 if target.categories is None else len(target.categories)
        inputs: Sequence[LearnedInput] = read_inputs(grounding.bound, feature, grounding.budget)
        if trained.categories is not None and (first := target.first_variable) is not None:
            known = observed[first : first + len(target.values)]
            inputs = with_known_labels(inputs, target, known, len(trained.categories))
        values[feature.name] = trained.scores(inputs, n_categories)
    return with_learned_values(grounding, values)
