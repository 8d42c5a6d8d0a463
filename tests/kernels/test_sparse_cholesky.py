"""Sparse Cholesky factorisation and the selected inverse, compared with dense matrices."""

import numpy as np
import pytest
from scipy import sparse

from relcrf.kernels import sparse_cholesky

SHAPES = [(1, 0), (2, 1), (4, 0), (5, 4), (6, 15), (30, 60), (40, 400)]
"""Numbers of rows and of random entries, among them matrices without entries and nearly dense ones."""


def random_matrix(rng, n, n_entries):
    """Return a diagonally dominant symmetric matrix."""
    first, second = rng.integers(n, size=(2, n_entries))
    half = sparse.coo_matrix((rng.normal(size=n_entries), (first, second)), shape=(n, n)).toarray()
    np.fill_diagonal(half, 0.0)
    matrix = half + half.T
    return matrix + np.diag(np.abs(matrix).sum(axis=1) + rng.uniform(0.1, 1.0, size=n))


def factorise(matrix):
    """Return the number of rows that were factorised, and the arrays `start`, `row`, `lower` and `pivot`."""
    triangle = sparse.csr_matrix(np.tril(matrix, -1))
    row_start, column = triangle.indptr.astype(np.int64), triangle.indices.astype(np.int32)
    parent, start = sparse_cholesky.elimination_tree(row_start, column)
    row, lower, pivot = np.empty(start[-1], dtype=np.int32), np.empty(start[-1]), np.empty(len(matrix))
    diagonal = matrix.diagonal().copy()
    done = sparse_cholesky.factorise(row_start, column, triangle.data, diagonal, parent, start, row, lower, pivot)
    return done, (start, row, lower, pivot)


@pytest.fixture(params=[(*shape, seed) for shape in SHAPES for seed in range(3)], ids=str)
def matrix(request):
    n, n_entries, seed = request.param
    return random_matrix(np.random.default_rng(seed), n, n_entries)


def test_factor_has_ascending_rows_and_the_product_is_the_matrix(matrix):
    n = len(matrix)
    done, (start, row, lower, pivot) = factorise(matrix)
    assert done == n and (pivot > 0.0).all()
    dense = np.eye(n)
    for j in range(n):
        rows = row[start[j] : start[j + 1]]
        assert (np.diff(rows) > 0).all() and (rows > j).all()
        dense[rows, j] = lower[start[j] : start[j + 1]]
    np.testing.assert_allclose(dense * pivot @ dense.T, matrix, atol=1e-12)


def test_solutions(matrix):
    _, factor = factorise(matrix)
    solutions = np.eye(len(matrix))
    for solution in solutions:
        sparse_cholesky.solve(*factor, solution)
    np.testing.assert_allclose(solutions, np.linalg.inv(matrix), atol=1e-12)


def test_selected_inverse(matrix):
    _, (start, row, lower, pivot) = factorise(matrix)
    expected, n = np.linalg.inv(matrix), len(matrix)
    inverse, diagonal = np.empty_like(lower), np.empty(n)
    sparse_cholesky.selected_inverse(start, row, lower, pivot, inverse, diagonal)
    column = np.repeat(np.arange(n, dtype=np.int32), np.diff(start))
    np.testing.assert_allclose(inverse, expected[row, column], atol=1e-12)
    np.testing.assert_allclose(diagonal, expected.diagonal(), atol=1e-12)
    rows = np.arange(n, dtype=np.int32)
    for first, second in ((row, column), (column, row), (rows, rows)):
        found = np.empty(len(first))
        sparse_cholesky.inverse_entries(start, row, inverse, diagonal, first, second, found)
        np.testing.assert_array_equal(found, diagonal if first is rows else inverse)


@pytest.mark.parametrize("row", [0, 2, 4])
def test_factorisation_stops_at_a_pivot_that_is_not_positive(row):
    matrix = random_matrix(np.random.default_rng(0), 5, 8)
    for value in (-1.0, float("nan")):
        matrix[row, row] = value
        done, (*_, pivot) = factorise(matrix)
        assert done == row and not pivot[row] > 0.0
