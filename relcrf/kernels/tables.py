"""From factor scores to node and edge tables, and back: the linear map of the model and its adjoint."""

from __future__ import annotations

import numpy as np
from numba import float64, int32, int64

from relcrf.kernels.compile import kernel

TERMS = (*[int32[::1]] * 5, int64[::1])
CLIQUES = (int32[::1], int32[:, ::1], int32[:, ::1], int64[::1])


@kernel((float64[:, ::1], float64[:, ::1], *TERMS, float64[::1]))
def add_tables(scores, patterns, base, stride_row, stride_column, n_rows, n_columns, start, out):
    """Adds each term's potentials to the table that it belongs to.

    Term t covers joint states `base[t] + x * stride_row[t] + y * stride_column[t]` for x < n_rows[t], y < n_columns[t],
    and its table begins at `out[start[t]]`, row-major.

    Args:
        scores: `X @ W`, shape (n_terms, n_patterns), or (1, n_patterns) where all terms share it.
        patterns: shape (n_joint_states, n_patterns), or (0, 0) for the identity.
    """
    shared = scores.shape[0] == 1
    identity = patterns.shape[0] == 0
    n_patterns = scores.shape[1]
    for term in range(len(base)):
        score = scores[0 if shared else term]
        for x in range(n_rows[term]):
            for y in range(n_columns[term]):
                state = base[term] + x * stride_row[term] + y * stride_column[term]
                cell = start[term] + x * n_columns[term] + y
                if identity:
                    out[cell] += score[state]
                else:
                    for pattern in range(n_patterns):
                        out[cell] += score[pattern] * patterns[state, pattern]


@kernel((float64[::1], float64[:, ::1], *TERMS, float64[:, ::1]))
def collect_tables(tables, patterns, base, stride_row, stride_column, n_rows, n_columns, start, residual):
    """Adjoint of `add_tables`: adds the tables' values to `residual`, of the shape of `scores`."""
    shared = residual.shape[0] == 1
    identity = patterns.shape[0] == 0
    n_patterns = residual.shape[1]
    for term in range(len(base)):
        row = residual[0 if shared else term]
        for x in range(n_rows[term]):
            for y in range(n_columns[term]):
                state = base[term] + x * stride_row[term] + y * stride_column[term]
                value = tables[start[term] + x * n_columns[term] + y]
                if identity:
                    row[state] += value
                else:
                    for pattern in range(n_patterns):
                        row[pattern] += value * patterns[state, pattern]


@kernel((float64[:, ::1], int32[::1], int64[::1], float64[::1]))
def add_diagonals(scores, n_rows, start, out):
    """`add_tables` for one pattern that is 1 where both ends agree: only the diagonals of square tables are touched."""
    shared = scores.shape[0] == 1
    for term in range(len(start)):
        score = scores[0 if shared else term, 0]
        cell = start[term]
        for _ in range(n_rows[term]):
            out[cell] += score
            cell += n_rows[term] + 1


@kernel((float64[::1], int32[::1], int64[::1], float64[:, ::1]))
def collect_diagonals(tables, n_rows, start, residual):
    """Adjoint of `add_diagonals`."""
    shared = residual.shape[0] == 1
    for term in range(len(start)):
        total = 0.0
        cell = start[term]
        for _ in range(n_rows[term]):
            total += tables[cell]
            cell += n_rows[term] + 1
        residual[0 if shared else term, 0] += total


@kernel((float64[:, ::1], float64[:, ::1], *CLIQUES, float64[::1]))
def add_cliques(scores, patterns, base, stride, cardinality, start, out):
    """As `add_tables`, for tables over any number of nodes: shapes (n_terms, arity) of `stride` and `cardinality`."""
    shared = scores.shape[0] == 1
    identity = patterns.shape[0] == 0
    arity = stride.shape[1]
    place = np.zeros(arity, dtype=np.int64)
    for term in range(len(base)):
        score = scores[0 if shared else term]
        place[:] = 0
        state = base[term]
        cell = start[term]
        left = True
        while left:
            if identity:
                out[cell] += score[state]
            else:
                for pattern in range(scores.shape[1]):
                    out[cell] += score[pattern] * patterns[state, pattern]
            cell += 1
            k = arity - 1
            while k >= 0:  # the next joint state, the last node fastest
                place[k] += 1
                state += stride[term, k]
                if place[k] < cardinality[term, k]:
                    break
                state -= stride[term, k] * cardinality[term, k]
                place[k] = 0
                k -= 1
            left = k >= 0


@kernel((float64[::1], float64[:, ::1], *CLIQUES, float64[:, ::1]))
def collect_cliques(tables, patterns, base, stride, cardinality, start, residual):
    """Adjoint of `add_cliques`."""
    shared = residual.shape[0] == 1
    identity = patterns.shape[0] == 0
    arity = stride.shape[1]
    place = np.zeros(arity, dtype=np.int64)
    for term in range(len(base)):
        row = residual[0 if shared else term]
        place[:] = 0
        state = base[term]
        cell = start[term]
        left = True
        while left:
            if identity:
                row[state] += tables[cell]
            else:
                for pattern in range(residual.shape[1]):
                    row[pattern] += tables[cell] * patterns[state, pattern]
            cell += 1
            k = arity - 1
            while k >= 0:
                place[k] += 1
                state += stride[term, k]
                if place[k] < cardinality[term, k]:
                    break
                state -= stride[term, k] * cardinality[term, k]
                place[k] = 0
                k -= 1
            left = k >= 0
