"""Maximum spanning forests by the filter-Kruskal algorithm, which does not sort most of the edges.

The edges whose weight reaches a threshold are sorted and processed in order. Edges between nodes that are now connected
are removed from the remaining edges before the next, lower threshold.

Source: Osipov, Sanders & Singler, The filter-Kruskal minimum spanning tree algorithm (2009). The paper selects pivots
recursively; here, the caller passes thresholds.
"""

from __future__ import annotations

import numpy as np
from numba import boolean, float64, int32, int64

from relcrf.kernels.compile import kernel
from relcrf.kernels.components import find

DIGIT_BITS = 11
"""Number of bits per digit of the radix sort; the 2,048 counters of a digit fit the L1 cache."""

BLOCK_SIZE = 256
"""Number of edges whose ends are read together."""

_ZERO = np.uint64(0)
_SIGN = np.uint64(1 << 63)
_ALL = np.uint64((1 << 64) - 1)
_BITS = np.uint64(DIGIT_BITS)
_DIGIT = np.uint64((1 << DIGIT_BITS) - 1)


@kernel()
def _sort_by_weight(weight, edge):
    """Sort edges by descending weight with a stable radix sort of all 64 bits.

    Args:
        weight: weights of all edges.
        edge: indices of the edges to sort, shape (n,), int32; overwritten.

    Returns:
        The sorted indices, shape (n,); `edge` itself or another array.
    """
    n = len(edge)
    value = np.empty(n)
    for k in range(n):
        value[k] = weight[edge[k]] + 0.0  # -0.0 becomes 0.0, which is equal but has different bits
    key = value.view(np.uint64)
    highest = _ZERO
    for k in range(n):
        # Map floats to integers of the same order: flip all bits of negative numbers, and the sign bit of others.
        key[k] = key[k] ^ (_ALL if key[k] & _SIGN else _SIGN)
        highest = max(highest, key[k])
    max_key = _ZERO
    for k in range(n):
        key[k] = highest - key[k]
        max_key = max(max_key, key[k])
    n_digits = 0
    while max_key:
        max_key >>= _BITS
        n_digits += 1
    count = np.zeros((n_digits, 1 << DIGIT_BITS), dtype=np.int64)
    for k in range(n):
        rest = key[k]
        for digit in range(n_digits):
            count[digit, np.int64(rest & _DIGIT)] += 1
            rest >>= _BITS
    other_key = np.empty(n, dtype=np.uint64)
    other_edge = np.empty(n, dtype=np.int32)
    for digit in range(n_digits):
        shift = np.uint64(digit) * _BITS
        position = count[digit]
        if position[np.int64((key[0] >> shift) & _DIGIT)] == n:
            continue  # all keys have the same digit
        start = 0
        for d in range(len(position)):
            stop = start + int(position[d])
            position[d] = start
            start = stop
        for k in range(n):
            slot = np.int64((key[k] >> shift) & _DIGIT)
            to = position[slot]
            position[slot] = to + 1
            other_key[to] = key[k]
            other_edge[to] = edge[k]
        key, other_key = other_key, key
        edge, other_edge = other_edge, edge
    return edge


@kernel()
def _split_by_weight(weight, threshold, heavy, light):
    """Write the indices of edges with weight >= threshold to `heavy`, and all other indices to `light`, ascending.

    Returns:
        The number of heavy edges, and whether no weight is NaN.
    """
    n_heavy = 0
    n_light = 0
    n_numbers = 0
    for e in range(len(weight)):
        w = weight[e]
        is_heavy = w >= threshold
        heavy[n_heavy] = e
        light[n_light] = e
        n_heavy += is_heavy
        n_light += not is_heavy
        n_numbers += w == w
    return n_heavy, n_numbers == len(weight)


@kernel()
def _split_unconnected(leader, edges, weight, threshold, candidates, heavy, light):
    """Drop the candidates whose ends are in the same tree, and split the remaining candidates by weight.

    Args:
        leader: for each node, the node that represents its tree (not an intermediate node of a path).
        candidates: indices of edges.
        heavy, light: overwritten; `light` may be the same array as `candidates`.

    Returns:
        The numbers of heavy and of light edges.
    """
    n_heavy = 0
    n_light = 0
    for k in range(len(candidates)):
        e = candidates[k]
        # To avoid mispredicted branches, every candidate is written; the next write replaces an uncounted entry.
        is_unconnected = leader[edges[e, 0]] != leader[edges[e, 1]]
        is_heavy = weight[e] >= threshold
        heavy[n_heavy] = e
        light[n_light] = e
        n_heavy += is_unconnected & is_heavy
        n_light += is_unconnected & (not is_heavy)
    return n_heavy, n_light


@kernel()
def _join_trees(edges, order, leader, missing, chosen):
    """Process the edges in order: choose each edge that joins two trees, until `missing` edges have been chosen.

    Returns:
        The number of edges still missing.
    """
    ends = np.empty((BLOCK_SIZE, 2), dtype=np.int32)
    for start in range(0, len(order), BLOCK_SIZE):
        stop = min(start + BLOCK_SIZE, len(order))
        # These reads are independent, so that their latencies overlap. If a leader changes later, the value read here
        # is still an ancestor of the node.
        for k in range(start, stop):
            ends[k - start, 0] = leader[edges[order[k], 0]]
            ends[k - start, 1] = leader[edges[order[k], 1]]
        for k in range(start, stop):
            a = find(leader, ends[k - start, 0])
            b = find(leader, ends[k - start, 1])
            if a != b:
                leader[max(a, b)] = min(a, b)
                chosen[order[k]] = True
                missing -= 1
                if missing == 0:
                    return 0
    return missing


@kernel((int64, int32[:, ::1], float64[::1], float64[::1], boolean[::1]))
def maximum_forest(n_nodes, edges, weight, thresholds, chosen):
    """Mark the edges of the maximum spanning forest; among edges of equal weight, the first one is preferred.

    Args:
        edges: end nodes of each edge, shape (n_edges, 2).
        weight: weight of each edge, shape (n_edges,).
        thresholds: descending weights; edges between two of them are sorted together. They affect only the speed.
        chosen: overwritten by a mask of the forest's edges, shape (n_edges,), all False on entry.

    Returns:
        False if a weight is NaN; no edge is marked then.
    """
    leader = np.arange(n_nodes, dtype=np.int32)
    missing = n_nodes - 1
    heavy = np.empty(len(weight), dtype=np.int32)
    rest = np.empty(len(weight), dtype=np.int32)
    n_heavy = 0
    n_rest = 0
    for k in range(len(thresholds) + 1):
        threshold = thresholds[k] if k < len(thresholds) else -np.inf
        if k == 0:
            n_heavy, all_numbers = _split_by_weight(weight, threshold, heavy, rest)
            n_rest = len(weight) - n_heavy
            if not all_numbers:
                return False
        else:
            for v in range(n_nodes):  # a leader's index is at most the node's, so the leader's entry is already final
                leader[v] = leader[leader[v]]
            n_heavy, n_rest = _split_unconnected(leader, edges, weight, threshold, rest[:n_rest], heavy, rest)
        missing = _join_trees(edges, _sort_by_weight(weight, heavy[:n_heavy]), leader, missing, chosen)
        if missing == 0 or n_rest == 0:
            break
    return True
