"""Small random graphs of numbers, and their distributions as dense matrices."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from graphs import all_states, dense_features, joint_scores
from scipy import sparse
from scipy.stats import multivariate_normal

from relcrf.backends.number_model import NumberModel
from relcrf.backends.problems import numeric_targets
from relcrf.graph.numeric_graph import NumericGraph, discrete_part, numeric_graph
from relcrf.inference.gaussian import PairWeights
from relcrf.learning.gaussian_likelihood import NumberWeights


def random_ends(rng, n, n_pairs):
    """Return the two ends of random pairs, some of them repeated in both directions."""
    first, second = rng.integers(n, size=(2, n_pairs)).astype(np.int32)
    kept = first != second
    first, second = first[kept], second[kept]
    return np.concatenate((first, second[:2], first[:1])), np.concatenate((second, first[:2], second[:1]))


def random_pairs(n, n_pairs):
    """Return pairs, some of them repeated and in both directions, with random weights."""
    rng = np.random.default_rng(n)
    first, second = random_ends(rng, n, n_pairs)
    return PairWeights(n, first, second, *np.exp(rng.normal(size=(2, len(first)))))


def random_forest(rng, n, n_links):
    """Return the two ends of the pairs of a random forest, and the link of each pair; some links have several pairs."""
    child = np.sort(rng.permutation(n - 1)[:n_links] + 1)
    ends = np.stack(((rng.random(n_links) * child).astype(np.int64), child))
    link = np.concatenate((np.arange(n_links), np.arange(0, n_links, 3), np.arange(0, n_links, 2)))
    is_reversed = rng.random(len(link)) < 0.5
    name = rng.permutation(n).astype(np.int32)
    first, second = (name[np.where(is_reversed, ends[1 - k, link], ends[k, link])] for k in (0, 1))
    return first, second, link


def random_numeric_graph(rng, n, n_pairs, columns=(range(6),) * 4, *, is_forest=False):
    """Return a graph of two attributes and 6 weights.

    Args:
        columns: The columns of the matrices of means, log precisions, differences and sums with entries.
        is_forest: Whether the pairs form a forest with `n_pairs` links, some of which have several pairs.
    """
    first, second = random_forest(rng, n, n_pairs)[:2] if is_forest else random_ends(rng, n, n_pairs)

    def matrix(n_rows, used):
        dense = rng.normal(size=(n_rows, 6)) * (rng.random((n_rows, 6)) < 0.5)
        return sparse.csr_matrix(dense * np.isin(np.arange(6), used))

    sizes = (n, n, len(first), len(first))
    mean, log_precision, *pairs = (matrix(size, used) for size, used in zip(sizes, columns, strict=True))
    return NumericGraph(np.arange(n), rng.integers(2, size=n), mean, log_precision, first, second, *pairs, 0 * first)


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


def regression(covariance, known):
    """Return the matrix of the regression of the other numbers on the known ones, and the covariance of its residuals.

    Args:
        known: Mask of the known numbers, shape (n,).
    """
    gain = np.linalg.solve(covariance[np.ix_(known, known)], covariance[np.ix_(known, ~known)]).T
    return gain, covariance[np.ix_(~known, ~known)] - gain @ covariance[np.ix_(known, ~known)]


def condition(mean, covariance, values):
    """Return the mean and the covariance of the unknown numbers, nan in `values`, given the others."""
    known = ~np.isnan(values)
    gain, remaining = regression(covariance, known)
    return mean[~known] + gain @ (values - mean)[known], remaining


class PlainNumbers:
    """The distributions of the numbers of a ground graph given joint states of the discrete variables, for dense matrices."""

    def __init__(self, fit, grounding):
        learned = fit.learned
        self.model = NumberModel.from_vectors(learned.vectors_for(learned.extend_grounding(grounding)))
        self.targets = numeric_targets(grounding)
        graph, self.values = numeric_graph(self.targets, grounding.states), grounding.numbers[self.targets.mask]
        self.attribute = graph.attribute
        pairs = self.model.weights.pairs(self.model.select(graph, ~np.isnan(self.values)))
        self.covariance = np.linalg.inv(dense_precision(pairs))
        self.gain, self.conditional_covariance = regression(self.covariance, ~np.isnan(self.values))

    def means_and_scales(self, states):
        """Return the means and the deviations of the unlinked numbers in each joint state, two arrays of shape (n, n_numbers).

        Args:
            states: Joint states of the discrete variables, shape (n, n_variables).
        """
        graph, is_numeric, weights = self.targets.graph, self.targets.mask, self.model.weights
        position = np.cumsum(is_numeric) - 1
        mean, log_precision = (np.tile(weights.offset[self.attribute, k], (len(states), 1)) for k in (0, 1))
        for group in graph.groups:
            variables = [[int(place[n]) for place in group.scope] for n in range(group.n_factors)]
            if not variables or sum(is_numeric[variables[0]]) != 1:
                continue
            tables = dense_features(group.features) @ graph.layout.matrix(weights.weights, group.block)
            for scope, table in zip(variables, tables, strict=True):
                joint, is_known = np.zeros(len(states), dtype=np.int64), np.ones(len(states), dtype=bool)
                for variable, cardinality in zip(scope, group.cardinalities, strict=True):
                    if is_numeric[variable]:
                        number = position[variable]
                        continue
                    joint = joint * cardinality + states[:, variable]
                    is_known &= states[:, variable] >= 0
                for moment, amounts in zip((mean, log_precision), np.split(table, 2), strict=True):
                    moment[is_known, number] += amounts[joint[is_known]]
        return mean, np.exp(-0.5 * log_precision)

    def predict(self, states):
        """Return the means and the scales of the unknown numbers in each joint state, and the log density of the known ones.

        The covariance of the unknown numbers is that of `conditional_covariance` times the scales of both numbers.

        Args:
            states: Joint states of the discrete variables, shape (n, n_variables).

        Returns:
            Two arrays of shape (n, n_unknown) and one of shape (n,).
        """
        known = ~np.isnan(self.values)
        mean, scale = self.means_and_scales(states)
        deviation = ((self.values - mean) / scale)[:, known]
        density = multivariate_normal(cov=self.covariance[np.ix_(known, known)]) if known.any() else None
        log_density = density.logpdf(deviation) - np.log(scale[:, known]).sum(axis=1) if density else 0.0
        means = mean[:, ~known] + scale[:, ~known] * (deviation @ self.gain.T)
        return means, scale[:, ~known], np.broadcast_to(log_density, len(states))


def predict_plainly(fit, grounding, states):
    """Return the means and the covariance of the unknown numbers, and the log density of the known ones, for dense matrices.

    Args:
        states: State of each discrete variable.
    """
    plain = PlainNumbers(fit, grounding)
    (means,), (scale,), (log_density,) = plain.predict(np.asarray(states)[None])
    return means, np.outer(scale, scale) * plain.conditional_covariance, log_density


def without(grounding, hidden):
    """Return the ground graph without some labels and numbers."""
    states = np.where(hidden, -1, grounding.states)
    return replace(grounding, states=states, given_numbers=np.where(hidden, np.nan, grounding.numbers))


class Enumeration(NamedTuple):
    """All joint states of the unknown discrete variables, and the distribution of the unknown numbers in each of them.

    Args:
        free: The unknown discrete variables.
        joint: The joint states, shape (n, n_free).
        share: Probability of each joint state.
        means, variances: Moments of each unknown number in each joint state, shape (n, n_numbers).
        log_density: Log density of the known states and numbers, without the log partition function of the discrete variables.
    """

    free: np.ndarray
    joint: np.ndarray
    share: np.ndarray
    means: np.ndarray
    variances: np.ndarray
    log_density: float


def enumerate_states(fit, grounding) -> Enumeration:
    is_numeric, states = numeric_targets(grounding).mask, grounding.states.copy()
    free = np.flatnonzero((states < 0) & ~is_numeric)
    states[is_numeric] = 0
    weights = fit.learned.vectors_for(grounding)["weights"]
    joint = all_states(grounding.graph.cardinality, states, free)
    plain = PlainNumbers(fit, grounding)
    means, scales, log_density = plain.predict(joint)
    logs = joint_scores(discrete_part(grounding.graph), weights, joint) + log_density
    variances, total = scales**2 * plain.conditional_covariance.diagonal(), float(np.logaddexp.reduce(logs))
    return Enumeration(free, joint[:, free], np.exp(logs - total), means, variances, total)


def predict_by_enumeration(fit, grounding):
    """Return the marginal of each unknown discrete variable, and the means and deviations of the unknown numbers."""
    found = enumerate_states(fit, grounding)
    share, sizes = found.share, grounding.graph.cardinality[found.free].tolist()
    mean = share @ found.means
    marginals = [np.bincount(found.joint[:, k], share, size) for k, size in enumerate(sizes)]
    return marginals, mean, np.sqrt(share @ (found.variances + found.means**2) - mean**2)
