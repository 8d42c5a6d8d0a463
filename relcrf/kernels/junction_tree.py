"""Sums, maxima and draws on trees of cliques: tables of log potentials over any number of nodes.

A clique's table is row-major; the nodes that it shares with its parent come first, so that a message to the parent has one
cell for each row, and only what a clique takes from smaller tables (nodes, factors, messages of its children) needs strides.
Cliques stand children first. Everywhere -inf is what cannot be.

All functions take the same tree:
    clique_start (n_cliques + 1,), clique_node: the nodes of each clique, those with one state only where they are alone.
    n_rows, n_columns: shape (n_cliques,): joint states of the shared nodes, and of the others.
    cell_start, message_start: shape (n_cliques + 1,): where each clique's table and its message begin.
    parent: shape (n_cliques,), -1 at roots.
and the same scopes:
    cardinality, state_start: of nodes. factor_start, factor: the factors of each clique, as CSR.
    scope_start, scope, stride, agreement, table_start: of factors, as in `Scopes`.
"""

from __future__ import annotations

import numpy as np
from numba import boolean, float64, int32, int64

from relcrf.kernels.compile import kernel
from relcrf.kernels.vector_math import exp

FLAT, INT, LONG = float64[::1], int32[::1], int64[::1]
CLIQUES = (LONG,) * 6
SCOPES = (LONG, INT, INT, LONG, LONG, LONG, LONG, INT, LONG, boolean[::1], LONG)


@kernel()
def _view(
    c, nodes, stride, agreement, clique_start, clique_node, cardinality, place, steps,
):  # fmt: skip
    """How a smaller table lies in a clique's: a few loops, the innermost first, over neighbouring cells where it can be.

    Args:
        nodes, stride: of the smaller table; its nodes are in the clique.
        agreement: whether it is one number, for the cells in which its nodes agree.
        place: shape (n_nodes,), scratch.
        steps: shape (3, n): the length of each loop, its step in the smaller table, and in the clique's.

    Returns:
        How many loops.
    """
    begin, end = clique_start[c], clique_start[c + 1]
    for at in range(begin, end):
        place[clique_node[at]] = -1
    for k in range(len(nodes)):
        place[nodes[k]] = k
    depth = 0
    step = 1
    agreeing = 0
    length = 1
    for at in range(end - 1, begin - 1, -1):
        v = clique_node[at]
        size = cardinality[v]
        if size == 1:
            continue
        if place[v] >= 0 and agreement:
            agreeing += step
            length = size
        else:
            near = stride[place[v]] if place[v] >= 0 else 0
            if (
                depth > 0
                and step == steps[0, depth - 1] * steps[2, depth - 1]
                and near == steps[0, depth - 1] * steps[1, depth - 1]
            ):
                steps[0, depth - 1] *= size
            else:
                steps[0, depth], steps[1, depth], steps[2, depth] = size, near, step
                depth += 1
        step *= size
    if agreeing > 0:
        steps[0, depth], steps[1, depth], steps[2, depth] = length, 0, agreeing
        depth += 1
    if depth == 0:
        steps[0, 0], steps[1, 0], steps[2, 0] = 1, 0, 0
        depth = 1
    return depth


@kernel()
def _walk(depth, steps, count, small, start, table, origin, collect):
    """Adds a smaller table to a clique's or, where `collect`, a clique's to the smaller one."""
    size, near, far = steps[0, 0], steps[1, 0], steps[2, 0]
    for k in range(depth):
        count[k] = 0
    s, t = start, origin
    d = 0
    while d < depth:
        if not collect:
            for x in range(size):
                table[t + x * far] += small[s + x * near]
        elif near == 0:
            total = 0.0
            for x in range(size):
                total += table[t + x * far]
            small[s] += total
        else:
            for x in range(size):
                small[s + x * near] += table[t + x * far]
        d = 1
        while d < depth:
            count[d] += 1
            s += steps[1, d]
            t += steps[2, d]
            if count[d] < steps[0, d]:
                break
            s -= steps[0, d] * steps[1, d]
            t -= steps[0, d] * steps[2, d]
            count[d] = 0
            d += 1


@kernel()
def _own(
    c, n_shared, clique_start, clique_node, cardinality, state_start, factor_start, factor, scope_start, scope,
    stride, agreement, table_start, place, steps, count, one, nodes, factors, table, origin, collect,
):  # fmt: skip
    """Adds the potentials of a clique's own nodes and factors to its table, or collects their marginals from it."""
    for at in range(clique_start[c] + n_shared[c], clique_start[c + 1]):
        v = clique_node[at]
        depth = _view(c, clique_node[at : at + 1], one, False, clique_start, clique_node, cardinality, place, steps)
        _walk(depth, steps, count, nodes, state_start[v], table, origin, collect)
    for k in range(factor_start[c], factor_start[c + 1]):
        f = factor[k]
        over = slice(scope_start[f], scope_start[f + 1])
        depth = _view(c, scope[over], stride[over], agreement[f], clique_start, clique_node, cardinality, place, steps)
        _walk(depth, steps, count, factors, table_start[f], table, origin, collect)


@kernel()
def _shared_strides(c, n_shared, clique_start, clique_node, cardinality, out):
    """Strides of a clique's message, into out[:n_shared[c]]."""
    step = 1
    for k in range(n_shared[c] - 1, -1, -1):
        out[k] = step
        step *= cardinality[clique_node[clique_start[c] + k]]


@kernel((int64, boolean, *CLIQUES, *SCOPES, FLAT, FLAT), fastmath={"contract"})
def up(
    largest, maximum, n_shared, n_rows, n_columns, cell_start, message_start, parent, clique_start, clique_node,
    cardinality, state_start, factor_start, factor, scope_start, scope, stride, agreement, table_start, nodes,
    factors,
):  # fmt: skip
    """Children to parents.

    Args:
        largest: the most nodes of a clique.
        maximum: whether the best is passed on, or else the sum.

    Returns:
        The log partition, or the best score; the tables with all that comes from below; and the messages.
    """
    table = np.zeros(cell_start[-1])
    message = np.empty(message_start[-1])
    place = np.empty(len(cardinality), dtype=np.int64)
    steps = np.empty((3, largest + 1), dtype=np.int64)
    count = np.empty(largest + 1, dtype=np.int64)
    strides = np.empty(largest, dtype=np.int64)
    one = np.empty(1, dtype=np.int64)
    one[0] = 1
    total = 0.0
    for c in range(len(parent)):
        _own(
            c, n_shared, clique_start, clique_node, cardinality, state_start, factor_start, factor, scope_start, scope,
            stride, agreement, table_start, place, steps, count, one, nodes, factors, table, cell_start[c], False,
        )  # fmt: skip
        for row in range(n_rows[c]):
            cells = table[cell_start[c] + row * n_columns[c] : cell_start[c] + (row + 1) * n_columns[c]]
            top = -np.inf
            for x in range(len(cells)):
                top = max(top, cells[x])
            if not maximum and top > -np.inf:
                mass = 0.0
                for x in range(len(cells)):
                    mass += exp(cells[x] - top)
                top += np.log(mass)
            message[message_start[c] + row] = top
        if parent[c] < 0:
            total += message[message_start[c]]
            continue
        p = parent[c]
        _shared_strides(c, n_shared, clique_start, clique_node, cardinality, strides)
        shared = clique_node[clique_start[c] : clique_start[c] + n_shared[c]]
        depth = _view(p, shared, strides, False, clique_start, clique_node, cardinality, place, steps)
        _walk(depth, steps, count, message, message_start[c], table, cell_start[p], False)
    return total, table, message


@kernel((int64, FLAT, FLAT, *CLIQUES, *SCOPES, FLAT, FLAT), fastmath={"contract"})
def down(
    largest, table, message, n_shared, n_rows, n_columns, cell_start, message_start, parent, clique_start,
    clique_node, cardinality, state_start, factor_start, factor, scope_start, scope, stride, agreement,
    table_start, node_marginals, factor_marginals,
):  # fmt: skip
    """Parents to children, after `up` with sums: adds the marginals to `node_marginals` and `factor_marginals`.

    A row of a clique's table less its message is a distribution given the shared nodes: nothing is divided by what may be 0.

    Args:
        table, message: as `up` returns them where the log partition is finite; changed.
    """
    place = np.empty(len(cardinality), dtype=np.int64)
    steps = np.empty((3, largest + 1), dtype=np.int64)
    count = np.empty(largest + 1, dtype=np.int64)
    strides = np.empty(largest, dtype=np.int64)
    one = np.empty(1, dtype=np.int64)
    one[0] = 1
    most_rows = 0
    for c in range(len(parent)):
        most_rows = max(most_rows, n_rows[c])
    above = np.empty(most_rows)
    for c in range(len(parent) - 1, -1, -1):
        if parent[c] < 0:
            above[0] = 1.0
        else:
            p = parent[c]
            for row in range(n_rows[c]):
                above[row] = 0.0
            _shared_strides(c, n_shared, clique_start, clique_node, cardinality, strides)
            shared = clique_node[clique_start[c] : clique_start[c] + n_shared[c]]
            depth = _view(p, shared, strides, False, clique_start, clique_node, cardinality, place, steps)
            _walk(depth, steps, count, above, 0, table, cell_start[p], True)
        for row in range(n_rows[c]):
            cells = table[cell_start[c] + row * n_columns[c] : cell_start[c] + (row + 1) * n_columns[c]]
            if above[row] == 0.0:
                for x in range(len(cells)):
                    cells[x] = 0.0
                continue
            sent = message[message_start[c] + row]
            for x in range(len(cells)):
                cells[x] = above[row] * exp(cells[x] - sent)
        _own(
            c, n_shared, clique_start, clique_node, cardinality, state_start, factor_start, factor, scope_start, scope,
            stride, agreement, table_start, place, steps, count, one, node_marginals, factor_marginals, table,
            cell_start[c], True,
        )  # fmt: skip


@kernel()
def _row(c, states, n_shared, clique_start, clique_node, cardinality):
    """The row of a clique's table that the states of its shared nodes select."""
    row = 0
    for at in range(clique_start[c], clique_start[c] + n_shared[c]):
        row = row * cardinality[clique_node[at]] + states[clique_node[at]]
    return row


@kernel()
def _decode(c, cell, states, n_shared, clique_start, clique_node, cardinality):
    """Sets the states of a clique's own nodes to those of a cell of a row."""
    for at in range(clique_start[c + 1] - 1, clique_start[c] + n_shared[c] - 1, -1):
        v = clique_node[at]
        states[v] = cell % cardinality[v]
        cell //= cardinality[v]


@kernel((FLAT, *[LONG] * 4, INT, INT))
def best_states(
    table, n_shared, n_columns, cell_start, clique_start, clique_node, cardinality,
):  # fmt: skip
    """The most probable joint state, after `up` with maxima; of equal cells the first is taken. Shape (n_nodes,), int32."""
    states = np.zeros(len(cardinality), dtype=np.int32)
    for c in range(len(n_shared) - 1, -1, -1):
        at = cell_start[c] + n_columns[c] * _row(c, states, n_shared, clique_start, clique_node, cardinality)
        best = 0
        for x in range(n_columns[c]):
            if table[at + x] > table[at + best]:
                best = x
        _decode(c, best, states, n_shared, clique_start, clique_node, cardinality)
    return states


@kernel((float64[:, ::1], FLAT, FLAT, *[LONG] * 5, INT, INT, int32[:, ::1]))
def draw(
    uniform, table, message, n_shared, n_columns, cell_start, message_start, clique_start, clique_node,
    cardinality, out,
):  # fmt: skip
    """Exact joint states, after `up` with sums and a finite log partition.

    Args:
        uniform: in [0, 1), shape (n, n_cliques). out: shape (n, n_nodes), int32; filled.
    """
    for c in range(len(n_shared) - 1, -1, -1):
        for i in range(len(uniform)):
            row = _row(c, out[i], n_shared, clique_start, clique_node, cardinality)
            sent = message[message_start[c] + row]
            at = cell_start[c] + n_columns[c] * row
            left = uniform[i, c]
            chosen = 0
            for x in range(n_columns[c]):
                p = exp(table[at + x] - sent)
                if p > 0.0:
                    chosen = x
                    left -= p
                    if left < 0.0:
                        break
            _decode(c, chosen, out[i], n_shared, clique_start, clique_node, cardinality)
