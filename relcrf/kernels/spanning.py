"""Kruskal's sweep over edges that are already in order."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def kruskal(n_nodes, edges, order, chosen):  # type: ignore[no-untyped-def]
    """Marks the edges that join two trees, going through them in `order`. `chosen` is overwritten, shape (n_edges,)."""
    leader = np.arange(n_nodes)
    left = n_nodes - 1
    for k in range(len(chosen)):
        chosen[k] = False
    for k in range(len(order)):
        if left == 0:
            break
        e = order[k]
        a = edges[e, 0]
        b = edges[e, 1]
        while leader[a] != a:
            leader[a] = leader[leader[a]]
            a = leader[a]
        while leader[b] != b:
            leader[b] = leader[leader[b]]
            b = leader[b]
        if a != b:
            # The lower number leads, with path halving: near-constant depth and the same result on every run.
            leader[max(a, b)] = min(a, b)
            chosen[e] = True
            left -= 1
