"""Connected components by union-find, for edges that arrive in chunks."""

from __future__ import annotations

from numba import boolean, int32

from relcrf.kernels.compile import kernel


@kernel()
def find(parent, node):
    """Return the representative of a node's component, and halve the path from the node to the representative.

    Args:
        parent: parent of each node, shape (n,), int32; initially, each node is its own parent.
    """
    while parent[node] != node:
        parent[node] = parent[parent[node]]
        node = parent[node]
    return node


@kernel((int32[::1], int32[::1], int32[::1], boolean[::1]))
def unite(parent, first, second, joinable):
    """Join the components of each pair of nodes if both nodes are joinable; the lowest node is the representative.

    Args:
        first, second: the two nodes of each pair, shape (n_pairs,).
        joinable: mask of the nodes that may be joined, shape (n_nodes,), bool.
    """
    for k in range(len(first)):
        if joinable[first[k]] and joinable[second[k]]:
            a, b = find(parent, first[k]), find(parent, second[k])
            if a < b:
                parent[b] = a
            elif b < a:
                parent[a] = b


@kernel((int32[::1],))
def flatten(parent):
    """Replace every node's parent by the representative of its component."""
    for node in range(len(parent)):
        parent[node] = find(parent, node)
