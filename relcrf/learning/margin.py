"""Maximum margin: the smoothed structured hinge loss.

Sources: for the hinge loss with Hamming cost, Taskar, Guestrin & Koller, Max-margin Markov networks (2003); for the
entropy smoothing, Nesterov (2005). With sharpness 1, the loss is the softmax-margin of Gimpel & Smith (2010).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from relcrf.graph.reduction import ReducedGraph
from relcrf.learning.likelihood import AbstractJointLikelihood, AbstractLikelihood


@dataclass(frozen=True, eq=False)
class MarginLoss(AbstractLikelihood):
    """The loss `1/b log sum_x' exp(b (score(x') + cost(x', x))) - score(x)` with sharpness b and Hamming cost.

    The loss is convex and smooth, so that L-BFGS is applicable. The loss is at least the hinge loss, which is
    `max_x' (score(x') + cost(x', x)) - score(x)`, and exceeds the hinge loss by at most log(k) / b for each node with k
    states. The computed loss is exact if `joint` is exact.

    Args:
        joint: The likelihood of the same states, which are all observed. This object computes the sum over x'.
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
        """Return flat node tables: 0 for the observed state, and the sharpness for the other states of a node."""
        out = np.full(int(self.graph.state_start[-1]), self.sharpness)
        out[self.graph.state_start[:-1] + self.states] = 0.0
        return out

    def __call__(self, weights: np.ndarray) -> tuple[float, np.ndarray]:
        total, expected = self.joint.expectation(self.sharpness * weights, self._cost)
        observed = self.joint.observed_counts
        return total / self.sharpness - float((observed * weights).sum()), expected - observed
