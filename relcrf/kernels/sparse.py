"""Products of a sparse feature matrix (CSR or keyed) with a block of weights, and their adjoints.

A sparse matrix is in CSR form. If `values` has length 0, every stored entry is 1, as in a bag of words. In row n of a
keyed matrix, columns key[n] * D .. key[n] * D + D - 1 have the values `values[n]`; all other columns are 0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import float32, float64, int32, int64

from relcrf.kernels.compile import kernel, read_only
from relcrf.kernels.vectors import make_loader, store, zeros_like

MATRIX = float64[:, ::1]
CSR, CSR_DOUBLE = (
    (*(read_only(array) for array in (int64[::1], int32[::1], values)), MATRIX, int64[::1], MATRIX)
    for values in (float32[::1], float64[::1])
)
KEYED = tuple(
    (read_only(int32[::1]), read_only(values), MATRIX, MATRIX) for values in (float32[:, ::1], float64[:, ::1])
)

U = np.uint64
"""Unsigned type of loop indices; signed indices would prevent vectorisation (see `forest.py`)."""


class CsrKernels(NamedTuple):
    """The kernels of the products of a CSR matrix.

    Args:
        scores: Kernel that computes `out[k] = sum over entries of row rows[k] of value * weights[column]`. Arguments:
            `row_start`, `column` and `values`, the CSR matrix of shapes (n + 1,), (nnz,), and (nnz,) or (0,); `weights`,
            shape (n_columns, n_patterns); `rows`, the indices of the rows of the matrix; `out`, which the scores overwrite,
            shape (len(rows), n_patterns).
        accumulate: Kernel that adds `out[column] += value * residual[k]` over the entries of each row rows[k]: the adjoint.
            Arguments: the matrix, `residual`, `rows`, `out`, with the shapes of `out`, `rows` and `weights` above.
    """

    scores: Any
    accumulate: Any


def _make_csr_kernels(k: int) -> CsrKernels:
    """Make the kernels for k patterns, which process the weights of a column as one vector."""
    width, load = U(k), make_loader(k)

    @kernel(CSR, label=f"[{k}]")
    def csr_scores(row_start, column, values, weights, rows, out):
        implicit = len(values) == 0
        for i in range(U(len(rows))):
            first, last = U(row_start[rows[i]]), U(row_start[rows[i] + 1])
            total = zeros_like(load(out, i * width))
            if not implicit:
                for entry in range(first, last):
                    total = total + values[entry] * load(weights, U(column[entry]) * width)
                store(out, i * width, total)
                continue
            last_blocked = first + (last - first) // U(4) * U(4)
            for entry in range(first, last_blocked, U(4)):
                a, b = U(column[entry]) * width, U(column[entry + U(1)]) * width
                c, d = U(column[entry + U(2)]) * width, U(column[entry + U(3)]) * width
                total = total + ((load(weights, a) + load(weights, b)) + (load(weights, c) + load(weights, d)))
            for entry in range(last_blocked, last):
                total = total + load(weights, U(column[entry]) * width)
            store(out, i * width, total)

    @kernel(CSR, label=f"[{k}]")
    def csr_accumulate(row_start, column, values, residual, rows, out):
        implicit = len(values) == 0
        for i in range(U(len(rows))):
            added = load(residual, i * width)
            for entry in range(U(row_start[rows[i]]), U(row_start[rows[i] + 1])):
                at = U(column[entry]) * width
                store(out, at, load(out, at) + (added if implicit else values[entry] * added))

    return CsrKernels(csr_scores, csr_accumulate)


@kernel(CSR, CSR_DOUBLE)
def csr_scores(row_start, column, values, weights, rows, out):
    """Compute the scores for any number of patterns; see `CsrKernels`."""
    n_patterns = U(weights.shape[1])
    implicit = len(values) == 0
    if n_patterns == U(1) and not implicit:
        for k in range(U(len(rows))):
            total = 0.0
            for entry in range(U(row_start[rows[k]]), U(row_start[rows[k] + 1])):
                total += values[entry] * weights[U(column[entry]), U(0)]
            out[k, U(0)] = total
        return
    for k in range(U(len(rows))):
        for pattern in range(n_patterns):
            out[k, pattern] = 0.0
        first, last = U(row_start[rows[k]]), U(row_start[rows[k] + 1])
        if implicit:  # four entries at a time, which reduces the reads and writes of `out` to a fourth
            last_blocked = first + (last - first) // U(4) * U(4)
            for entry in range(first, last_blocked, U(4)):
                a, b = U(column[entry]), U(column[entry + U(1)])
                c, d = U(column[entry + U(2)]), U(column[entry + U(3)])
                for pattern in range(n_patterns):
                    out[k, pattern] += (weights[a, pattern] + weights[b, pattern]) + (
                        weights[c, pattern] + weights[d, pattern]
                    )
            first = last_blocked
        for entry in range(first, last):
            value = 1.0 if implicit else values[entry]
            c = U(column[entry])
            for pattern in range(n_patterns):
                out[k, pattern] += value * weights[c, pattern]


@kernel(CSR, CSR_DOUBLE)
def csr_accumulate(row_start, column, values, residual, rows, out):
    """Add the products for any number of patterns; see `CsrKernels`."""
    n_patterns = U(out.shape[1])
    implicit = len(values) == 0
    for k in range(U(len(rows))):
        for entry in range(U(row_start[rows[k]]), U(row_start[rows[k] + 1])):
            value = 1.0 if implicit else values[entry]
            c = U(column[entry])
            for pattern in range(n_patterns):
                out[c, pattern] += value * residual[k, pattern]


CSR_KERNELS = {0: CsrKernels(csr_scores, csr_accumulate), **{k: _make_csr_kernels(k) for k in range(2, 9)}}
"""Kernels of CSR matrices by the number of patterns; key 0 is for all other numbers. With 5 patterns and 50,000 columns, the
specialised kernels take 1.2 ns (scores) and 1.5 ns per entry (adjoint), the others 2.4 ns; the sums have the same bits."""


def csr_kernels(n_patterns: int, dtype: npt.DTypeLike = np.float32) -> CsrKernels:
    """Return the kernels of CSR matrices for a number of patterns and the type of the values.

    Values of 64 bits are rare, so that only the kernels for any number of patterns are compiled for them.
    """
    return CSR_KERNELS.get(n_patterns if dtype == np.float32 else 0, CSR_KERNELS[0])


@kernel(*KEYED)
def keyed_scores(key, values, weights, out):
    """Set `out[n] = sum_d values[n, d] * weights[key[n] * D + d]`; for `values` of shape (0, 1), all values are 1."""
    n_patterns = weights.shape[1]
    implicit = len(values) == 0
    n_values = values.shape[1]
    if n_patterns == 1:
        for row in range(U(len(key))):
            total, first = 0.0, U(key[row]) * U(n_values)
            for d in range(U(n_values)):
                total += (1.0 if implicit else values[row, d]) * weights[first + d, U(0)]
            out[row, U(0)] = total
        return
    for row in range(len(key)):
        for pattern in range(n_patterns):
            out[row, pattern] = 0.0
        for d in range(n_values):
            value = 1.0 if implicit else values[row, d]
            feature = key[row] * n_values + d
            for pattern in range(n_patterns):
                out[row, pattern] += value * weights[feature, pattern]


@kernel(*KEYED)
def keyed_accumulate(key, values, residual, out):
    """Add `out[key[n] * D + d] += values[n, d] * residual[n]`: the adjoint of `keyed_scores`."""
    n_patterns = out.shape[1]
    implicit = len(values) == 0
    n_values = values.shape[1]
    for row in range(len(key)):
        for d in range(n_values):
            value = 1.0 if implicit else values[row, d]
            feature = key[row] * n_values + d
            for pattern in range(n_patterns):
                out[feature, pattern] += value * residual[row, pattern]
