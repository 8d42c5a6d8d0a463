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
class InferenceTask:
    """A graph, its weights and a method of inference.

    Args:
        graph: of the free variables, with the factors that act.
        weights: shape (layout.size,).
        method: makes the method for the graph's scopes, or for those of a part of it.
        observed_states: states of nodes that are known, shape (n_nodes,), -1 at all others; None is none.
        is_mean_field: the method is mean field, in which a node hears of its factors their expected log potentials.
    """

    graph: ReducedGraph
    weights: np.ndarray
    method: Callable[[Scopes], AbstractInference]
    observed_states: np.ndarray | None = None
    is_mean_field: bool = False

    @cached_property
    def potentials(self) -> Potentials:
        """Log potentials of the graph's scopes."""
        found = self.graph.potentials(self.weights)
        return found if self.observed_states is None else found.clamp(self.graph.scopes, self.observed_states)

    def beliefs(self, excluded: tuple[int, ...] = ()) -> np.ndarray:
        """The marginals of all nodes where those in `excluded` have no factors, flat as `graph.state_start` says."""
        scopes, potentials = self.graph.scopes, self.potentials
        if excluded and scopes.n_factors:
            touched = np.logical_or.reduceat(np.isin(scopes.node, excluded), scopes.start[:-1])
            potentials = potentials.select_factors(scopes, np.flatnonzero(~touched))
            scopes = scopes.with_factors(np.flatnonzero(~touched))
        return self.method(scopes).marginals(potentials).nodes
