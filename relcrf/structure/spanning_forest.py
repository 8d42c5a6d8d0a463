"""Maximum spanning forest."""

from __future__ import annotations

import numpy as np

from relcrf.kernels import spanning

MIN_SORTED_FRACTION = 1 / 64
"""Of the edges that are sorted first: so few take less time to sort than all edges take to be read."""

THRESHOLD_SAMPLE = 1 << 13
"""Weights from which the thresholds are estimated: the rank of the first is right to a tenth or so."""


def maximum_spanning_forest(n_nodes: int, edges: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The edges of a forest of the largest total weight, by Kruskal's algorithm.

    Edges of weight 0 and below are used like any other (SciPy's routine takes those of 0 for absent), of parallel ones
    the heaviest, and no loop. Of equal weights the edge of the lower index comes first: the result is that of a stable
    sort of all edges, and the same on every run.

    Args:
        edges: shape (n_edges, 2), int32; fewer than 2**31. weight: shape (n_edges,), float64, or what becomes that.

    Returns:
        Indices of the chosen edges, ascending.

    Raises:
        ValueError: a weight is NaN, or edges and weights are not of one length.
    """
    edges = np.ascontiguousarray(edges, dtype=np.int32)
    weight = np.ascontiguousarray(weight, dtype=np.float64)
    if edges.shape != (len(weight), 2):
        raise ValueError(f"edges of shape {edges.shape} for {len(weight)} weights")
    chosen = np.zeros(len(edges), dtype=np.bool_)
    if not spanning.maximum_forest(n_nodes, edges, weight, _thresholds(n_nodes, weight), chosen):
        raise ValueError("the weight of an edge is NaN")
    return np.flatnonzero(chosen)


def _thresholds(n_nodes: int, weight: np.ndarray) -> np.ndarray:
    """Falling weights that about n_nodes edges reach, or the least share; then twice as many, and so on."""
    share = max(n_nodes / max(len(weight), 1), MIN_SORTED_FRACTION)
    if len(weight) <= THRESHOLD_SAMPLE or share >= 0.5:
        return np.empty(0)
    sample = np.sort(weight[np.random.default_rng(0).integers(len(weight), size=THRESHOLD_SAMPLE)])
    above = THRESHOLD_SAMPLE * share * 2.0 ** np.arange(np.ceil(-np.log2(share)))
    return np.unique(sample[THRESHOLD_SAMPLE - above.astype(int)])[::-1].copy()
