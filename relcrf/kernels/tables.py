"""From factor scores to node and edge tables, and back: the linear map of the model and its adjoint."""

from __future__ import annotations

from numba import float64, int32, int64

from relcrf.kernels.compile import kernel

TERMS = (*[int32[::1]] * 5, int64[::1])


@kernel((float64[:, ::1], float64[:, ::1], *TERMS, float64[::1]))
def add_tables(  # type: ignore[no-untyped-def]
    scores, patterns, base, stride_row, stride_column, n_rows, n_columns, start, out
):
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
def collect_tables(  # type: ignore[no-untyped-def]
    tables, patterns, base, stride_row, stride_column, n_rows, n_columns, start, residual
):
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
