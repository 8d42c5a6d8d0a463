"""The inference task of a backend: a graph of the free variables with the factors in use, and an inference method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from relcrf.errors import Diagnostic, UsageError
from relcrf.execution.memory import return_freed_memory
from relcrf.graph.edge_classes import shared_edge_tables
from relcrf.graph.reduction import ReducedGraph
from relcrf.graph.scopes import Potentials, Scopes, TableSizeError, check_table_cells
from relcrf.inference.result import AbstractInference, Marginals
from relcrf.learning.node_passes import node_potentials

MIN_LARGE_NODES = 1 << 17
"""Minimum number of nodes for which the memory that the reduction of the graph freed, some 10 MB, is returned to the system."""


@dataclass(frozen=True, eq=False)
class InferenceTask:
    """A graph, the weights of the graph, and an inference method.

    Args:
        graph: The graph of the free variables, with the factors that the backend uses.
        weights: The weights of the graph, shape (layout.size,).
        method: Constructor of the inference method for the scopes of the graph, or of a part of the graph.
        observed_states: States of observed nodes, shape (n_nodes,); -1 for other nodes. None if no node is observed.
        is_mean_field: Whether the method is mean field; the messages from factors to nodes are then expected log
            potentials.
    """

    graph: ReducedGraph
    weights: np.ndarray
    method: Callable[[Scopes], AbstractInference]
    observed_states: np.ndarray | None = None
    is_mean_field: bool = False

    @cached_property
    def potentials(self) -> Potentials:
        """Return the log potentials of the graph's scopes.

        Raises:
            UsageError: If only equal tables that edges share are small enough (E308).
        """
        if self.graph.table_class is not None:
            try:
                check_table_cells(int(self.graph.scopes.table_start[-1]))
            except TableSizeError as error:
                message, hint = f"joint states would need {error}", "leave out the column 'joint', or use --backend ess"
                raise UsageError(Diagnostic("E308", message, hint=hint)) from None
        potentials = self.graph.potentials(self.weights)
        return potentials if self.observed_states is None else potentials.clamp(self.graph.scopes, self.observed_states)

    def node_marginals(self, inference: AbstractInference) -> Marginals:
        """Return the marginals of the nodes; edges with equal tables share one if the classes of the tables are known.

        Args:
            inference: The inference method for the scopes of the graph.
        """
        graph, observed = self.graph, self.observed_states
        if graph.n_nodes >= MIN_LARGE_NODES:
            return_freed_memory()
        shared = None if graph.table_class is None or graph.clique_terms else shared_edge_tables(graph)
        if shared is None:
            return inference.node_marginals(self.potentials)
        potentials = shared.potentials(self.weights, node_potentials(graph, self.weights, is_last=True))
        potentials = potentials if observed is None else potentials.clamp(graph.scopes, observed)
        return inference.shared_marginals(potentials, with_factors=False)

    def beliefs(self, excluded: tuple[int, ...] = ()) -> np.ndarray:
        """Return flat marginals of all nodes in the graph without the factors of the `excluded` nodes."""
        scopes, potentials = self.graph.scopes, self.potentials
        if excluded and scopes.n_factors:
            touched = np.logical_or.reduceat(np.isin(scopes.node, excluded), scopes.start[:-1])
            potentials = potentials.select_factors(scopes, np.flatnonzero(~touched))
            scopes = scopes.with_factors(np.flatnonzero(~touched))
        return self.method(scopes).marginals(potentials).nodes
