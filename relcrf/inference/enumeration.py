"""Exact inference by going through every joint state: the oracle of all other methods, for small graphs."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from relcrf.graph.reduction import ReducedGraph
from relcrf.inference.result import MapStates, Marginals, Verdict

LIMIT = 1 << 20
"""Joint states beyond which enumeration refuses: a second of work."""


@dataclass(frozen=True)
class Enumeration:
    """Marginals and most probable states of any pairwise graph with few joint states.

    Raises:
        ValueError: where the graph has more than `LIMIT` joint states.
    """

    graph: ReducedGraph

    def _all(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        graph = self.graph
        if np.prod(graph.cardinality.astype(np.float64)) > LIMIT:
            raise ValueError(f"more than {LIMIT} joint states; enumeration is for small graphs")
        states = np.array(list(itertools.product(*(range(k) for k in graph.cardinality))), dtype=np.int64)
        states = states.reshape(-1, graph.n_nodes)
        nodes, edges = graph.node_log_potentials(weights), graph.edge_log_potentials(weights)
        scores = nodes[graph.state_start[:-1] + states].sum(axis=1)
        for e, (i, j) in enumerate(graph.edges):
            cell = graph.table_start[e] + states[:, i] * int(graph.cardinality[j]) + states[:, j]
            scores = scores + edges[cell]
        return states, scores

    def marginals(self, weights: np.ndarray) -> Marginals:
        graph = self.graph
        states, scores = self._all(weights)
        top = scores.max()
        probability = np.exp(scores - top)
        log_partition = float(top + np.log(probability.sum()))
        probability /= probability.sum()
        nodes = np.zeros(int(graph.state_start[-1]))
        edges = np.zeros(int(graph.table_start[-1]))
        for v in range(graph.n_nodes):
            here = np.bincount(states[:, v], probability, minlength=graph.cardinality[v])
            nodes[graph.state_start[v] : graph.state_start[v + 1]] = here
        for e, (i, j) in enumerate(graph.edges):
            cell = states[:, i] * int(graph.cardinality[j]) + states[:, j]
            size = int(graph.table_start[e + 1] - graph.table_start[e])
            edges[graph.table_start[e] : graph.table_start[e + 1]] = np.bincount(cell, probability, minlength=size)
        return Marginals(log_partition, nodes, edges, Verdict("exact"))

    def map_states(self, weights: np.ndarray) -> MapStates:
        states, scores = self._all(weights)
        best = int(scores.argmax())
        return MapStates(float(scores[best]), states[best].astype(np.int32), Verdict("exact"))
