"""Greedy selection of the variables of a Gaussian distribution whose values reduce the sum of all variances most.

With C the covariance matrix, the value of variable i reduces the variance of j by C_ij^2 / C_ii, whatever the value is. The gain
of i is the weighted sum over j, which is the diagonal of C W C, divided by that of C. After each selection, both diagonals follow
from two products with C, so that the gains of all candidates remain exact.

Sources: Cohn, Ghahramani & Jordan, Active learning with statistical models (1996); Seo, Wallat, Graepel & Obermayer, Gaussian
process regression: active data selection and test point rejection (2000). Deviation: all gains are computed from a sparse
Cholesky factor, see `CholeskyFactor.squares`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relcrf.inference.gaussian import CholeskyFactor
from relcrf.inference.gaussian_estimates import EstimatedInverse


@dataclass(frozen=True, eq=False)
class VarianceReduction:
    """The reductions of all weighted variances by the value of one variable, in two parts, shape (n,) each.

    Args:
        linked: The part through the covariances given the coefficients.
        shared: The part through the covariances by the coefficients. It may be negative, but the sum of both parts is not.
    """

    linked: np.ndarray
    shared: np.ndarray

    @property
    def total(self) -> np.ndarray:
        return np.asarray(self.linked + self.shared)


class VarianceSelection:
    """The gains of the values of variables with the covariance matrix C = S K S + E + Z Z', updated variable by variable.

    Z Z' is the covariance by coefficients that the variables share.

    Args:
        inverse: The matrix K.
        scale, noise: The diagonals of the diagonal matrices S and E, shape (n,).
        coordinates: The matrix Z, shape (n, r).
        weights: Weights of the variances in the sum, at least 0, shape (n,).

    Attributes:
        variances: The diagonal of C given the selected variables, shape (n,).
    """

    def __init__(
        self,
        inverse: CholeskyFactor | EstimatedInverse,
        scale: np.ndarray,
        noise: np.ndarray,
        coordinates: np.ndarray,
        weights: np.ndarray,
    ) -> None:
        self._inverse, self._scale, self._noise = inverse, scale, noise
        self._coordinates, self._weights = coordinates, weights
        linked = scale**2 * inverse.variances
        self.variances = linked + noise + (coordinates**2).sum(axis=1)
        squares = scale**2 * inverse.squares(weights * scale**2) + weights * noise * (2.0 * linked + noise)
        weighted = weights[:, None] * coordinates
        squares += ((coordinates @ (coordinates.T @ weighted)) * coordinates).sum(axis=1)
        for column, coordinate in zip(weighted.T, coordinates.T, strict=True):
            squares += 2.0 * self._multiply_linked(column) * coordinate
        self._squares = squares
        self._steps: list[tuple[np.ndarray, np.ndarray]] = []

    @property
    def gains(self) -> np.ndarray:
        """The reduction of the weighted sum of the variances by the value of each variable, shape (n,)."""
        own = self._weights * self.variances
        gains = np.divide(self._squares, self.variances, out=own.copy(), where=self.variances > 0.0)
        return np.asarray(np.maximum(gains, own))

    def add(self, row: int) -> VarianceReduction:
        """Condition on the value of a variable, whatever it is, and return the reductions."""
        unit = np.zeros(len(self.variances))
        unit[row] = 1.0
        linked, shared = self._multiply_linked(unit), self._coordinates @ self._coordinates[row]
        for past_linked, past_shared in self._steps:
            known = past_linked[row] + past_shared[row]
            linked -= known * past_linked
            shared -= known * past_shared
        root = np.sqrt(max(float(linked[row] + shared[row]), 1e-300))
        linked, shared = linked / root, shared / root
        # C becomes C - c c', so that the diagonal of C W C changes by -2 c (C W c) + (c' W c) c^2.
        c = linked + shared
        weighted = self._weights * c
        product = self._multiply_linked(weighted) + self._coordinates @ (self._coordinates.T @ weighted)
        for past_linked, past_shared in self._steps:
            past = past_linked + past_shared
            product -= (past @ weighted) * past
        self._squares += c * (float(weighted @ c) * c - 2.0 * product)
        self.variances = np.maximum(self.variances - c**2, 0.0)
        self.variances[row] = 0.0
        self._steps.append((linked, shared))
        return VarianceReduction(weighted * linked, weighted * shared)

    def _multiply_linked(self, vector: np.ndarray) -> np.ndarray:
        """Return the product of S K S + E and a vector."""
        return np.asarray(self._scale * self._inverse.solve(self._scale * vector) + self._noise * vector)
