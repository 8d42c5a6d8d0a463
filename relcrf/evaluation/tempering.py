"""Predictions with a temperature: probabilities whose logarithms are divided by a number, and normalised again.

Source: Guo et al., On calibration of modern neural networks (2017).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy

from relcrf.columns.offsets import offsets
from relcrf.evaluation.measures import MIN_PROBABILITY
from relcrf.evaluation.predictions import FoldPrediction

MIN_TEMPERATURE, MAX_TEMPERATURE = 0.8, 4.5
"""Limits of a temperature. Overconfident predictions of a good model need a large temperature. A small temperature would
hide that a penalty is too large, and self-training needs some predictions with a high probability."""


PSEUDO_LABELS = 2.0
"""Number of labels with uniformly random states that are added to the held-out labels. If 100 held-out labels are all
predicted correctly, the most confident candidate would otherwise be the best one. On five splits of digits with 100 labels,
the mean log-likelihood of the test labels is -0.18 with 2, -0.22 with 1, and -0.41 with 0."""


@dataclass(frozen=True, eq=False)
class TemperedLabels:
    """The log-probabilities of labels at the temperature that maximises their sum.

    Args:
        log_probabilities: Shape (n,), in nats; each includes the share of the labels of `PSEUDO_LABELS`.
        untempered_mean: Mean log-probability of the labels at temperature 1.
    """

    log_probabilities: np.ndarray
    temperature: float
    untempered_mean: float

    @property
    def mean(self) -> float:
        return float(self.log_probabilities.mean())


def apply_temperature(prediction: FoldPrediction, temperature: float) -> FoldPrediction:
    """Return the predictions of a fold with a temperature."""
    logs = np.log(np.maximum(prediction.probabilities, MIN_PROBABILITY))
    probabilities = np.exp(_scaled_logs(logs, prediction.state_start, temperature))
    return replace(prediction, probabilities=probabilities)


def _scaled_logs(logs: np.ndarray, state_start: np.ndarray, temperature: float) -> np.ndarray:
    """Return log-probabilities divided by a temperature, and normalised again."""
    scaled, sizes = logs / temperature, np.diff(state_start)
    largest = np.maximum.reduceat(scaled, state_start[:-1])
    normaliser = largest + np.log(np.add.reduceat(np.exp(scaled - np.repeat(largest, sizes)), state_start[:-1]))
    return np.asarray(scaled - np.repeat(normaliser, sizes))


def temper(predictions: Sequence[FoldPrediction]) -> TemperedLabels:
    """Return the log-probabilities of the labels of several folds at the best common temperature.

    Source: Laplace's rule of succession, for `PSEUDO_LABELS`.
    """
    sizes = np.concatenate([np.diff(one.state_start) for one in predictions])
    start = offsets(sizes)
    logs = np.log(np.maximum(np.concatenate([one.probabilities for one in predictions]), MIN_PROBABILITY))
    noise = PSEUDO_LABELS / (len(sizes) + PSEUDO_LABELS)
    labels = start[:-1] + np.concatenate([one.truth for one in predictions])

    def log_probabilities(log_temperature: float) -> np.ndarray:
        scaled = _scaled_logs(logs, start, float(np.exp(log_temperature)))
        mean = np.add.reduceat(scaled, start[:-1]) / sizes
        return np.asarray((1.0 - noise) * scaled[labels] + noise * mean)

    found = scipy.optimize.minimize_scalar(
        lambda value: -float(log_probabilities(value).mean()),
        bounds=(np.log(MIN_TEMPERATURE), np.log(MAX_TEMPERATURE)),
        method="bounded",
    )
    return TemperedLabels(log_probabilities(found.x), float(np.exp(found.x)), float(log_probabilities(0.0).mean()))
