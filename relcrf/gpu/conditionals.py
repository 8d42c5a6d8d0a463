"""Distributions of single nodes on a GPU, whose log potentials are the product of a sparse matrix and the weights."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from scipy.sparse import csr_array

from relcrf.columns.offsets import offsets
from relcrf.gpu.device import THREADS, allocate, launch, load_kernels, upload

CHUNK_ENTRIES = 32 * THREADS
"""Number of entries of the transposed matrix that a block of threads sums, 32 for each thread."""


class GpuConditionals:
    """The log partitions and the expected counts of independent nodes, as functions of the weights, on a GPU.

    The matrix, in two orders, is uploaded once; an evaluation uploads the weights and downloads the expected counts.

    Args:
        matrix: Map from weights to log potentials, shape (n_states, n_weights).
        state_start: Offset of the states of each node, shape (n_nodes + 1,).

    Raises:
        UsageError: If there is no GPU (E382).
    """

    def __init__(self, matrix: csr_array, state_start: np.ndarray) -> None:
        transposed = matrix.T.tocsr()
        n_chunks = -(-np.diff(transposed.indptr) // CHUNK_ENTRIES)
        row, first = np.repeat(np.arange(len(n_chunks)), n_chunks), offsets(n_chunks)
        within = np.arange(len(row)) - first[row]
        chunk_start = np.append(transposed.indptr[row] + within * CHUNK_ENTRIES, transposed.nnz)
        self._rows = upload(matrix.indptr, np.int64), upload(matrix.indices, np.int32), upload(matrix.data, np.float64)
        self._columns = (
            upload(chunk_start, np.int64),
            upload(transposed.indices, np.int32),
            upload(transposed.data, np.float64),
        )
        self._chunks_of_weight = upload(first, np.int64)
        self._state_start = upload(state_start, np.int64)
        self._tables, self._log_partition = allocate(matrix.shape[0]), allocate(len(state_start) - 1)
        self._partial_sums, self._counts = allocate(len(row)), allocate(matrix.shape[1])

    @cached_property
    def _zeros(self) -> object:
        return upload(np.zeros(len(self._tables)), np.float64)

    def expectation(self, weights: np.ndarray, added_potentials: np.ndarray | None) -> tuple[float, np.ndarray]:
        """Return the sum of the log partitions, and the expected counts, shape (n_weights,).

        Args:
            added_potentials: Log potentials that are added to those of the weights; None if there are none.
        """
        kernels, n_chunks = load_kernels(), len(self._partial_sums)
        added = self._zeros if added_potentials is None else upload(added_potentials, np.float64)
        weights_on_gpu = upload(weights, np.float64)
        launch(kernels.multiply, len(self._tables), *self._rows, weights_on_gpu, added, self._tables)
        launch(kernels.normalise, len(self._log_partition), self._state_start, self._tables, self._log_partition)
        launch(kernels.sum_chunks, n_chunks * THREADS, *self._columns, self._tables, self._partial_sums)
        launch(kernels.sum_runs, len(self._counts), self._chunks_of_weight, self._partial_sums, self._counts)
        return float(self._log_partition.copy_to_host().sum()), np.asarray(self._counts.copy_to_host())
