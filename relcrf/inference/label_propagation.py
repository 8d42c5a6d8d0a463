"""Propagation of labels, or of other values of variables, along the links of a graph.

Source: Zhou, Bousquet, Lal, Weston & Schölkopf (2004), Learning with local and global consistency, equation (4):
F = (1 - alpha) (I - alpha S)^-1 Y with S = D^-1/2 W D^-1/2. Deviation: the factor 1 - alpha, which does not change the
classification. The system is solved by conjugate gradients instead of the power iteration: both have the same result,
but for alpha = 0.99 the power iteration needs over a thousand products with S, and conjugate gradients about a hundred.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from relcrf.inference.result import Verdict

TOLERANCE = 1e-6
"""Norm of the residual, relative to the norm of the right-hand side, at which a system is solved. The error of a score
is then far below the smallest smoothing term of the backends."""

MAX_ITERATIONS = 1000
"""Maximum number of iterations; about 150 suffice for alpha = 0.99."""


@dataclass(frozen=True)
class PropagatedValues:
    """The result of propagation: the values F with F = (1 - alpha) Y + alpha S F.

    Args:
        alpha: Weight of the links.
        sources: The values Y that were propagated, shape (n, n_columns).
        values: Propagated values F, shape (n, n_columns).
        iterations: Number of iterations, which is the number of products with the link matrix.
        residual: Largest norm of the residual of a column, relative to the norm of the right-hand side.
        converged: Whether the residual is at most the tolerance.
    """

    alpha: float
    sources: np.ndarray
    values: np.ndarray
    iterations: int
    residual: float
    converged: bool

    @property
    def verdict(self) -> Verdict:
        return Verdict("converged" if self.converged else "not converged", self.iterations, self.residual)


def normalise_links(links: csr_array) -> csr_array:
    """Return D^-1/2 W D^-1/2 for a symmetric link matrix W with the degrees D; rows without links remain 0."""
    degree = np.asarray(links.sum(axis=1)).ravel()
    scale = 1.0 / np.sqrt(np.maximum(degree, 1e-300))
    scale[degree == 0.0] = 0.0
    row = np.repeat(np.arange(links.shape[0]), np.diff(links.indptr))
    return csr_array((links.data * scale[row] * scale[links.indices], links.indices, links.indptr), shape=links.shape)


def propagate(links: csr_array, alpha: float, values: np.ndarray, tolerance: float = TOLERANCE) -> PropagatedValues:
    """Solve (I - alpha S) F = (1 - alpha) Y for F by conjugate gradients, for all columns of Y simultaneously.

    Args:
        links: Normalised link matrix S, symmetric, with eigenvalues in [-1, 1], shape (n, n).
        alpha: Weight of the links, at least 0 and less than 1.
        values: The values Y to propagate, shape (n, n_columns); all of them are 0 for a variable without values.
        tolerance: Norm of the residual, relative to the norm of the right-hand side, at which the iteration ends.
    """
    solution = (1.0 - alpha) * values
    norm = np.sqrt(_column_dots(solution, solution))
    # The start is the right-hand side, whose residual is alpha S times the right-hand side.
    residual = alpha * (links @ solution)
    direction = residual.copy()
    squared = _column_dots(residual, residual)
    iterations, error = 1, _relative(squared, norm)
    while error > tolerance and iterations < MAX_ITERATIONS:
        product = links @ direction
        product *= -alpha
        product += direction
        curvature = _column_dots(direction, product)
        step = np.divide(squared, curvature, out=np.zeros_like(squared), where=curvature > 0.0)
        solution += step * direction
        residual -= step * product
        previous, squared = squared, _column_dots(residual, residual)
        ratio = np.divide(squared, previous, out=np.zeros_like(squared), where=previous > 0.0)
        direction *= ratio
        direction += residual
        iterations += 1
        error = _relative(squared, norm)
    return PropagatedValues(alpha, values, solution, iterations, error, error <= tolerance)


def _column_dots(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the dot product of each column of `a` with the same column of `b`."""
    return np.asarray(np.einsum("ij,ij->j", a, b))


def _relative(squared: np.ndarray, norm: np.ndarray) -> float:
    """Return the largest relative norm; a column whose values are all 0 has no error."""
    return float(np.divide(np.sqrt(squared), norm, out=np.zeros_like(norm), where=norm > 0.0).max(initial=0.0))
