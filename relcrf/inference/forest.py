"""Exact inference where the edges form a forest."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from relcrf.graph.reduction import ReducedGraph
from relcrf.inference.result import MapStates, Marginals, Verdict
from relcrf.kernels import forest


@dataclass(frozen=True)
class ForestInference:
    """Sum-product and max-product on one forest; the order is found once and serves any weights.

    Raises:
        ValueError: at the first call, where the graph's edges have a cycle.
    """

    graph: ReducedGraph

    @cached_property
    def _structure(self) -> tuple[np.ndarray, ...]:
        graph = self.graph
        order, parent, parent_edge, is_forest = forest.topological_order(graph.n_nodes, graph.edges)
        if not is_forest:
            raise ValueError("the edges have a cycle; forest inference needs a forest")
        return order, parent, parent_edge, graph.edges, graph.cardinality, graph.state_start, graph.table_start

    def marginals(self, weights: np.ndarray, evidence: np.ndarray | None = None) -> Marginals:
        """Marginals and log partition under `weights`, shape (layout.size,).

        Args:
            evidence: flat as the node tables: 0 for states that can be, -inf for states that are known not to be.
        """
        nodes = self.graph.node_log_potentials(weights)
        tables = (nodes if evidence is None else nodes + evidence, self.graph.edge_log_potentials(weights))
        log_partition, nodes, edges = forest.sum_product(*self._structure, *tables)
        return Marginals(float(log_partition), nodes, edges, Verdict("exact"))

    def map_states(self, weights: np.ndarray) -> MapStates:
        """A most probable joint state under `weights`."""
        tables = (self.graph.node_log_potentials(weights), self.graph.edge_log_potentials(weights))
        score, states = forest.max_product(*self._structure, *tables)
        return MapStates(float(score), states, Verdict("exact"))


def score(graph: ReducedGraph, weights: np.ndarray, states: np.ndarray) -> float:
    """Sum of the log potentials at a joint state of shape (n_nodes,)."""
    total = float(graph.node_log_potentials(weights)[graph.state_start[:-1] + states].sum())
    for start, stop in graph.edge_chunks():
        tables = graph.edge_log_potentials(weights, start, stop)
        total += float(tables[graph.edge_state(states, start, stop)].sum())
    return total
