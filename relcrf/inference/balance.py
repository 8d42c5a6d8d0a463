"""The potentials of absent links, which keep belief propagation from assigning one class to nearly all variables.

A model that is learned from links alone prefers equal classes everywhere, because links join equal classes. In truth, the
pairs of variables without a link are evidence against that: if a class were larger than expected, its members would have
more links. Together, all absent links change the log potential of class k by `-strength * (size - expected size)`.

Source: Decelle, Krzakala, Moore & Zdeborova (2011), Asymptotic analysis of the stochastic block model for modular networks,
equation (27). Deviation: the classes' expected sizes are subtracted, because the weights contain the potential for these.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from relcrf.graph.scopes import Scopes

MAX_STEP = 1.0
"""Largest change of the log potential of a class per round, in nats."""


@dataclass(frozen=True, eq=False)
class Balance:
    """The expected sizes of classes, and the potentials of deviations.

    Args:
        state_class: Class of each state of each node, shape (state_start[-1],).
        expected: Expected number of nodes in each class, shape (n_classes,).
        strength: Decrease of the log potential of each class per node above the expected number, shape (n_classes,).
    """

    state_class: np.ndarray
    expected: np.ndarray
    strength: np.ndarray


class ClassPotentials:
    """The log potentials of classes during propagation.

    In each round, a Newton step with the diagonal of the Jacobian leads towards the potentials that the sizes of the classes
    imply, given the messages. Potentials that merely followed the sizes of the last round would oscillate on some graphs. So
    would steps of any length: where the states are nearly certain, the sizes hardly depend on small changes.
    `log_weights` is a function that replaces log products of impossible states by -inf; None if products are linear.
    """

    def __init__(self, balance: Balance, scopes: Scopes) -> None:
        self.log_weights: Callable[[np.ndarray], np.ndarray] | None = None
        self._balance, self._scopes = balance, scopes
        self._values = np.zeros(len(balance.expected))

    def of_states(self) -> np.ndarray:
        """Return the log potential of each state of each node, shape (state_start[-1],)."""
        return np.asarray(self._values[self._balance.state_class])

    def update(self, nodes: np.ndarray, product: np.ndarray) -> float:
        """Change the potentials, also in the node potentials and in the products; return the largest change.

        Args:
            nodes, product: Node potentials, and products of node potentials and messages, shape (state_start[-1],).
        """
        start, cardinality, state_class = (
            self._scopes.state_start[:-1],
            self._scopes.cardinality,
            self._balance.state_class,
        )
        weights = product
        if self.log_weights is not None:
            logs = self.log_weights(product)
            weights = np.exp(logs - np.repeat(np.maximum.reduceat(logs, start), cardinality))
        marginals = weights / np.repeat(np.add.reduceat(weights, start), cardinality)
        strength, expected = self._balance.strength, self._balance.expected
        sizes = np.bincount(state_class, marginals, len(expected))
        # The Jacobian contains the covariances of the states. The eigenvalues are at most twice the variances on the diagonal.
        variances = 2.0 * np.bincount(state_class, marginals * (1.0 - marginals), len(expected))
        step = (strength * (expected - sizes) - self._values) / (1.0 + strength * variances)
        step = np.clip(step, -MAX_STEP, MAX_STEP)
        self._values += step
        for values in (nodes, product):
            if self.log_weights is None:
                values *= np.exp(step)[state_class]
            else:
                values += step[state_class]
        return float(np.abs(step).max(initial=0.0))
