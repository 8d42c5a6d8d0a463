"""How much the score of a pseudo-likelihood varies, from one realisation of its graph.

The score is a sum over variables: each one's features at its label, less what is expected of them given its neighbours' labels.
Where the conditionals are true that has mean 0 given all other variables. So the scores of two variables that are in no common
factor are uncorrelated, and the covariance of the sum is the sum of products over each variable with itself and its neighbours,
even where all are connected.

Source: Jensen & Künsch, On asymptotic normality of pseudo likelihood estimates for pairwise interaction processes (1994); Guyon,
Random Fields on a Network (1995).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.sparse import coo_array, csr_array

from relcrf.backends.base import Problem
from relcrf.graph.adjacency import expanded
from relcrf.graph.reduction import ReducedGraph, Role
from relcrf.inference.forest import ForestInference


@dataclass(frozen=True, eq=False)
class ScoreCovariance:
    """At some weights.

    Args:
        conditionals: a node for each variable given its neighbours' labels, and no edges.
        states: of its nodes. probabilities: of their states, flat.
        beside: which pairs of nodes are in a common factor, shape (n_nodes, n_nodes), 1 where they are, in both orders.
    """

    conditionals: ReducedGraph
    states: np.ndarray
    probabilities: np.ndarray
    beside: csr_array

    @classmethod
    def of(cls, problem: Problem, conditionals: ReducedGraph, weights: np.ndarray) -> ScoreCovariance:
        """Of the labels of a problem."""
        found = ForestInference(conditionals.scopes).marginals(conditionals.potentials(weights))
        return cls(conditionals, problem.states[conditionals.variables], found.nodes, _beside(problem, conditionals))

    def along(self, direction: np.ndarray) -> float:
        """The variance of the score along a direction of weights, shape (layout.size,); below 0 where there are too few labels to
        tell."""
        start = self.conditionals.state_start
        values = self.conditionals.node_log_potentials(direction)
        expected = np.add.reduceat(self.probabilities * values, start[:-1])
        score = values[start[:-1] + self.states] - expected
        return float(score @ score + score @ (self.beside @ score))


def _beside(problem: Problem, conditionals: ReducedGraph) -> csr_array:
    node = np.full(problem.graph.n_variables, -1)
    node[conditionals.variables] = np.arange(conditionals.n_nodes)
    first, second = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for group in problem.graph.groups:
        for scope in expanded(group):
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
