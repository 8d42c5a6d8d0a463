"""Subgraphs of large total weight with bounded treewidth."""

from __future__ import annotations

import numpy as np

from relcrf.columns.offsets import offsets
from relcrf.kernels import bounded_treewidth


def thin_graph(n_nodes: int, edges: np.ndarray, weight: np.ndarray, width: int) -> np.ndarray:
    """Return the edges of a partial k-tree of large total weight, k = `width`.

    Nodes are added one by one; as in Prim's algorithm, the next node is the one with the heaviest edge to the nodes
    added so far. A new bag is created from this node and up to k nodes of one earlier bag. These k nodes are chosen to
    maximise the total weight of the edges between the new node and the k nodes; these edges are selected. With width 1,
    the result is a maximum spanning forest of the edges with positive weight. For k > 1, finding the optimum is NP-hard
    (Karger & Srebro 2001); the runtime of this greedy algorithm is similar to that of a spanning forest.

    Args:
        n_nodes: Number of nodes.
        edges: Edges, shape (n_edges, 2), int32.
        weight: Weights, shape (n_edges,); edges with weights of 0 or less are not selected.
        width: Maximum treewidth.

    Returns:
        Indices of the selected edges, ascending.
    """
    edges = np.ascontiguousarray(edges, dtype=np.int32)
    start = offsets(np.bincount(edges.ravel(), minlength=n_nodes))
    incident = (np.argsort(edges.ravel(), kind="stable") // 2).astype(np.int32)
    chosen = np.zeros(len(edges), dtype=np.bool_)
    bounded_treewidth.choose_edges(
        n_nodes, edges, np.ascontiguousarray(weight, dtype=np.float64), start, incident, width, chosen
    )
    return np.flatnonzero(chosen)
