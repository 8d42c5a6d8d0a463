"""Exact sums, maxima and orders on forests of tables of any size, in the log domain.

Nodes hold flat tables (`state_start`), edges flat row-major tables (`table_start`) whose rows are the lower node's
states. Messages go from children to parents in one sweep over a topological order and back in another, so that the
cost is one exponential an edge cell each way. Log potentials may be -inf (what cannot be).
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def topological_order(n_nodes, edges):  # type: ignore[no-untyped-def]
    """Breadth-first order of every tree of a forest, roots first.

    Returns:
        order (n_nodes,), parent (n_nodes,) and the edge to the parent (n_nodes,), both -1 at roots; and whether the
        edges form a forest at all.
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


@njit(cache=True, nogil=True)
def _upward(  # type: ignore[no-untyped-def]
    order, parent, parent_edge, edges, cardinality, state_start, table_start, edge_table, belief, message_start, message
):
    """Children to parents: `belief` comes in as node log potentials and goes out with all messages from below."""
    for position in range(len(order) - 1, -1, -1):
        v = order[position]
        p = parent[v]
        if p < 0:
            continue
        e = parent_edge[v]
        n_child = cardinality[v]
        n_parent = cardinality[p]
        if edges[e, 0] == p:
            step_parent, step_child = n_child, 1
        else:
            step_parent, step_child = 1, n_parent
        child = state_start[v]
        for a in range(n_parent):
            cell = table_start[e] + a * step_parent
            top = -np.inf
            for x in range(n_child):
                value = edge_table[cell + x * step_child] + belief[child + x]
                if value > top:
                    top = value
            total = 0.0
            if top > -np.inf:
                for x in range(n_child):
                    total += np.exp(edge_table[cell + x * step_child] + belief[child + x] - top)
                top += np.log(total)
            message[message_start[v] + a] = top
            belief[state_start[p] + a] += top


@njit(cache=True, nogil=True)
def _normalise(values, start, stop, out):  # type: ignore[no-untyped-def]
    """Writes the softmax of values[start:stop] to out[start:stop]; returns its log-sum-exp."""
    top = -np.inf
    for k in range(start, stop):
        if values[k] > top:
            top = values[k]
    if top == -np.inf:
        for k in range(start, stop):
            out[k] = np.nan
        return top
    total = 0.0
    for k in range(start, stop):
        out[k] = np.exp(values[k] - top)
        total += out[k]
    for k in range(start, stop):
        out[k] /= total
    return top + np.log(total)


@njit(cache=True, nogil=True)
def sum_product(  # type: ignore[no-untyped-def]
    order, parent, parent_edge, edges, cardinality, state_start, table_start, node_table, edge_table
):
    """Log partition function and all node and edge marginals.

    Returns:
        log partition (-inf where no joint state is possible, and then the marginals are nan),
        node marginals of the shape of `node_table`, edge marginals of the shape of `edge_table`.
    """
    n_nodes = len(order)
    message_start = np.zeros(n_nodes + 1, dtype=np.int64)
    for v in range(n_nodes):
        message_start[v + 1] = message_start[v] + (cardinality[parent[v]] if parent[v] >= 0 else 0)
    message = np.empty(message_start[n_nodes])
    belief = node_table.copy()
    _upward(
        order,
        parent,
        parent_edge,
        edges,
        cardinality,
        state_start,
        table_start,
        edge_table,
        belief,
        message_start,
        message,
    )
    node_marginal = np.empty_like(node_table)
    edge_marginal = np.empty_like(edge_table)
    log_partition = 0.0
    for position in range(n_nodes):
        v = order[position]
        p = parent[v]
        if p < 0:
            log_partition += _normalise(belief, state_start[v], state_start[v + 1], node_marginal)
            continue
        e = parent_edge[v]
        n_child = cardinality[v]
        n_parent = cardinality[p]
        if edges[e, 0] == p:
            step_parent, step_child = n_child, 1
        else:
            step_parent, step_child = 1, n_parent
        child = state_start[v]
        for x in range(n_child):
            node_marginal[child + x] = 0.0
        for a in range(n_parent):
            above = node_marginal[state_start[p] + a]
            from_below = message[message_start[v] + a]
            cell = table_start[e] + a * step_parent
            for x in range(n_child):
                at = cell + x * step_child
                if from_below == -np.inf:
                    joint = 0.0 if above == 0.0 else np.nan
                else:
                    joint = above * np.exp(edge_table[at] + belief[child + x] - from_below)
                edge_marginal[at] = joint
                node_marginal[child + x] += joint
    return log_partition, node_marginal, edge_marginal


@njit(cache=True, nogil=True)
def max_product(  # type: ignore[no-untyped-def]
    order, parent, parent_edge, edges, cardinality, state_start, table_start, node_table, edge_table
):
    """The most probable joint state and its score; of equal states the lowest is taken.

    Returns:
        score, states of shape (n_nodes,).
    """
    n_nodes = len(order)
    belief = node_table.copy()
    choice_start = np.zeros(n_nodes + 1, dtype=np.int64)
    for v in range(n_nodes):
        choice_start[v + 1] = choice_start[v] + (cardinality[parent[v]] if parent[v] >= 0 else 0)
    choice = np.empty(choice_start[n_nodes], dtype=np.int32)
    for position in range(n_nodes - 1, -1, -1):
        v = order[position]
        p = parent[v]
        if p < 0:
            continue
        e = parent_edge[v]
        n_child = cardinality[v]
        n_parent = cardinality[p]
        if edges[e, 0] == p:
            step_parent, step_child = n_child, 1
        else:
            step_parent, step_child = 1, n_parent
        for a in range(n_parent):
            cell = table_start[e] + a * step_parent
            top = -np.inf
            best = 0
            for x in range(n_child):
                value = edge_table[cell + x * step_child] + belief[state_start[v] + x]
                if value > top:
                    top = value
                    best = x
            choice[choice_start[v] + a] = best
            belief[state_start[p] + a] += top
    states = np.empty(n_nodes, dtype=np.int32)
    score = 0.0
    for position in range(n_nodes):
        v = order[position]
        p = parent[v]
        if p >= 0:
            states[v] = choice[choice_start[v] + states[p]]
            continue
        best = 0
        top = -np.inf
        for x in range(cardinality[v]):
            if belief[state_start[v] + x] > top:
                top = belief[state_start[v] + x]
                best = x
        states[v] = best
        score += top
    return score, states
