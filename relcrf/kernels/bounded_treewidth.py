"""Edges of small treewidth, of large weight: a partial k-tree grown by one node at a time, in Prim's order."""

from __future__ import annotations

import numpy as np
from numba import boolean, float64, int32, int64

from relcrf.kernels.compile import kernel

MAX_BAGS = 64
"""Of those that hold a node, the latest that are looked at: hubs are in thousands."""


@kernel()
def _push(key, item, size, value, what):
    """Adds to a heap with the largest key first."""
    place = size
    while place > 0:
        above = (place - 1) >> 1
        if key[above] >= value:
            break
        key[place] = key[above]
        item[place] = item[above]
        place = above
    key[place] = value
    item[place] = what


@kernel()
def _pop(key, item, size):
    """Takes the first of a heap of `size` away, which the caller has read."""
    value = key[size - 1]
    what = item[size - 1]
    size -= 1
    place = 0
    while True:
        below = 2 * place + 1
        if below >= size:
            break
        if below + 1 < size and key[below + 1] > key[below]:
            below += 1
        if key[below] <= value:
            break
        key[place] = key[below]
        item[place] = item[below]
        place = below
    if size > 0:
        key[place] = value
        item[place] = what


@kernel((int64, int32[:, ::1], float64[::1], int64[::1], int32[::1], int64, boolean[::1]))
def choose_edges(n_nodes, edges, weight, start, incident, width, chosen):
    """Chooses edges, all of whose graph has treewidth `width` at most.

    Every node that joins has a bag: itself and `width` nodes of another's bag, the one to whose nodes its edges weigh most.
    Its edges into the bag are chosen. Bags make a tree decomposition.

    Args:
        weight: shape (n_edges,); edges of weight 0 and below are never chosen.
        start, incident: the edges at each node, shapes (n_nodes + 1,) and (2 * n_edges,).
        chosen: False everywhere; overwritten, shape (n_edges,).
    """
    bag = np.full((n_nodes, width + 1), -1, dtype=np.int32)
    holder = np.full((n_nodes, MAX_BAGS), -1, dtype=np.int32)  # the latest bags that hold each node, a ring
    held = np.zeros(n_nodes, dtype=np.int64)
    placed = np.zeros(n_nodes, dtype=np.bool_)
    seen = np.full(n_nodes, -1, dtype=np.int32)
    edge_to = np.full(n_nodes, -1, dtype=np.int32)
    key = np.empty(2 * len(edges) + 1)
    item = np.empty(2 * len(edges) + 1, dtype=np.int32)
    for first in range(n_nodes):
        if placed[first]:
            continue
        size = 0
        v = first
        while True:
            # The best bag: the weight of the edges into it, all but the lightest where it is full.
            best = -1
            best_weight = 0.0
            most = 0
            for at in range(start[v], start[v + 1]):
                e = incident[at]
                u = edges[e, 0] + edges[e, 1] - v
                if placed[u] and weight[e] > 0.0 and (edge_to[u] < 0 or weight[e] > weight[edge_to[u]]):
                    edge_to[u] = e
            for at in range(start[v], start[v + 1]):
                u = edges[incident[at], 0] + edges[incident[at], 1] - v
                if edge_to[u] < 0:
                    continue
                for ring in range(min(held[u], MAX_BAGS)):
                    b = holder[u, ring]
                    if seen[b] == v:
                        continue
                    seen[b] = v
                    total = 0.0
                    lightest = np.inf
                    members = 0
                    for place in range(width + 1):
                        w = 0.0
                        if bag[b, place] >= 0:
                            members += 1
                            if edge_to[bag[b, place]] >= 0:
                                w = weight[edge_to[bag[b, place]]]
                        total += w
                        lightest = min(lightest, w)
                    total -= lightest
                    # Of equals the fuller one, which leaves more to those that come, and then the first.
                    if total > best_weight or (
                        total == best_weight and (members > most or (members == most and b < best))
                    ):
                        best = b
                        best_weight = total
                        most = members
            bag[v, 0] = v
            if best >= 0:
                lightest_place = -1
                lightest = np.inf
                for place in range(width, -1, -1):
                    u = bag[best, place]
                    w = 0.0
                    if u < 0:
                        w = -1.0
                    elif edge_to[u] >= 0:
                        w = weight[edge_to[u]]
                    if w < lightest:
                        lightest = w
                        lightest_place = place
                n = 1
                for place in range(width + 1):
                    u = bag[best, place]
                    if place == lightest_place or u < 0:
                        continue
                    bag[v, n] = u
                    n += 1
                    if edge_to[u] >= 0:
                        chosen[edge_to[u]] = True
            for at in range(start[v], start[v + 1]):
                edge_to[edges[incident[at], 0] + edges[incident[at], 1] - v] = -1
            placed[v] = True
            for place in range(width + 1):
                u = bag[v, place]
                if u >= 0:
                    holder[u, held[u] % MAX_BAGS] = v
                    held[u] += 1
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
