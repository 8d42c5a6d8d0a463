"""What an answer about one node is made of: a term for each of its factors, and all of these add up.

For a node and a direction g, one number for each of its states and 0 in all, the answer is `sum g[s] log p(s)`: with 1 at a
state and -1 at another it is their log odds. Factors that the node has for itself give `sum g[s] potential[s]`. Factors over
other nodes give the same of their message,

    message[s] = log sum over t of q(t) exp(potential[s, t])

where q is what the others believe without the node: it is taken out, and the rest is inferred anew. Where the factors form a
forest, these are the messages of belief propagation and nothing is left over. Elsewhere the others depend on each other
besides, and what the terms leave over is their interaction. In mean field a node hears expected log potentials instead,
under what the others believe in the end.

A message of several factors is divided among them, and among their features, along the straight path from no potentials to
all of them (Aumann & Shapley, 1974): what each adds at every point of the path, summed up. In the same way it is divided by
what the other node has its belief from, from a node that knows nothing on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.integrate import quad_vec
from scipy.special import logsumexp, softmax

INTEGRATION_TOLERANCE = 1e-12
"""Of integrals along paths; terms add up to within ten of it."""

MIN_PROBABILITY = 1e-300
"""A probability below this is taken for it where its logarithm is asked."""


@dataclass(frozen=True, eq=False)
class FactorMessage:
    """What a bundle of factors says of a node.

    Args:
        potential: log potentials, shape (n_states, n_others). No others make one column.
        beliefs: what the others believe, shape (n_others,).
        is_expected: whether it is the mean of the log potentials, in place of the log of the mean of the potentials.
    """

    potential: np.ndarray
    beliefs: np.ndarray
    is_expected: bool = False

    def project(self, direction: np.ndarray) -> float:
        """`sum g[s] message[s]`, in nats."""
        if self.is_expected or len(self.beliefs) == 1:
            return float(direction @ self.potential @ self.beliefs)
        with np.errstate(divide="ignore"):
            return float(direction @ logsumexp(np.log(self.beliefs) + self.potential, axis=1))

    def cell_contributions(self, direction: np.ndarray) -> np.ndarray:
        """What a nat of each cell of the potential adds to `along`, shape (n_states, n_others)."""
        if self.is_expected or len(self.beliefs) == 1:
            return np.outer(direction, self.beliefs)
        with np.errstate(divide="ignore"):
            log_beliefs = np.log(self.beliefs)
        return _integrate_path(lambda at: direction[:, None] * softmax(log_beliefs + at * self.potential, axis=1))

    def belief_contributions(self, direction: np.ndarray) -> tuple[float, np.ndarray]:
        """`along` where the other node knows nothing, and what a nat of its log potentials adds to it from there on.

        Returns:
            in nats; and a direction of the other node, shape (n_others,).
        """
        log_beliefs = np.log(np.maximum(self.beliefs, MIN_PROBABILITY))
        uniform = np.full(len(self.beliefs), 1.0 / len(self.beliefs))
        start = FactorMessage(self.potential, uniform, self.is_expected).project(direction)
        if self.is_expected:
            slope = direction @ self.potential
            return start, _integrate_path(lambda at: _softmax_gradient(softmax(at * log_beliefs), slope))
        return start, _integrate_path(lambda at: direction @ softmax(at * log_beliefs + self.potential, axis=1))


def log_odds_direction(n_states: int, state: int, reference: int) -> np.ndarray:
    """The direction of the log odds of a state against another, shape (n_states,)."""
    direction = np.zeros(n_states)
    direction[state], direction[reference] = 1.0, -1.0
    return direction


def _integrate_path(function: Callable[[float], np.ndarray]) -> np.ndarray:
    """The mean of a function over 0..1."""
    return np.asarray(
        quad_vec(function, 0.0, 1.0, epsabs=INTEGRATION_TOLERANCE, epsrel=INTEGRATION_TOLERANCE, norm="max")[0]
    )


def _softmax_gradient(p: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """The gradient of `slope . softmax(h)` where the softmax is p."""
    return np.asarray(p * (slope - p @ slope))
