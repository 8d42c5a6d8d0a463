"""Inference in Gaussian distributions whose Cholesky factor is too large, by conjugate gradients and random vectors.

Means are solutions of linear equations, up to a small residual. The log determinant of a matrix is estimated by the trace of its
logarithm (Hutchinson 1990), and the variances by the sample variance of conditional means (Sidén, Lindgren, Bolin & Villani,
Efficient covariance approximations for large sparse precision matrices, 2018) of exact samples (Papandreou & Yuille 2010).
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from relcrf.inference.result import Verdict
from relcrf.kernels.conjugate_gradients import solve_shifted
from relcrf.kernels.threads import map_lanes

STEP, NODES = 1.5, np.exp(np.arange(-18.0, 10.1, 1.5))
"""Quadrature of log x = int_0^inf 1 / (1 + s) - 1 / (x + s) ds by the trapezoidal rule in log s, with these nodes s. Its error is
less than 1e-4 for x between 0.001 and 2."""

PROBED_NUMBERS = 100_000
"""Minimum number of entries of all random vectors for a log determinant. With 8,000 numbers, half of them known, this moves
the learned weights by a twentieth of their standard error."""

N_SAMPLES = 64
"""Number of samples for the variances. The standard error of a deviation is at most 1 / sqrt(2 * 64), 9 %, if the other unknown
numbers cause all of its variance, and 2 to 4 % usually."""

TOLERANCE, SAMPLE_TOLERANCE = 1e-8, 1e-4
"""Maximum residual of linear equations, relative to the norm of their right-hand side, and that of samples."""

MAX_ITERATIONS = 2_000
"""Maximum number of iterations for an equation."""

REMARK = f"the deviations are estimated from {N_SAMPLES} samples, because linked numbers are too many for exact ones"


def random_signs(n: int) -> np.ndarray:
    """Return vectors of random signs, the same in each call, shape (n_probes, n), int8."""
    n_probes = -(-PROBED_NUMBERS // max(1, n))
    return np.asarray(2 * np.random.default_rng(0).integers(0, 2, (n_probes, n), dtype=np.int8) - 1)


def sample_normal(
    sample: int, diagonal: np.ndarray, first: np.ndarray, second: np.ndarray, values: np.ndarray
) -> np.ndarray:
    """Draw a vector whose covariance is a diagonally dominant matrix: a sum of parts of each pair and of the diagonal.

    Its product with the inverse of the matrix has the inverse as covariance (Papandreou & Yuille 2010).

    Args:
        sample: Number of the sample, which determines the random numbers.
        diagonal, first, second, values: See `EstimatedInverse`.
    """
    n, strength, rng = len(diagonal), np.sqrt(np.abs(values)), np.random.default_rng((1, sample))
    ends = np.bincount(first, strength**2, n) + np.bincount(second, strength**2, n)
    at_pair = strength * rng.standard_normal(len(values))
    own = np.sqrt(np.maximum(diagonal - ends, 0.0)) * rng.standard_normal(n)
    return np.asarray(own + np.bincount(first, at_pair, n) + np.bincount(second, np.sign(values) * at_pair, n))


class EstimatedInverse:
    """Estimates of quantities of the inverse of a matrix, with the interface of `CholeskyFactor`.

    Args:
        diagonal: Diagonal of the matrix, shape (n,); it is at least the sum of the absolute values in each row.
        first, second, values: Rows, columns and values of the entries beside the diagonal, shape (n_pairs,); both directions of a
            pair have its value, and the values of repeated pairs are added.
        rows: The matrix with these pairs in compressed rows: the start of each row, and the columns.
        entry: The index in `rows` of each pair, and of each in the other direction, shape (2 * n_pairs,).
        signs: Random signs, shape (n_probes, n); see `random_signs`.
    """

    def __init__(
        self,
        diagonal: np.ndarray,
        first: np.ndarray,
        second: np.ndarray,
        values: np.ndarray,
        rows: tuple[np.ndarray, np.ndarray],
        entry: np.ndarray,
        signs: np.ndarray,
    ) -> None:
        self._diagonal, self._first, self._second, self._values = diagonal, first, second, values
        self._row_start, self._column = rows
        self._signs, self._scale = signs, 1.0 / np.sqrt(diagonal)
        merged = np.bincount(entry, np.concatenate((values, values)), minlength=len(self._column))
        row = np.repeat(np.arange(len(diagonal)), np.diff(self._row_start))
        self._scaled = np.asarray(merged * self._scale[row] * self._scale[self._column], dtype=np.float64)
        self._iterations, self._residual = 0, 0.0

    @property
    def verdict(self) -> Verdict:
        """Whether the equations of all calls of `solve` were solved."""
        status = "converged" if self._residual <= TOLERANCE else "not converged"
        return Verdict(status, self._iterations, self._residual, REMARK)

    def solve(self, vector: np.ndarray) -> np.ndarray:
        """Return the product of the inverse and a vector, shape (n,)."""
        solution, iterations, residual = self._solve(vector * self._scale, NODES[:0], TOLERANCE)
        self._iterations, self._residual = max(self._iterations, iterations), max(self._residual, residual)
        return np.asarray(solution[0] * self._scale)

    def _solve(self, vector: np.ndarray, shifts: np.ndarray, tolerance: float) -> tuple[np.ndarray, int, float]:
        """Return the solutions for the matrix with unit diagonal, the number of iterations and the relative residual."""
        shifts = shifts if len(shifts) else np.zeros(1)
        solution = np.empty((len(shifts), len(vector)))
        iterations, residual = solve_shifted(
            self._row_start,
            self._column,
            self._scaled,
            np.ascontiguousarray(vector),
            shifts,
            tolerance,
            MAX_ITERATIONS,
            solution,
        )
        return solution, iterations, residual

    @cached_property
    def _determinant(self) -> tuple[float, np.ndarray, np.ndarray]:
        """The log determinant, and its derivatives with respect to the diagonal and, halved, to the values of the pairs.

        They are those of the same function: for signs z and the solutions x of (A + s) x = z with unit diagonals, the log
        determinant of A is the mean of sum_s weight_s (n / (1 + s) - z' x_s), with the derivative weight_s x_s x_s'.
        """
        n, weights = len(self._diagonal), STEP * NODES
        value = n * float((weights / (1.0 + NODES)).sum())
        by_diagonal, by_pair = np.ones(n), np.zeros(len(self._values))
        share = 1.0 / len(self._signs)
        for signs in self._signs.astype(np.float64):
            solution, _, _ = self._solve(signs, NODES, TOLERANCE)
            for s, weight, x in zip(NODES, share * weights, solution, strict=True):
                value -= float(weight * (x @ signs))
                by_diagonal += weight * x * ((1.0 + s) * x - signs)
                scaled = x * self._scale
                by_pair += weight * scaled[self._first] * scaled[self._second]
        return value + float(np.log(self._diagonal).sum()), by_diagonal / self._diagonal, by_pair

    @property
    def log_determinant(self) -> float:
        return self._determinant[0]

    @property
    def determinant_gradient(self) -> tuple[np.ndarray, np.ndarray]:
        """Derivatives of the log determinant with respect to the diagonal and, halved, to the pairs, shapes (n,), (n_pairs,)."""
        return self._determinant[1:]

    @property
    def _sampling_cost(self) -> int:
        """The cost of all samples for `map_lanes`."""
        return N_SAMPLES * 10 * (len(self._column) + len(self._diagonal))

    @cached_property
    def variances(self) -> np.ndarray:
        """The diagonal of the inverse, shape (n,): the variance given all others, plus that of the conditional mean."""
        squares = np.sum(map_lanes(N_SAMPLES, self._sampling_cost, self._sum_of_squares), axis=0)
        return np.asarray((1.0 + squares / N_SAMPLES) / self._diagonal)

    def _sum_of_squares(self, start: int, stop: int) -> np.ndarray:
        """Return the sum over samples of the squared conditional mean of each variable, in units of its conditional deviation."""
        total = np.zeros(len(self._diagonal))
        for sample in range(start, stop):
            right = sample_normal(sample, self._diagonal, self._first, self._second, self._values)
            solution, _, _ = self._solve(right * self._scale, NODES[:0], SAMPLE_TOLERANCE)
            total += (right * self._scale - solution[0]) ** 2
        return total

    def squares(self, weights: np.ndarray) -> np.ndarray:
        """Return estimates of the weighted sums of the squares of each row of the inverse, see `CholeskyFactor.squares`.

        They are the variances of the product of the inverse and a random vector. Their relative standard error is
        sqrt(2 / `N_SAMPLES`), 18 %.
        """
        roots = np.sqrt(weights)

        def sum_of_squares(start: int, stop: int) -> np.ndarray:
            total = np.zeros(len(roots))
            for sample in range(start, stop):
                right = roots * np.random.default_rng((2, sample)).standard_normal(len(roots))
                total += self._solve(right * self._scale, NODES[:0], SAMPLE_TOLERANCE)[0][0] ** 2
            return total

        sums = np.sum(map_lanes(N_SAMPLES, self._sampling_cost, sum_of_squares), axis=0)
        return np.asarray(sums / N_SAMPLES / self._diagonal)
