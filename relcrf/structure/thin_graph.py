"""Edges of large total weight whose graph has small treewidth."""

from __future__ import annotations

import numpy as np

from relcrf.columns.offsets import offsets
from relcrf.kernels import bounded_treewidth


def thin_graph(n_nodes: int, edges: np.ndarray, weight: np.ndarray, width: int) -> np.ndarray:
    """The edges of a partial k-tree of large total weight, k = `width`.

    Nodes join one by one, as in Prim's algorithm the one with the heaviest edge to those that have joined. Each brings a
    bag: itself and up to k nodes out of one bag before, the one into which its edges weigh most; of its edges those into
    that bag stay. With width 1 this is a maximum spanning forest of the edges of positive weight. The largest total is
    hard to find for k above 1 (Karger & Srebro 2001); this is within reach of a forest's time.

    Args:
        edges: shape (n_edges, 2), int32. weight: shape (n_edges,); edges of weight 0 and below are never chosen.

    Returns:
        Indices of the chosen edges, ascending.
    """
    edges = np.ascontiguousarray(edges, dtype=np.int32)
    start = offsets(np.bincount(edges.ravel(), minlength=n_nodes))
    incident = (np.argsort(edges.ravel(), kind="stable") // 2).astype(np.int32)
    chosen = np.zeros(len(edges), dtype=np.bool_)
    bounded_treewidth.choose_edges(
        n_nodes, edges, np.ascontiguousarray(weight, dtype=np.float64), start, incident, width, chosen
    )
    return np.flatnonzero(chosen)
