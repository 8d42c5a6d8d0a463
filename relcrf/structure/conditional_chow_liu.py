"""Conditional Chow-Liu: the edges for this evidence, by the information that each pair shares under it.

Source: Chechetka & Guestrin (2010), equations (8) and (9), algorithms 2 and 4 (relational form); structure
regularisation: section 4.2. Pooling is ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relcrf.graph.reduction import ReducedGraph
from relcrf.kernels import pairs
from relcrf.learning.likelihood import pair_tables
from relcrf.structure.edge_kinds import edge_kind_values
from relcrf.structure.spanning_forest import maximum_spanning_forest
from relcrf.structure.thin_graph import thin_graph

REUSE_DISCOUNT = 0.5
"""Of an edge's worth once it is in a structure, where several are made; 0.8 and 0 were no better."""


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


@dataclass(frozen=True)
class EdgeSelector:
    """Which edges act, given what each is worth.

    Args:
        treewidth: treewidth: 1 is a forest, of the largest total information; above it, edges that together fit into cliques of
            `width + 1` nodes, chosen greedily.
        min_information: edges of fewer nats are left out.
        min_fraction: edges are left out of whose kind a smaller share of the training's candidates was chosen.
        pooling: of what an edge is worth, the part that is the same for its kind under all evidence: 0 is the conditional
            information alone, 1 that of the training's labels alone, which is the fixed tree of Chow & Liu.
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
        """Return n graphs with only the edges that act, which are worth `REUSE_DISCOUNT` times as much for every graph before.

        Args:
            information: of each edge, shape (n_edges,).
            fractions, label_information: what training found of each kind of edges, for each weight of it, shape (layout.size,):
                the share of its candidates that was chosen, and what the labels of its pairs share, in nats; None where it is
                not used.
        """
        if label_information is not None:
            pooled = edge_kind_values(graph, label_information)
            information = (1.0 - self.pooling) * information + self.pooling * pooled
        admitted = information >= self.min_information
        if fractions is not None:
            admitted &= edge_kind_values(graph, fractions) >= self.min_fraction
        if not admitted.all():
            graph, information = graph.with_edges(np.flatnonzero(admitted)), information[admitted]
        found = []
        for _ in range(n_graphs):
            if self.treewidth == 1:
                keep = maximum_spanning_forest(graph.n_nodes, graph.edges, information)
            else:
                keep = thin_graph(graph.n_nodes, graph.edges, information, self.treewidth)
            found.append(graph.with_edges(keep))
            information = information.copy()
            information[keep] *= REUSE_DISCOUNT
        return found
