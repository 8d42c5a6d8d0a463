"""Connected components of pairs that come in parts, by union and find."""

from __future__ import annotations

from numba import boolean, int32

from relcrf.kernels.compile import kernel


@kernel()
def find(parent, node):
    """The representative of a node's component, its lowest node; paths are halved on the way.

    Args:
        parent: shape (n,), int32; each node's parent, its own index at first.
    """
    while parent[node] != node:
        parent[node] = parent[parent[node]]
        node = parent[node]
    return node


@kernel((int32[::1], int32[::1], int32[::1], boolean[::1]))
def unite(parent, first, second, keep):
    """Joins the components of `first[k]` and `second[k]` wherever both may be joined.

    Args:
        first, second: shape (n_pairs,). keep: shape (n_nodes,), bool: nodes that may be joined to others.
    """
    for k in range(len(first)):
        if keep[first[k]] and keep[second[k]]:
            a, b = find(parent, first[k]), find(parent, second[k])
            if a < b:
                parent[b] = a
            elif b < a:
                parent[a] = b


@kernel((int32[::1],))
def flatten(parent):
    """Makes every node's parent its representative."""
    for node in range(len(parent)):
        parent[node] = find(parent, node)
