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

SLOWER = 0.5
"""Factor of the rate of change after the potentials oscillated."""


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

    They follow the sizes of the classes from round to round. If they oscillate, they follow more slowly; the fixed point is
    the same. `log_weights` is a function that replaces log products of impossible states by -inf; None if products are linear.
    """

    def __init__(self, balance: Balance, scopes: Scopes) -> None:
        self.log_weights: Callable[[np.ndarray], np.ndarray] | None = None
        self._balance, self._scopes = balance, scopes
        self._values = np.zeros(len(balance.expected))
        self._step, self._rate = np.zeros_like(self._values), 1.0

    def of_states(self) -> np.ndarray:
        """Return the log potential of each state of each node, shape (state_start[-1],)."""
        return np.asarray(self._values[self._balance.state_class])

    def update(self, nodes: np.ndarray, product: np.ndarray) -> float:
        """Change the potentials, also in the node potentials and in the products; return the largest change.

        Args:
            nodes, product: Node potentials, and products of node potentials and messages, shape (state_start[-1],).
        """
        balance, scopes = self._balance, self._scopes
        if self.log_weights is None:
            weights = product
        else:
            logs = self.log_weights(product)
            weights = np.exp(logs - np.repeat(np.maximum.reduceat(logs, scopes.state_start[:-1]), scopes.cardinality))
        total = np.add.reduceat(weights, scopes.state_start[:-1])
        marginals = weights / np.repeat(total, scopes.cardinality)
        sizes = np.bincount(balance.state_class, marginals, len(balance.expected))
        step = self._rate * (balance.strength * (balance.expected - sizes) - self._values)
        if float(step @ self._step) < 0.0 and float(np.abs(step).max()) > float(np.abs(self._step).max()):
            self._rate *= SLOWER
            step *= SLOWER
        self._values += step
        self._step = step
        change = step[balance.state_class]
        for values in (nodes, product):
            if self.log_weights is None:
                values *= np.exp(change)
            else:
                values += change
        return float(np.abs(step).max(initial=0.0))
