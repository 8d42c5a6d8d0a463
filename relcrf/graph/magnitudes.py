"""Numbers of feature values by class of magnitude, from which the scales of features follow."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from relcrf.columns.storage import read_rows
from relcrf.graph.features import AbstractFeatures, Dense, Keyed, Sparse, Tiled

EXPONENT_BITS = 4
"""Binary exponents per class of magnitudes."""

N_CLASSES = 2048 // EXPONENT_BITS + 1
"""Number of classes; double-precision numbers have 2,048 exponents."""

UNIT_CLASS = (1023 + EXPONENT_BITS - 1) // EXPONENT_BITS
"""The class of the magnitudes from 1/4 to 4."""

_EXPONENT_SHIFT, _EXPONENT_MASK = 52, 0x7FF
"""Position of the exponent in a double-precision number."""

_CHUNK = 1 << 18
"""Number of values that are read at a time."""


def magnitude_counts(features: AbstractFeatures) -> np.ndarray:
    """Count the values except 0 of each column of a feature matrix by class of magnitude.

    There is one column per feature, except that the keys of `per` share the columns of their features, and that a sparse
    matrix has a single column.

    Returns:
        Shape (n_columns, N_CLASSES), int64.
    """
    match features:
        case Tiled(tile, times):
            return times * magnitude_counts(tile)
        case Dense(values) | Keyed(_, values, _) if len(values):
            return _count_values(values, values.shape[1])
        case Sparse(_, _, values, _) if len(values):
            return _count_values(values, 1)
    counts = np.zeros((features.n_features if isinstance(features, Dense) else 1, N_CLASSES), dtype=np.int64)
    counts[0, UNIT_CLASS] = len(features.column) if isinstance(features, Sparse) else features.n_rows
    return counts


def exceed(values: np.ndarray, bound: np.ndarray) -> bool:
    """Return True if a magnitude exceeds the bound of its column; `bound` has shape (n_columns,)."""
    return any(bool((np.abs(chunk) > bound).any()) for chunk in _chunks(values, len(bound)))


def _count_values(values: np.ndarray, n_columns: int) -> np.ndarray:
    counts = np.zeros(n_columns * N_CLASSES, dtype=np.int64)
    first = N_CLASSES * np.arange(n_columns)
    for chunk in _chunks(values, n_columns):
        numbers = np.asarray(chunk, dtype=np.float64).reshape(-1, n_columns)
        exponents = (numbers.view(np.int64) >> _EXPONENT_SHIFT) & _EXPONENT_MASK
        classes = (exponents + EXPONENT_BITS - 1) // EXPONENT_BITS
        counts += np.bincount((classes + first).ravel(), minlength=len(counts))
    counts[first] = 0  # zeros and denormal numbers
    return counts.reshape(n_columns, N_CLASSES)


def _chunks(values: np.ndarray, n_columns: int) -> Iterator[np.ndarray]:
    """Yield parts of the values, which may be mapped from a file larger than the memory."""
    rows = max(_CHUNK // max(n_columns, 1), 1)
    for start in range(0, len(values), rows):
        yield read_rows(values, start, min(start + rows, len(values)))
