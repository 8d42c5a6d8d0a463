"""How much the score of a pseudo-likelihood varies, from one realisation of its graph.

The score is a sum over variables: each one's features at its label, less what is expected of them given its neighbours' labels.
Where the conditionals are true that has mean 0 given all other variables. So the scores of two variables that are in no common
factor are uncorrelated, and the covariance of the sum is the sum of products over each variable with itself and its neighbours,
even where all are connected.

Source: Jensen & Künsch, On asymptotic normality of pseudo likelihood estimates for pairwise interaction processes (1994); Guyon,
Random Fields on a Network (1995).
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


def score_variance(problem: Problem, conditionals: ReducedGraph, weights: np.ndarray) -> Callable[[np.ndarray], float]:
    """Return a function that computes the variance of the score along a direction of weights, shape (layout.size,).

    A variance below 0 means that there are too few labels.

    Args:
        conditionals: a node for each variable given its neighbours' labels, and no edges.
        weights: at which the score is taken.
    """
    states = problem.states[conditionals.variables]
    probabilities = ForestInference(conditionals.scopes).marginals(conditionals.potentials(weights)).nodes
    beside, start = _node_adjacency(problem, conditionals), conditionals.state_start[:-1]

    def along(direction: np.ndarray) -> float:
        values = conditionals.node_log_potentials(direction)
        score = values[start + states] - np.add.reduceat(probabilities * values, start)
        return float(score @ score + score @ (beside @ score))

    return along


def _node_adjacency(problem: Problem, conditionals: ReducedGraph) -> csr_array:
    """Return which pairs of nodes are in a common factor, shape (n_nodes, n_nodes), 1 where they are, in both orders."""
    node = np.full(problem.graph.n_variables, -1)
    node[conditionals.variables] = np.arange(conditionals.n_nodes)
    first, second = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for group in problem.graph.groups:
        for scope in iter_expanded_scopes(group):
            present = np.logical_and.reduce([problem.roles[place] != Role.ABSENT for place in scope])
            for a, b in combinations([node[place] for place in scope], 2):
                kept = present & (a >= 0) & (b >= 0) & (a != b)
                first += [a[kept], b[kept]]
                second += [b[kept], a[kept]]
    rows, columns = np.concatenate(first), np.concatenate(second)
    size = conditionals.n_nodes
    found = csr_array(coo_array((np.ones(len(rows)), (rows, columns)), shape=(size, size)))
    found.data[:] = 1.0  # they may have several factors in common
    return found
