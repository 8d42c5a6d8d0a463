"""Additive attribution of a node's marginal to its factors.

For a node and a direction g (one number per state, with sum 0), the attributed quantity is `sum g[s] log p(s)`. With 1 for one
state and -1 for another state, this is the log odds of the two states. Unary factors contribute `sum g[s] potential[s]`.
Factors that also contain other nodes contribute `sum g[s] message[s]`, with the message

    message[s] = log sum over t of q(t) exp(potential[s, t])

where t is a joint state of the other nodes, and q is the marginal of the other nodes in the graph without this node, computed
by a separate inference. If the factors form a forest, the messages are those of belief propagation, and the contributions sum
exactly to the attributed quantity. In other graphs, the other nodes also depend on each other; the residual is the interaction
of these nodes. In mean field, a message is the expectation of the log potentials under the final marginals of the other nodes.

The joint message of several factors is divided among the factors and features by Aumann-Shapley values (1974): the marginal
contribution of each feature is integrated along the straight path from zero to the actual potentials. In the same way, a
message is divided among the causes of the other node's marginal, along the path from the uniform distribution to this marginal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy
from scipy.special import logsumexp, softmax

INTEGRATION_TOLERANCE = 1e-12
"""Tolerance of path integrals; the error of the sum of contributions is at most ten times this value."""

MIN_PROBABILITY = 1e-300
"""Lower bound of probabilities in logarithms; it keeps the logarithms finite."""


@dataclass(frozen=True, eq=False)
class FactorMessage:
    """The joint message of several factors over the same nodes to one of these nodes.

    Args:
        potential: Log potentials of states and joint states of the other nodes, shape (n_states, n_others); one column if
            unary.
        beliefs: Joint distribution of the other nodes, shape (n_others,).
        is_expected: Whether the message is the mean log potential (mean field) instead of the log of the mean potential.
    """

    potential: np.ndarray
    beliefs: np.ndarray
    is_expected: bool = False

    def project(self, direction: np.ndarray) -> float:
        """Return `sum g[s] message[s]` for a direction g, in nats."""
        if self.is_expected or len(self.beliefs) == 1:
            return float(direction @ self.potential @ self.beliefs)
        with np.errstate(divide="ignore"):
            return float(direction @ logsumexp(np.log(self.beliefs) + self.potential, axis=1))

    def cell_contributions(self, direction: np.ndarray) -> np.ndarray:
        """Return each cell's contribution to `project` per nat of its log potential, shape (n_states, n_others)."""
        if self.is_expected or len(self.beliefs) == 1:
            return np.outer(direction, self.beliefs)
        with np.errstate(divide="ignore"):
            log_beliefs = np.log(self.beliefs)
        return _integrate_path(lambda at: direction[:, None] * softmax(log_beliefs + at * self.potential, axis=1))

    def belief_contributions(self, direction: np.ndarray) -> tuple[float, np.ndarray]:
        """Divide the value of `project` among the log probabilities of the other node.

        Returns:
            The value of `project` for a uniform distribution of the other node, in nats; and the contribution of each log
            probability of the other node, per nat, shape (n_others,). These contributions are a direction of the other node.
        """
        log_beliefs = np.log(np.maximum(self.beliefs, MIN_PROBABILITY))
        uniform = np.full(len(self.beliefs), 1.0 / len(self.beliefs))
        start = FactorMessage(self.potential, uniform, self.is_expected).project(direction)
        if self.is_expected:
            slope = direction @ self.potential
            return start, _integrate_path(lambda at: _softmax_gradient(softmax(at * log_beliefs), slope))
        return start, _integrate_path(lambda at: direction @ softmax(at * log_beliefs + self.potential, axis=1))


def log_odds_direction(n_states: int, state: int, reference: int) -> np.ndarray:
    """Return the direction whose projection is the log odds of a state against a reference state, shape (n_states,)."""
    direction = np.zeros(n_states)
    direction[state], direction[reference] = 1.0, -1.0
    return direction


def probability_direction(probabilities: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """Divide `sum g[s] p(s)` among the log probabilities, along the path from the uniform distribution.

    Args:
        probabilities: The distribution p, shape (n_states,).
        direction: The numbers g, with sum 0, shape (n_states,).

    Returns:
        The contribution of each log probability, per nat, shape (n_states,). These contributions are a direction.
    """
    log_p = np.log(np.maximum(probabilities, MIN_PROBABILITY))
    return _integrate_path(lambda at: _softmax_gradient(softmax(at * log_p), direction))


def _integrate_path(function: Callable[[float], np.ndarray]) -> np.ndarray:
    """Integrate a function over [0, 1]."""
    return np.asarray(
        scipy.integrate.quad_vec(
            function, 0.0, 1.0, epsabs=INTEGRATION_TOLERANCE, epsrel=INTEGRATION_TOLERANCE, norm="max"
        )[0]
    )


def _softmax_gradient(p: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """Return the gradient of `slope . softmax(h)` with respect to h, where p = softmax(h)."""
    return np.asarray(p * (slope - p @ slope))
