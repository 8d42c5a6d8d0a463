"""The linear map from scores to tables of log potentials, and its adjoint; a *term* is a factor with one table."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float64, int32, int64

from relcrf.kernels.compile import kernel, read_only
from relcrf.kernels.threads import freeze

TERMS = (*[int32[::1]] * 5, int64[::1])
PATTERNS = read_only(float64[:, ::1])
CLIQUES = (int64[::1], int32[:, ::1], int32[:, ::1], int64[::1])


@kernel(inline="always")
def _transfer(collect, scores, patterns, row, state, tables, cell):
    """Add the sum of scores[row] * patterns[state] to a table cell; if `collect`, apply the adjoint."""
    if patterns.shape[0] == 0:
        if collect:
            scores[row, state] += tables[cell]
        else:
            tables[cell] += scores[row, state]
    elif collect:
        value = tables[cell]
        for pattern in range(scores.shape[1]):
            scores[row, pattern] += value * patterns[state, pattern]
    else:
        for pattern in range(scores.shape[1]):
            tables[cell] += scores[row, pattern] * patterns[state, pattern]


def _make_table_kernels(collect: bool) -> tuple[Any, Any, Any]:
    """Make kernels that add scores to tables; if `collect`, make the adjoint kernels, which add tables to scores."""
    label = "[collect]" if collect else "[add]"

    @kernel((float64[:, ::1], PATTERNS, *TERMS, float64[::1]), label=label)
    def tables_of_terms(scores, patterns, base, stride_row, stride_column, n_rows, n_columns, start, tables):
        """Add scores to the tables of nodes and edges; if `collect`, add the tables to the scores.

        The table of term t starts at `tables[start[t]]` and is row-major, of shape (n_rows[t], n_columns[t]). The cell
        (x, y) has joint state `base[t] + x * stride_row[t] + y * stride_column[t]`.

        Args:
            scores: features @ weights, shape (n_terms, n_patterns), or (1, n_patterns) if all terms share the scores.
            patterns: value of each pattern in each joint state, (n_joint_states, n_patterns); (0, 0) for the identity.
        """
        shared = scores.shape[0] == 1
        for term in range(len(base)):
            row = 0 if shared else term
            for x in range(n_rows[term]):
                for y in range(n_columns[term]):
                    state = base[term] + x * stride_row[term] + y * stride_column[term]
                    _transfer(collect, scores, patterns, row, state, tables, start[term] + x * n_columns[term] + y)

    @kernel((float64[:, ::1], int32[::1], int64[::1], float64[::1]), label=label)
    def diagonals(scores, n_rows, start, tables):
        """Add scores to the diagonals of square tables, or the reverse; the only pattern is 1 for equal states."""
        shared = scores.shape[0] == 1
        for term in range(len(start)):
            row = 0 if shared else term
            cell = start[term]
            total = 0.0
            for _ in range(n_rows[term]):
                if collect:
                    total += tables[cell]
                else:
                    tables[cell] += scores[row, 0]
                cell += n_rows[term] + 1
            if collect:
                scores[row, 0] += total

    @kernel((float64[:, ::1], PATTERNS, *CLIQUES, float64[::1]), label=label)
    def tables_of_cliques(scores, patterns, base, stride, cardinality, start, tables):
        """Add scores to tables of any arity, or the reverse; `stride` and `cardinality` have shape (n_terms, arity)."""
        shared = scores.shape[0] == 1
        arity = stride.shape[1]
        digit = np.zeros(arity, dtype=np.int64)
        for term in range(len(base)):
            digit[:] = 0
            state = base[term]
            cell = start[term]
            has_next = True
            while has_next:
                _transfer(collect, scores, patterns, 0 if shared else term, state, tables, cell)
                cell += 1
                k = arity - 1
                while k >= 0:  # the next joint state, the last node fastest
                    digit[k] += 1
                    state += stride[term, k]
                    if digit[k] < cardinality[term, k]:
                        break
                    state -= stride[term, k] * cardinality[term, k]
                    digit[k] = 0
                    k -= 1
                has_next = k >= 0

    return tables_of_terms, diagonals, tables_of_cliques


add_tables, add_diagonals, add_cliques = _make_table_kernels(collect=False)
collect_tables, collect_diagonals, collect_cliques = _make_table_kernels(collect=True)


def pattern_matrix(patterns: np.ndarray | None) -> np.ndarray:
    """Return the pattern values in the form that the kernels take; `None`, the identity, has shape (0, 0)."""
    return freeze(np.empty((0, 0)) if patterns is None else patterns, np.float64)
