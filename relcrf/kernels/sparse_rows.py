"""Similarities of rows of a sparse matrix: of one pair of rows, and the most similar rows of every row.

The matrix is in CSR form (`start`, `column`, `value`), with ascending columns in each row and positive values. The
*similarity* of two rows is their inner product p or, if the rows have sizes, p / (size + other size - p), which is 0 if p is 0.
For matrices of ones whose sizes are the numbers of entries, this is the Jaccard similarity of the sets of columns.
"""

from __future__ import annotations

import numpy as np
from numba import boolean, float64, int32, int64

from relcrf.kernels.compile import kernel

CSR = (int64[::1], int32[::1], float64[::1])
ROWS = (*CSR, float64[::1])

U = np.uint64
"""Unsigned type of loop indices; signed indices would prevent vectorisation (see `forest.py`)."""


@kernel((*ROWS, boolean, int64, int64))
def row_similarity(start, column, value, size, has_sizes, row, other):
    """Return the similarity of two rows; NaN if a size is NaN.

    The inner product is added in the order of the columns, as in `nearest_rows`.
    """
    product = 0.0
    i, end = U(start[row]), U(start[row + 1])
    j, other_end = U(start[other]), U(start[other + 1])
    while i < end and j < other_end:
        left, right = column[i], column[j]
        if left == right:
            product += value[i] * value[j]
        i += U(left <= right)
        j += U(right <= left)
    union = size[row] + size[other] - product
    if not has_sizes or product == 0.0:
        return product + 0.0 * union
    return product / union


@kernel((*ROWS, *CSR, boolean, int64, float64[::1], int32[::1], int32[:, ::1], float64[:, ::1], int32[::1]))
def nearest_rows(
    start,
    column,
    value,
    size,
    transposed_start,
    transposed_row,
    transposed_value,
    has_sizes,
    first,
    product,
    touched,
    nearest,
    closeness,
    count,
):
    """Find the most similar other rows of a block of rows; ties are broken by the lower index.

    Rows with similarity 0 are omitted. The products of a row with all rows are added column by column.

    Args:
        transposed_start, transposed_row, transposed_value: the transposed matrix in CSR form.
        first: first row of the block, whose number of rows is the length of `count`.
        product: scratch, shape (n_rows,); zeros before and after the call.
        touched: scratch, shape (n_rows,).
        nearest: output, most similar rows of each row of the block, most similar first, shape (n_block, k).
        closeness: output, their similarities, shape (n_block, k).
        count: output, number of rows in `nearest`, shape (n_block,).
    """
    for k in range(U(len(count))):
        row = U(first) + k
        n_touched = U(0)
        for i in range(U(start[row]), U(start[row + U(1)])):
            weight, at = value[i], U(column[i])
            for j in range(U(transposed_start[at]), U(transposed_start[at + U(1)])):
                other = U(transposed_row[j])
                if product[other] == 0.0:
                    touched[n_touched] = other
                    n_touched += U(1)
                product[other] += weight * transposed_value[j]
        n_found = 0
        for i in range(n_touched):
            other = touched[i]
            similarity = product[U(other)]
            product[U(other)] = 0.0
            if U(other) == row:
                continue
            if has_sizes:
                similarity /= size[row] + size[U(other)] - similarity
            if n_found < nearest.shape[1]:
                n_found += 1
                _sift_up(nearest[k], closeness[k], n_found - 1, other, similarity)
            elif _is_closer(similarity, other, closeness[k, 0], nearest[k, 0]):
                _sift_down(nearest[k], closeness[k], n_found, other, similarity)
        count[k] = n_found
        for end in range(n_found - 1, 0, -1):  # heap sort: the least similar row, at index 0, moves to the end
            other, similarity = nearest[k, end], closeness[k, end]
            nearest[k, end], closeness[k, end] = nearest[k, 0], closeness[k, 0]
            _sift_down(nearest[k], closeness[k], end, other, similarity)


@kernel()
def _is_closer(similarity, row, other_similarity, other):
    """Return True if a row precedes another row in the order of decreasing similarity and increasing index."""
    return similarity > other_similarity or (similarity == other_similarity and row < other)


@kernel()
def _sift_up(rows, similarities, at, row, similarity):
    """Insert a row at the end of a heap whose first row is the least similar; `at` is the size of the heap."""
    while at > 0:
        parent = (at - 1) // 2
        if not _is_closer(similarities[parent], rows[parent], similarity, row):
            break
        rows[at], similarities[at] = rows[parent], similarities[parent]
        at = parent
    rows[at], similarities[at] = row, similarity


@kernel()
def _sift_down(rows, similarities, n, row, similarity):
    """Replace the first row of a heap of n rows by another row."""
    at = 0
    while 2 * at + 1 < n:
        child = 2 * at + 1
        if child + 1 < n and _is_closer(similarities[child], rows[child], similarities[child + 1], rows[child + 1]):
            child += 1
        if not _is_closer(similarity, row, similarities[child], rows[child]):
            break
        rows[at], similarities[at] = rows[child], similarities[child]
        at = child
    rows[at], similarities[at] = row, similarity
