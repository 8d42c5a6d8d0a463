"""Temperature calibration: the weights of a trained model are multiplied by a scale that is chosen on held-out labels.

Source: Platt (1999); Guo et al., On calibration of modern neural networks (2017), for scaling by a single parameter
(temperature scaling). Here the weights of the joint distribution are scaled. The most probable joint state does not
change, unless some weights are fixed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from relcrf.backends.automatic_sharding import infer_with_sharding
from relcrf.backends.base import AbstractBackend, FitResult, Monitor, Problem
from relcrf.backends.calibration_labels import CalibrationLabels
from relcrf.backends.numeric_targets import fit_with_numbers
from relcrf.errors import Diagnostic, UsageError
from relcrf.evaluation.prediction_sets import collect_calibration_labels
from relcrf.evaluation.predictions import FoldPrediction
from relcrf.evaluation.splits import Fold, random_folds, validation_fold

SCALES = np.geomspace(0.25, 2.0, 13)
"""Candidate scales, including 1, in steps of 19 %; smaller steps would have no practical effect."""


def calibrate_temperature(
    problem: Problem, system: AbstractBackend, learned: FitResult, *, folds: int = 5, seed: int = 0
) -> FitResult:
    """Multiply the learned weights by the scale that maximises the likelihood of held-out labels.

    Each candidate scale is scored by the marginal probabilities of the held-out labels; of equally good scales, the one
    closest to 1 is selected. If the problem has validation labels, these are the held-out labels. Otherwise, each fold of
    the training labels is held out in turn, and the backend is trained on the other folds; this takes `folds` additional
    training runs. Fixed weights are not changed.

    Raises:
        UsageError: Fewer than 2 folds (E317).
        DataError: Fewer labels than folds (E226).
    """
    if folds < 2:
        raise UsageError(
            Diagnostic("E317", f"calibration needs at least 2 folds, not {folds}", hint="use 2 folds or more")
        )
    log_likelihood = np.zeros(len(SCALES))
    held_out: list[Fold] = []
    predicted: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in SCALES]
    for fold, fit, query in _iter_held_out_fits(problem, system, learned, folds, seed):
        held_out.append(fold)
        for k, scale in enumerate(SCALES):
            inferred = fit.configure(system).infer(query, scale_weights(query, fit.vectors, scale))
            prediction = FoldPrediction.from_inferred(fold, inferred, problem.states)
            log_likelihood[k] += fold.n_test * prediction.score().log_likelihood
            predicted[k].append((prediction.variables, prediction.label_probabilities))
    likelihoods = np.nan_to_num(log_likelihood, nan=-np.inf)
    best = np.flatnonzero(likelihoods == likelihoods.max())
    chosen = best[np.abs(np.log(SCALES[best])).argmin()]
    scale = float(SCALES[chosen])
    return replace(
        learned,
        vectors=scale_weights(problem.with_candidates(learned.chosen_candidates), learned.vectors, scale),
        summary={**learned.summary, "calibration": scale},
        moments=None,  # the moments belong to the unscaled weights
        calibration_labels=collect_calibration_labels(problem, held_out, predicted[chosen]),
    )


def calibrate_numbers(
    problem: Problem, system: AbstractBackend, chosen: AbstractBackend, folds: int, seed: int = 0
) -> CalibrationLabels:
    """Return held-out numbers with their tail probabilities, on which intervals are calibrated.

    The numbers of each fold are predicted by a model that is trained on the other folds; validation labels, if there are any,
    by a model that is trained on the other labels.

    Args:
        system: The backend of training, which determines how the numbers are learned.
        chosen: The backend of the discrete variables, which differs from `system` if this is `auto`.

    Raises:
        UsageError, DataError: See `calibrate_temperature`.
    """
    held_out: list[Fold] = []
    predicted: list[tuple[np.ndarray, np.ndarray]] = []
    labelled, only = validation_fold(problem) if problem.validation is not None else (problem, None)
    for fold in (only,) if only is not None else random_folds(problem, folds, seed):
        learning = fold.learning_problem(labelled)
        learned = fit_with_numbers(learning, system, lambda discrete: chosen.fit(discrete, Monitor()), Monitor())
        inferred = infer_with_sharding(None, fold.query_problem(labelled), learned.configure(chosen), learned.vectors)
        numbers = FoldPrediction.from_inferred(fold, inferred, problem.states, targets=labelled.numbers).numbers
        assert numbers is not None
        held_out.append(fold)
        scored = numbers.select(slice(None))
        predicted.append((numbers.marginals.variables, scored.tail_probabilities()))
    return collect_calibration_labels(problem, held_out, predicted)


def _iter_held_out_fits(
    problem: Problem, system: AbstractBackend, learned: FitResult, folds: int, seed: int
) -> Iterator[tuple[Fold, FitResult, Problem]]:
    """Yield each fold of held-out labels, a model that was trained without these labels, and the inference problem."""
    if problem.validation is not None:
        labelled, fold = validation_fold(problem)
        yield fold, learned, fold.query_problem(labelled).with_candidates(learned.chosen_candidates)
        return
    for fold in random_folds(problem, folds, seed):
        fit = system.fit(fold.learning_problem(problem), Monitor())
        yield fold, fit, fold.query_problem(problem).with_candidates(fit.chosen_candidates)


def scale_weights(problem: Problem, vectors: dict[str, np.ndarray], scale: float) -> dict[str, np.ndarray]:
    """Return the vectors with the learnable weights multiplied by a scale."""
    weights = vectors["weights"]
    return {**vectors, "weights": np.where(problem.graph.layout.learnable_mask(), scale * weights, weights)}
