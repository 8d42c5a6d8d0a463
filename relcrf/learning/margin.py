"""Maximum margin: the structured hinge loss, smoothed.

Source: Taskar, Guestrin & Koller, Max-margin Markov networks (2003), for the hinge with Hamming cost; its smoothing by
entropy is that of Nesterov (2005), and with sharpness 1 the softmax-margin of Gimpel & Smith (2010).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from relcrf.graph.reduction import ReducedGraph
from relcrf.learning.likelihood import AbstractJointLikelihood, AbstractLikelihood


@dataclass(frozen=True, eq=False)
class MarginLoss(AbstractLikelihood):
    """`1/b log sum_x' exp(b (score(x') + cost(x', x))) - score(x)`, b the sharpness, cost(x', x) how many nodes differ.

    Convex and smooth, so that L-BFGS serves; it is never below the hinge `max_x' (score(x') + cost(x', x)) - score(x)`, and
    above it by the entropy of the sum over b at most: by log(k) / b a node of k states. Exact where the
    likelihood is.

    Args:
        joint: the likelihood of the same states, all observed, whose method sums over x'.
    """

    joint: AbstractJointLikelihood
    sharpness: float

    @property
    def graph(self) -> ReducedGraph:  # type: ignore[override]
        return self.joint.graph

    @property
    def states(self) -> np.ndarray:  # type: ignore[override]
        return self.joint.states

    @cached_property
    def _cost(self) -> np.ndarray:
        """Flat node tables: 0 at the observed state, the sharpness at all others."""
        out = np.full(int(self.graph.state_start[-1]), self.sharpness)
        out[self.graph.state_start[:-1] + self.states] = 0.0
        return out

    def __call__(self, weights: np.ndarray) -> tuple[float, np.ndarray]:
        total, expected = self.joint.expectation(self.sharpness * weights, self._cost)
        observed = self.joint.observed_counts
        return total / self.sharpness - float((observed * weights).sum()), expected - observed
