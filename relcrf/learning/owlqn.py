"""Limited-memory BFGS for a smooth function plus an L1 penalty; the penalty sets many weights to exactly 0.

Source: Andrew & Gao, Scalable training of L1-regularized log-linear models (ICML 2007): pseudo-gradient, orthant,
projected line search. There are two deviations. The estimate of the inverse Hessian is restricted to the weights that
can change. The signs of the direction are not restricted to those of steepest descent, because the projection suffices
to preserve the orthant. With the paper's restriction of signs, the method took 1,415 iterations instead of 139 on
correlated features (5,000 rows, 2,000 weights). Features of very different scales need the `inverse_diagonal`: a run
took 83 iterations with it, 629 iterations without it, and 118 iterations with the paper's method.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from relcrf.learning.lbfgs import (
    MAX_EVALUATIONS,
    ROUNDING_TOLERANCE,
    SUFFICIENT_DECREASE,
    WOLFE_CURVATURE,
    AbstractLineSearch,
    LineSearchResult,
    Objective,
    OptimiserState,
    apply_inverse_hessian,
    has_positive_curvature,
)


@dataclass(frozen=True)
class Owlqn(AbstractLineSearch):
    """A minimiser of `f(w) + sum l1 |w|`.

    Args:
        l1: Non-negative strengths, shape (n,); 0 for a weight that is not penalised or not learned.
    """

    l1: np.ndarray = field(kw_only=True)

    def penalty(self, point: np.ndarray) -> float:
        return float(self.l1 @ np.abs(point))

    def steepest(self, point: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        return pseudo_gradient(point, gradient, self.l1)

    def direction(self, state: OptimiserState, steepest: np.ndarray) -> np.ndarray:
        free = (state.point != 0.0) | (steepest != 0.0)
        pairs = [(step[free], change[free]) for step, change in zip(state.steps, state.changes, strict=True)]
        curved = [pair for pair in pairs if has_positive_curvature(*pair)]
        diagonal = None if self.inverse_diagonal is None else self.inverse_diagonal[free]
        direction = np.zeros_like(steepest)
        direction[free] = -apply_inverse_hessian(
            steepest[free], [s for s, _ in curved], [c for _, c in curved], diagonal
        )
        return direction

    def search_along(
        self, objective: Objective, state: OptimiserState, steepest: np.ndarray, direction: np.ndarray, length: float
    ) -> LineSearchResult | None:
        """Backtrack and project onto the orthant of the current point, and onto that of steepest descent at 0."""
        orthant = np.where(state.point == 0.0, -np.sign(steepest), np.sign(state.point))
        for evaluation in range(1, MAX_EVALUATIONS + 1):
            point = state.point + length * direction
            point = np.where((self.l1 > 0.0) & (point * orthant <= 0.0), 0.0, point)
            value, gradient = objective(point)
            step = point - state.point
            slope = float(steepest @ step)
            # A projected step may be an ascent step; the projection changes shorter steps less.
            if slope < 0.0 and np.isfinite(value):
                if value <= state.value + SUFFICIENT_DECREASE * slope:
                    return point, value, gradient, evaluation
                # Rounding may hide the decrease of the value; test the slopes (the function is smooth in an orthant).
                new_slope = float((gradient + self.l1 * orthant) @ step)
                if (
                    abs(value - state.value) <= ROUNDING_TOLERANCE * abs(state.value)
                    and abs(new_slope) <= -WOLFE_CURVATURE * slope
                ):
                    return point, value, gradient, evaluation
                length *= float(np.clip(-0.5 * slope / (value - state.value - slope), 0.1, 0.5))
            else:
                length *= 0.5
        return None


def pseudo_gradient(point: np.ndarray, gradient: np.ndarray, l1: np.ndarray) -> np.ndarray:
    """Return the subgradient of `f(w) + sum l1 |w|` nearest to 0, shape (n,); `gradient` is the gradient of f."""
    at_zero: np.ndarray = np.sign(gradient) * np.maximum(np.abs(gradient) - l1, 0.0)
    return np.where(point == 0.0, at_zero, gradient + l1 * np.sign(point))
