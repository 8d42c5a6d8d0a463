"""Mutual information between a node and the nodes that it influences, along shortest paths of pairwise conditionals."""

from __future__ import annotations

import numpy as np
from numba import float64, int32, int64

from relcrf.kernels.compile import kernel

CONDITIONALS = (int64[::1], int32[::1], int64[::1], float64[::1])


@kernel()
def _mutual_information(prior, prior_start, table, first, n_from, n_to, mixture):
    """Return the mutual information of two variables, in nats; their conditional is `table[first:]`, (n_from, n_to)."""
    for s in range(n_to):
        mixture[s] = 0.0
    for y in range(n_from):
        for s in range(n_to):
            mixture[s] += prior[prior_start + y] * table[first + y * n_to + s]
    total = 0.0
    for y in range(n_from):
        for s in range(n_to):
            p = table[first + y * n_to + s]
            if p > 0.0 and prior[prior_start + y] > 0.0:
                total += prior[prior_start + y] * p * np.log(p / mixture[s])
    return max(total, 0.0)


@kernel(
    (
        *CONDITIONALS,
        int32[::1],
        int64[::1],
        float64[::1],
        int32[::1],
        int64[::1],
        float64,
        int64,
        int32[::1],
        float64[::1],
    )
)
def spread_information(
    start,
    neighbour,
    cell,
    table,
    cardinality,
    state_start,
    marginal,
    sources,
    out_start,
    min_information,
    max_products,
    target,
    information,
):
    """Compute the information between each source and the nodes around it, breadth first.

    The conditional of a node given the source is the product of the conditionals along the first path that reaches the node.
    A path ends at a node whose information is below `min_information`, which is not stored.

    Args:
        start, neighbour, cell: the neighbours of each node, and the offset of the conditional in `table`, in CSR form.
        table: conditionals of neighbours given a node, row-major, one row per state of the node.
        marginal: marginals of all nodes, with the offsets `state_start`.
        sources: nodes whose information is computed, shape (n,).
        out_start: offset of the results of each source, shape (n + 1,); a source has at most this many results.
        max_products: maximum number of multiplications per source for nodes beyond its neighbours.
        target, information: output, nodes and their information with the source, shape (out_start[-1],).

    Returns:
        The number of results of each source, shape (n,), int64.
    """
    n_nodes = len(cardinality)
    largest = 1
    for v in range(n_nodes):
        largest = max(largest, cardinality[v])
    seen = np.full(n_nodes, -1, dtype=np.int64)
    mixture = np.empty(largest)
    count = np.zeros(len(sources), dtype=np.int64)
    queue, offset = np.empty(64, dtype=np.int64), np.empty(64, dtype=np.int64)
    reached = np.empty(1024)
    for k in range(len(sources)):
        source = sources[k]
        n_from, prior = cardinality[source], state_start[source]
        seen[source] = k
        n_products, n_queued, used, head = 0, 0, 0, -1
        capacity = out_start[k + 1] - out_start[k]
        while head < n_queued and count[k] < capacity:
            via = source if head < 0 else queue[head]
            n_via = cardinality[via]
            for e in range(start[via], start[via + 1]):
                node = neighbour[e]
                if seen[node] == k:
                    continue
                n_to = cardinality[node]
                if head >= 0:
                    n_products += n_from * n_via * n_to
                    if n_products > max_products:
                        break
                if count[k] == capacity:
                    break
                seen[node] = k
                if used + n_from * n_to > len(reached):
                    larger = np.empty(2 * (used + n_from * n_to))
                    larger[:used] = reached[:used]
                    reached = larger
                for y in range(n_from):
                    for s in range(n_to):
                        if head < 0:
                            value = table[cell[e] + y * n_to + s]
                        else:
                            value = 0.0
                            for z in range(n_via):
                                value += reached[offset[head] + y * n_via + z] * table[cell[e] + z * n_to + s]
                        reached[used + y * n_to + s] = value
                found = _mutual_information(marginal, prior, reached, used, n_from, n_to, mixture)
                if found < min_information:
                    continue
                if n_queued == len(queue):
                    longer_queue, longer_offset = np.empty(2 * n_queued, np.int64), np.empty(2 * n_queued, np.int64)
                    longer_queue[:n_queued], longer_offset[:n_queued] = queue, offset
                    queue, offset = longer_queue, longer_offset
                queue[n_queued], offset[n_queued] = node, used
                n_queued += 1
                used += n_from * n_to
                target[out_start[k] + count[k]] = node
                information[out_start[k] + count[k]] = found
                count[k] += 1
            if n_products > max_products:
                break
            head += 1
    return count
