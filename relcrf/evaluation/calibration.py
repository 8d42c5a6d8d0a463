"""Temperature calibration: the weights of a trained model are multiplied by a scale that is chosen on held-out labels.

Source: Platt (1999); Guo et al., On calibration of modern neural networks (2017), for scaling by a single parameter
(temperature scaling). Here the weights of the joint distribution are scaled. The most probable joint state does not
change, unless some weights are fixed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from relcrf.backends.base import AbstractBackend, FitResult, Monitor, Problem
from relcrf.errors import Diagnostic, UsageError
from relcrf.evaluation.predictions import FoldPrediction
from relcrf.evaluation.splits import random_folds

SCALES = np.geomspace(0.25, 2.0, 13)
"""Candidate scales, including 1, in steps of 19 %; smaller steps would have no practical effect."""


def calibrate_temperature(
    problem: Problem, system: AbstractBackend, learned: FitResult, *, folds: int = 5, seed: int = 0
) -> FitResult:
    """Multiply the learned weights by the scale that maximises the likelihood of held-out labels.

    Each fold is held out in turn: the backend is trained on the other folds, and each candidate scale is scored by the
    marginal probabilities of the held-out labels. Of equally good scales, the one closest to 1 is selected. This takes
    `folds` additional training runs. Fixed weights are not changed.

    Raises:
        UsageError: Fewer than 2 folds (E317).
        DataError: Fewer labels than folds (E226).
    """
    if folds < 2:
        raise UsageError(
            Diagnostic("E317", f"calibration needs at least 2 folds, not {folds}", hint="use 2 folds or more")
        )
    log_likelihood = np.zeros(len(SCALES))
    for fold in random_folds(problem, folds, seed):
        fit = system.fit(fold.learning_problem(problem), Monitor())
        query = fold.query_problem(problem).with_candidates(fit.chosen_candidates)
        for k, scale in enumerate(SCALES):
            inferred = fit.configure(system).infer(query, _scale_weights(query, fit.vectors, scale))
            log_likelihood[k] += (
                fold.n_test * FoldPrediction.from_inferred(fold, inferred, problem.states).score().log_likelihood
            )
    likelihoods = np.nan_to_num(log_likelihood, nan=-np.inf)
    best = SCALES[likelihoods == likelihoods.max()]
    scale = float(best[np.abs(np.log(best)).argmin()])
    return replace(
        learned,
        vectors=_scale_weights(problem.with_candidates(learned.chosen_candidates), learned.vectors, scale),
        summary={**learned.summary, "calibration": scale},
        moments=None,  # the moments belong to the unscaled weights
    )


def _scale_weights(problem: Problem, vectors: dict[str, np.ndarray], scale: float) -> dict[str, np.ndarray]:
    weights = vectors["weights"]
    return {**vectors, "weights": np.where(problem.graph.layout.learnable_mask(), scale * weights, weights)}
