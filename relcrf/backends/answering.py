"""What a backend answers from: the graph of the free variables with the factors that act, and its method on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from relcrf.graph.reduction import ReducedGraph
from relcrf.graph.scopes import Potentials, Scopes
from relcrf.inference.result import AbstractInference


@dataclass(frozen=True, eq=False)
class Answering:
    """A graph, its weights and a method of inference.

    Args:
        graph: of the free variables, with the factors that act.
        weights: shape (layout.size,).
        method: makes the method for the graph's scopes, or for those of a part of it.
        given: states of nodes that are known, shape (n_nodes,), -1 at all others; None is none.
        is_expected: the method is mean field, in which a node hears of its factors their expected log potentials.
    """

    graph: ReducedGraph
    weights: np.ndarray
    method: Callable[[Scopes], AbstractInference]
    given: np.ndarray | None = None
    is_expected: bool = False

    @cached_property
    def potentials(self) -> Potentials:
        """Log potentials of the graph's scopes."""
        found = self.graph.potentials(self.weights)
        return found if self.given is None else found.given(self.graph.scopes, self.given)

    def beliefs(self, without: tuple[int, ...] = ()) -> np.ndarray:
        """The marginals of all nodes where those in `without` have no factors, flat as `graph.state_start` says."""
        scopes, potentials = self.graph.scopes, self.potentials
        if without and scopes.n_factors:
            touched = np.logical_or.reduceat(np.isin(scopes.node, without), scopes.start[:-1])
            potentials = potentials.of_factors(scopes, np.flatnonzero(~touched))
            scopes = scopes.with_factors(np.flatnonzero(~touched))
        return self.method(scopes).marginals(potentials).nodes
