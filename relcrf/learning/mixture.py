"""Likelihood of a mixture: the average of several distributions over the same nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relcrf.graph.reduction import ReducedGraph
from relcrf.learning.likelihood import AbstractJointLikelihood, AbstractLikelihood


@dataclass(frozen=True, eq=False)
class MixtureLikelihood(AbstractLikelihood):
    """The loss `-log 1/n sum_t P_t(x | e, w)`, where the n distributions P_t have the same weights.

    Args:
        components: The likelihoods of the distributions, at least one.
    """

    components: tuple[AbstractJointLikelihood, ...]

    @property
    def graph(self) -> ReducedGraph:  # type: ignore[override]
        return self.components[0].graph

    @property
    def states(self) -> np.ndarray:  # type: ignore[override]
        return self.components[0].states

    def __call__(self, weights: np.ndarray) -> tuple[float, np.ndarray]:
        results = [component(weights) for component in self.components]
        logs = -np.array([value for value, _ in results])
        total = np.logaddexp.reduce(logs)
        posterior = np.exp(logs - total)
        return float(np.log(len(logs)) - total), np.asarray(posterior @ np.stack([gradient for _, gradient in results]))
