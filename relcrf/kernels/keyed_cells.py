"""The cells of a side (a sparse matrix of variables by *key* and *sample*), sorted by key, as arguments of kernels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import int32, int64, types

from relcrf.kernels.compile import read_only
from relcrf.kernels.threads import freeze


class KeyedCells(NamedTuple):
    """The cells of a side. The cells of key a are start[a] .. start[a + 1] - 1, in ascending order of sample.

    Args:
        start: offset of each key's cells, shape (n_keys + 1,), int64.
        sample, variable: sample and variable of each cell, shape (n_cells,), int32; -1 for a missing variable.
    """

    start: np.ndarray
    sample: np.ndarray
    variable: np.ndarray

    @classmethod
    def from_arrays(cls, start: np.ndarray, sample: np.ndarray, variable: np.ndarray) -> KeyedCells:
        """Convert arrays to the types that kernels are compiled for."""
        return cls(freeze(start, np.int64), freeze(sample, np.int32), freeze(variable, np.int32))


CELLS = types.NamedTuple([read_only(int64[::1]), read_only(int32[::1]), read_only(int32[::1])], KeyedCells)
