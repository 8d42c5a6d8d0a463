"""Softmax regressions of columns on each other: the conditionals of variables in a table of samples by columns, where an edge
between two columns has one table of weights for all samples.

A block of samples stays in the nearest cache from the scores to the gradients. Each sample has a row of numbers, one for each
state of the column. What an edge adds to it is a row of its table, which the other column's state selects; the gradient of that
row is the sum of the rows of residuals under that state. Rows are added as whole vectors, and nothing is one-hot. Between the
two the rows stand by state, so that exponentials run over samples.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import boolean, float64, int8, int32, int64, types

from relcrf.kernels.compile import kernel, read_only
from relcrf.kernels.lane_vectors import make_adder
from relcrf.kernels.vector_math import exp, log

U = np.uint64
"""Indices without a sign; see `forest.py`."""

ONE = U(1)

BLOCK_SIZE = U(256)
"""Samples at a time: their rows, of 8 states, are 16 KiB."""

GRADIENT_COPIES = 2
"""Of gradients, which take turns: an addition to the same row would wait for the one before."""

VECTOR_LENGTH = 8
"""Rows are whole vectors of so many float64. LLVM makes several of one where the machine's are shorter."""

VECTOR_STEP = U(VECTOR_LENGTH)

CACHE_LINE_BYTES = 64
"""Bytes of a line of cache. A row that lies in two lines takes twice as long."""


class SampleTable(NamedTuple):
    """A table of variables.

    Args:
        n_states: of each column, shape (n_columns,), int32.
        states: the labels, shape (n_columns, n_samples), int8; -1 where there is no variable.
        labels: those that are trained on; -1 elsewhere. The same shape.
        node, state_start: each variable's node, of the same shape, int32, and where its states begin in flat tables; both empty
            where all variables of a column have the same potentials.
    """

    n_states: np.ndarray
    states: np.ndarray
    labels: np.ndarray
    node: np.ndarray
    state_start: np.ndarray


class ColumnEdges(NamedTuple):
    """The edges of each column.

    Args:
        start: where those of each column begin, shape (n_columns + 1,), int64.
        other: the column at their other end, shape (n,), int32.
        row: where the rows of a table for its states begin, after one of zeros for no state, shape (n,), int64.
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
    """Zeros, shape (size,), that begin with a line of cache, as those rows should that are added."""
    room = np.zeros(size + CACHE_LINE_BYTES // 8)
    first = -room.ctypes.data % CACHE_LINE_BYTES // 8
    return room[first : first + size]


_add_row = make_adder(VECTOR_LENGTH)


@kernel()
def _add_table_scores(columns, acting, c, begin, n, tables, width, rows):
    """Adds to n samples' rows what the edges of a column say."""
    for at in range(U(acting.start[c]), U(acting.start[c + ONE])):
        other, first = U(acting.other[at]), acting.row[at] + 1
        for i in range(n):
            row = U(first + columns.states[other, begin + i]) * width
            for x in range(U(0), width, VECTOR_STEP):
                _add_row(rows, i * width + x, tables, row + x)


@kernel()
def _add_table_gradients(columns, asked, c, begin, n, rows, width, gradient):
    """The adjoint: adds n samples' rows to the gradients of the edges of a column."""
    size = U(len(gradient) // GRADIENT_COPIES)
    for at in range(U(asked.start[c]), U(asked.start[c + ONE])):
        other, first = U(asked.other[at]), asked.row[at] + 1
        for i in range(n):
            row = U(first + columns.states[other, begin + i]) * width + (i % U(GRADIENT_COPIES)) * size
            for x in range(U(0), width, VECTOR_STEP):
                _add_row(gradient, row + x, rows, i * width + x)


@kernel(fastmath={"contract"})
def _compute_residuals(labels, n, k, width, rows, scores, top, loss):
    """Makes scores residuals: of each state its probability less 1 at the label, 0 where there is none.

    Args:
        labels: of n samples. rows: their scores; then residuals.
        scores: overwritten by probabilities by state, shape (k, BLOCK); top, loss: overwritten, shape (BLOCK,): minus the log
            probabilities of labels are in `loss`.
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
        known = labels[i] >= 0
        loss[i] = top[i] + log(total) if known else 0.0
        top[i] = 1.0 / total if known else 0.0
    for x in range(k):
        for i in range(n):
            scores[x, i] *= top[i]
            rows[i * width + x] = scores[x, i]
    for i in range(n):
        if labels[i] >= 0:
            rows[i * width + U(labels[i])] -= 1.0


@kernel(fastmath={"contract", "reassoc", "nsz"})
def _sum_first(values, n):
    """The sum of the first n numbers."""
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
def sweep_columns(columns, acting, asked, every, lo, hi, base, tables, flat, value, of_base, gradient, rows):
    """Values and gradients of the columns lo..hi-1: of all, or only of those with an edge that is asked for.

    Args:
        every: whether of all.
        base: log potentials of each column's states, shape (n_columns, width); the width is a multiple of `ROW`.
        tables: flat rows of tables of the acting edges, a row after the other.
        flat: where nodes are given, their log potentials, in addition to those of columns; then residuals. Else empty.
        value: of each column, minus the sum of log conditionals; overwritten.
        of_base: sums of the probabilities of states where there are labels, shape (n_columns, width); overwritten.
        gradient: of the rows of the asked edges, as `tables`, `GRADIENT_COPIES` times, of which the sum counts; added to. Gradients
            for no state are of no use.
        rows: room for a block, shape (BLOCK * width,); overwritten.
    """
    width, n_samples = U(base.shape[1]), U(columns.states.shape[1])
    scores = np.empty((width, BLOCK_SIZE))
    top, loss = np.empty(BLOCK_SIZE), np.empty(BLOCK_SIZE)
    for c in range(U(lo), U(hi)):
        if not every and asked.start[c] == asked.start[c + ONE]:
            continue
        k = U(columns.n_states[c])
        value[c] = 0.0
        of_base[c, :] = 0.0
        for begin in range(U(0), n_samples, BLOCK_SIZE):
            n = min(BLOCK_SIZE, n_samples - begin)
            for i in range(n):
                for x in range(width):
                    rows[i * width + x] = base[c, x]
            if len(flat):
                for i in range(n):
                    node = columns.node[c, begin + i]
                    if node >= 0:
                        for x in range(k):
                            rows[i * width + x] += flat[U(columns.state_start[node]) + x]
            _add_table_scores(columns, acting, c, begin, n, tables, width, rows)
            labels = columns.labels[c, begin : begin + n]
            _compute_residuals(labels, n, k, width, rows, scores, top, loss)
            value[c] += _sum_first(loss, n)
            for x in range(k):
                of_base[c, x] += _sum_first(scores[x], n)
            if len(flat):
                for i in range(n):
                    node = columns.node[c, begin + i]
                    if node >= 0:
                        for x in range(k):
                            flat[U(columns.state_start[node]) + x] = rows[i * width + x]
            _add_table_gradients(columns, asked, c, begin, n, rows, width, gradient)
