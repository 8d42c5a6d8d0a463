"""Standard errors of weights, from the observed information.

At the weights that maximise a penalised log-likelihood, minus its Hessian is the information in the labels plus the strengths
of the penalties, and its inverse the covariance of the weights: of a Gaussian about them that has the same curvature. Without
a penalty these are the standard errors of maximum likelihood; with one those of the penalised estimate, which is what the
z of a weight compares it with. All labels are taken to be as the model says, so that they are too small where it is wrong.

A pseudo-likelihood counts what is told of a variable again for its neighbours: its curvature is not how much its score varies.
There the covariance is the sandwich H^-1 (J + L) H^-1 (Godambe 1960), with H as above, L the strengths and J the covariance of
the score (`score_covariance.py`). Where J is the curvature itself, as of a likelihood, that is H^-1.

The Hessian comes from differences of exact gradients. Of up to `MOST_WEIGHTS` weights it is made and inverted whole. Of more,
the errors of single weights are found by conjugate gradients: the same numbers, without the Hessian.
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
from relcrf.evaluation.score_covariance import score_variance
from relcrf.learning.likelihood import add_l2_penalty

MAX_DENSE_WEIGHTS = 2000
"""Whose Hessian is made: 4,000 gradients."""

MAX_SOLVED_WEIGHTS = 30
"""Weights whose errors are found one by one: a second or so for each where there are 10,000."""

DIFFERENCE_STEP = 1e-4
"""Of a weight, over which gradients are compared."""

CG_TOLERANCE = 1e-3
"""Of conjugate gradients: the entry that is asked for is as near as its square."""

FLAT_CURVATURE = 1e-8
"""Share of the largest curvature below which there is none: the labels do not tell what a weight is."""

MAX_GRADIENT_FRACTION = 0.05
"""Share of the gradient's start that is left, beyond which the weights are not at their maximum."""

Gradient = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class StandardErrors:
    """
    Args:
        values: one a weight, shape (layout.size,); nan where it was not asked for or is not learned, inf where the labels do not
            tell what it is.
        gradient_fraction: what is left at the weights, as a share of the gradient at weights of 0. More than `MAX_GRADIENT_FRACTION` says that these are not
            the data that they were learned on, or that learning ended early.
        source: what they are from, in words.
    """

    values: np.ndarray
    gradient_fraction: float
    source: str

    @property
    def is_maximum(self) -> bool:
        return self.gradient_fraction <= MAX_GRADIENT_FRACTION


def standard_errors(
    learned: LearnedModel, problem: Problem, vectors: dict[str, np.ndarray], requested: np.ndarray | None = None
) -> StandardErrors:
    """Standard errors of all learned weights, or where these are too many of the `MAX_SOLVED_WEIGHTS` largest of those asked for.

    Args:
        problem: the training's. vectors: laid out for its graph.
        requested: which weights, shape (layout.size,), bool; None is all.

    Raises:
        UsageError: where the backend maximises no likelihood that is exact.
    """
    system = make_backend(learned.backend, **learned.settings)
    part = system.training_likelihood(problem, vectors)
    if part is None:
        message = f"backend '{learned.backend}', as it was trained, maximises no exact likelihood: no standard errors"
        hint = "train with ess, local, chow-liu, pseudo, or dense with inference=jt; or leave --data out"
        raise UsageError(Diagnostic("E357", message, hint=hint))
    layout, weights = problem.graph.layout, vectors["weights"]
    strength = layout.l2(float(learned.settings["l2"]))
    objective = add_l2_penalty(problem.total_likelihood(part), strength, layout.learnable_mask())

    def gradient(at: np.ndarray) -> np.ndarray:
        return objective(at)[1]

    moving = np.flatnonzero(layout.learnable_mask())
    start = float(np.abs(gradient(layout.initial())).max(initial=0.0))
    left = float(np.abs(gradient(weights)).max(initial=0.0)) / max(start, 1e-300)
    conditionals = part.conditional_graph(problem)
    score = None if conditionals is None else score_variance(problem, conditionals, weights)

    def variance(place: int, column: np.ndarray) -> float:
        """Of a weight among those that move, by its column of the inverse."""
        if score is None or not np.isfinite(column[place]):
            return float(column[place])
        direction = np.zeros(layout.size)
        direction[moving] = column
        found = score(direction) + float(strength[moving] @ column**2)
        return found if found >= 0.0 else float("nan")

    values = np.full(layout.size, np.nan)
    if len(moving) <= MAX_DENSE_WEIGHTS:
        inverse = _inverse(hessian(gradient, weights, moving), strength[moving])
        values[moving] = np.sqrt([variance(place, column) for place, column in enumerate(inverse.T)])
    else:
        wanted = np.arange(len(moving)) if requested is None else np.flatnonzero(requested[moving])
        wanted = wanted[np.argsort(-np.abs(weights[moving[wanted]]), kind="stable")[:MAX_SOLVED_WEIGHTS]]
        scale = problem.total_likelihood(part).curvature()[moving] + strength[moving]
        columns = _solve_columns(gradient, weights, moving, wanted, scale)
        values[moving[wanted]] = np.sqrt(
            [variance(place, c) for place, c in zip(wanted.tolist(), columns, strict=True)]
        )
    source = "the observed information, exact" if score is None else "the sandwich of the pseudo-likelihood"
    return StandardErrors(values, left, source)


def hessian(gradient: Gradient, point: np.ndarray, moving: np.ndarray) -> np.ndarray:
    """The Hessian by the weights at `moving`, symmetric, shape (n, n)."""
    found = np.empty((len(moving), len(moving)))
    for row, place in enumerate(moving):
        found[row] = _slope(gradient, point, moving, np.eye(1, len(point), place)[0], DIFFERENCE_STEP)
    return (found + found.T) / 2.0


def _slope(gradient: Gradient, point: np.ndarray, moving: np.ndarray, direction: np.ndarray, step: float) -> np.ndarray:
    """The change of the gradient along a direction, by central differences, at `moving`."""
    return np.asarray((gradient(point + step * direction) - gradient(point - step * direction))[moving] / (2.0 * step))


def _inverse(matrix: np.ndarray, strength: np.ndarray) -> np.ndarray:
    """The inverse; on its diagonal inf where a weight is in a direction without curvature."""
    if not len(matrix):
        return matrix
    if strength.min() > 0.0:
        with suppress(LinAlgError):  # where a penalty is less than the rounding of the curvature
            return np.asarray(cho_solve(cho_factor(matrix), np.eye(len(matrix))))
    values, axes = eigh(matrix)
    flat = values < FLAT_CURVATURE * values[-1]
    inverse = (axes[:, ~flat] / values[~flat]) @ axes[:, ~flat].T
    unknown = (axes[:, flat] ** 2).sum(axis=1) > FLAT_CURVATURE
    inverse[unknown, unknown] = np.inf
    return np.asarray(inverse)


def _solve_columns(
    gradient: Gradient, point: np.ndarray, moving: np.ndarray, requested: np.ndarray, scale: np.ndarray
) -> np.ndarray:
    """Columns of the inverse, those of `requested` of `moving`, shape (n_asked, n); nan where conjugate gradients do not converge."""

    def times(vector: np.ndarray) -> np.ndarray:
        direction = np.zeros(len(point))
        direction[moving] = vector.ravel()
        return _slope(gradient, point, moving, direction, DIFFERENCE_STEP / max(float(np.abs(vector).max()), 1e-300))

    n = len(moving)
    matrix = LinearOperator((n, n), matvec=times, dtype=np.float64)
    preconditioner = LinearOperator((n, n), matvec=lambda vector: vector.ravel() / scale, dtype=np.float64)
    out = np.full((len(requested), n), np.nan)
    for number, place in enumerate(requested):
        found, status = cg(matrix, np.eye(1, n, place)[0], rtol=CG_TOLERANCE, maxiter=500, M=preconditioner)
        if status == 0:
            out[number] = found
    return out
