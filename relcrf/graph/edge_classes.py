"""Classes of edges with equal tables, because their factors have equal features and share weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from relcrf.graph.reduction import ReducedGraph
from relcrf.graph.scopes import SharedPotentials
from relcrf.kernels.distinct import number_rows

MIN_CLASSIFIED_EDGES = 1 << 14
"""Minimum number of edges for which `with_table_classes` determines classes; the tables of fewer edges fit into the cache."""

MAX_SHARED_CELLS = 1 << 16
"""Maximum number of cells of all distinct tables; this number of cells fits into the cache of a core."""


@dataclass(frozen=True, eq=False)
class SharedEdgeTables:
    """The distinct edge tables of a graph in which many edges have equal tables.

    Args:
        graph: A graph with the same nodes and one edge for each distinct table.
        table: Index of the table of each edge, i.e. of an edge of `graph`, shape (n_edges,).
    """

    graph: ReducedGraph
    table: np.ndarray

    @cached_property
    def table_start(self) -> np.ndarray:
        """Return the offset of the table of each edge in the flat edge tables of `graph`, shape (n_edges,)."""
        return np.asarray(self.graph.table_start[self.table])

    @cached_property
    def n_edges(self) -> np.ndarray:
        """Return the number of edges with each table, in the order of the edges of `graph`."""
        return np.bincount(self.table, minlength=self.graph.n_edges)

    def potentials(self, weights: np.ndarray, nodes: np.ndarray | None = None) -> SharedPotentials:
        """Return the log potentials of the nodes and of the distinct edge tables, shape of weights (layout.size,).

        Args:
            nodes: The log potentials of the nodes; None computes them.
        """
        graph = self.graph
        nodes = graph.node_log_potentials(weights) if nodes is None else nodes
        return SharedPotentials(nodes, graph.edge_log_potentials(weights), graph.table_start, self.table)


def shared_edge_tables(graph: ReducedGraph) -> SharedEdgeTables | None:
    """Return the distinct edge tables of a graph, or None if few edges have equal tables; cliques are ignored."""
    if not graph.n_edges:
        return None
    if graph.table_class is not None:
        table, first = graph.table_class, _first_members(graph.table_class)
    elif (classes := edge_classes(graph)) is not None:
        table, first = classes
    else:
        return None
    n_cells = np.diff(graph.table_start)[first].sum()
    if n_cells > min(MAX_SHARED_CELLS, int(graph.table_start[-1]) // 4):
        return None
    return SharedEdgeTables(graph.with_edges(first), table)


def with_table_classes(graph: ReducedGraph) -> ReducedGraph:
    """Return the graph with the classes of edges with equal tables, from which some inference methods benefit."""
    if graph.table_class is not None:
        return graph
    classes = edge_classes(graph) if graph.n_edges >= MIN_CLASSIFIED_EDGES else None
    return graph if classes is None else replace(graph, table_class=classes[0])


def edge_classes(graph: ReducedGraph) -> tuple[np.ndarray, np.ndarray] | None:
    """Partition the edges into classes; edges of a class have equal tables for all weights.

    Returns:
        The class of each edge, shape (n_edges,), int32, and the first edge of each class, ascending; None if a factor has
        individual feature values.
    """
    row_classes = []
    for terms in graph.edge_terms:
        rows = slice(None) if terms.factor is None else terms.factor
        row_classes.append(graph.graph.groups[terms.group].features.row_classes(rows))
    # Refine the classes by one factor of each edge at a time, from the first group to the last.
    edge_class = number_rows(*graph.cardinality[graph.edges].T)
    n_classes = int(edge_class.max(initial=-1)) + 1
    for terms, row_class in zip(graph.edge_terms, row_classes, strict=True):
        if row_class is None:
            return None
        view = number_rows(row_class, terms.base, terms.stride_row, terms.stride_column)
        rank = np.arange(len(terms.target)) - np.searchsorted(terms.target, terms.target)
        for chosen in np.split(np.argsort(rank, kind="stable"), np.cumsum(np.bincount(rank))[:-1]):
            # These terms are the factors of one rank; only their edges receive new classes.
            edges = terms.target[chosen]
            refined = number_rows(edge_class[edges], view[chosen])
            edge_class[edges] = n_classes + refined
            n_classes += int(refined.max(initial=-1)) + 1
    edge_class = number_rows(edge_class)
    first = _first_members(edge_class)
    order = np.argsort(first)
    rank_of_class = np.empty(len(order), dtype=np.int32)
    rank_of_class[order] = np.arange(len(order), dtype=np.int32)
    return rank_of_class[edge_class], first[order]


def _first_members(edge_class: np.ndarray) -> np.ndarray:
    """Return the first edge of each class."""
    first = np.empty(int(edge_class.max(initial=-1)) + 1, dtype=np.int64)
    first[edge_class[::-1]] = np.arange(len(edge_class))[::-1]
    return first
