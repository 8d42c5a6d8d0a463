"""Construction of the problems of training and of prediction from ground graphs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from relcrf.backends.base import Problem
from relcrf.backends.domains import variable_domains
from relcrf.backends.joint_features import learn_marginals
from relcrf.backends.learned_model import LearnedModel
from relcrf.errors import DataError, Diagnostic, listing
from relcrf.graph.factor_graph import FactorGraph
from relcrf.graph.feature_scales import limit_extremes
from relcrf.graph.numeric_graph import NumericTargets, discrete_part
from relcrf.graph.reduction import Role
from relcrf.grounding.grounding import Grounding
from relcrf.unaries.application import Marginals, apply_features, learn_features
from relcrf.unaries.fitting import FittedFeature


def training_problem(
    grounding: Grounding,
    hidden: np.ndarray | None = None,
    evidence: np.ndarray | None = None,
    *,
    validation: np.ndarray | None = None,
    with_candidates: bool = False,
    learn: bool = True,
    without_labels: bool = False,
) -> Problem:
    """Return a problem in which labelled and latent variables are free, evidence is clamped, and others are absent.

    Extreme features are limited (see `graph/feature_scales.py`).

    Args:
        hidden: Mask of the variables whose labels are ignored, shape (n_variables,), bool.
        evidence: Mask of the variables whose labels are evidence instead of targets, shape (n_variables,), bool.
        validation: Mask of the variables whose labels are reserved for the choice of settings, shape (n_variables,),
            bool; these labels are neither targets nor evidence.
        with_candidates: Whether to include the candidate spaces of the model.
        learn: Whether to train the learned features on the labels; otherwise the graph is used as it is.
        without_labels: Whether the backend learns without labels; the problem then contains random pairs.

    Raises:
        DataError: If no variable is labelled (E225), unless `without_labels` is set, or `validation` contains no labels (E226).
        DataError, UsageError: See `train_features`.
    """
    if validation is not None:
        validation = validation & (grounding.states >= 0)
        require_validation_labels(validation)
    labelled = training_labels(grounding, hidden, validation)
    if not without_labels and not labelled.any():
        names = listing(block.name for block in grounding.blocks)
        hint = "label some entities"
        if not all(block.is_numeric for block in grounding.blocks):
            hint += "; --backend fellegi-sunter learns matches of records without labels"
        # A note of the binding may name a missing column.
        notes = tuple(grounding.bound.notes)
        raise DataError(Diagnostic("E225", f"no value of {names} is labelled", hint=hint, notes=notes))
    roles = np.where(labelled | grounding.latent, Role.FREE, Role.ABSENT).astype(np.int8)
    if evidence is not None:
        roles[labelled & evidence] = Role.CLAMPED
    candidates = tuple(space.pairs for space in grounding.candidates) if with_candidates else ()
    if learn and labelled.any():
        grounding, _ = train_features(grounding, labelled)
    return Problem(
        training_graph(grounding),
        roles,
        grounding.states,
        candidates=candidates,
        lazy_gates=grounding.lazy_gates,
        validation=validation,
        memory_limit=grounding.bound.dataset.store.working_bytes,
        random_pairs=grounding.random_pairs if without_labels else (),
        numbers=numeric_targets(grounding),
    )


def train_features(grounding: Grounding, training: np.ndarray) -> tuple[Grounding, tuple[FittedFeature, ...]]:
    """Train the learned features of a model on the labels in a mask, shape (n_variables,); see `learn_features`."""

    def teach(with_values: Grounding, labels: np.ndarray) -> Marginals:
        return learn_marginals(with_values, training_problem(with_values, ~labels, learn=False))

    return learn_features(grounding, training, teach)


def training_graph(grounding: Grounding) -> FactorGraph:
    """Return the graph of a training problem: extreme features are limited, and the domains of variables are known."""
    discrete = discrete_part(grounding.graph)
    return replace(limit_extremes(discrete), known_domains=variable_domains(grounding.blocks))


def numeric_targets(grounding: Grounding) -> NumericTargets | None:
    """Return the predicted numbers of a ground graph; None if it has none."""
    names = tuple(block.name for block in grounding.blocks if block.is_numeric)
    return NumericTargets(grounding.graph, grounding.numbers, names) if names else None


def training_labels(
    grounding: Grounding, hidden: np.ndarray | None = None, validation: np.ndarray | None = None
) -> np.ndarray:
    """Return the mask of the labels that are neither hidden nor reserved for validation, shape (n_variables,), bool."""
    labelled = grounding.states >= 0
    for mask in (hidden, validation):
        if mask is not None:
            labelled = labelled & ~mask
    return labelled


def require_validation_labels(validation: np.ndarray) -> None:
    """Raise an error if a mask of validation labels, shape (n_variables,), is empty.

    Raises:
        DataError: If no label is in the validation part (E226).
    """
    if not validation.any():
        message = "the validation part contains no labels"
        raise DataError(Diagnostic("E226", message, hint="name a fold with labels as the validation part"))


def query_problem(
    learned: LearnedModel, grounding: Grounding, hidden: np.ndarray | None = None, queries: np.ndarray | None = None
) -> tuple[Grounding, dict[str, np.ndarray], Problem]:
    """Return the grounding with chosen candidates, the weight vectors for the grounding, and the inference problem.

    Args:
        hidden: Mask of the variables whose labels are ignored, shape (n_variables,), bool.
        queries: Mask of the query variables; see `relcrf.api.predict`.

    Raises:
        DataError: If a weight is NaN, so that predictions are undefined.
    """
    for name, vector in learned.vectors.items():
        if n_nan := int(np.isnan(vector).sum()):
            message = f"{n_nan:,} of {len(vector):,} values of '{name}' are NaN: the optimiser diverged, or the file is damaged"
            hint = (
                "train again with a larger l2 or with smaller feature values; 'relcrf report' shows the optimiser's log"
            )
            raise DataError(Diagnostic("E422", message, hint=hint))
    observed = grounding.states >= 0
    if hidden is not None:
        observed = observed & ~hidden
    grounding = learned.extend_grounding(apply_features(grounding, learned.learned_features, observed))
    roles = np.where(observed, Role.CLAMPED, Role.FREE).astype(np.int8)
    query_mask = ~grounding.latent if queries is None else queries
    graph = replace(discrete_part(grounding.graph), known_domains=variable_domains(grounding.blocks))
    problem = Problem(
        graph,
        roles,
        grounding.states,
        lazy_gates=grounding.lazy_gates,
        queries=query_mask,
        numbers=numeric_targets(grounding),
    )
    return grounding, learned.vectors_for(grounding), problem
