"""Application of learned features to a ground graph: training on its labels, or scoring by trained features."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relcrf.grounding.grounding import Grounding
from relcrf.grounding.learned_values import read_inputs, read_target, with_learned_values
from relcrf.model.learned import learned_features
from relcrf.unaries.estimators import require_scikit_learn
from relcrf.unaries.fitting import FittedFeature, cross_fit


def learn_features(
    grounding: Grounding, training: np.ndarray, seed: int = 0
) -> tuple[Grounding, tuple[FittedFeature, ...]]:
    """Train the learned features of a model; return the ground graph with their values, and the trained features.

    Args:
        training: mask of the variables with training labels, shape (n_variables,), bool.

    Raises:
        UsageError: if an estimator is unknown or not installed.
        DataError: if a feature has too few labels, or an estimator cannot be fitted.
    """
    declared = learned_features(grounding.spec)
    if not declared:
        return grounding, ()
    require_scikit_learn()
    values, fitted = {}, []
    for feature in declared:
        inputs, target = read_inputs(grounding.bound, feature), read_target(grounding, feature)
        n = len(target.values)
        labelled, component = ~np.isnan(target.values), np.arange(n)
        if target.first_variable is not None:
            variables = slice(target.first_variable, target.first_variable + n)
            labelled, component = labelled & training[variables], grounding.component[variables]
        trained, values[feature.name] = cross_fit(feature, inputs, target, labelled, component, seed)
        fitted.append(trained)
    return with_learned_values(grounding, values), tuple(fitted)


def apply_features(grounding: Grounding, fitted: Sequence[FittedFeature]) -> Grounding:
    """Return the ground graph with the values that trained features compute for its entities."""
    if not fitted:
        return grounding
    require_scikit_learn()
    by_name = {each.name: each for each in fitted}
    values = {}
    for feature in learned_features(grounding.spec):
        target = read_target(grounding, feature)
        n_categories = 0 if target.categories is None else len(target.categories)
        values[feature.name] = by_name[feature.name].scores(read_inputs(grounding.bound, feature), n_categories)
    return with_learned_values(grounding, values)
