"""Distributions of single nodes on a GPU, whose log potentials are the product of a sparse matrix and the weights."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from relcrf.gpu.device import allocate, launch, load_kernels, upload
from relcrf.gpu.row_sums import RowSums


class GpuConditionals:
    """The log partitions and the expected counts of independent nodes, as functions of the weights, on a GPU.

    The matrix and its transpose are uploaded once; an evaluation uploads the weights and downloads the expected counts.

    Args:
        matrix: Map from weights to log potentials, shape (n_states, n_weights).
        state_start: Offset of the states of each node, shape (n_nodes + 1,).

    Raises:
        UsageError: If no GPU is found (E382).
    """

    def __init__(self, matrix: csr_array, state_start: np.ndarray) -> None:
        self._rows = upload(matrix.indptr, np.int64), upload(matrix.indices, np.int32), upload(matrix.data, np.float64)
        self._transposed = RowSums(matrix.T.tocsr())
        self._state_start = upload(state_start, np.int64)
        self._tables, self._log_partition = allocate(matrix.shape[0]), allocate(len(state_start) - 1)
        self._counts = allocate(matrix.shape[1])

    @cached_property
    def _zeros(self) -> Any:
        return upload(np.zeros(len(self._tables)), np.float64)

    def expectation(self, weights: np.ndarray, added_potentials: np.ndarray | None) -> tuple[float, np.ndarray]:
        """Return the sum of the log partitions, and the expected counts, shape (n_weights,).

        Args:
            added_potentials: Log potentials that are added to those of the weights; None if there are none.
        """
        kernels = load_kernels()
        added = self._zeros if added_potentials is None else upload(added_potentials, np.float64)
        launch(kernels.multiply, len(self._tables), *self._rows, upload(weights, np.float64), added, self._tables)
        launch(kernels.normalise, len(self._log_partition), self._state_start, self._tables, self._log_partition)
        self._transposed.multiply(self._tables, self._counts)
        return float(self._log_partition.copy_to_host().sum()), np.asarray(self._counts.copy_to_host())
