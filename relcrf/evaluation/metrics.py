"""Metrics of predicted attributes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LEAST_PROBABILITY = 1e-300
"""What a probability of 0 counts as, so that one impossible truth does not hide all else."""


@dataclass(frozen=True)
class Score:
    """Of one predicted attribute.

    Args:
        accuracy: share of variables whose most probable state is the truth.
        log_likelihood: mean of the log marginal of the truth, in nats.
        n: how many variables.
    """

    accuracy: float
    log_likelihood: float
    n: int


def score(probabilities: np.ndarray, truth: np.ndarray) -> Score:
    """Scores marginals of shape (n, n_states) against true states of shape (n,)."""
    n = len(truth)
    if n == 0:
        return Score(float("nan"), float("nan"), 0)
    chosen = probabilities.argmax(axis=1)
    of_truth = np.maximum(probabilities[np.arange(n), truth], LEAST_PROBABILITY)
    return Score(float((chosen == truth).mean()), float(np.log(of_truth).mean()), n)


def average(scores: list[Score]) -> Score:
    """One score over all variables of several folds."""
    n = sum(s.n for s in scores)
    if n == 0:
        return Score(float("nan"), float("nan"), 0)
    counted = [s for s in scores if s.n]
    accuracy = sum(s.accuracy * s.n for s in counted) / n
    return Score(accuracy, sum(s.log_likelihood * s.n for s in counted) / n, n)
