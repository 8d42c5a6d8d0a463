"""The likelihood of numbers under the Gaussian distribution of `graph/numeric_graph.py`, with exact gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from relcrf.graph.numeric_graph import NumericGraph
from relcrf.inference.gaussian import MAX_LIKELIHOOD_OPERATIONS, ConditionalPattern, PairWeights
from relcrf.inference.gaussian_forest import LinkCorrelations

NumericLikelihood: TypeAlias = Callable[["NumberWeights"], tuple[float, "NumberWeights"]]
"""A function that returns the negative log-likelihood, or an approximation of it, and its gradient."""

MAX_LOG_WEIGHT = 60.0
"""Maximum absolute logarithm of a precision or of the weight of a pair; e^60 and the sums of such weights are finite."""


def bounded_exp(logarithm: np.ndarray) -> np.ndarray:
    """Return exp of a logarithm that is limited to `MAX_LOG_WEIGHT`."""
    return np.asarray(np.exp(np.clip(logarithm, -MAX_LOG_WEIGHT, MAX_LOG_WEIGHT)))


@dataclass(frozen=True, eq=False)
class NumberWeights:
    """The weights of a numeric graph, and the mean and the log precision of each attribute.

    Args:
        weights: The weights of all templates, shape (n_weights,).
        offset: Mean and log precision of each attribute to which the templates add, shape (n_attributes, 2).
        is_forest: Whether the pairs form a forest, in the distribution of `inference/gaussian_forest.py`.
    """

    weights: np.ndarray
    offset: np.ndarray
    is_forest: bool = False

    def mean(self, graph: NumericGraph) -> np.ndarray:
        """Return the mean of each variable, shape (n,)."""
        return np.asarray(self.offset[graph.attribute, 0] + graph.mean @ self.weights)

    def log_precision(self, graph: NumericGraph) -> np.ndarray:
        """Return the log precision of each variable, shape (n,)."""
        return self.bounded_log_precision(graph.attribute, graph.log_precision @ self.weights)

    def bounded_log_precision(self, attribute: np.ndarray, difference: np.ndarray) -> np.ndarray:
        """Return the log precisions of variables by their attributes and their differences from the offset, which are limited."""
        return np.asarray(self.offset[attribute, 1] + np.clip(difference, -MAX_LOG_WEIGHT, MAX_LOG_WEIGHT))

    def pairs(self, graph: NumericGraph) -> PairWeights:
        """Return the precision matrix of the deviations."""
        return self.correlations(graph).forest_weights if self.is_forest else self.pair_weights(graph)

    def pair_weights(self, graph: NumericGraph) -> PairWeights:
        """Return the weights d and s of the pairs."""
        difference, total = (bounded_exp(matrix @ self.weights) for matrix in (graph.difference, graph.sum))
        return PairWeights(len(graph.variables), graph.first, graph.second, difference, total)

    def correlations(self, graph: NumericGraph) -> LinkCorrelations:
        """Return the correlations of the links in a forest."""
        ends, link = graph.links
        return LinkCorrelations(self.pair_weights(graph), link, len(ends))


@dataclass(frozen=True, eq=False)
class GaussianLikelihood:
    """The negative log-likelihood of the known numbers; unknown numbers are integrated out.

    With u the deviations, q = Q u with conditional means in place of unknown deviations, O the known and U the unknown variables:

        -log p = 1/2 u' q - 1/2 log det Q + 1/2 log det Q_UU - 1/2 sum_O (log_precision - log 2 pi)

    Args:
        values: Value of each variable, shape (n,); nan if unknown.
    """

    graph: NumericGraph
    values: np.ndarray

    @cached_property
    def pattern(self) -> ConditionalPattern:
        graph = self.graph
        return ConditionalPattern(len(graph.variables), graph.first, graph.second, ~np.isnan(self.values))

    @property
    def is_exact(self) -> bool:
        """Whether the log determinants are exact; otherwise, they are estimates, with exact gradients of these."""
        patterns = (self.pattern.whole, self.pattern.block)
        return all(pattern.is_affordable(MAX_LIKELIHOOD_OPERATIONS) for pattern in patterns)

    def __call__(self, point: NumberWeights) -> tuple[float, NumberWeights]:
        """Return the value and the gradient."""
        graph, pattern = self.graph, self.pattern
        known = pattern.is_known
        u, root = _deviations(point, graph, self.values)
        if not graph.n_pairs:
            return self._evaluate_independent(point, u, root)
        links = point.correlations(graph) if point.is_forest else None
        pairs = links.forest_weights if links else point.pair_weights(graph)
        u, block = pattern.condition(pairs, u, max_operations=MAX_LIKELIHOOD_OPERATIONS)
        q = pairs.multiply(u)
        whole = pattern.whole.invert(pairs.diagonal, pairs.values, MAX_LIKELIHOOD_OPERATIONS)
        value = 0.5 * (float(u @ q) - whole.log_determinant + block.log_determinant)
        value -= float((np.log(root[known]) - 0.5 * math.log(2.0 * math.pi)).sum())
        by_mean = np.where(known, -root * q, 0.0)
        by_precision = np.where(known, 0.5 * (u * q - 1.0), 0.0)
        weights = graph.mean.T @ by_mean + graph.log_precision.T @ by_precision
        a, b = graph.first, graph.second
        # Derivatives of the log determinants: variances and covariances, given nothing and given the known numbers.
        by_diagonal, by_entry = whole.determinant_gradient
        of_unknown, within = block.determinant_gradient
        own, of_block = np.zeros(len(u)), np.zeros(graph.n_pairs)
        own[pattern.unknown], of_block[pattern.within] = of_unknown, within
        variance, covariance = (by_diagonal - own)[a] + (by_diagonal - own)[b], by_entry - of_block
        by_difference, by_sum = (
            0.5 * ((u[a] + sign * u[b]) ** 2 - variance - 2.0 * sign * covariance) for sign in (-1.0, 1.0)
        )
        if links:
            pairs, by_difference, by_sum = links.pairs, *links.gradient(by_difference, by_sum)
        weights += graph.difference.T @ (pairs.difference * by_difference) + graph.sum.T @ (pairs.sum * by_sum)
        return value, NumberWeights(np.asarray(weights), _offset_gradient(graph, point, by_mean, by_precision))

    def _evaluate_independent(
        self, point: NumberWeights, u: np.ndarray, root: np.ndarray
    ) -> tuple[float, NumberWeights]:
        graph, known = self.graph, self.pattern.is_known
        value = float((0.5 * u[known] ** 2 - np.log(root[known]) + 0.5 * math.log(2.0 * math.pi)).sum())
        by_mean, by_precision = -root * u, np.where(known, 0.5 * (u * u - 1.0), 0.0)
        weights = graph.mean.T @ by_mean + graph.log_precision.T @ by_precision
        return value, NumberWeights(np.asarray(weights), _offset_gradient(graph, point, by_mean, by_precision))


@dataclass(frozen=True, eq=False)
class GaussianPseudoLikelihood:
    """The negative logarithm of the product of each number's density given its neighbours (Besag 1975).

    With q = Q u and D the diagonal of Q, the density of u_i given the others has the precision D_i and the mean u_i - q_i / D_i:

        -log p = 1/2 sum_i [q_i^2 / D_i - log D_i - log_precision_i + log 2 pi]

    Args:
        values: Value of each variable, shape (n,), without nan.
    """

    graph: NumericGraph
    values: np.ndarray

    is_exact = True  # no determinants of matrices

    def terms(self, point: NumberWeights) -> np.ndarray:
        """Return the negative log density of each number given its neighbours, shape (n,)."""
        u, root = _deviations(point, self.graph, self.values)
        pairs = point.pairs(self.graph)
        return _conditional_terms(pairs.multiply(u), pairs.diagonal, root)

    def __call__(self, point: NumberWeights) -> tuple[float, NumberWeights]:
        """Return the value and the gradient."""
        graph = self.graph
        u, root = _deviations(point, graph, self.values)
        pairs = point.pairs(graph)
        q, diagonal = pairs.multiply(u), pairs.diagonal
        value = float(_conditional_terms(q, diagonal, root).sum())
        ratio = q / diagonal
        by_u = pairs.multiply(ratio)
        by_mean, by_precision = -root * by_u, 0.5 * (u * by_u - 1.0)
        weights = graph.mean.T @ by_mean + graph.log_precision.T @ by_precision
        a, b = graph.first, graph.second
        by_diagonal = ratio * u - 0.5 * ratio**2 - 0.5 / diagonal
        by_entry = ratio[a] * u[b] + ratio[b] * u[a]
        for matrix, weight, sign in ((graph.difference, pairs.difference, -1.0), (graph.sum, pairs.sum, 1.0)):
            weights += matrix.T @ (weight * (by_diagonal[a] + by_diagonal[b] + sign * by_entry))
        return value, NumberWeights(np.asarray(weights), _offset_gradient(graph, point, by_mean, by_precision))


def _conditional_terms(q: np.ndarray, diagonal: np.ndarray, root: np.ndarray) -> np.ndarray:
    """Return the terms of the negative log pseudo-likelihood, shape (n,)."""
    return np.asarray(0.5 * (q**2 / diagonal - np.log(diagonal) + math.log(2.0 * math.pi)) - np.log(root))


def _deviations(point: NumberWeights, graph: NumericGraph, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the deviations u, 0 for unknown numbers, and the square roots of the precisions, shape (n,) each."""
    root = np.exp(0.5 * point.log_precision(graph))
    u = root * (values - point.mean(graph))
    return np.where(np.isnan(values), 0.0, u), root


def _offset_gradient(
    graph: NumericGraph, point: NumberWeights, by_mean: np.ndarray, by_precision: np.ndarray
) -> np.ndarray:
    """Return the gradient with respect to `NumberWeights.offset`, from that of each variable's mean and log precision."""
    n_attributes = len(point.offset)
    return np.stack([np.bincount(graph.attribute, by, n_attributes) for by in (by_mean, by_precision)], axis=1)
