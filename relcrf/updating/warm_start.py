"""Warm starts: the stages of learning that start at the weights of an earlier run and still find the same optimum."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from relcrf.backends.base import AbstractBackend, Monitor
from relcrf.backends.chow_liu import ChowLiuBackend
from relcrf.backends.dense import DenseBackend
from relcrf.backends.ess import EssBackend
from relcrf.backends.learned_model import LearnedModel
from relcrf.backends.local import LocalBackend
from relcrf.backends.pseudo import PseudoBackend
from relcrf.backends.training_log import LogMonitor
from relcrf.errors import DataError
from relcrf.grounding.grounding import Grounding


class WarmStart(LogMonitor):
    """A monitor that starts some stages of a training run at given weights.

    Args:
        points: The weights at which a stage starts, by the name of the stage.
    """

    def __init__(self, monitor: Monitor, points: Mapping[str, np.ndarray]) -> None:
        super().__init__(monitor)
        self._points = points

    def start_point(self, stage: str) -> np.ndarray | None:
        return self._points.get(stage)


def warm_start_points(learned: LearnedModel, system: AbstractBackend, grounding: Grounding) -> dict[str, np.ndarray]:
    """Return the weights at which learning on other data can start, by the name of the stage.

    Only stages with a convex objective are included: another start cannot lead to another optimum. Other stages, and backends
    that select factors, start as in a first training run.
    """
    if grounding.latent.any() or getattr(system, "unlabelled", "ignore") != "ignore":
        return {}
    match system:
        case LocalBackend() | PseudoBackend() | ChowLiuBackend():
            vectors = {"weights": "weights"}
        case DenseBackend(objective="pseudo"):
            vectors = {"weights": "weights"}
        case DenseBackend(objective="likelihood"):
            vectors = {"pseudo": "weights"}
        case EssBackend() if "pair_unaries" not in learned.vectors:
            vectors = {"structure": "structure", "weights": "weights"}
        case _:
            return {}
    try:
        known = learned.vectors_for(grounding)
    except DataError:  # the values of a predicted attribute, or the length of a feature, changed
        return {}
    return {stage: known[name] for stage, name in vectors.items()}
