"""Exact K nearest neighbours of every entity by a vector attribute, computed by blocked matrix products."""

from __future__ import annotations

import numpy as np

BLOCK_CELLS = 1 << 24
"""Number of similarities in memory at a time: 128 MB."""


def find_nearest_neighbours(vectors: np.ndarray, count: int, measure: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs (a, b) with b among the `count` nearest neighbours of a; ties are broken by the lower index.

    Args:
        vectors: vector of each entity, shape (n, d).
        measure: `cosine` or `dot` (largest first), or `distance` (smallest first).

    Returns:
        The arrays a and b, int32, shape (n * min(count, n - 1),); ascending by a, then nearest first.
    """
    n = len(vectors)
    count = min(count, n - 1)
    if count <= 0:
        return np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int32)
    points = vectors
    if measure == "cosine":
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        points = np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
    elif measure == "distance":
        points = vectors - vectors[0]  # avoids cancellation in the squares of points far from the origin
    squared = (points**2).sum(axis=1)
    neighbours = np.empty((n, count), dtype=np.int32)
    step = max(1, BLOCK_CELLS // n)
    for start in range(0, n, step):
        stop = min(start + step, n)
        closeness = points[start:stop] @ points.T
        if measure == "distance":
            # The result is minus half the squared distance, plus a constant of the row, which does not change the order.
            closeness -= 0.5 * squared
        closeness[np.arange(stop - start), np.arange(start, stop)] = -np.inf
        neighbours[start:stop] = _largest_indices(closeness, count)
    return np.repeat(np.arange(n, dtype=np.int32), count), neighbours.ravel()


def _largest_indices(values: np.ndarray, count: int) -> np.ndarray:
    """Return the indices of the `count` largest values of each row, largest first; ties are broken by the lower index."""
    # Select all values that are at least the count-th largest value, because argpartition would break ties arbitrarily.
    threshold = -np.partition(-values, count - 1, axis=1)[:, count - 1 : count]
    row, column = np.nonzero(values >= threshold)
    order = np.lexsort((column, -values[row, column], row))
    row, column = row[order], column[order]
    first = np.searchsorted(row, np.arange(len(values)))
    return np.asarray(column[first[:, None] + np.arange(count)], dtype=np.int32)
