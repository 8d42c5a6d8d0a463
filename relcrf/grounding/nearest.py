"""Exact K nearest neighbours of every entity by a vector or string attribute, computed by blocked matrix products."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from relcrf.grounding.text_rows import TextRows
from relcrf.kernels.sparse_rows import nearest_rows

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
        # Squares of points far from the origin cancel; a mean, or one of the points, may itself be far from the others.
        points = vectors - np.median(vectors, axis=0)
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


MAX_BLOCK_ROWS = 1024
"""Maximum number of texts that one call of the kernel compares with all texts, so that an interruption takes effect soon."""


def find_nearest_texts(rows: TextRows, count: int, *, has_sizes: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs (a, b) with b among the `count` nearest neighbours of a; ties are broken by the lower index.

    Texts with similarity 0 are not neighbours. The time is proportional to the sum of the squared document frequencies of the
    tokens: 100,000 titles of 8 words, of which the most frequent word is in half of the titles, take 15 s.

    Args:
        has_sizes: True for the Jaccard similarity, False for the inner product, see `kernels/sparse_rows.py`.

    Returns:
        The arrays a and b, int32, of at most n * count pairs; ascending by a, then nearest first.
    """
    n = len(rows.size)
    count = min(count, n - 1)
    pairs = [np.empty((2, 0), dtype=np.int32)]
    n_tokens = int(rows.code.max(initial=-1)) + 1
    transposed = csr_array((rows.weight, rows.code, rows.start), shape=(n, n_tokens)).T.tocsr()
    starts, members = transposed.indptr.astype(np.int64), transposed.indices.astype(np.int32)
    product, touched = np.zeros(n), np.empty(n, dtype=np.int32)
    step = max(1, min(MAX_BLOCK_ROWS, BLOCK_CELLS // max(count, 1)))
    for first in range(0, n if count > 0 else 0, step):
        shape = (min(step, n - first), count)
        nearest, closeness, found = np.empty(shape, np.int32), np.empty(shape), np.empty(shape[0], np.int32)
        nearest_rows(
            *(rows.start, rows.code, rows.weight, rows.size),
            *(starts, members, transposed.data, has_sizes, first, product, touched, nearest, closeness, found),
        )
        a = np.repeat(np.arange(first, first + shape[0], dtype=np.int32), found)
        pairs.append(np.stack((a, nearest[np.arange(count) < found[:, None]])))
    a, b = np.concatenate(pairs, axis=1)
    return a, b


def _largest_indices(values: np.ndarray, count: int) -> np.ndarray:
    """Return the indices of the `count` largest values of each row, largest first; ties are broken by the lower index."""
    # Select all values that are at least the count-th largest value, because argpartition would break ties arbitrarily.
    threshold = -np.partition(-values, count - 1, axis=1)[:, count - 1 : count]
    row, column = np.nonzero(values >= threshold)
    order = np.lexsort((column, -values[row, column], row))
    row, column = row[order], column[order]
    first = np.searchsorted(row, np.arange(len(values)))
    return np.asarray(column[first[:, None] + np.arange(count)], dtype=np.int32)
