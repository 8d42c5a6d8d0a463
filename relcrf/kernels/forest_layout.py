"""The layout of a forest for the sweeps of `forest.py`: positions of nodes, and *runs* (ranges of positions)."""

from __future__ import annotations

import numpy as np
from numba import int32, int64

from relcrf.kernels.compile import kernel


@kernel((int64, int32[:, ::1]))
def topological_order(n_nodes, edges):
    """Compute the breadth-first order of every tree of a forest, roots first.

    Returns:
        Four values: the nodes in this order; the parent of each node; the edge between each node and its parent; and
        whether the edges form a forest. The arrays have shape (n_nodes,); the parent and the edge of a root are -1.
    """
    n_edges = len(edges)
    degree = np.zeros(n_nodes + 1, dtype=np.int64)
    for e in range(n_edges):
        degree[edges[e, 0] + 1] += 1
        degree[edges[e, 1] + 1] += 1
    start = np.cumsum(degree)
    fill = start[:-1].copy()
    neighbour_edge = np.empty(2 * n_edges, dtype=np.int32)
    for e in range(n_edges):
        for side in range(2):
            v = edges[e, side]
            neighbour_edge[fill[v]] = e
            fill[v] += 1
    order = np.empty(n_nodes, dtype=np.int32)
    parent = np.full(n_nodes, -1, dtype=np.int32)
    parent_edge = np.full(n_nodes, -1, dtype=np.int32)
    seen = np.zeros(n_nodes, dtype=np.bool_)
    is_forest = True
    head = 0
    tail = 0
    for root in range(n_nodes):
        if seen[root]:
            continue
        seen[root] = True
        order[tail] = root
        tail += 1
        while head < tail:
            v = order[head]
            head += 1
            for k in range(start[v], start[v + 1]):
                e = neighbour_edge[k]
                if e == parent_edge[v]:
                    continue
                w = edges[e, 0] + edges[e, 1] - v
                if seen[w]:
                    is_forest = False
                    continue
                seen[w] = True
                parent[w] = v
                parent_edge[w] = e
                order[tail] = w
                tail += 1
    return order, parent, parent_edge, is_forest


@kernel((int32[::1], int32[::1], int32[::1], int64))
def lay_out_nodes(order, parent, cardinality, limit):
    """Assign positions to all nodes, children before parents, and split the positions into independent runs.

    A node whose subtree costs more than `limit` is part of the *spine*, and so are all its ancestors. Each subtree
    below the spine is a *hanging* subtree and forms a run. A tree without a spine is a *whole* tree and forms a run.

    Args:
        order, parent: as `topological_order` returns them.
        limit: maximum cost of a run: its number of table cells plus its number of node states.

    Returns:
        Four values: the node at each position (first whole trees, then hanging subtrees, then the spine); the start of
        each run, followed by the end of the last run; the number of whole trees; and the number of hanging subtrees.
    """
    n = len(order)
    cost = np.empty(n, dtype=np.int64)
    n_children = np.zeros(n + 1, dtype=np.int64)
    for v in range(n):
        p = parent[v]
        cost[v] = cardinality[v] * (1 + (cardinality[p] if p >= 0 else 0))
        if p >= 0:
            n_children[p + 1] += 1
    for k in range(n - 1, -1, -1):
        v = order[k]
        if parent[v] >= 0:
            cost[parent[v]] += cost[v]
    first = np.cumsum(n_children)
    fill = first[:-1].copy()
    child = np.empty(n, dtype=np.int32)
    for k in range(n):
        v = order[k]
        if parent[v] >= 0:
            child[fill[parent[v]]] = v
            fill[parent[v]] += 1
    placed = np.empty(n, dtype=np.int32)
    stack = np.empty(n, dtype=np.int32)
    start = np.empty(n + 1, dtype=np.int64)
    n_runs = 0
    n_whole = 0
    tail = 0
    for hanging in range(2):
        for k in range(n):
            v = order[k]
            if cost[v] > limit or (parent[v] >= 0) != (hanging == 1):
                continue
            if hanging == 1 and cost[parent[v]] <= limit:
                continue
            start[n_runs] = tail
            n_runs += 1
            head = tail
            stack[0] = v
            top = 1
            while top:
                top -= 1
                w = stack[top]
                placed[tail] = w
                tail += 1
                for c in range(first[w], first[w + 1]):
                    stack[top] = child[c]
                    top += 1
            for k2 in range((tail - head) // 2):
                other = placed[head + k2]
                placed[head + k2] = placed[tail - 1 - k2]
                placed[tail - 1 - k2] = other
        if hanging == 0:
            n_whole = n_runs
    start[n_runs] = tail
    for k in range(n - 1, -1, -1):
        if cost[order[k]] > limit:
            placed[tail] = order[k]
            tail += 1
    return placed, start[: n_runs + 1], n_whole, n_runs - n_whole


@kernel((int64[::1], int64[::1], int64))
def group_runs(start, cost, limit):
    """Combine consecutive runs into blocks. A block of several runs costs at most `limit`.

    Args:
        start: start of each run, followed by the end of the last run, shape (n + 1,).
        cost: for each position, the total cost of all positions before it.

    Returns:
        The start of each block, followed by the end of the last block.
    """
    blocks = np.empty(len(start), dtype=np.int64)
    n = 0
    blocks[0] = start[0]
    for k in range(1, len(start)):
        if cost[start[k]] - cost[blocks[n]] > limit and start[k - 1] > blocks[n]:
            n += 1
            blocks[n] = start[k - 1]
    if len(start) > 1:
        n += 1
        blocks[n] = start[-1]
    return blocks[: n + 1]
