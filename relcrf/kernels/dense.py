"""Products of a dense feature matrix with a block of weights, and their adjoints.

BLAS is slower for matrices with few columns, and the last bits of its results depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import boolean, float64

from relcrf.kernels.compile import kernel, read_only
from relcrf.kernels.vectors import make_loader, store, zeros_like

MATRIX = float64[:, ::1]

U = np.uint64
"""Unsigned type of loop indices; signed indices would prevent vectorisation (see `forest.py`)."""

BLOCK = 64
"""Number of rows whose products are added to the gradient at a time; the rows stay in the first-level cache."""

WIDTHS = (1, 2, 3, 4, 5, 8, 16)
"""Lengths of the vectors of the kernels for few patterns."""

MAX_FEW_PATTERNS = 32
"""Maximum number of patterns for which the kernels with vectors are faster than loops that the compiler vectorises."""


class DenseKernels(NamedTuple):
    """The kernels of the products of a dense matrix `values` of shape (n, d).

    Args:
        scores: Kernel that computes `out += values @ weights`, or `out = values @ weights`. Arguments: `values`; `weights`, shape
            (d, n_patterns); `overwrite`; `out`, shape (n, n_patterns).
        accumulate: Kernel that computes `out += values.T @ residual`, the adjoint. Arguments: `values`; `residual`, shape
            (n, n_patterns); `out`, shape (d, n_patterns).
    """

    scores: Callable[..., Any]
    accumulate: Callable[..., Any]


SCORES, ACCUMULATE = (MATRIX, read_only(MATRIX), boolean, MATRIX), (MATRIX, MATRIX, MATRIX)


def _make_kernels(width: int) -> DenseKernels:
    """Make the kernels for vectors of a length that is at most the number of patterns.

    The last vector of a row may overlap the previous one. It is therefore computed first and stored last.
    """
    load, step = make_loader(width), U(width)

    @kernel(fastmath={"contract"}, forceinline=True)
    def multiply(values, row, weights, first, total):
        """Return `total` plus the products of a row with the weights of the patterns from `first`."""
        n_columns, n_patterns = U(values.shape[1]), U(weights.shape[1])
        blocked = n_columns - n_columns % U(3)
        at = first
        for d in range(U(0), blocked, U(3)):
            pair = values[row, d] * load(weights, at) + values[row, d + U(1)] * load(weights, at + n_patterns)
            at += U(2) * n_patterns
            total = total + (pair + values[row, d + U(2)] * load(weights, at))
            at += n_patterns
        for d in range(blocked, n_columns):
            total = total + values[row, d] * load(weights, at)
            at += n_patterns
        return total

    @kernel(SCORES, label=f"[{width}]", fastmath={"contract"})
    def dense_scores(values, weights, overwrite, out):
        n_patterns = U(weights.shape[1])
        last = n_patterns - step
        for row in range(U(len(values))):
            at = row * n_patterns
            before = load(out, at + last)
            end = multiply(values, row, weights, last, zeros_like(before) if overwrite else before)
            for first in range(U(0), last, step):
                before = load(out, at + first)
                scores = multiply(values, row, weights, first, zeros_like(before) if overwrite else before)
                store(out, at + first, scores)
            store(out, at + last, end)

    @kernel(fastmath={"contract"}, forceinline=True)
    def collect(values, lo, hi, d, residual, first, total):
        """Return `total` plus the products of column d of rows lo..hi-1 with the residuals of the patterns from `first`."""
        n_patterns = U(residual.shape[1])
        blocked = lo + (hi - lo) // U(4) * U(4)
        for row in range(lo, blocked, U(4)):
            at = row * n_patterns + first
            pair = values[row, d] * load(residual, at) + values[row + U(1), d] * load(residual, at + n_patterns)
            at += U(2) * n_patterns
            other = values[row + U(2), d] * load(residual, at) + values[row + U(3), d] * load(residual, at + n_patterns)
            total = total + (pair + other)
        for row in range(blocked, hi):
            total = total + values[row, d] * load(residual, row * n_patterns + first)
        return total

    @kernel(ACCUMULATE, label=f"[{width}]", fastmath={"contract"})
    def accumulate_dense(values, residual, out):
        n_rows, n_patterns = U(len(values)), U(residual.shape[1])
        last = n_patterns - step
        for lo in range(U(0), n_rows, U(BLOCK)):
            hi = min(lo + U(BLOCK), n_rows)
            for d in range(U(values.shape[1])):
                at = d * n_patterns
                end = collect(values, lo, hi, d, residual, last, load(out, at + last))
                for first in range(U(0), last, step):
                    store(out, at + first, collect(values, lo, hi, d, residual, first, load(out, at + first)))
                store(out, at + last, end)

    return DenseKernels(dense_scores, accumulate_dense)


@kernel(SCORES, fastmath={"contract"})
def dense_scores(values, weights, overwrite, out):
    """Compute the scores for many patterns, three columns at a time, which reduces the reads and writes of `out` to a third."""
    n_columns, n_patterns = U(values.shape[1]), U(weights.shape[1])
    for row in range(U(values.shape[0])):
        n_done = n_columns % U(3)
        if not overwrite:
            for d in range(n_done):
                for pattern in range(n_patterns):
                    out[row, pattern] += values[row, d] * weights[d, pattern]
        elif n_columns == 0:
            for pattern in range(n_patterns):
                out[row, pattern] = 0.0
        elif n_done == 1:
            first = values[row, 0]
            for pattern in range(n_patterns):
                out[row, pattern] = first * weights[0, pattern]
        elif n_done == 2:
            first, second = values[row, 0], values[row, 1]
            for pattern in range(n_patterns):
                out[row, pattern] = first * weights[0, pattern] + second * weights[1, pattern]
        else:
            first, second, third = values[row, 0], values[row, 1], values[row, 2]
            for pattern in range(n_patterns):
                out[row, pattern] = (
                    first * weights[0, pattern] + second * weights[1, pattern] + third * weights[2, pattern]
                )
            n_done = U(3)
        for d in range(n_done, n_columns, U(3)):
            e, f = d + U(1), d + U(2)
            first, second, third = values[row, d], values[row, e], values[row, f]
            for pattern in range(n_patterns):
                out[row, pattern] += (
                    first * weights[d, pattern] + second * weights[e, pattern] + third * weights[f, pattern]
                )


@kernel(ACCUMULATE, fastmath={"contract"})
def accumulate_dense(values, residual, out):
    """Add the products for many patterns, three rows at a time."""
    n_rows, n_columns, n_patterns = U(values.shape[0]), U(values.shape[1]), U(out.shape[1])
    n_blocked = n_rows - n_rows % U(3)
    for row in range(U(0), n_blocked, U(3)):
        second, third = row + U(1), row + U(2)
        for d in range(n_columns):
            a, b, c = values[row, d], values[second, d], values[third, d]
            for pattern in range(n_patterns):
                out[d, pattern] += (
                    a * residual[row, pattern] + b * residual[second, pattern] + c * residual[third, pattern]
                )
    for row in range(n_blocked, n_rows):
        for d in range(n_columns):
            value = values[row, d]
            for pattern in range(n_patterns):
                out[d, pattern] += value * residual[row, pattern]


KERNELS = {0: DenseKernels(dense_scores, accumulate_dense), **{width: _make_kernels(width) for width in WIDTHS}}
"""Kernels by the length of their vectors; key 0 is for more patterns than `MAX_FEW_PATTERNS`."""


def dense_kernels(n_patterns: int) -> DenseKernels:
    """Return the kernels for a number of patterns."""
    return KERNELS[max((width for width in WIDTHS if width <= n_patterns <= MAX_FEW_PATTERNS), default=0)]
