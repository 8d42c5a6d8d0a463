"""Sparse LDL' factorisation of symmetric positive definite matrices, and the entries of the inverse in the factor's pattern.

Sources: Davis, Algorithm 849: a concise sparse Cholesky factorization package (2005); Takahashi, Fagan & Chin (1973) for the
selected inverse.

A matrix of n rows is given by its lower triangle without the diagonal, in compressed rows: row i has the columns
`column[row_start[i]:row_start[i + 1]]`, all below i. The factor L has ones on its diagonal; the rows of its column j are
`row[start[j]:start[j + 1]]`, ascending and above j.
"""

from __future__ import annotations

import numpy as np
from numba import float64, int32, int64

from relcrf.kernels.compile import kernel


@kernel((int64[::1], int32[::1]))
def elimination_tree(row_start, column):
    """Return the parent of each row in the elimination tree, -1 for a root, and the start of each column of the factor."""
    n = len(row_start) - 1
    parent = np.full(n, -1, dtype=np.int32)
    last = np.full(n, -1, dtype=np.int32)
    count = np.zeros(n, dtype=np.int64)
    for i in range(n):
        last[i] = i
        for e in range(row_start[i], row_start[i + 1]):
            j = column[e]
            while last[j] != i:
                if parent[j] < 0:
                    parent[j] = i
                count[j] += 1
                last[j] = i
                j = parent[j]
    start = np.zeros(n + 1, dtype=np.int64)
    for j in range(n):
        start[j + 1] = start[j] + count[j]
    return parent, start


@kernel(
    (int64[::1], int32[::1], float64[::1], float64[::1], int32[::1], int64[::1], int32[::1], float64[::1], float64[::1])
)
def factorise(row_start, column, value, diagonal, parent, start, row, lower, pivot):
    """Compute the factor, with the outputs `row`, `lower` (the entries of L) and `pivot` (the diagonal D).

    Returns:
        The number of rows that were factorised: less than n if a pivot is not positive, which `pivot` then contains.
    """
    n = len(diagonal)
    work = np.zeros(n)
    last = np.full(n, -1, dtype=np.int32)
    stack = np.empty(n, dtype=np.int32)
    path = np.empty(n, dtype=np.int32)
    n_entries = np.zeros(n, dtype=np.int64)
    for i in range(n):
        top = n
        last[i] = i
        for e in range(row_start[i], row_start[i + 1]):
            j = column[e]
            work[j] += value[e]
            length = 0
            while last[j] != i:
                path[length] = j
                length += 1
                last[j] = i
                j = parent[j]
            while length > 0:
                length -= 1
                top -= 1
                stack[top] = path[length]
        d = diagonal[i]
        for s in range(top, n):
            j = stack[s]
            y = work[j]
            work[j] = 0.0
            end = start[j] + n_entries[j]
            for e in range(start[j], end):
                work[row[e]] -= lower[e] * y
            quotient = y / pivot[j]
            d -= quotient * y
            row[end] = i
            lower[end] = quotient
            n_entries[j] += 1
        pivot[i] = d
        if not d > 0.0:
            return i
    return n


@kernel((int64[::1], int32[::1], float64[::1], float64[::1], float64[::1]))
def solve(start, row, lower, pivot, x):
    """Replace x by the solution of L D L' y = x."""
    n = len(pivot)
    for j in range(n):
        for e in range(start[j], start[j + 1]):
            x[row[e]] -= lower[e] * x[j]
    for j in range(n - 1, -1, -1):
        total = x[j] / pivot[j]
        for e in range(start[j], start[j + 1]):
            total -= lower[e] * x[row[e]]
        x[j] = total


@kernel((int64[::1], int32[::1], float64[::1], float64[::1], float64[::1], float64[::1]))
def selected_inverse(start, row, lower, pivot, inverse, diagonal):
    """Compute the inverse in the pattern of L, in the layout of `lower`, and on the diagonal."""
    n = len(pivot)
    slot = np.full(n, -1, dtype=np.int64)
    for j in range(n - 1, -1, -1):
        first, end = start[j], start[j + 1]
        for e in range(first, end):
            slot[row[e]] = e
            inverse[e] = -lower[e] * diagonal[row[e]]
        for e in range(first, end):
            i = row[e]
            total = 0.0
            for f in range(start[i], start[i + 1]):
                other = slot[row[f]]
                if other >= 0:
                    total -= lower[other] * inverse[f]
                    inverse[other] -= lower[e] * inverse[f]
            inverse[e] += total
        d = 1.0 / pivot[j]
        for e in range(first, end):
            d -= lower[e] * inverse[e]
            slot[row[e]] = -1
        diagonal[j] = d


@kernel((int64[::1], int32[::1], float64[::1], float64[::1], int32[::1], int32[::1], float64[::1]))
def inverse_entries(start, row, inverse, diagonal, first, second, out):
    """Read entries of the selected inverse: those of the pairs (first, second), which must be in the pattern."""
    for k in range(len(first)):
        low, high = min(first[k], second[k]), max(first[k], second[k])
        if low == high:
            out[k] = diagonal[low]
            continue
        a, b = start[low], start[low + 1]
        while a < b:
            middle = (a + b) // 2
            if row[middle] < high:
                a = middle + 1
            else:
                b = middle
        out[k] = inverse[a]
