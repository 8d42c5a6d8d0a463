"""Conditional Chow-Liu: a spanning forest for this evidence, by the information that each pair shares under it.

Source: Chechetka & Guestrin (2010), equations (8) and (9), algorithms 2 and 4 (relational form).
"""

from __future__ import annotations

import numpy as np

from relcrf.graph.reduction import ReducedGraph
from relcrf.kernels import pairs
from relcrf.learning.likelihood import pair_tables
from relcrf.structure.spanning_forest import maximum_spanning_forest


def edge_information(graph: ReducedGraph, structure_weights: np.ndarray) -> np.ndarray:
    """Conditional mutual information of each edge's ends given the evidence, in nats, shape (n_edges,).

    The pair's distribution is the small model P(x_i, x_j | e, u) of the structure weights u.
    """
    node_tables = graph.node_log_potentials(structure_weights)
    information = np.empty(graph.n_edges)
    for start, stop in graph.edge_chunks():
        tables, _ = pair_tables(graph, structure_weights, node_tables, start, stop)
        starts = graph.table_start[start:stop] - graph.table_start[start]
        pairs.mutual_information(graph.edges[start:stop], graph.cardinality, starts, tables, information[start:stop])
    return information


def spanning_forest(graph: ReducedGraph, structure_weights: np.ndarray) -> ReducedGraph:
    """The graph with only the edges of the maximum spanning forest of `edge_information`."""
    information = edge_information(graph, structure_weights)
    return graph.with_edges(maximum_spanning_forest(graph.n_nodes, graph.edges, information))
