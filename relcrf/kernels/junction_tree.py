"""Sums, maxima and draws on trees of cliques: tables of log potentials over any number of nodes.

A clique's table is row-major; the nodes that it shares with its parent come first, so that a message to the parent has one
cell for each row, and only what a clique takes from smaller tables (nodes, factors, messages of its children) needs strides.
Cliques stand children first. Everywhere -inf is what cannot be.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import boolean, float64, int32, int64, types

from relcrf.kernels.compile import inline_kernel, kernel
from relcrf.kernels.factors import FACTORS
from relcrf.kernels.vector_math import exp


class CliqueForest(NamedTuple):
    """Trees of cliques.

    Args:
        start, node: the nodes of each clique, as CSR; those with one state only where they are alone.
        n_shared: shape (n_cliques,): how many nodes each clique shares with its parent.
        n_rows, n_columns: shape (n_cliques,): joint states of the shared nodes, and of the others.
        cell_start, message_start: shape (n_cliques + 1,): where each clique's table and its message begin.
        parent: shape (n_cliques,), -1 at roots.
        factor_start, factor: the factors of each clique, as CSR.
    """

    start: np.ndarray
    node: np.ndarray
    n_shared: np.ndarray
    n_rows: np.ndarray
    n_columns: np.ndarray
    cell_start: np.ndarray
    message_start: np.ndarray
    parent: np.ndarray
    factor_start: np.ndarray
    factor: np.ndarray


class LoopNest(NamedTuple):
    """How a smaller table lies in a clique's: nested loops, the innermost first. All arrays are scratch.

    Args:
        place: shape (n_nodes,).
        steps: shape (3, n): the length of each loop, its step in the smaller table, and in the clique's.
        counter: shape (n,). strides: of a message, shape (n,). one: shape (1,), 1.
    """

    place: np.ndarray
    steps: np.ndarray
    counter: np.ndarray
    strides: np.ndarray
    one: np.ndarray


FLAT, INT, LONG = float64[::1], int32[::1], int64[::1]
CLIQUES = types.NamedTuple((LONG, INT, *[LONG] * 8), CliqueForest)


@kernel()
def _allocate_loops(cliques, n_nodes):
    most = 1
    for c in range(len(cliques.parent)):
        most = max(most, cliques.start[c + 1] - cliques.start[c])
    place, count = np.empty(n_nodes, dtype=np.int64), np.empty(most + 1, dtype=np.int64)
    steps, strides = np.empty((3, most + 1), dtype=np.int64), np.empty(most, dtype=np.int64)
    return LoopNest(place, steps, count, strides, np.ones(1, dtype=np.int64))


@inline_kernel
def _find_loops(cliques, c, nodes, stride, agreement, cardinality, loops):
    """Finds the loops of a smaller table, over neighbouring cells where it can be; returns how many they are.

    Args:
        nodes, stride: of the smaller table; its nodes are in the clique.
        agreement: whether it is one number, for the cells in which its nodes agree.
    """
    place, steps, clique_node = loops.place, loops.steps, cliques.node
    begin, end = cliques.start[c], cliques.start[c + 1]
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


@inline_kernel
def _run_loops(depth, loops, small, start, table, origin, collect):
    """Adds a smaller table to a clique's or, where `collect`, a clique's to the smaller one."""
    steps, count = loops.steps, loops.counter
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


@inline_kernel
def _transfer_potentials(cliques, c, factors, loops, nodes, factor_tables, table, collect):
    """Adds the potentials of a clique's own nodes and factors to its table, or collects their marginals from it."""
    cardinality, state_start, start = factors.cardinality, factors.state_start, factors.start
    node, stride, agreement, table_start = factors.node, factors.stride, factors.agreement, factors.table_start
    origin = cliques.cell_start[c]
    for at in range(cliques.start[c] + cliques.n_shared[c], cliques.start[c + 1]):
        depth = _find_loops(cliques, c, cliques.node[at : at + 1], loops.one, False, cardinality, loops)
        _run_loops(depth, loops, nodes, state_start[cliques.node[at]], table, origin, collect)
    for k in range(cliques.factor_start[c], cliques.factor_start[c + 1]):
        f = cliques.factor[k]
        over = slice(start[f], start[f + 1])
        depth = _find_loops(cliques, c, node[over], stride[over], agreement[f], cardinality, loops)
        _run_loops(depth, loops, factor_tables, table_start[f], table, origin, collect)


@inline_kernel
def _transfer_message(cliques, c, cardinality, loops, message, start, table, collect):
    """Adds a clique's message to its parent's table, or collects the parent's table into it; it begins at `start`."""
    shared = cliques.node[cliques.start[c] : cliques.start[c] + cliques.n_shared[c]]
    step = 1
    for k in range(len(shared) - 1, -1, -1):
        loops.strides[k] = step
        step *= cardinality[shared[k]]
    p = cliques.parent[c]
    depth = _find_loops(cliques, p, shared, loops.strides, False, cardinality, loops)
    _run_loops(depth, loops, message, start, table, cliques.cell_start[p], collect)


@kernel((CLIQUES, FACTORS, FLAT, FLAT, boolean), fastmath={"contract"})
def up(cliques, factors, nodes, factor_tables, maximum):
    """Children to parents.

    Args:
        maximum: whether the best is passed on, or else the sum.

    Returns:
        The log partition, or the best score; the tables with all that comes from below; and the messages.
    """
    n_rows, n_columns, cell_start = cliques.n_rows, cliques.n_columns, cliques.cell_start
    message_start, parent = cliques.message_start, cliques.parent
    table = np.zeros(cell_start[-1])
    message = np.empty(message_start[-1])
    loops = _allocate_loops(cliques, len(factors.cardinality))
    total = 0.0
    for c in range(len(parent)):
        _transfer_potentials(cliques, c, factors, loops, nodes, factor_tables, table, False)
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
        else:
            _transfer_message(cliques, c, factors.cardinality, loops, message, message_start[c], table, False)
    return total, table, message


@kernel((CLIQUES, FACTORS, FLAT, FLAT, FLAT, FLAT), fastmath={"contract"})
def down(cliques, factors, table, message, node_marginals, factor_marginals):
    """Parents to children, after `up` with sums: adds the marginals to `node_marginals` and `factor_marginals`.

    A row of a clique's table less its message is a distribution given the shared nodes: nothing is divided by what may be 0.

    Args:
        table, message: as `up` returns them where the log partition is finite; changed.
    """
    n_rows, n_columns, cell_start = cliques.n_rows, cliques.n_columns, cliques.cell_start
    message_start, parent = cliques.message_start, cliques.parent
    loops = _allocate_loops(cliques, len(factors.cardinality))
    most_rows = 0
    for c in range(len(parent)):
        most_rows = max(most_rows, n_rows[c])
    above = np.empty(most_rows)
    for c in range(len(parent) - 1, -1, -1):
        if parent[c] < 0:
            above[0] = 1.0
        else:
            for row in range(n_rows[c]):
                above[row] = 0.0
            _transfer_message(cliques, c, factors.cardinality, loops, above, 0, table, True)
        for row in range(n_rows[c]):
            cells = table[cell_start[c] + row * n_columns[c] : cell_start[c] + (row + 1) * n_columns[c]]
            if above[row] == 0.0:
                for x in range(len(cells)):
                    cells[x] = 0.0
                continue
            sent = message[message_start[c] + row]
            for x in range(len(cells)):
                cells[x] = above[row] * exp(cells[x] - sent)
        _transfer_potentials(cliques, c, factors, loops, node_marginals, factor_marginals, table, True)


@kernel()
def _locate_row(cliques, c, states, cardinality):
    """The first cell of the row of a clique's table that the states of its shared nodes select, and the row."""
    row = 0
    for at in range(cliques.start[c], cliques.start[c] + cliques.n_shared[c]):
        row = row * cardinality[cliques.node[at]] + states[cliques.node[at]]
    return cliques.cell_start[c] + cliques.n_columns[c] * row, row


@kernel()
def _set_own_states(cliques, c, cell, states, cardinality):
    """Sets the states of a clique's own nodes to those of a cell of a row."""
    for at in range(cliques.start[c + 1] - 1, cliques.start[c] + cliques.n_shared[c] - 1, -1):
        v = cliques.node[at]
        states[v] = cell % cardinality[v]
        cell //= cardinality[v]


@kernel((CLIQUES, INT, FLAT))
def best_states(cliques, cardinality, table):
    """The most probable joint state, after `up` with maxima; of equal cells the first is taken. Shape (n_nodes,), int32."""
    states = np.zeros(len(cardinality), dtype=np.int32)
    for c in range(len(cliques.parent) - 1, -1, -1):
        at, _ = _locate_row(cliques, c, states, cardinality)
        best = 0
        for x in range(cliques.n_columns[c]):
            if table[at + x] > table[at + best]:
                best = x
        _set_own_states(cliques, c, best, states, cardinality)
    return states


@kernel((CLIQUES, INT, FLAT, FLAT, float64[:, ::1], int32[:, ::1]))
def draw_states(cliques, cardinality, table, message, uniform, out):
    """Exact joint states, after `up` with sums and a finite log partition.

    Args:
        uniform: in [0, 1), shape (n, n_cliques). out: shape (n, n_nodes), int32; filled.
    """
    for c in range(len(cliques.parent) - 1, -1, -1):
        for i in range(len(uniform)):
            at, row = _locate_row(cliques, c, out[i], cardinality)
            sent = message[cliques.message_start[c] + row]
            left = uniform[i, c]
            chosen = 0
            for x in range(cliques.n_columns[c]):
                p = exp(table[at + x] - sent)
                if p > 0.0:
                    chosen = x
                    left -= p
                    if left < 0.0:
                        break
            _set_own_states(cliques, c, chosen, out[i], cardinality)
