"""Conjugate gradients of shifted matrices, compared with dense matrices."""

import numpy as np
import pytest
from scipy import sparse

from relcrf.kernels.conjugate_gradients import solve_shifted

SHIFTS = np.array([0.0, 1e-6, 1e-3, 0.2, 1.0, 30.0, 1e4])


def scaled_matrix(rng, n, n_entries):
    """Return a diagonally dominant symmetric matrix with unit diagonal."""
    first, second = rng.integers(n, size=(2, n_entries))
    half = sparse.coo_matrix((rng.normal(size=n_entries), (first, second)), shape=(n, n)).toarray()
    matrix = half + half.T
    np.fill_diagonal(matrix, 0.0)
    scale = 1.0 / np.sqrt(np.abs(matrix).sum(axis=1) + rng.uniform(0.1, 1.0, size=n))
    return matrix * np.outer(scale, scale) + np.eye(n)


def solve(matrix, right, shifts, tolerance=1e-12, max_iterations=1000):
    """Return the solutions, the number of iterations and the residual."""
    rows = sparse.csr_matrix(matrix - np.eye(len(matrix)))
    out = np.full((len(shifts), len(right)), np.nan)
    arrays = rows.indptr.astype(np.int64), rows.indices.astype(np.int32), rows.data
    iterations, residual = solve_shifted(*arrays, right, shifts, tolerance, max_iterations, out)
    return out, iterations, residual


@pytest.mark.parametrize("shape", [(1, 0), (2, 1), (5, 0), (8, 12), (40, 120)], ids=str)
@pytest.mark.parametrize("start", [0, 1, 3])
def test_solutions_of_all_shifts(shape, start):
    rng = np.random.default_rng(shape[0])
    matrix, right, shifts = scaled_matrix(rng, *shape), rng.normal(size=shape[0]), SHIFTS[start:]
    solutions, _, residual = solve(matrix, right, shifts)
    assert residual <= 1e-12
    for shift, solution in zip(shifts, solutions, strict=True):
        np.testing.assert_allclose(solution, np.linalg.solve(matrix + shift * np.eye(len(right)), right), atol=1e-10)


def test_a_single_shift_needs_no_others():
    rng = np.random.default_rng(0)
    matrix, right = scaled_matrix(rng, 30, 60), rng.normal(size=30)
    (alone,), _, _ = solve(matrix, right, SHIFTS[:1])
    np.testing.assert_array_equal(alone, solve(matrix, right, SHIFTS)[0][0])


def test_the_solution_of_zeros_is_zero():
    solutions, iterations, residual = solve(np.eye(3), np.zeros(3), SHIFTS)
    assert not solutions.any() and (iterations, residual) == (0, 0.0)


def test_iterations_are_limited():
    rng = np.random.default_rng(0)
    matrix, right = scaled_matrix(rng, 40, 120), rng.normal(size=40)
    solutions, iterations, residual = solve(matrix, right, SHIFTS[:1], max_iterations=3)
    assert iterations == 3
    expected = np.linalg.norm(right - matrix @ solutions[0]) / np.linalg.norm(right)
    assert residual == pytest.approx(expected) and residual > 1e-3
