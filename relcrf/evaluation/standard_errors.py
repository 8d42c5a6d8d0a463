"""Standard errors of weights, from the observed information.

At the maximum of a penalised log-likelihood, the negative Hessian is the information in the labels plus the penalty
strengths. The inverse of the negative Hessian is the covariance of the weights (Laplace approximation). The square
roots of the diagonal of the covariance are the standard errors of the penalised (without a penalty, the maximum
likelihood) estimate. The z value of a weight is the weight divided by its standard error. If the model is misspecified,
the standard errors are too small.

A pseudo-likelihood counts the information of a variable again for each neighbour. The curvature of a pseudo-likelihood
therefore differs from the variance of the score (the gradient). The covariance of the weights is then the sandwich H^-1
(J + L) H^-1 (Godambe 1960). H is the negative Hessian, L contains the penalty strengths, and J is the covariance of the
score (`score_covariance.py`). If J + L equals H, as for a likelihood, the sandwich is H^-1.

The Hessian is computed from differences of exact gradients with respect to the weights in units of their features, as in
training. For up to `MAX_DENSE_WEIGHTS` weights, the whole Hessian is computed and inverted. For more weights, the errors of
single weights are computed by conjugate gradients without the whole Hessian.

Calibration multiplies weights by a scale. Their standard errors are those of the learned weights, multiplied by this scale.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, eigh
from scipy.sparse.linalg import LinearOperator, cg

from relcrf.backends.base import Problem
from relcrf.backends.learned_model import LearnedModel
from relcrf.backends.registry import make_backend
from relcrf.errors import Diagnostic, UsageError
from relcrf.evaluation.calibration import scale_weights
from relcrf.evaluation.score_covariance import score_variance
from relcrf.learning.feature_units import unit_scales
from relcrf.learning.likelihood import add_l2_penalty

MAX_DENSE_WEIGHTS = 2000
"""Maximum number of weights for which the whole Hessian is computed; 2,000 weights require 4,000 gradients."""

MAX_SOLVED_WEIGHTS = 30
"""Maximum number of errors computed by conjugate gradients; an error takes about a second for 10,000 weights."""

DIFFERENCE_STEP = 1e-4
"""Step size in a weight for central differences of the gradient."""

CG_TOLERANCE = 1e-3
"""Relative tolerance of conjugate gradients; its square is about the relative error of the requested entry."""

FLAT_CURVATURE = 1e-8
"""Fraction of the largest curvature below which a curvature counts as 0: the labels do not identify the weight."""

MAX_GRADIENT_FRACTION = 0.05
"""Maximum gradient at weights that count as a maximum, as a fraction of the gradient at the initial weights."""

EXACT_SOURCE, SANDWICH_SOURCE = "the exact observed information", "the sandwich estimator of the pseudo-likelihood"
"""Descriptions of the estimators."""

Gradient = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class StandardErrors:
    """The standard errors of weights.

    Args:
        values: The standard error of each weight, shape (layout.size,); nan if the weight is fixed or was not
            requested, inf if the labels do not identify the weight.
        gradient_fraction: The gradient at the weights, divided by the gradient at the initial weights (largest
            entries). A value above `MAX_GRADIENT_FRACTION` means that the data are not the training data, or that
            learning ended early.
        source: A description of the estimator.
    """

    values: np.ndarray
    gradient_fraction: float
    source: str

    @property
    def is_maximum(self) -> bool:
        """Whether the weights maximise the objective on these data."""
        return self.gradient_fraction <= MAX_GRADIENT_FRACTION


def label_standard_errors(
    learned: LearnedModel,
    problem: Problem,
    vectors: dict[str, np.ndarray],
    learnable: np.ndarray,
    requested: np.ndarray | None = None,
) -> StandardErrors:
    """Compute the standard errors of the weights of templates over categories and relations, see `standard_errors`.

    Args:
        learnable: Mask of these weights, without fixed ones, shape (layout.size,).

    Raises:
        UsageError: The backend does not maximise an exact likelihood (E357).
    """
    system, calibration = make_backend(learned.backend, **learned.settings), learned.calibration_scale
    problem, vectors = system.with_priors(problem), scale_weights(problem, vectors, 1.0 / calibration)
    part = None if system.uses_predicted_labels else system.training_likelihood(problem, vectors)
    if part is None:
        message = f"standard errors are not available for the training objective of backend '{learned.backend}'"
        hint = (
            "train with ess, local, chow-liu, pseudo, or dense with inference=jt; or omit --data to print the weights "
            "without standard errors"
        )
        raise UsageError(Diagnostic("E357", message, hint=hint))
    layout, weights = problem.graph.layout, vectors["weights"]
    strength = layout.l2(float(learned.settings["l2"]))
    likelihood = problem.total_likelihood(part)
    objective = add_l2_penalty(likelihood, strength, learnable, layout.initial())
    unit = 1.0 / unit_scales(likelihood.feature_scales(), strength)  # as in training

    def gradient(at: np.ndarray) -> np.ndarray:
        return objective(unit * at)[1] * unit

    point, free = weights / unit, np.flatnonzero(learnable)
    start = float(np.abs(gradient(layout.initial() / unit)).max(initial=0.0))
    gradient_fraction = float(np.abs(gradient(point)).max(initial=0.0)) / max(start, 1e-300)
    conditionals = part.conditional_graph(problem)
    score = None if conditionals is None else score_variance(problem, conditionals, weights, unit)

    def scale() -> np.ndarray:
        return np.asarray((likelihood.curvature() + strength) * unit**2)

    values = error_of_weights(gradient, point, unit, free, strength * unit**2, score, requested, scale)
    return StandardErrors(calibration * values, gradient_fraction, EXACT_SOURCE if score is None else SANDWICH_SOURCE)


def error_of_weights(
    gradient: Gradient,
    point: np.ndarray,
    unit: np.ndarray,
    free: np.ndarray,
    strength: np.ndarray,
    score: Callable[[np.ndarray], float] | None,
    requested: np.ndarray | None,
    scale: Callable[[], np.ndarray],
) -> np.ndarray:
    """Return the standard errors of the weights with indices `free`, shape (n_weights,); nan for others.

    Args:
        gradient: Gradient of the penalised objective, as a function of the point.
        point: The weights divided by their units, in which the features have moderate values, shape (n_weights,).
        unit: The unit of each weight, shape (n_weights,).
        strength: Strength of the penalty of each weight, shape (n_weights,).
        score: Function that returns the variance of the score along a direction, for the sandwich estimator.
        requested: Mask of the requested weights, shape (n_weights,); None for all.
        scale: Function that returns a rough diagonal of the Hessian, shape (n_weights,); called for many weights only.
    """

    def variance(index: int, column: np.ndarray) -> float:
        """Return the variance of a free weight from its column of the inverse Hessian."""
        if score is None or not np.isfinite(column[index]):
            return float(column[index])
        direction = np.zeros(len(point))
        direction[free] = column
        found = score(direction) + float(strength[free] @ column**2)
        return found if found >= 0.0 else float("nan")

    values = np.full(len(point), np.nan)
    if len(free) <= MAX_DENSE_WEIGHTS:
        inverse = _inverse(hessian(gradient, point, free), strength[free])
        values[free] = np.sqrt([variance(index, column) for index, column in enumerate(inverse.T)])
        return np.asarray(values * unit)
    selected = np.arange(len(free)) if requested is None else np.flatnonzero(requested[free])
    selected = selected[np.argsort(-np.abs((point * unit)[free[selected]]), kind="stable")[:MAX_SOLVED_WEIGHTS]]
    columns = _solve_columns(gradient, point, free, selected, scale()[free])
    values[free[selected]] = np.sqrt([variance(index, c) for index, c in zip(selected.tolist(), columns, strict=True)])
    return np.asarray(values * unit)


def hessian(gradient: Gradient, point: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Compute the symmetric Hessian with respect to the weights with indices `free`, shape (n, n)."""
    matrix = np.empty((len(free), len(free)))
    for row, index in enumerate(free):
        matrix[row] = _slope(gradient, point, free, np.eye(1, len(point), index)[0], DIFFERENCE_STEP)
    return (matrix + matrix.T) / 2.0


def _slope(gradient: Gradient, point: np.ndarray, free: np.ndarray, direction: np.ndarray, step: float) -> np.ndarray:
    """Return the derivative of the gradient's entries `free` along a direction, by central differences."""
    return np.asarray((gradient(point + step * direction) - gradient(point - step * direction))[free] / (2.0 * step))


def _inverse(matrix: np.ndarray, strength: np.ndarray) -> np.ndarray:
    """Return the inverse Hessian; diagonal entries of weights that the labels do not identify (flat) are inf."""
    if not len(matrix):
        return matrix
    if strength.min() > 0.0:
        with suppress(LinAlgError):  # the penalty may be smaller than the rounding error of the curvature
            return np.asarray(cho_solve(cho_factor(matrix), np.eye(len(matrix))))
    values, axes = eigh(matrix)
    flat = values < FLAT_CURVATURE * values[-1]
    inverse = (axes[:, ~flat] / values[~flat]) @ axes[:, ~flat].T
    unknown = (axes[:, flat] ** 2).sum(axis=1) > FLAT_CURVATURE
    inverse[unknown, unknown] = np.inf
    return np.asarray(inverse)


def _solve_columns(
    gradient: Gradient, point: np.ndarray, free: np.ndarray, requested: np.ndarray, scale: np.ndarray
) -> np.ndarray:
    """Solve for columns of the inverse Hessian, shape (n_requested, n); nan if conjugate gradients do not converge."""

    def times(vector: np.ndarray) -> np.ndarray:
        direction = np.zeros(len(point))
        direction[free] = vector.ravel()
        return _slope(gradient, point, free, direction, DIFFERENCE_STEP / max(float(np.abs(vector).max()), 1e-300))

    n = len(free)
    matrix = LinearOperator((n, n), matvec=times, dtype=np.float64)
    preconditioner = LinearOperator((n, n), matvec=lambda vector: vector.ravel() / scale, dtype=np.float64)
    out = np.full((len(requested), n), np.nan)
    for number, index in enumerate(requested):
        found, status = cg(matrix, np.eye(1, n, index)[0], rtol=CG_TOLERANCE, maxiter=500, M=preconditioner)
        if status == 0:
            out[number] = found
    return out
