"""Subgraphs of bounded treewidth and large total weight: partial k-trees, grown node by node as in Prim's algorithm."""

from __future__ import annotations

import numpy as np
from numba import boolean, float64, int32, int64

from relcrf.kernels.compile import kernel

MAX_BAGS = 64
"""Maximum number of bags stored per node: the latest bags that contain the node. A hub may be in thousands of bags."""


@kernel()
def _push(key, item, size, pushed_key, pushed):
    """Push an item onto a heap of `size` items with the largest key on top."""
    at = size
    while at > 0:
        above = (at - 1) >> 1
        if key[above] >= pushed_key:
            break
        key[at] = key[above]
        item[at] = item[above]
        at = above
    key[at] = pushed_key
    item[at] = pushed


@kernel()
def _pop(key, item, size):
    """Remove the top item of a heap of `size` items without returning it; the caller must read it before the call."""
    last_key = key[size - 1]
    last = item[size - 1]
    size -= 1
    at = 0
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        if below + 1 < size and key[below + 1] > key[below]:
            below += 1
        if key[below] <= last_key:
            break
        key[at] = key[below]
        item[at] = item[below]
        at = below
    if size > 0:
        key[at] = last_key
        item[at] = last


@kernel((int64, int32[:, ::1], float64[::1], int64[::1], int32[::1], int64, boolean[::1]))
def choose_edges(n_nodes, edges, weight, start, incident, width, chosen):
    """Choose edges so that the resulting graph has treewidth at most `width`.

    For every added node, a new bag is created from the node and at most `width` nodes of one earlier bag. The earlier
    bag and these nodes are selected such that their edges to the added node have the largest total weight. These edges
    are chosen. The bags form a tree decomposition.

    Args:
        weight: weight of each edge, shape (n_edges,); edges of weight 0 or less are never chosen.
        start, incident: the edges incident to each node, in CSR form, shapes (n_nodes + 1,) and (2 * n_edges,).
        chosen: overwritten by a mask of the chosen edges, shape (n_edges,), all False on entry.
    """
    bag = np.full((n_nodes, width + 1), -1, dtype=np.int32)
    bags_of = np.full((n_nodes, MAX_BAGS), -1, dtype=np.int32)  # ring buffer of the latest bags that contain each node
    n_bags = np.zeros(n_nodes, dtype=np.int64)
    placed = np.zeros(n_nodes, dtype=np.bool_)
    tried_by = np.full(n_nodes, -1, dtype=np.int32)
    edge_to = np.full(n_nodes, -1, dtype=np.int32)
    key = np.empty(2 * len(edges) + 1)
    item = np.empty(2 * len(edges) + 1, dtype=np.int32)
    for first in range(n_nodes):
        if placed[first]:
            continue
        size = 0
        v = first
        while True:
            # Find the bag to which v has the largest total edge weight, without the lightest edge if the bag is full.
            best = -1
            best_weight = 0.0
            best_size = 0
            for at in range(start[v], start[v + 1]):
                e = incident[at]
                u = edges[e, 0] + edges[e, 1] - v
                if placed[u] and weight[e] > 0.0 and (edge_to[u] < 0 or weight[e] > weight[edge_to[u]]):
                    edge_to[u] = e
            for at in range(start[v], start[v + 1]):
                u = edges[incident[at], 0] + edges[incident[at], 1] - v
                if edge_to[u] < 0:
                    continue
                for ring in range(min(n_bags[u], MAX_BAGS)):
                    b = bags_of[u, ring]
                    if tried_by[b] == v:
                        continue
                    tried_by[b] = v
                    total = 0.0
                    lightest = np.inf
                    members = 0
                    for i in range(width + 1):
                        w = 0.0
                        if bag[b, i] >= 0:
                            members += 1
                            if edge_to[bag[b, i]] >= 0:
                                w = weight[edge_to[bag[b, i]]]
                        total += w
                        lightest = min(lightest, w)
                    total -= lightest
                    # For equal totals, prefer the larger bag (it gives later bags more choice), then the earlier bag.
                    if total > best_weight or (
                        total == best_weight and (members > best_size or (members == best_size and b < best))
                    ):
                        best = b
                        best_weight = total
                        best_size = members
            bag[v, 0] = v
            if best >= 0:
                lightest_index = -1
                lightest = np.inf
                for i in range(width, -1, -1):
                    u = bag[best, i]
                    w = 0.0
                    if u < 0:
                        w = -1.0
                    elif edge_to[u] >= 0:
                        w = weight[edge_to[u]]
                    if w < lightest:
                        lightest = w
                        lightest_index = i
                n = 1
                for i in range(width + 1):
                    u = bag[best, i]
                    if i == lightest_index or u < 0:
                        continue
                    bag[v, n] = u
                    n += 1
                    if edge_to[u] >= 0:
                        chosen[edge_to[u]] = True
            for at in range(start[v], start[v + 1]):
                edge_to[edges[incident[at], 0] + edges[incident[at], 1] - v] = -1
            placed[v] = True
            for i in range(width + 1):
                u = bag[v, i]
                if u >= 0:
                    bags_of[u, n_bags[u] % MAX_BAGS] = v
                    n_bags[u] += 1
            for at in range(start[v], start[v + 1]):
                e = incident[at]
                u = edges[e, 0] + edges[e, 1] - v
                if not placed[u] and weight[e] > 0.0:
                    _push(key, item, size, weight[e], u)
                    size += 1
            while size > 0 and placed[item[0]]:
                _pop(key, item, size)
                size -= 1
            if size == 0:
                break
            v = item[0]
            _pop(key, item, size)
            size -= 1
