"""How sure a trained model may be: one number by which its weights are multiplied, from labels that are held out.

Source: Platt (1999) and, for one number, Guo et al., On calibration of modern neural networks (2017): temperature scaling,
here of the joint distribution. A most probable joint state stays the most probable one.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from relcrf.backends.base import AbstractBackend, Learned, Monitor, Problem
from relcrf.errors import Diagnostic, UsageError
from relcrf.evaluation.held_out import HeldOut

SCALES = np.geomspace(0.25, 2.0, 13)
"""What is tried; 1 is not among them but near one, since nothing depends on a few per cent."""


def calibrated(
    problem: Problem, system: AbstractBackend, learned: Learned, *, folds: int = 5, seed: int = 0
) -> Learned:
    """The same with its weights multiplied by the scale under which held-out labels are most probable.

    Each of `folds` parts of the labels is held out in turn, the system is trained on the others, and the part's labels are
    asked for, each alone. So it costs `folds` trainings. Weights that learning leaves alone are not multiplied.

    Raises:
        UsageError: for fewer than 2 folds.
        DataError: for fewer labels than folds.
    """
    if folds < 2:
        raise UsageError(Diagnostic("E317", f"{folds} folds hold nothing out", hint="calibrate by 2 folds or more"))
    total = np.zeros(len(SCALES))
    for held in HeldOut.folds(problem, folds, seed):
        part = system.fit(held.learning(problem), Monitor())
        vectors, asking = part.vectors, held.asking(problem).having(part.chosen)
        free = asking.graph.layout.learned()
        for k, scale in enumerate(SCALES):
            weights = np.where(free, scale * vectors["weights"], vectors["weights"])
            likelihood, _ = held.scores(problem, system.infer(asking, {**vectors, "weights": weights}))
            total[k] += held.n * likelihood
    scale = float(SCALES[np.nan_to_num(total, nan=-np.inf).argmax()])
    free = problem.having(learned.chosen).graph.layout.learned()
    weights = np.where(free, scale * learned.vectors["weights"], learned.vectors["weights"])
    return replace(
        learned,
        vectors={**learned.vectors, "weights": weights},
        summary={**learned.summary, "calibration": scale},
        moments=None,  # they were of the weights as they had been
    )
