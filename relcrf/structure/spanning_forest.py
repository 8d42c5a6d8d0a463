"""Maximum spanning forest."""

from __future__ import annotations

import numpy as np

from relcrf.kernels import spanning


def maximum_spanning_forest(n_nodes: int, edges: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The edges of a forest of the largest total weight, by Kruskal's algorithm.

    Edges of weight 0 are used like any other (SciPy's routine takes them for absent). Of equal weights the edge of
    the lower index comes first, so that the result is the same on every run.

    Args:
        edges: shape (n_edges, 2), int32. weight: shape (n_edges,).

    Returns:
        Indices of the chosen edges, ascending.
    """
    order = np.argsort(-weight, kind="stable")
    chosen = np.empty(len(edges), dtype=np.bool_)
    spanning.kruskal(n_nodes, edges, order, chosen)
    return np.flatnonzero(chosen)
