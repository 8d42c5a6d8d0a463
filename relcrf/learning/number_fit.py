"""Learning of the weights of numeric variables by penalised maximum likelihood, in units in which all features have scale 1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.sparse import csr_matrix

from relcrf.graph.numeric_graph import NumericGraph
from relcrf.graph.weights import WeightLayout
from relcrf.learning.gaussian_likelihood import MAX_LOG_WEIGHT, NumberWeights, NumericLikelihood, bounded_exp
from relcrf.learning.lbfgs import Lbfgs, Objective, OptimiserState

PAIR_STRENGTH = 0.25
"""Strength of the penalty of log weights of pairs without an `l2` of their template: a prior deviation of 2, so that most weights
are between a hundredth and ten."""

PRIOR_OBSERVATIONS = 1.0
"""Weight of the prior of an attribute's precision, in numbers whose squared deviation is the variance of the attribute. It keeps
the precision finite where the features determine all numbers."""

MEMORY = 20
"""Number of steps in the memory of L-BFGS, as for discrete variables."""


@dataclass(frozen=True, eq=False)
class NumberProblem:
    """The known numbers of a graph, and the weights that are learned from them.

    Learning minimises the negative log-likelihood of the numbers in units of their deviation plus, with v the weights in units of
    the features and of this deviation, lambda the geometric mean of the precisions of the attribute, and l2 and init the options
    of the template,

        l2 / 2 * lambda v^2             for the weights of means: the strength of ridge regression does not depend on the noise;
        1 / 2 * v^2                     for the weights of log precisions;
        1 / 8 * (v - init)^2            for the log weights of pairs;
        1 / 2 * (lambda - log lambda)   for the precision of an attribute, see `PRIOR_OBSERVATIONS`.

    Args:
        values: Value of each variable, shape (n,); nan if unknown.
        learnable: Mask of the weights that may be learned, shape (n_weights,).
        is_forest: See `NumberWeights`.
    """

    graph: NumericGraph
    values: np.ndarray
    layout: WeightLayout
    learnable: np.ndarray
    n_attributes: int
    is_forest: bool = False

    @cached_property
    def location(self) -> np.ndarray:
        """Mean and deviation of the known numbers of each attribute, shape (n_attributes, 2); 0 and 1 without numbers.

        The deviation of equal numbers is set to 1.
        """
        known = ~np.isnan(self.values)
        out = np.tile([0.0, 1.0], (self.n_attributes, 1))
        for k in range(self.n_attributes):
            values = self.values[known & (self.graph.attribute == k)]
            if len(values):
                out[k] = mean_and_deviation(values)
        return out

    @cached_property
    def kinds(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The indices of the weights of means, of log precisions and of pairs that are learned, ascending."""
        graph = self.graph
        masks = [_columns(matrix) for matrix in (graph.mean, graph.log_precision)]
        masks.append(_columns(graph.difference) | _columns(graph.sum))
        mean, precision, pair = (np.flatnonzero(mask & self.learnable) for mask in masks)
        return mean, precision, pair

    @cached_property
    def _attribute_of_mean(self) -> np.ndarray:
        """The attribute of the first number of each weight of means."""
        columns = self.graph.mean.tocsc()
        first = columns.indices[columns.indptr[self.kinds[0]]]
        return np.asarray(self.graph.attribute[first])

    @cached_property
    def units(self) -> np.ndarray:
        """The value of each learned weight at v = 1, shape (n,)."""
        mean, precision, pair = self.kinds
        of_pair = np.sqrt(_mean_squares(self.graph.difference)[pair] + _mean_squares(self.graph.sum)[pair])
        of_mean = self.location[self._attribute_of_mean, 1] / np.sqrt(_mean_squares(self.graph.mean)[mean])
        return np.concatenate((of_mean, np.ones(len(precision)), 1.0 / of_pair))

    @cached_property
    def indices(self) -> np.ndarray:
        """The indices of the learned weights, in the order of `kinds`."""
        return np.concatenate(self.kinds)

    def labelled(self) -> NumberProblem:
        """Return the problem of the known numbers alone."""
        is_known = ~np.isnan(self.values)
        return replace(self, graph=self.graph.select(is_known), values=self.values[is_known])

    def without_pairs(self) -> NumberProblem:
        """Return the problem of independent numbers."""
        return replace(self, graph=self.graph.without_pairs())

    def weights_at(self, point: np.ndarray) -> NumberWeights:
        """Return the weights at a point of the optimiser: v, and the mean and log precision of each attribute in its units."""
        n, weights = len(self.indices), self.layout.initial()
        weights[self.indices] = self.units * point[:n]
        mean, deviation = self.location.T
        own = point[n:].reshape(self.n_attributes, 2)
        log_precision = np.clip(own[:, 1], -MAX_LOG_WEIGHT, MAX_LOG_WEIGHT)  # in units of the numbers, it may be larger
        offset = np.stack((mean + deviation * own[:, 0], log_precision - 2.0 * np.log(deviation)), axis=1)
        return NumberWeights(weights, offset, self.is_forest)

    def start(self) -> np.ndarray:
        """Return the point of the initial weights, shape (n_learned + 2 * n_attributes,)."""
        return np.concatenate((self.layout.initial()[self.indices] / self.units, np.zeros(2 * self.n_attributes)))

    def start_at(self, weights: NumberWeights) -> np.ndarray:
        """Return the point of given weights, the inverse of `weights_at`; shape (n_learned + 2 * n_attributes,)."""
        mean, deviation = self.location.T
        own = np.stack(
            ((weights.offset[:, 0] - mean) / deviation, weights.offset[:, 1] + 2.0 * np.log(deviation)), axis=1
        )
        return np.concatenate((weights.weights[self.indices] / self.units, own.ravel()))

    @cached_property
    def _mean_of_log_precision(self) -> csr_matrix:
        """The matrix whose product with the weights is each attribute's mean log precision, shape (n_attributes, n_weights)."""
        attribute = self.graph.attribute
        share = 1.0 / np.maximum(np.bincount(attribute, minlength=self.n_attributes), 1)[attribute]
        shape = (self.n_attributes, len(attribute))
        average = csr_matrix((share, (attribute, np.arange(len(attribute)))), shape=shape)
        return csr_matrix(average @ self.graph.log_precision)

    def precisions(self, point: np.ndarray) -> np.ndarray:
        """Return lambda: the geometric mean of the precisions of each attribute, in its units, shape (n_attributes,)."""
        n, weights = len(self.indices), np.zeros(self.layout.size)
        weights[self.indices] = self.units * point[:n]
        return bounded_exp(point[n + 1 :: 2] + self._mean_of_log_precision @ weights)

    def strength(self, l2: float) -> np.ndarray:
        """Return the strength of the penalty of each learned weight, without lambda, shape (n,)."""
        mean, precision, pair = self.kinds
        layout = self.layout
        return np.concatenate((layout.l2(l2)[mean], layout.l2(1.0)[precision], PAIR_STRENGTH * layout.l2(1.0)[pair]))

    def mean_prior(self, l2: float, precisions: np.ndarray) -> np.ndarray:
        """Return the precision of the normal prior of each weight of means, to which the penalty corresponds, shape (n_mean,).

        Args:
            precisions: Lambda of each attribute in its units, shape (n_attributes,).
        """
        n = len(self.kinds[0])
        return np.asarray(self.strength(l2)[:n] * precisions[self._attribute_of_mean] / self.units[:n] ** 2)

    def objective(self, likelihood: NumericLikelihood, l2: float, precisions: np.ndarray | None = None) -> Objective:
        """Return the penalised negative log-likelihood as a function of the optimiser's point.

        Args:
            precisions: The constants in place of lambda in the penalty of means, shape (n_attributes,). Without pairs, lambda
                depends on the point. With pairs, it would be lowered, and the weights of the pairs raised, to evade the penalty.
        """
        n, n_means = len(self.indices), len(self.kinds[0])
        strength, center = self.strength(l2), self.start()[:n]
        deviation, attribute = self.location[:, 1], self._attribute_of_mean
        log_units = float(np.log(deviation)[self.graph.attribute[~np.isnan(self.values)]].sum())

        def evaluate(point: np.ndarray) -> tuple[float, np.ndarray]:
            value, by = likelihood(self.weights_at(point))
            value -= log_units  # the tolerance of the value then does not depend on the units of the numbers
            weights = by.weights
            own = self.precisions(point)
            used = own if precisions is None else precisions
            pull = strength * (point[:n] - center)
            pull[:n_means] *= used[attribute]
            costs = 0.5 * pull * (point[:n] - center)
            by_log = 0.5 * PRIOR_OBSERVATIONS * (own - 1.0)
            if precisions is None:
                by_log += np.bincount(attribute, costs[:n_means], self.n_attributes)
            weights += self._mean_of_log_precision.T @ by_log
            offset = by.offset * np.stack((deviation, np.ones_like(deviation)), axis=1)
            offset[:, 1] += by_log
            value += float(costs.sum()) + 0.5 * PRIOR_OBSERVATIONS * float((own - np.log(own)).sum())
            return value, np.concatenate((self.units * weights[self.indices] + pull, offset.ravel()))

        return evaluate

    def curvature(self) -> np.ndarray:
        """Return a rough diagonal of the Hessian at the start, by which L-BFGS scales its first steps."""
        mean, precision, pair = self.kinds
        squares = [
            _sums_of_squares(self.graph.mean)[mean],
            0.5 * _sums_of_squares(self.graph.log_precision)[precision],
            0.1 * (_sums_of_squares(self.graph.difference)[pair] + _sums_of_squares(self.graph.sum)[pair]),
        ]
        attributes = np.bincount(self.graph.attribute, minlength=self.n_attributes).astype(np.float64)
        scales = self.units**2
        scales[: len(mean)] /= self.location[self._attribute_of_mean, 1] ** 2
        weights = np.concatenate(squares) * scales
        return np.asarray(np.maximum(np.concatenate((weights, np.repeat(attributes, 2))), 1.0))


def minimise(
    problem: NumberProblem,
    likelihood: NumericLikelihood,
    l2: float,
    start: np.ndarray,
    optimiser: Lbfgs,
    observe: Callable[[OptimiserState], None],
    precisions: np.ndarray | None = None,
    restored: OptimiserState | None = None,
) -> OptimiserState:
    """Return the final state of the optimiser, whose `point` is one of the problem.

    Args:
        precisions: See `NumberProblem.objective`.
        restored: State of an interrupted run, from which the optimiser continues; None starts at the point `start`.
    """
    minimiser = replace(optimiser, memory=MEMORY, inverse_diagonal=1.0 / problem.curvature())
    evaluate = problem.objective(likelihood, l2, precisions)
    return minimiser.minimise(evaluate, restored or minimiser.start(evaluate, start), observe)


def mean_and_deviation(values: np.ndarray) -> tuple[float, float]:
    """Return the mean and the standard deviation of numbers; 1 for equal numbers, whose deviation may be a rounding error."""
    return float(values.mean()), float(values.std()) if np.ptp(values) > 0.0 else 1.0


def _columns(matrix: csr_matrix) -> np.ndarray:
    """Return the mask of the columns that contain an entry other than 0."""
    return np.asarray(_sums_of_squares(matrix) > 0.0)


def _sums_of_squares(matrix: csr_matrix) -> np.ndarray:
    return np.bincount(matrix.indices, matrix.data**2, matrix.shape[1])


def _mean_squares(matrix: csr_matrix) -> np.ndarray:
    """Return the mean square of the nonzero entries of each column; 0 for columns without entries."""
    counts = np.bincount(matrix.indices, matrix.data != 0.0, matrix.shape[1])
    return np.asarray(_sums_of_squares(matrix) / np.maximum(counts, 1.0))
