"""Classes of edges with equal tables, because their factors have equal features and share weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from relcrf.graph.reduction import ReducedGraph
from relcrf.kernels.distinct import number_rows

MIN_CLASSIFIED_EDGES = 1 << 14
"""Minimum number of edges for which `with_table_classes` determines classes; the tables of fewer edges fit into the cache."""


def with_table_classes(graph: ReducedGraph) -> ReducedGraph:
    """Return the graph with the classes of edges with equal tables, from which some inference methods benefit."""
    classes = edge_classes(graph) if graph.n_edges >= MIN_CLASSIFIED_EDGES else None
    return graph if classes is None else replace(graph, table_class=classes[0])


def edge_classes(graph: ReducedGraph) -> tuple[np.ndarray, np.ndarray] | None:
    """Partition the edges into classes; edges of a class have equal tables for all weights.

    Returns:
        The class of each edge, shape (n_edges,), and the first edge of each class; None if a factor has individual
        feature values.
    """
    row_classes = []
    for terms in graph.edge_terms:
        rows = slice(None) if terms.factor is None else terms.factor
        row_classes.append(graph.graph.groups[terms.group].features.row_classes(rows))
    # Refine the classes by one factor of each edge at a time, from the first group to the last.
    edge_class = number_rows(*graph.cardinality[graph.edges].T)
    for terms, row_class in zip(graph.edge_terms, row_classes, strict=True):
        if row_class is None:
            return None
        view = number_rows(row_class, terms.base, terms.stride_row, terms.stride_column) + 1
        rank = np.arange(len(terms.target)) - np.searchsorted(terms.target, terms.target)
        for k in range(int(rank.max(initial=-1)) + 1):
            has_rank = rank == k
            edge_view = np.zeros(graph.n_edges, dtype=np.int64)
            edge_view[terms.target[has_rank]] = view[has_rank]
            edge_class = number_rows(edge_class, edge_view)
    first = np.empty(int(edge_class.max(initial=-1)) + 1, dtype=np.int64)
    first[edge_class[::-1]] = np.arange(graph.n_edges)[::-1]
    return edge_class, first
