"""Conditional Chow-Liu: selection of edges by conditional mutual information given the evidence.

Source: Chechetka & Guestrin (2010), equations (8) and (9), algorithms 2 and 4 (relational form), and section 6.1
(structure regularisation). Pooling is not part of the source.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relcrf.graph.reduction import ReducedGraph
from relcrf.kernels import pairs
from relcrf.kernels.threads import map_lanes
from relcrf.learning.node_passes import node_potentials
from relcrf.learning.pair_likelihood import pair_tables
from relcrf.structure.edge_kinds import edge_kind_values
from relcrf.structure.spanning_forest import maximum_spanning_forest
from relcrf.structure.thin_graph import thin_graph

REUSE_DISCOUNT = 0.5
"""Multiplier of an edge's information for each earlier graph with this edge; 0.8 and 0 gave no better results."""


def edge_information(graph: ReducedGraph, structure_weights: np.ndarray) -> np.ndarray:
    """Return the mutual information of the two ends of each edge given the evidence, in nats, shape (n_edges,).

    The distribution of two ends i and j given the evidence e is P(x_i, x_j | e, u), with the structure weights u.
    """
    node_tables = node_potentials(graph, structure_weights)
    information = np.empty(graph.n_edges)

    def fill(first: int, last: int) -> None:
        for start, stop in graph.edge_chunks(first, last):
            tables, _ = pair_tables(graph, structure_weights, node_tables, start, stop)
            starts = graph.table_start[start:stop] - graph.table_start[start]
            out = information[start:stop]
            pairs.mutual_information(graph.edges[start:stop], graph.cardinality, starts, tables, out)

    map_lanes(graph.n_edges, int(graph.table_start[-1]), fill)
    return information


@dataclass(frozen=True)
class EdgeSelector:
    """A rule that selects edges by their conditional mutual information, optionally by *kind* (template and key).

    Args:
        treewidth: Maximum treewidth. 1 selects a maximum spanning forest; larger values greedily select edges that fit
            into cliques of `treewidth + 1` nodes.
        min_information: Minimum information of an edge, in nats.
        min_fraction: The edges of a kind are excluded if training selected a smaller fraction of these edges.
        pooling: Weight w of the mutual information that the training labels have for the edge's kind; the conditional
            information has the weight 1 - w. w = 1 gives the fixed tree of Chow & Liu.
    """

    treewidth: int = 1
    min_information: float = 0.0
    min_fraction: float = 0.0
    pooling: float = 0.0

    def select(
        self,
        graph: ReducedGraph,
        information: np.ndarray,
        n_graphs: int = 1,
        *,
        fractions: np.ndarray | None = None,
        label_information: np.ndarray | None = None,
    ) -> list[ReducedGraph]:
        """Return `n_graphs` graphs, each with selected edges only.

        For each earlier graph that contains an edge, the edge's information is multiplied by `REUSE_DISCOUNT`.

        Args:
            information: Conditional mutual information of each edge in nats, shape (n_edges,).
            fractions: The fraction of the edges of each kind that training selected, repeated for each weight of the
                kind, shape (layout.size,); None if `min_fraction` is not used.
            label_information: The mutual information of the training labels for each kind in nats, in the same form;
                None if `pooling` is not used.
        """
        if label_information is not None:
            pooled = edge_kind_values(graph, label_information)
            information = (1.0 - self.pooling) * information + self.pooling * pooled
        admitted = information >= self.min_information
        if fractions is not None:
            admitted &= edge_kind_values(graph, fractions) >= self.min_fraction
        if not admitted.all():
            graph, information = graph.with_edges(np.flatnonzero(admitted)), information[admitted]
        graphs = []
        for _ in range(n_graphs):
            if self.treewidth == 1:
                selected = maximum_spanning_forest(graph.n_nodes, graph.edges, information)
            else:
                selected = thin_graph(graph.n_nodes, graph.edges, information, self.treewidth)
            graphs.append(graph.with_edges(selected))
            information = information.copy()
            information[selected] *= REUSE_DISCOUNT
        return graphs
