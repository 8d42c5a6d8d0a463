"""Nonlinear conjugate gradients, with the same states, line search and preconditioner as L-BFGS.

Sources: Hager & Zhang, A new conjugate gradient method with guaranteed descent (2005), with a preconditioner; lower bound
of the factor: Hager & Zhang, The limited memory conjugate gradient method (2013).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relcrf.learning.lbfgs import AbstractWolfeSearch, OptimiserState, Trial

MIN_FACTOR = 0.4
"""Lower bound of the factor of the previous direction, relative to the slope at its start; the value of the source."""

MAX_EXTRAPOLATION = 10.0
"""Maximum ratio of a step length to the previous trial of the same line search."""

MIN_BRACKET_FRACTION = 0.05
"""Minimum distance of a step length from the ends of its bracket, as a fraction of the bracket."""


@dataclass(frozen=True)
class ConjugateGradient(AbstractWolfeSearch):
    """A conjugate gradient method whose directions are descent directions for any step lengths.

    The state stores the previous step, which is proportional to the previous direction, and its gradient change.
    """

    memory: int = 1
    wolfe_curvature: ClassVar[float] = 0.3
    """This value is smaller than `WOLFE_CURVATURE`, because directions are conjugate only after accurate searches. With
    0.1, five test problems took 1.3 times as many evaluations."""

    def direction(self, state: OptimiserState, steepest: np.ndarray) -> np.ndarray:
        """Return the next direction, scaled such that length 1 predicts the same first-order decrease as the last step.

        Source of the scale: Nocedal & Wright, Numerical Optimization (2006), section 3.5.
        """
        inverse = np.ones_like(steepest) if self.inverse_diagonal is None else self.inverse_diagonal
        scaled: np.ndarray = inverse * steepest
        if not len(state.steps):
            return -scaled
        step, change = state.steps[-1], state.changes[-1]
        curvature = float(step @ change)
        last_slope = float(step @ steepest) - curvature
        factor = float(scaled @ change) - 2.0 * float(change @ (inverse * change)) * float(step @ steepest) / curvature
        factor = max(factor / curvature, MIN_FACTOR * last_slope / float(step @ (step / inverse)))
        direction: np.ndarray = factor * step - scaled
        direction *= last_slope / float(direction @ steepest)
        return direction

    def longer(self, start: Trial, trial: Trial) -> float:
        """Return the length at which the slope is 0 by linear extrapolation, at most `MAX_EXTRAPOLATION` times longer."""
        if trial.slope <= start.slope:
            return MAX_EXTRAPOLATION * trial.length
        root = _zero_slope(start, trial)
        return float(np.clip(root, 1.5 * trial.length, MAX_EXTRAPOLATION * trial.length))

    def interpolate(self, low: Trial, high: Trial, last: Trial) -> float:
        """Return the length at which the slope is 0 by linear interpolation, if the slopes have different signs."""
        if low.slope * high.slope >= 0.0:
            return super().interpolate(low, high, last)
        margin = MIN_BRACKET_FRACTION * abs(high.length - low.length)
        near, far = sorted((low.length, high.length))
        return float(np.clip(_zero_slope(low, high), near + margin, far - margin))


def _zero_slope(first: Trial, second: Trial) -> float:
    """Return the length at which the line through the slopes of two trials is 0."""
    return first.length - first.slope * (second.length - first.length) / (second.slope - first.slope)
