"""The variance of the score of a pseudo-likelihood, estimated from one realisation of the graph.

The score is the gradient of the log pseudo-likelihood. It is a sum of one term per variable: the features for the label
minus the expected features given the labels of the neighbours. If the conditionals are correct, each term has mean 0
given all other variables. Therefore the terms of two variables without a common factor are uncorrelated, even in a
connected graph. The covariance of the score is thus a sum of products: each variable's term times itself, and times the
term of each neighbour.

Source: Jensen & Künsch, On asymptotic normality of pseudo likelihood estimates for pairwise interaction processes
(1994); Guyon, Random Fields on a Network (1995).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np
from scipy.sparse import coo_array, csr_array

from relcrf.backends.base import Problem
from relcrf.graph.adjacency import iter_expanded_scopes
from relcrf.graph.reduction import ReducedGraph, Role
from relcrf.inference.forest import ForestInference


def score_variance(
    problem: Problem, conditionals: ReducedGraph, weights: np.ndarray, unit: np.ndarray
) -> Callable[[np.ndarray], float]:
    """Return a function that computes the variance of the score along a direction of the weights, shape (layout.size,).

    A negative variance indicates too few labels.

    Args:
        conditionals: A graph without edges: each node is a variable, conditioned on the labels of its neighbours.
        weights: The weights at which the score is evaluated.
        unit: The unit of each weight in the direction, shape (layout.size,).
    """
    states = problem.states[conditionals.variables]
    probabilities = ForestInference(conditionals.scopes).marginals(conditionals.potentials(weights)).nodes
    adjacency, start = _node_adjacency(problem, conditionals), conditionals.state_start[:-1]

    def variance_along(direction: np.ndarray) -> float:
        values = conditionals.node_log_potentials(unit * direction)
        score = values[start + states] - np.add.reduceat(probabilities * values, start)
        return float(score @ score + score @ (adjacency @ score))

    return variance_along


def _node_adjacency(problem: Problem, conditionals: ReducedGraph) -> csr_array:
    """Return the symmetric adjacency of nodes with a common factor, shape (n_nodes, n_nodes), without the diagonal."""
    node = np.full(problem.graph.n_variables, -1)
    node[conditionals.variables] = np.arange(conditionals.n_nodes)
    first, second = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for group in problem.graph.groups:
        for scope in iter_expanded_scopes(group):
            present = np.logical_and.reduce([problem.roles[place] != Role.ABSENT for place in scope])
            for a, b in combinations([node[place] for place in scope], 2):
                mask = present & (a >= 0) & (b >= 0) & (a != b)
                first += [a[mask], b[mask]]
                second += [b[mask], a[mask]]
    rows, columns = np.concatenate(first), np.concatenate(second)
    size = conditionals.n_nodes
    adjacency = csr_array(coo_array((np.ones(len(rows)), (rows, columns)), shape=(size, size)))
    adjacency.data[:] = 1.0  # count a pair with several common factors once
    return adjacency
