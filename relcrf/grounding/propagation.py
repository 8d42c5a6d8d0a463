"""Functions of the values of all entities of a type: propagation along links, norms, inverse document frequencies.

The values are a matrix with one row per entity: sparse for a bag (one column per domain value), otherwise dense.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from scipy.sparse import csr_array, diags_array, eye_array

Values: TypeAlias = "csr_array | np.ndarray"
"""Values of all entities of a type, shape (n_entities, n_columns); NaN is a missing number."""

MIN_DENSITY = 0.1
"""Density above which a product is computed with a dense matrix, which is then faster than with a sparse matrix."""

MAX_DENSE_CELLS = 1 << 26
"""Maximum number of cells of a dense matrix: 512 MB."""

MAX_SQUARED_EXPONENT = 400
"""Maximum binary exponent of values whose squares are added; columns of larger values are divided by a power of 2."""


def propagation_matrix(n: int, a: np.ndarray, b: np.ndarray, normalisation: str) -> csr_array:
    """Return the matrix S of one step of propagation along undirected links.

    A is the symmetric adjacency matrix: A[i, j] is 1 if i and j are different and linked in any direction. I is the
    identity, and D is the diagonal matrix of the row sums of A + I. S is A + I without normalisation, D^-1 (A + I) for
    `mean`, and D^-1/2 (A + I) D^-1/2 for `symmetric`.

    Args:
        n: number of entities.
        a: first entity of each link, shape (n_links,).
        b: second entity of each link, shape (n_links,).

    Source: Kipf & Welling 2017, eq. 2, for `symmetric`.
    """
    linked = a != b
    links = csr_array((np.ones(int(linked.sum())), (a[linked], b[linked])), shape=(n, n))
    adjacency = (links + links.T).tocsr()
    adjacency.data[:] = 1.0
    looped = (adjacency + eye_array(n, format="csr")).tocsr()
    degree = np.asarray(looped.sum(axis=1)).ravel()
    if normalisation == "mean":
        return csr_array(diags_array(1.0 / degree) @ looped)
    if normalisation == "symmetric":
        scale = diags_array(1.0 / np.sqrt(degree))
        return csr_array(scale @ looped @ scale)
    return csr_array(looped)


def max_entries(step: csr_array, values: csr_array) -> int:
    """Return an upper bound of the number of entries of the product `step @ values`."""
    per_row = csr_array((np.ones(step.nnz), step.indices, step.indptr), shape=step.shape) @ np.diff(values.indptr)
    return int(np.minimum(per_row, values.shape[1]).sum())


def multiply(step: csr_array, values: Values) -> Values:
    """Return `step @ values`. The result is dense if `values` is dense, or has many entries and fits into memory."""
    if not isinstance(values, np.ndarray):
        n_cells = values.shape[0] * values.shape[1]
        if values.nnz < MIN_DENSITY * n_cells or n_cells > MAX_DENSE_CELLS:
            return csr_array(step @ values)
        values = values.toarray()
    return np.asarray(step @ values)


def divide_by_norm(values: Values) -> Values:
    """Return the rows divided by their Euclidean norms; a row of zeros is unchanged."""
    if isinstance(values, np.ndarray):
        norm = np.linalg.norm(values, axis=1)
        return values / np.where(norm > 0, norm, 1.0)[:, None]
    norm = np.sqrt(np.asarray(values.multiply(values).sum(axis=1)).ravel())
    return csr_array(diags_array(1.0 / np.where(norm > 0, norm, 1.0)) @ values)


def inverse_document_frequencies(counts: csr_array) -> np.ndarray:
    """Return log((1 + n) / (1 + df)) + 1 for each column; df is the number of rows with an entry in the column.

    Returns:
        Shape (n_columns + 1,); the last value is that of a column without entries.

    Source: Pedregosa et al. 2011, the default of `TfidfTransformer` in scikit-learn.
    """
    n, width = counts.shape
    frequency = np.bincount(counts.indices, minlength=width + 1)
    return np.asarray(np.log((1.0 + n) / (1.0 + frequency)) + 1.0)


def multiply_by_idf(counts: csr_array, frequencies: np.ndarray) -> csr_array:
    """Return the counts multiplied by the inverse document frequencies of their columns.

    Args:
        frequencies: see `inverse_document_frequencies`; columns beyond its length do not occur in the training data, and have
            the frequency of a column without entries.
    """
    factors = frequencies[np.minimum(counts.indices, len(frequencies) - 1)]
    return csr_array((counts.data * factors, counts.indices, counts.indptr), shape=counts.shape)


def mean_and_deviation(values: np.ndarray) -> np.ndarray:
    """Return the mean and the standard deviation of each column, shape (2, n_columns).

    Missing values are ignored. A deviation of 0, or of the size of the rounding errors of the mean, is replaced by 1, also in
    a column without values, whose mean is 0.
    """
    known = ~np.isnan(values)
    count = np.maximum(known.sum(axis=0), 1)
    exponent = np.frexp(np.abs(np.where(known, values, 0.0)).max(axis=0, initial=0.0))[1]
    unit = np.ldexp(1.0, np.where(exponent > MAX_SQUARED_EXPONENT, exponent, 0))
    values = np.where(known, values / unit, 0.0)
    mean = values.sum(axis=0) / count
    deviation = np.sqrt((np.where(known, values - mean, 0.0) ** 2).sum(axis=0) / count)
    is_constant = deviation <= count * np.finfo(np.float64).eps * abs(mean)
    return np.stack((mean * unit, np.where(is_constant, 1.0, deviation * unit)))
