"""Products of a feature matrix with a block of weights, and the adjoint.

A sparse matrix is CSR with an optional value array: `values` of length 0 means that every stored entry is 1, which is
what a bag of words is, and saves two thirds of its bytes.
"""

from __future__ import annotations

import numpy as np
from numba import njit

U = np.uint64
"""Indices without a sign; see `forest.py`."""


@njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
def add_dense_scores(values, weights, out):  # type: ignore[no-untyped-def]
    """`out += values @ weights` for few columns; shapes (n, d), (d, n_patterns), (n, n_patterns).

    BLAS is made for large d, and its bits depend on the number of its threads.
    """
    n_patterns = U(weights.shape[1])
    for row in range(U(values.shape[0])):
        for d in range(U(values.shape[1])):
            value = values[row, d]
            for pattern in range(n_patterns):
                out[row, pattern] += value * weights[d, pattern]


@njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
def accumulate_dense(values, residual, out):  # type: ignore[no-untyped-def]
    """`out += values.T @ residual`, the adjoint of `add_dense_scores`."""
    n_patterns = U(out.shape[1])
    for row in range(U(values.shape[0])):
        for d in range(U(values.shape[1])):
            value = values[row, d]
            for pattern in range(n_patterns):
                out[d, pattern] += value * residual[row, pattern]


@njit(cache=True, nogil=True)
def csr_scores(row_start, column, values, weights, rows, out):  # type: ignore[no-untyped-def]
    """`out[k] = sum over entries of row rows[k] of value * weights[column]`.

    Args:
        row_start, column, values: the CSR matrix; shapes (n+1,), (nnz,), (nnz,) or (0,).
        weights: shape (n_columns, n_patterns).
        out: overwritten, shape (len(rows), n_patterns).
    """
    n_patterns = weights.shape[1]
    implicit = len(values) == 0
    for k in range(len(rows)):
        for pattern in range(n_patterns):
            out[k, pattern] = 0.0
        for entry in range(row_start[rows[k]], row_start[rows[k] + 1]):
            value = 1.0 if implicit else values[entry]
            c = column[entry]
            for pattern in range(n_patterns):
                out[k, pattern] += value * weights[c, pattern]


@njit(cache=True, nogil=True)
def csr_accumulate(row_start, column, values, residual, rows, out):  # type: ignore[no-untyped-def]
    """Adjoint of `csr_scores`: `out[column] += value * residual[k]` over the entries of each row rows[k]."""
    n_patterns = out.shape[1]
    implicit = len(values) == 0
    for k in range(len(rows)):
        for entry in range(row_start[rows[k]], row_start[rows[k] + 1]):
            value = 1.0 if implicit else values[entry]
            c = column[entry]
            for pattern in range(n_patterns):
                out[c, pattern] += value * residual[k, pattern]


@njit(cache=True, nogil=True)
def keyed_scores(key, values, weights, out):  # type: ignore[no-untyped-def]
    """`out[n] = sum_d values[n, d] * weights[key[n] * D + d]`; `values` of shape (0, 1) means that all are 1."""
    n_patterns = weights.shape[1]
    implicit = len(values) == 0
    n_values = values.shape[1]
    for row in range(len(key)):
        for pattern in range(n_patterns):
            out[row, pattern] = 0.0
        for d in range(n_values):
            value = 1.0 if implicit else values[row, d]
            feature = key[row] * n_values + d
            for pattern in range(n_patterns):
                out[row, pattern] += value * weights[feature, pattern]


@njit(cache=True, nogil=True)
def keyed_accumulate(key, values, residual, out):  # type: ignore[no-untyped-def]
    """Adjoint of `keyed_scores`."""
    n_patterns = out.shape[1]
    implicit = len(values) == 0
    n_values = values.shape[1]
    for row in range(len(key)):
        for d in range(n_values):
            value = 1.0 if implicit else values[row, d]
            feature = key[row] * n_values + d
            for pattern in range(n_patterns):
                out[feature, pattern] += value * residual[row, pattern]
