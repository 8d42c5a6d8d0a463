"""Maximum spanning forests."""

from __future__ import annotations

import numpy as np

from relcrf.kernels import spanning

MIN_SORTED_FRACTION = 1 / 64
"""Minimum fraction of the edges that are sorted first; sorting these edges takes less time than reading all edges."""

THRESHOLD_SAMPLE = 1 << 13
"""Number of sampled weights for the estimates of thresholds; the first threshold's rank is accurate to about 10 %."""


def maximum_spanning_forest(n_nodes: int, edges: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the edges of a spanning forest of maximum total weight, by Kruskal's algorithm.

    Edges with weights of 0 or less are used like other edges (SciPy's routine omits edges of weight 0). Loops are
    ignored, and only the heaviest of parallel edges is used. Among edges of equal weight, the lower index is first. The
    result is therefore deterministic: it is the result for a stable sort of all edges.

    Args:
        n_nodes: Number of nodes.
        edges: Edges, shape (n_edges, 2), int32; fewer than 2**31.
        weight: Weights, shape (n_edges,), convertible to float64.

    Returns:
        Indices of the selected edges, ascending.

    Raises:
        ValueError: If a weight is NaN, or edges and weights differ in length.
    """
    edges = np.ascontiguousarray(edges, dtype=np.int32)
    weight = np.ascontiguousarray(weight, dtype=np.float64)
    if edges.shape != (len(weight), 2):
        raise ValueError(f"edges have shape {edges.shape}, but there are {len(weight)} weights")
    chosen = np.zeros(len(edges), dtype=np.bool_)
    if not spanning.maximum_forest(n_nodes, edges, weight, _thresholds(n_nodes, weight), chosen):
        raise ValueError("the weight of an edge is NaN")
    return np.flatnonzero(chosen)


def _thresholds(n_nodes: int, weight: np.ndarray) -> np.ndarray:
    """Return descending weight thresholds.

    About `max(n_nodes, MIN_SORTED_FRACTION * n_edges)` edges exceed the first threshold; each next one, twice as many.
    """
    fraction = max(n_nodes / max(len(weight), 1), MIN_SORTED_FRACTION)
    if len(weight) <= THRESHOLD_SAMPLE or fraction >= 0.5:
        return np.empty(0)
    sample = np.sort(weight[np.random.default_rng(0).integers(len(weight), size=THRESHOLD_SAMPLE)])
    ranks = THRESHOLD_SAMPLE * fraction * 2.0 ** np.arange(np.ceil(-np.log2(fraction)))
    return np.unique(sample[THRESHOLD_SAMPLE - ranks.astype(int)])[::-1].copy()
