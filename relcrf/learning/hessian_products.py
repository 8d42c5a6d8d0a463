"""Products of a Hessian with vectors, by differences of the gradient; the Hessian is not stored."""

from __future__ import annotations

import numpy as np

from relcrf.learning.lbfgs import Objective

DIFFERENCE_STEP = float(np.cbrt(np.finfo(float).eps))
"""Relative step of differences; for central differences, truncation and rounding errors are then about equal."""


def hessian_vector_product(
    objective: Objective, point: np.ndarray, v: np.ndarray, gradient: np.ndarray | None = None
) -> np.ndarray:
    """Return the Hessian at a point times a nonzero vector v, by differences of the gradient; shape (n,).

    The gradient is evaluated at points that are displaced along v by at most `DIFFERENCE_STEP * max(1, |point|)` in any
    component. For a smooth function, the relative error of central differences is about 1e-9, and that of forward
    differences about 1e-5.

    Args:
        gradient: The gradient at the point, for forward differences, which evaluate the objective once; None selects
            central differences, which evaluate it twice.
    """
    distance = DIFFERENCE_STEP * max(1.0, float(np.abs(point).max())) / float(np.abs(v).max())
    ahead = objective(point + distance * v)[1]
    if gradient is not None:
        return np.asarray((ahead - gradient) / distance)
    return np.asarray((ahead - objective(point - distance * v)[1]) / (2.0 * distance))
