"""Regions of a graph: the nodes within the smallest distances of some starting nodes."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order


def breadth_first_region(n_nodes: int, edges: np.ndarray, starts: np.ndarray, max_edges: int) -> np.ndarray:
    """Return the largest region with at most `max_edges` edges between its nodes, ascending, shape (n_region_nodes,).

    The region consists of the first nodes in the breadth-first order from all `starts`.

    Args:
        edges: End nodes of each edge, shape (n_edges, 2).
        starts: Nodes with distance 0, shape (n,).
    """
    # An additional node is adjacent to all starts, so that one search visits the nodes in the order of their distances.
    links = np.concatenate((edges, np.column_stack((np.full_like(starts, n_nodes), starts)).astype(edges.dtype)))
    adjacency = csr_array((np.ones(len(links), dtype=np.int8), (links[:, 0], links[:, 1])), shape=(n_nodes + 1,) * 2)
    order = breadth_first_order(adjacency, n_nodes, directed=False, return_predecessors=False)[1:]
    rank = np.full(n_nodes, len(order))
    rank[order] = np.arange(len(order))
    # An edge is inside the region as soon as the region contains the later one of its two nodes.
    n_edges = np.cumsum(np.bincount(rank[edges].max(axis=1), minlength=len(order) + 1)[: len(order)])
    return np.sort(order[: np.searchsorted(n_edges, max_edges, side="right")])
