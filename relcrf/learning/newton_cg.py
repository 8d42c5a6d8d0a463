"""A truncated Newton method (Newton-CG): conjugate gradients solve the Newton equations approximately.

The Hessian is never stored. Its products with vectors are computed by differences of the gradient. Conjugate gradients
are preconditioned by the L-BFGS estimate of the inverse Hessian, from the same memory as in L-BFGS.

Sources: Nocedal & Wright, Numerical Optimization (2006), algorithm 7.1; preconditioner: Morales & Nocedal, Automatic
preconditioning by limited memory quasi-Newton updating (2000). There is one deviation from the latter: the memory
contains the steps of the Newton iterations instead of those of the conjugate gradients.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relcrf.learning.hessian_products import hessian_vector_product
from relcrf.learning.lbfgs import (
    AbstractWolfeSearch,
    LineSearchResult,
    Objective,
    OptimiserState,
    apply_inverse_hessian,
)

MAX_PRODUCTS = 50
"""Maximum number of Hessian-vector products of one Newton step; its direction is then used as it is."""

MAX_RESIDUAL = 0.5
"""Maximum norm of the residual of the Newton equations relative to the gradient, far from the minimum."""

MIN_CURVATURE = 1e-12
"""Minimum curvature along a direction of the conjugate gradients; a product of differences may be negative by rounding."""


@dataclass(frozen=True)
class NewtonCg(AbstractWolfeSearch):
    """Newton-CG with a line search.

    An iteration needs one gradient for each product and at least one for the line search; `evaluations` counts both.
    Directions of non-positive curvature, which occur if the function is not convex, end the conjugate gradients; if the
    first direction is one of them, the iteration is an L-BFGS iteration.
    """

    def direction(self, state: OptimiserState, steepest: np.ndarray) -> np.ndarray:
        """Return the L-BFGS direction: minus the preconditioner times the vector `steepest`."""
        return -apply_inverse_hessian(steepest, state.steps, state.changes, self.inverse_diagonal)

    def search(self, objective: Objective, state: OptimiserState) -> LineSearchResult | None:
        newton, n_products = self._newton_direction(objective, state)
        if float(newton @ state.gradient) < 0.0:
            result = self.search_along(objective, state, state.gradient, newton, 1.0)
        else:
            result = super().search(objective, state)
        return None if result is None else (*result[:3], result[3] + n_products)

    def _newton_direction(self, objective: Objective, state: OptimiserState) -> tuple[np.ndarray, int]:
        """Return an approximate solution of the Newton equations, and the number of Hessian-vector products.

        The solution is 0 if the first product finds no positive curvature. The tolerance of the residual decreases with
        the gradient, so that convergence is superlinear.
        """
        solution, residual, products = np.zeros_like(state.gradient), state.gradient, 0
        direction = self.direction(state, residual)
        norm = -float(residual @ direction)
        tolerance = min(MAX_RESIDUAL, np.sqrt(state.gradient_norm / state.initial_gradient_norm))
        max_norm = tolerance**2 * norm
        while norm > max_norm and products < MAX_PRODUCTS:
            product = hessian_vector_product(objective, state.point, direction, state.gradient)
            products += 1
            curvature = float(direction @ product)
            if not curvature > MIN_CURVATURE * float(direction @ direction):
                break
            solution = solution + norm / curvature * direction
            residual = residual + norm / curvature * product
            scaled = self.direction(state, residual)
            old_norm, norm = norm, -float(residual @ scaled)
            direction = scaled + norm / old_norm * direction
        return solution, products
