"""Softmax regressions of columns on each other: the conditional of each variable in a table of samples by columns.

An edge between two columns has one table of weights, which all samples share.

The kernel processes one column and one block of samples at a time; the block stays in the L1 cache. Each sample has a
row of scores, one for each state of the column. Each edge adds one row of its table to the sample's scores: the row of
the other column's state. The gradient of a table row is the sum of the residuals of all samples in which the other
column has that state. Rows are added as whole vectors; no one-hot encoding is built. To compute the residuals, the
scores are transposed, so that exponentials are vectorised over samples.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import boolean, float64, int8, int32, int64, types

from relcrf.kernels.compile import kernel, read_only
from relcrf.kernels.vector_math import exp, log
from relcrf.kernels.vectors import make_loader, store

U = np.uint64
"""Unsigned type of loop indices; signed indices would prevent vectorisation (see `forest.py`)."""

ONE = U(1)

BLOCK_SIZE = U(256)
"""Number of samples per block. With 8 states, the scores of a block take 16 KiB, half of a small L1 cache."""

GRADIENT_COPIES = 2
"""Number of gradient accumulators, used in turn because consecutive additions to one row would wait for each other."""

VECTOR_LENGTH = 8
"""Number of float64 per vector; row lengths are multiples of it. LLVM splits vectors too long for the machine."""

VECTOR_STEP = U(VECTOR_LENGTH)

CACHE_LINE_BYTES = 64
"""Size of a cache line. A row that crosses a line boundary takes twice as long to add."""


class SampleTable(NamedTuple):
    """A table of variables, by column and sample.

    Args:
        n_states: number of states of each column, shape (n_columns,), int32.
        states: state of each variable, shape (n_columns, n_samples), int8; -1 where there is no variable.
        labels: the states that are used as labels; -1 for all other variables. Same shape and type as `states`.
        node: graph node of each variable, same shape, int32. Empty if the variables of a column have equal potentials.
        state_start: offset of each node's states in flat tables of the graph; empty if `node` is empty.
    """

    n_states: np.ndarray
    states: np.ndarray
    labels: np.ndarray
    node: np.ndarray
    state_start: np.ndarray


class ColumnEdges(NamedTuple):
    """The edges of each column, in CSR form.

    Args:
        start: offset of each column's edges, shape (n_columns + 1,), int64.
        other: the column at the other end of each edge, shape (n,), int32.
        row: first row of each edge's table in the flat tables, shape (n,), int64. A table has a row of zeros for a
            missing state, followed by one row for each state of the other column.
    """

    start: np.ndarray
    other: np.ndarray
    row: np.ndarray


FLAT, TABLE, INDEX = float64[::1], float64[:, ::1], int64[::1]
LABELS = read_only(int8[:, ::1])
COLUMNS = types.NamedTuple(
    [read_only(int32[::1]), LABELS, LABELS, read_only(int32[:, ::1]), read_only(INDEX)], SampleTable
)
COLUMN_EDGES = types.NamedTuple([read_only(INDEX), read_only(int32[::1]), read_only(INDEX)], ColumnEdges)


def aligned_zeros(size: int) -> np.ndarray:
    """Allocate zeros, shape (size,), aligned to a cache line."""
    padded = np.zeros(size + CACHE_LINE_BYTES // 8)
    first = -padded.ctypes.data % CACHE_LINE_BYTES // 8
    return padded[first : first + size]


_load = make_loader(VECTOR_LENGTH)


@kernel()
def _add_table_scores(columns, active, c, begin, n_samples, tables, width, rows):
    """For each edge of a column, add the table row of the other column's state to the scores of each sample."""
    for at in range(U(active.start[c]), U(active.start[c + ONE])):
        other, first = U(active.other[at]), active.row[at] + 1
        for i in range(n_samples):
            row = U(first + columns.states[other, begin + i]) * width
            for x in range(U(0), width, VECTOR_STEP):
                store(rows, i * width + x, _load(rows, i * width + x) + _load(tables, row + x))


@kernel()
def _add_table_gradients(columns, requested, c, begin, n_samples, rows, width, gradient):
    """For each edge of a column, add each sample's residuals to the gradient: the adjoint of `_add_table_scores`."""
    size = U(len(gradient) // GRADIENT_COPIES)
    for at in range(U(requested.start[c]), U(requested.start[c + ONE])):
        other, first = U(requested.other[at]), requested.row[at] + 1
        for i in range(n_samples):
            row = U(first + columns.states[other, begin + i]) * width + (i % U(GRADIENT_COPIES)) * size
            for x in range(U(0), width, VECTOR_STEP):
                store(gradient, row + x, _load(gradient, row + x) + _load(rows, i * width + x))


@kernel(fastmath={"contract"})
def _compute_residuals(labels, n, k, width, rows, scores, top, loss):
    """Convert scores to residuals: probabilities, minus 1 in the state of the label. Without a label, residuals are 0.

    Args:
        labels: labels of n samples, -1 for unlabelled samples.
        rows: scores on entry, residuals on return.
        scores: overwritten by the transposed probabilities (0 for unlabelled samples), shape (k, BLOCK_SIZE).
        top: scratch, shape (BLOCK_SIZE,).
        loss: overwritten by minus the log probability of each label (0 for unlabelled samples), shape (BLOCK_SIZE,).
    """
    for x in range(k):
        for i in range(n):
            scores[x, i] = rows[i * width + x]
    for i in range(n):
        top[i] = scores[0, i]
    for x in range(ONE, k):
        for i in range(n):
            top[i] = scores[x, i] if scores[x, i] > top[i] else top[i]
    for i in range(n):
        loss[i] = 0.0
    for x in range(k):
        for i in range(n):
            scores[x, i] = exp(scores[x, i] - top[i])
            loss[i] += scores[x, i]
    for i in range(n):
        top[i] -= rows[i * width + U(max(labels[i], 0))]
    for i in range(n):
        total = loss[i]
        is_labelled = labels[i] >= 0
        loss[i] = top[i] + log(total) if is_labelled else 0.0
        top[i] = 1.0 / total if is_labelled else 0.0
    for x in range(k):
        for i in range(n):
            scores[x, i] *= top[i]
            rows[i * width + x] = scores[x, i]
    for i in range(n):
        if labels[i] >= 0:
            rows[i * width + U(labels[i])] -= 1.0


@kernel(fastmath={"contract", "reassoc", "nsz"})
def _sum_first(values, n):
    """Sum the first n values."""
    total = 0.0
    for i in range(n):
        total += values[i]
    return total


@kernel(
    (
        COLUMNS,
        COLUMN_EDGES,
        COLUMN_EDGES,
        boolean,
        int64,
        int64,
        read_only(TABLE),
        read_only(FLAT),
        FLAT,
        FLAT,
        TABLE,
        FLAT,
        FLAT,
    )
)
def sweep_columns(
    columns, active, requested, all_columns, lo, hi, base, tables, node_scores, value, base_sums, gradient, rows
):
    """Compute values and gradients of columns lo..hi-1; unless `all_columns`, skip columns without a requested edge.

    Args:
        active: the edges that contribute to the scores.
        requested: the edges whose gradients are computed.
        all_columns: whether to include columns without a requested edge.
        base: log potentials of each column's states, shape (n_columns, width); the width is a multiple of
            `VECTOR_LENGTH`.
        tables: flat tables of the active edges, row by row.
        node_scores: the nodes' log potentials, which are added to `base`; overwritten by the nodes' residuals. Empty if
            `columns` has no nodes.
        value: overwritten by the value of each column: minus the sum of the log conditionals of its labels.
        base_sums: for each column and state, overwritten by the sum of the state's probabilities over the labelled
            samples, shape (n_columns, width).
        gradient: the gradients of the requested edges' tables are added to it. It contains `GRADIENT_COPIES` arrays in
            the layout of `tables`; their sum is the gradient. The rows for a missing state are meaningless.
        rows: scratch for one block, shape (BLOCK_SIZE * width,).
    """
    width, n_total = U(base.shape[1]), U(columns.states.shape[1])
    scores = np.empty((width, BLOCK_SIZE))
    top, loss = np.empty(BLOCK_SIZE), np.empty(BLOCK_SIZE)
    for c in range(U(lo), U(hi)):
        if not all_columns and requested.start[c] == requested.start[c + ONE]:
            continue
        k = U(columns.n_states[c])
        value[c] = 0.0
        base_sums[c, :] = 0.0
        for begin in range(U(0), n_total, BLOCK_SIZE):
            n_samples = min(BLOCK_SIZE, n_total - begin)
            for i in range(n_samples):
                for x in range(width):
                    rows[i * width + x] = base[c, x]
            if len(node_scores):
                for i in range(n_samples):
                    node = columns.node[c, begin + i]
                    if node >= 0:
                        for x in range(k):
                            rows[i * width + x] += node_scores[U(columns.state_start[node]) + x]
            _add_table_scores(columns, active, c, begin, n_samples, tables, width, rows)
            labels = columns.labels[c, begin : begin + n_samples]
            _compute_residuals(labels, n_samples, k, width, rows, scores, top, loss)
            value[c] += _sum_first(loss, n_samples)
            for x in range(k):
                base_sums[c, x] += _sum_first(scores[x], n_samples)
            if len(node_scores):
                for i in range(n_samples):
                    node = columns.node[c, begin + i]
                    if node >= 0:
                        for x in range(k):
                            node_scores[U(columns.state_start[node]) + x] = rows[i * width + x]
            _add_table_gradients(columns, requested, c, begin, n_samples, rows, width, gradient)
