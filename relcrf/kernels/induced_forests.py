"""Induced forests: sets of nodes that contain no cycle and at most two nodes per factor, for joint sampling."""

from __future__ import annotations

import numpy as np
from numba import boolean, int64

from relcrf.kernels.compile import kernel
from relcrf.kernels.components import find
from relcrf.kernels.factors import FACTORS


@kernel((FACTORS, int64[::1], boolean[::1]))
def grow_node_set(factors, candidates, inside):
    """Add candidates to a set one by one, except those that would close a cycle or be the third node of a factor.

    Args:
        candidates: nodes, in the order in which they are tried.
        inside: overwritten by a mask of the nodes in the set, shape (n_nodes,), bool.
    """
    inside[:] = False
    leader = np.arange(len(inside))
    tree_seen = np.full(len(inside), -1)
    node_seen = np.full(len(inside), -1)
    for v in candidates:
        fits = True
        for t in range(factors.touch_start[v], factors.touch_start[v + 1]):
            f = factors.factor[factors.touch[t]]
            neighbour = -1
            for p in range(factors.start[f], factors.start[f + 1]):
                u = factors.node[p]
                if inside[u]:
                    fits = fits and neighbour < 0
                    neighbour = u
            if (
                neighbour >= 0 and node_seen[neighbour] != v
            ):  # a second factor with the same neighbour does not close a cycle
                node_seen[neighbour] = v
                tree = find(leader, neighbour)
                fits = fits and tree_seen[tree] != v
                tree_seen[tree] = v
            if not fits:
                break
        if not fits:
            continue
        inside[v] = True
        for t in range(factors.touch_start[v], factors.touch_start[v + 1]):
            f = factors.factor[factors.touch[t]]
            for p in range(factors.start[f], factors.start[f + 1]):
                u = factors.node[p]
                if inside[u]:
                    leader[find(leader, u)] = find(leader, v)


@kernel((FACTORS, int64[::1], boolean[::1]))
def root_trees(factors, candidates, inside):
    """Order the nodes of a set with parents first, and find each factor's nodes in the set.

    Args:
        candidates: all nodes that may be in the set; the root of a tree is its first node in this order.

    Returns:
        The arrays node, parent, entry_start, slot and parent_slot of the set; see `forest_sampling.NodeSets`.
    """
    n = 0
    n_touches = 0
    for v in candidates:
        if inside[v]:
            n += 1
            n_touches += factors.touch_start[v + 1] - factors.touch_start[v]
    node = np.empty(n, dtype=np.int32)
    parent = np.full(n, -1, dtype=np.int32)
    entry_start = np.zeros(n + 1, dtype=np.int64)
    slot = np.empty(n_touches, dtype=np.int64)
    parent_slot = np.empty(n_touches, dtype=np.int64)
    seen = np.zeros(len(inside), dtype=np.bool_)
    head = 0
    tail = 0
    n_entries = 0
    for root in candidates:
        if not inside[root] or seen[root]:
            continue
        seen[root] = True
        node[tail] = root
        tail += 1
        while head < tail:
            v = node[head]
            for t in range(factors.touch_start[v], factors.touch_start[v + 1]):
                f = factors.factor[factors.touch[t]]
                second = -1
                for p in range(factors.start[f], factors.start[f + 1]):
                    if inside[factors.node[p]] and factors.node[p] != v:
                        second = p
                if second >= 0 and factors.node[second] != parent[head]:
                    u = factors.node[second]
                    if not seen[u]:
                        seen[u] = True
                        node[tail] = u
                        parent[tail] = v
                        tail += 1
                    continue  # the entry belongs to the child
                slot[n_entries] = factors.touch[t]
                parent_slot[n_entries] = second
                n_entries += 1
            head += 1
            entry_start[head] = n_entries
    return node, parent, entry_start, slot[:n_entries].copy(), parent_slot[:n_entries].copy()
