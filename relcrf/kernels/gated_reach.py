"""The messages of belief propagation that can influence a query node, for a fixed number of synchronous iterations.

A message that arrives at a node in iteration t of T is used in iteration t + 1 by the messages that leave the node over
other pairs, and in the beliefs if t = T. It is *useful* if t = T and the node is a query, or if one of these messages
is useful; i.e. if a walk of T - t pairs leads from the node to a query without returning over the pair just used.
"""

from __future__ import annotations

import numpy as np
from numba import boolean, int32, int64

from relcrf.kernels.compile import kernel, read_only

TO_FIRST, TO_SECOND = 1, 2
"""Flags of a pair's useful messages: to its first node, to its second node."""


@kernel(
    (read_only(int32[:, ::1]), read_only(boolean[::1]), read_only(boolean[::1]), int64, int32[::1], boolean[::1]),
)
def count_useful_messages(ends, is_open, is_query, n_iterations, counts, reaches_query):
    """Count the useful messages of each pair in all iterations, to both nodes.

    A closed pair sends no messages. Its count is the number of its messages each of which would be useful if the pair
    sent only this message.

    Args:
        ends: nodes of each pair, shape (n_pairs, 2).
        is_open: mask of the pairs that send messages, shape (n_pairs,).
        is_query: mask of the query nodes, shape (n_nodes,).
        counts: overwritten by the counts, shape (n_pairs,).
        reaches_query: overwritten; whether the potential of each node influences a query, shape (n_nodes,).
    """
    n_leaving, next_n_leaving = np.zeros(len(is_query), np.int32), np.empty(len(is_query), np.int32)
    useful = np.zeros(len(ends), np.uint8)  # in the following iteration
    counts[:] = 0
    reaches_query[:] = is_query
    for t in range(n_iterations):
        next_n_leaving[:] = 0
        for p in range(len(ends)):
            i, j = ends[p, 0], ends[p, 1]
            if t == 0:
                to_first, to_second = int32(is_query[i]), int32(is_query[j])
            else:
                to_first = int32(n_leaving[i] > int32((useful[p] & TO_SECOND) != 0))
                to_second = int32(n_leaving[j] > int32((useful[p] & TO_FIRST) != 0))
            counts[p] += to_first + to_second
            if is_open[p]:
                useful[p] = TO_FIRST * to_first + TO_SECOND * to_second
                next_n_leaving[j] += to_first
                next_n_leaving[i] += to_second
        n_leaving, next_n_leaving = next_n_leaving, n_leaving
        for v in range(len(is_query)):
            reaches_query[v] |= n_leaving[v] > 0
