"""Temperature calibration: one number by which the weights of a trained model are multiplied, from held-out labels.

Source: Platt (1999) and, for one number, Guo et al., On calibration of modern neural networks (2017): temperature scaling,
here of the joint distribution. A most probable joint state stays the most probable one.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from relcrf.backends.base import AbstractBackend, FitResult, Monitor, Problem
from relcrf.errors import Diagnostic, UsageError
from relcrf.evaluation.predictions import FoldPrediction
from relcrf.evaluation.splits import random_folds

SCALES = np.geomspace(0.25, 2.0, 13)
"""Scales that are tried; 1 is not among them but near one, since nothing depends on a few per cent."""


def calibrate_temperature(
    problem: Problem, system: AbstractBackend, learned: FitResult, *, folds: int = 5, seed: int = 0
) -> FitResult:
    """Multiply the weights by the scale under which held-out labels are most probable.

    Each of `folds` parts of the labels is held out in turn, the system is trained on the others, and the part's labels are
    predicted, each alone. This costs `folds` trainings. Fixed weights are not multiplied.

    Raises:
        UsageError: Fewer than 2 folds (E317).
        DataError: Fewer labels than folds (E226).
    """
    if folds < 2:
        raise UsageError(Diagnostic("E317", f"{folds} folds hold nothing out", hint="calibrate by 2 folds or more"))
    total = np.zeros(len(SCALES))
    for fold in random_folds(problem, folds, seed):
        part = system.fit(fold.learning_problem(problem), Monitor())
        querying = fold.query_problem(problem).with_candidates(part.chosen_candidates)
        for k, scale in enumerate(SCALES):
            inferred = system.infer(querying, _scale_weights(querying, part.vectors, scale))
            total[k] += (
                fold.n_test * FoldPrediction.from_inferred(fold, inferred, problem.states).score().log_likelihood
            )
    scale = float(SCALES[np.nan_to_num(total, nan=-np.inf).argmax()])
    return replace(
        learned,
        vectors=_scale_weights(problem.with_candidates(learned.chosen_candidates), learned.vectors, scale),
        summary={**learned.summary, "calibration": scale},
        moments=None,  # they were of the weights before
    )


def _scale_weights(problem: Problem, vectors: dict[str, np.ndarray], scale: float) -> dict[str, np.ndarray]:
    weights = vectors["weights"]
    return {**vectors, "weights": np.where(problem.graph.layout.learnable_mask(), scale * weights, weights)}
