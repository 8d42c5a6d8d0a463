"""Products of a sparse matrix and vectors on a GPU, for rows with any number of entries."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array

from relcrf.columns.offsets import offsets
from relcrf.gpu.device import THREADS, allocate, launch, load_kernels, upload

CHUNK_ENTRIES = 32 * THREADS
"""Number of entries that a block of threads sums, 32 for each thread."""
MAX_SHORT_ROW = 32
"""Maximum number of entries of a row that one thread sums, as many as a thread sums of a longer row."""


class RowSums:
    """The products of a sparse matrix, which is uploaded once, and vectors on the GPU.

    One thread sums each row, or, if a row is long, blocks of threads sum its chunks, in an order that depends only on the
    matrix.
    """

    def __init__(self, matrix: csr_array) -> None:
        sizes = np.diff(matrix.indptr)
        self._is_short = sizes.max(initial=0) <= MAX_SHORT_ROW
        n_chunks = np.zeros_like(sizes) if self._is_short else -(-sizes // CHUNK_ENTRIES)
        row, first = np.repeat(np.arange(len(n_chunks)), n_chunks), offsets(n_chunks)
        chunk_start = matrix.indptr[row] + (np.arange(len(row)) - first[row]) * CHUNK_ENTRIES
        start = matrix.indptr if self._is_short else np.append(chunk_start, matrix.nnz)
        entries = upload(matrix.indices, np.int32), upload(matrix.data, np.float64)
        self._matrix = upload(start, np.int64), *entries
        self._chunks_of_row, self._partial_sums = upload(first, np.int64), allocate(len(row))
        self._zeros = upload(np.zeros(matrix.shape[0] if self._is_short else 0), np.float64)

    def multiply(self, vector: Any, out: Any) -> None:
        """Set `out` to the product of the matrix and a vector."""
        kernels, n_chunks = load_kernels(), len(self._partial_sums)
        if self._is_short:
            launch(kernels.multiply, len(out), *self._matrix, vector, self._zeros, out)
        else:
            launch(kernels.sum_chunks, n_chunks * THREADS, *self._matrix, vector, self._partial_sums)
            launch(kernels.sum_runs, len(out), self._chunks_of_row, self._partial_sums, out)
