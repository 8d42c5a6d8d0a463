"""The uncertainty of predicted numbers by the weights of their means.

The means are linear in these weights, so that with the other weights as learned, their posterior distribution is normal. Its
precision matrix is V' P V + the penalty, with the features V of the known numbers in units of their scales, and the precision
matrix P of their deviations; unknown numbers are integrated out. This is Bayesian linear regression with correlated noise.

If the model was trained on other tables with more known numbers, the excess counts as independent numbers with the mean
information of those of the present tables.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.sparse import csr_matrix, diags_array, hstack

from relcrf.backends.base import Problem
from relcrf.backends.number_inference import JointPosterior
from relcrf.backends.number_model import NumberModel
from relcrf.graph.numeric_graph import NumericGraph, lacks_states, numeric_graph
from relcrf.graph.reduction import Role
from relcrf.learning.gaussian_likelihood import NumberWeights
from relcrf.learning.number_fit import NumberProblem

MAX_WEIGHTS = 500
"""Maximum number of weights whose uncertainty is included; each takes two solutions of the equations of all numbers."""

MAX_ENTRIES = 1 << 26
"""Maximum number of entries of the matrix of numbers and weights, which take 0.5 GiB."""

RIDGE = 1e-8
"""Strength of a penalty that makes the distribution of weights proper that neither numbers nor other penalties determine, in
precisions of all numbers with the feature."""


@dataclass(frozen=True, eq=False)
class MeanUncertainty:
    """The covariance of the numbers by the weights of their means.

    Args:
        coordinates: A matrix whose product with its transpose is the covariance of the numbers that are not `is_known` in the
            posterior, shape (n, n_weights).
        n_weights: Number of weights of means.
    """

    coordinates: np.ndarray
    n_weights: int

    @property
    def remark(self) -> str:
        """A sentence about the omitted weights, or nothing."""
        n_used = self.coordinates.shape[1]
        if n_used == self.n_weights:
            return ""
        return f"gains contain the uncertainty of {n_used:,} of {self.n_weights:,} weights of means"


def mean_uncertainty(
    problem: Problem, vectors: dict[str, np.ndarray], posterior: JointPosterior, l2: float, n_training: int
) -> MeanUncertainty:
    """Return the covariance of the unknown numbers of a posterior by the weights of means.

    If the weights are too many, those with the largest effect on unknown numbers are included.

    Args:
        problem: The problem of prediction.
        l2: The strength of the penalty in training.
        n_training: Number of known numbers in training.
    """
    targets = problem.numbers
    assert targets is not None
    model = NumberModel.from_vectors(vectors)
    weights = model.weights
    observed = np.where(problem.roles == Role.CLAMPED, problem.states, -1)
    states = observed.copy()
    states[posterior.inferred.variables] = posterior.inferred.modes()
    whole = numeric_graph(targets, states)
    whole = whole.select(problem.roles[whole.variables] != Role.ABSENT)
    known = (problem.roles == Role.CLAMPED)[whole.variables] & ~lacks_states(targets, observed)[whole.variables]
    whole = model.select(whole, known)
    features, prior = _features(problem, whole, known, weights, l2)
    n_unknown = int((~posterior.is_known).sum())
    of_known, of_unknown = _column_sums(features, known), _column_sums(features, ~known)
    squares = np.where(of_known + of_unknown > 0.0, of_known + of_unknown, 1.0)
    limit = min(MAX_WEIGHTS, MAX_ENTRIES // max(1, n_unknown))
    effect = of_unknown / (of_known + prior + RIDGE * squares)
    chosen = np.sort(np.argsort(-effect, kind="stable")[:limit])
    used = np.isin(whole.variables, posterior.numeric.variables)
    information, by_weight = _condition(posterior, csr_matrix(features[used][:, chosen]))
    # The other numbers are all known, as are those to which they are linked.
    rest = whole.select(~used)
    if len(rest.variables):
        rest_features = csr_matrix(features[~used][:, chosen])
        pairs = weights.pairs(rest)
        for k in range(len(chosen)):
            column = rest_features[:, [k]].toarray().ravel()
            information[:, k] += rest_features.T @ pairs.multiply(column)
    if n_training > known.sum():
        used_features = csr_matrix(features[:, chosen])
        excess = (n_training - int(known.sum())) / len(known)
        information += excess * (used_features.T @ used_features).toarray()
    unit = 1.0 / np.sqrt(squares[chosen])  # units of features may be any
    information[np.diag_indices(len(chosen))] += prior[chosen]
    scaled = unit[:, None] * 0.5 * (information + information.T) * unit + RIDGE * np.eye(len(chosen))
    coordinates = solve_triangular(cholesky(scaled, lower=True), (by_weight * unit).T, lower=True).T
    return MeanUncertainty(posterior.scales[~posterior.is_known, None] * coordinates, len(prior))


def _features(
    problem: Problem, whole: NumericGraph, known: np.ndarray, weights: NumberWeights, l2: float
) -> tuple[csr_matrix, np.ndarray]:
    """Return the features of the mean of each number in units of its scale, and the precision of the prior of each weight.

    The weights are those of the templates, followed by the mean of each attribute, which has no prior.
    """
    targets = problem.numbers
    assert targets is not None
    layout, n_attributes = targets.graph.layout, len(weights.offset)
    values = np.where(known, targets.values[whole.variables], np.nan)
    fit = NumberProblem(whole, values, layout, layout.learnable_mask(), n_attributes)
    prior = fit.mean_prior(l2, fit.precisions(fit.start_at(weights)))
    n = len(whole.variables)
    attributes = csr_matrix((np.ones(n), (np.arange(n), whole.attribute)), shape=(n, n_attributes))
    root = np.exp(0.5 * weights.log_precision(whole))
    features = diags_array(root) @ hstack((whole.mean[:, fit.kinds[0]], attributes))
    return csr_matrix(features), np.concatenate((prior, np.zeros(n_attributes)))


def _column_sums(features: csr_matrix, rows: np.ndarray) -> np.ndarray:
    """Return the sum of the squares of each column over some rows."""
    return np.asarray(features.power(2).T @ rows.astype(np.float64))


def _condition(posterior: JointPosterior, features: csr_matrix) -> tuple[np.ndarray, np.ndarray]:
    """Return V' P V of the known numbers of a posterior, and the derivatives of the deviations of the others by the weights.

    Known numbers that depend on an unknown discrete variable do not count as information about the weights, as in training.
    """
    is_known, pairs = posterior.is_known, posterior.pairs
    n_weights = features.shape[1]
    information, by_weight = np.zeros((n_weights, n_weights)), np.empty((int((~is_known).sum()), n_weights))
    for k in range(n_weights):
        column = features[:, [k]].toarray().ravel()
        u = np.where(is_known, column, 0.0)
        u[~is_known] = -posterior.inverse.solve(pairs.multiply(u)[~is_known])
        information[:, k] = features.T @ np.where(is_known, pairs.multiply(u), 0.0)
        by_weight[:, k] = column[~is_known] - u[~is_known]
    return information, by_weight
