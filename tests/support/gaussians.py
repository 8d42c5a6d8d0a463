"""Small random graphs of numbers, and their distributions as dense matrices."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from relcrf.graph.numeric_graph import NumericGraph
from relcrf.inference.gaussian import PairWeights
from relcrf.learning.gaussian_likelihood import NumberWeights


def random_ends(rng, n, n_pairs):
    """Return the two ends of random pairs, some of them repeated in both directions."""
    first, second = rng.integers(n, size=(2, n_pairs)).astype(np.int32)
    kept = first != second
    first, second = first[kept], second[kept]
    return np.concatenate((first, second[:2], first[:1])), np.concatenate((second, first[:2], second[:1]))


def random_numeric_graph(rng, n, n_pairs, columns=(range(6),) * 4):
    """Return a graph of two attributes and 6 weights.

    Args:
        columns: The columns of the matrices of means, log precisions, differences and sums with entries.
    """
    first, second = random_ends(rng, n, n_pairs)

    def matrix(n_rows, used):
        dense = rng.normal(size=(n_rows, 6)) * (rng.random((n_rows, 6)) < 0.5)
        return sparse.csr_matrix(dense * np.isin(np.arange(6), used))

    sizes = (n, n, len(first), len(first))
    mean, log_precision, *pairs = (matrix(size, used) for size, used in zip(sizes, columns, strict=True))
    return NumericGraph(np.arange(n), rng.integers(2, size=n), mean, log_precision, first, second, *pairs)


def dense_precision(pairs: PairWeights) -> np.ndarray:
    """Return Q as the sum of its squares, one by one."""
    matrix = np.eye(pairs.n)
    for a, b, d, s in zip(pairs.first, pairs.second, pairs.difference, pairs.sum, strict=True):
        difference, total = np.zeros(pairs.n), np.zeros(pairs.n)
        difference[a], difference[b] = 1.0, -1.0
        total[[a, b]] = 1.0
        matrix += d * np.outer(difference, difference) + s * np.outer(total, total)
    return matrix


def dense_distribution(graph: NumericGraph, point: NumberWeights) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the covariance matrix of all numbers."""
    scale = np.exp(-0.5 * (point.offset[graph.attribute, 1] + graph.log_precision.toarray() @ point.weights))
    mean = point.offset[graph.attribute, 0] + graph.mean.toarray() @ point.weights
    return mean, np.outer(scale, scale) * np.linalg.inv(dense_precision(point.pairs(graph)))


def condition(mean, covariance, values):
    """Return the mean and the covariance of the unknown numbers, nan in `values`, given the others."""
    unknown, known = np.isnan(values), ~np.isnan(values)
    gain = np.linalg.solve(covariance[np.ix_(known, known)], covariance[np.ix_(known, unknown)]).T
    expected = mean[unknown] + gain @ (values - mean)[known]
    return expected, covariance[np.ix_(unknown, unknown)] - gain @ covariance[np.ix_(known, unknown)]
