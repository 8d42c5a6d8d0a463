"""Sum-product, max-product and exact sampling on junction trees: tables of log potentials over any number of nodes.

A clique shares nodes with its parent clique. The clique's other nodes are its *own* nodes; each node is the own node of
one clique. A clique's table is row-major, and the shared nodes come first. A row is therefore one joint state of the
shared nodes, and the message to the parent has one entry for each row. Strides are needed only for the smaller tables
that are added to a clique's table (nodes, factors, messages of children). Cliques are ordered children first.
Impossible states have log potential -inf.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import boolean, float64, int32, int64, types

from relcrf.kernels.compile import inline_kernel, kernel
from relcrf.kernels.factors import FACTORS
from relcrf.kernels.vector_math import exp


class CliqueForest(NamedTuple):
    """The junction trees of a graph.

    Args:
        start, node: nodes of each clique, in CSR form; a node with one state forms a clique by itself.
        n_shared: number of nodes that each clique shares with its parent, shape (n_cliques,).
        n_rows, n_columns: number of joint states of the shared nodes, and of the own nodes, shape (n_cliques,).
        cell_start, message_start: offset of each clique's table, and of its message, shape (n_cliques + 1,).
        parent: parent of each clique, shape (n_cliques,), -1 at roots.
        factor_start, factor: factors of each clique, in CSR form.
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
    """Scratch arrays for the nested loops that map the cells of a smaller table to the cells of a clique's table.

    The loops are ordered from the innermost to the outermost.

    Args:
        axis: axis of each node in the smaller table, shape (n_nodes,), -1 for the clique's other nodes.
        steps: length of each loop, step of each loop in the smaller table and in the clique's table, shape (3, n).
        counter: loop counters, shape (n,).
        strides: strides of a message, shape (n,).
        one: the stride of the table of a single node: an array with the number 1, shape (1,).
    """

    axis: np.ndarray
    steps: np.ndarray
    counter: np.ndarray
    strides: np.ndarray
    one: np.ndarray


FLAT, INT, LONG = float64[::1], int32[::1], int64[::1]
CLIQUES = types.NamedTuple((LONG, INT, *[LONG] * 8), CliqueForest)


@kernel()
def _allocate_loops(cliques, n_nodes):
    max_nodes = 1
    for c in range(len(cliques.parent)):
        max_nodes = max(max_nodes, cliques.start[c + 1] - cliques.start[c])
    axis, counter = np.empty(n_nodes, dtype=np.int64), np.empty(max_nodes + 1, dtype=np.int64)
    steps, strides = np.empty((3, max_nodes + 1), dtype=np.int64), np.empty(max_nodes, dtype=np.int64)
    return LoopNest(axis, steps, counter, strides, np.ones(1, dtype=np.int64))


@inline_kernel
def _find_loops(cliques, c, nodes, stride, agreement, cardinality, loops):
    """Find the loops that map a smaller table to a clique's table; merge contiguous loops; return the number of loops.

    Args:
        nodes, stride: nodes and strides of the smaller table; all these nodes are in the clique.
        agreement: whether the smaller table is a single number: the log potential of the clique's cells in which all
            nodes of the smaller table have the same state.
    """
    axis, steps, clique_node = loops.axis, loops.steps, cliques.node
    begin, end = cliques.start[c], cliques.start[c + 1]
    for at in range(begin, end):
        axis[clique_node[at]] = -1
    for k in range(len(nodes)):
        axis[nodes[k]] = k
    depth = 0
    step = 1
    diagonal = 0
    length = 1
    for at in range(end - 1, begin - 1, -1):
        v = clique_node[at]
        size = cardinality[v]
        if size == 1:
            continue
        if axis[v] >= 0 and agreement:
            diagonal += step
            length = size
        else:
            inner_step = stride[axis[v]] if axis[v] >= 0 else 0
            if (
                depth > 0
                and step == steps[0, depth - 1] * steps[2, depth - 1]
                and inner_step == steps[0, depth - 1] * steps[1, depth - 1]
            ):
                steps[0, depth - 1] *= size
            else:
                steps[0, depth], steps[1, depth], steps[2, depth] = size, inner_step, step
                depth += 1
        step *= size
    if diagonal > 0:
        steps[0, depth], steps[1, depth], steps[2, depth] = length, 0, diagonal
        depth += 1
    if depth == 0:
        steps[0, 0], steps[1, 0], steps[2, 0] = 1, 0, 0
        depth = 1
    return depth


@inline_kernel
def _run_loops(depth, loops, small, start, table, origin, collect):
    """Add a smaller table to a clique's table; if `collect`, add the clique's table to the smaller table instead."""
    steps, counter = loops.steps, loops.counter
    size, small_step, table_step = steps[0, 0], steps[1, 0], steps[2, 0]
    for k in range(depth):
        counter[k] = 0
    s, t = start, origin
    d = 0
    while d < depth:
        if not collect:
            for x in range(size):
                table[t + x * table_step] += small[s + x * small_step]
        elif small_step == 0:
            total = 0.0
            for x in range(size):
                total += table[t + x * table_step]
            small[s] += total
        else:
            for x in range(size):
                small[s + x * small_step] += table[t + x * table_step]
        d = 1
        while d < depth:
            counter[d] += 1
            s += steps[1, d]
            t += steps[2, d]
            if counter[d] < steps[0, d]:
                break
            s -= steps[0, d] * steps[1, d]
            t -= steps[0, d] * steps[2, d]
            counter[d] = 0
            d += 1


@inline_kernel
def _transfer_potentials(cliques, c, factors, loops, nodes, factor_tables, table, collect):
    """Add the tables of a clique's own nodes and factors to its table; if `collect`, add in the other direction."""
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
    """Add a clique's message, at `start`, to the parent's table; if `collect`, add the table to the message."""
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
    """Pass messages from children to parents.

    Args:
        maximum: True for max-product, False for sum-product.

    Returns:
        The log partition or the best score; the clique tables, including the messages of children; and the messages.
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
    """Add marginals to `node_marginals` and `factor_marginals`, from parents to children, after sum-product `up`.

    A row of a clique's table minus the row's message is the conditional log distribution of the own nodes given the
    shared nodes. No division is needed, so that impossible rows cause no division by 0.

    Args:
        table, message: as returned by `up` with a finite log partition; `table` is overwritten.
    """
    n_rows, n_columns, cell_start = cliques.n_rows, cliques.n_columns, cliques.cell_start
    message_start, parent = cliques.message_start, cliques.parent
    loops = _allocate_loops(cliques, len(factors.cardinality))
    max_rows = 0
    for c in range(len(parent)):
        max_rows = max(max_rows, n_rows[c])
    row_marginal = np.empty(max_rows)
    for c in range(len(parent) - 1, -1, -1):
        if parent[c] < 0:
            row_marginal[0] = 1.0
        else:
            for row in range(n_rows[c]):
                row_marginal[row] = 0.0
            _transfer_message(cliques, c, factors.cardinality, loops, row_marginal, 0, table, True)
        for row in range(n_rows[c]):
            cells = table[cell_start[c] + row * n_columns[c] : cell_start[c] + (row + 1) * n_columns[c]]
            if row_marginal[row] == 0.0:
                for x in range(len(cells)):
                    cells[x] = 0.0
                continue
            row_message = message[message_start[c] + row]
            for x in range(len(cells)):
                cells[x] = row_marginal[row] * exp(cells[x] - row_message)
        _transfer_potentials(cliques, c, factors, loops, node_marginals, factor_marginals, table, True)


@kernel()
def _locate_row(cliques, c, states, cardinality):
    """Return the first cell and the index of the row that the states of the shared nodes select in a clique's table."""
    row = 0
    for at in range(cliques.start[c], cliques.start[c] + cliques.n_shared[c]):
        row = row * cardinality[cliques.node[at]] + states[cliques.node[at]]
    return cliques.cell_start[c] + cliques.n_columns[c] * row, row


@kernel()
def _set_own_states(cliques, c, cell, states, cardinality):
    """Set the states of a clique's own nodes to the states of a cell, given by its index in the row."""
    for at in range(cliques.start[c + 1] - 1, cliques.start[c] + cliques.n_shared[c] - 1, -1):
        v = cliques.node[at]
        states[v] = cell % cardinality[v]
        cell //= cardinality[v]


@kernel((CLIQUES, INT, FLAT))
def best_states(cliques, cardinality, table):
    """Return the best joint state, shape (n_nodes,), int32, after max-product `up`; ties go to the first cell."""
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
    """Draw exact joint states, after sum-product `up` with a finite log partition.

    Args:
        uniform: random numbers in [0, 1), shape (n, n_cliques).
        out: overwritten by the joint states, shape (n, n_nodes), int32.
    """
    for c in range(len(cliques.parent) - 1, -1, -1):
        for i in range(len(uniform)):
            at, row = _locate_row(cliques, c, out[i], cardinality)
            row_message = message[cliques.message_start[c] + row]
            remaining = uniform[i, c]
            chosen = 0
            for x in range(cliques.n_columns[c]):
                p = exp(table[at + x] - row_message)
                if p > 0.0:
                    chosen = x
                    remaining -= p
                    if remaining < 0.0:
                        break
            _set_own_states(cliques, c, chosen, out[i], cardinality)
