"""Sum-product, max-product and exact sampling on junction trees: tables over any number of nodes.

A clique shares nodes with its parent clique. The clique's other nodes are its *own* nodes; each node is the own node of one
clique. The *inputs* of a clique are the tables of its own nodes, its factors, and the messages of its children. The clique's
table is the product of the inputs; it is computed in blocks and never stored. The message to the parent is the sum of the
table over the own nodes. All tables and messages are in one array, `values`. In the downward pass, an array of the same layout
receives the marginals of all tables and messages.

A clique without own nodes is the product of its inputs: it combines small tables, so that the large table of the parent has
fewer inputs, or it expands an agreement (see `Scopes`).

Tables are products of numbers in the linear domain (`LINEAR_SUM`), where each message is scaled by its maximum, or sums of logs
(`LOG_SUM`, `LOG_MAX`). Cliques are ordered children first.
"""

from __future__ import annotations

import numpy as np
from numba import boolean, float64, int32, int64

from relcrf.kernels.clique_blocks import (
    CLIQUES,
    CONTIGUOUS,
    FLAT,
    INT,
    SCALAR,
    advance_loops,
    allocate_scratch,
    compute_block,
    plan_blocks,
    start_loops,
    visit_table,
)
from relcrf.kernels.compile import kernel
from relcrf.kernels.factors import draw_state
from relcrf.kernels.vector_math import exp

LINEAR_SUM, LOG_SUM, LOG_MAX = 0, 1, 2
"""Domains of the tables and operations on the own nodes."""


@kernel()
def _expand_agreement(cliques, c, cardinality, values, is_log):
    """Write the table of an agreement into the clique's message, scaled by its maximum; return the log of the scale."""
    value = values[cliques.source[cliques.input_start[c]]]
    scale = 0.0 if is_log else max(0.0, value)
    message, n_rows = cliques.message[c], cliques.n_rows[c]
    for row in range(n_rows):
        values[message + row] = 0.0 if is_log else np.exp(-scale)
    n_states = cardinality[cliques.node[cliques.start[c]]]
    step = (n_rows - 1) // (n_states - 1) if n_states > 1 else 0
    for x in range(n_states):
        values[message + x * step] = value if is_log else np.exp(value - scale)
    return scale


@kernel()
def _scale_message(cliques, c, values, domain, scale, spread):
    """Divide a message in the linear domain by its maximum, and compute its spread.

    No cell of a table underflows if the sum of the spreads of its inputs is less than the range of float64.

    Args:
        scale: the log of the maximum is added to the clique's element.
        spread: the spread of the message is added to the parent's element.
    """
    if domain != LINEAR_SUM:
        return
    parent = cliques.parent[c]
    message = values[cliques.message[c] : cliques.message[c] + cliques.n_rows[c]]
    top, least = 0.0, np.inf
    for r in range(len(message)):
        top = max(top, message[r])
        if message[r] > 0.0:
            least = min(least, message[r])
    if top == 0.0:
        scale[c] = -np.inf
        return
    inverse = 1.0 / top
    for r in range(len(message)):
        message[r] *= inverse
    scale[c] += np.log(top)
    if parent >= 0:
        spread[parent] += np.log(top / least)


@kernel()
def _add_block(table, n_cells, n_rows, domain, message, mass):
    """Add a block of a clique's table to the message: the sum or the maximum over the columns.

    With `LOG_SUM`, the message contains the maximum so far, and `mass` the sum of the exponentials relative to it.
    """
    for at in range(0, n_cells, n_rows):
        if domain == LINEAR_SUM:
            for r in range(n_rows):
                message[r] += table[at + r]
        elif domain == LOG_MAX:
            for r in range(n_rows):
                message[r] = max(message[r], table[at + r])
        else:
            for r in range(n_rows):
                value = table[at + r]
                if value > message[r]:
                    mass[r] = (mass[r] * np.exp(message[r] - value) if message[r] > -np.inf else 0.0) + 1.0
                    message[r] = value
                elif value > -np.inf:
                    mass[r] += np.exp(value - message[r])


@kernel()
def _send_rows(cliques, c, cardinality, values, domain, lane, n_lanes, scratch):
    """Compute a lane of a clique's message: a contiguous part of the rows."""
    is_log = domain != LINEAR_SUM
    n_cells = cliques.n_rows[c] * cliques.n_columns[c]
    is_small = n_cells <= len(scratch.block)
    if is_small:
        n_block, n_rows, n_loops, n_own_loops = n_cells, cliques.n_rows[c], 0, 0
        visit_table(cliques, c, cardinality, values, is_log, False, scratch.counter, scratch.block)
    else:
        n_block, n_rows, n_loops, n_own_loops = plan_blocks(cliques, c, cardinality, scratch)
    n_groups = cliques.n_rows[c] // n_rows
    begin, end = n_groups * lane // n_lanes, n_groups * (lane + 1) // n_lanes
    if not is_small:
        start_loops(cliques, c, cardinality, begin, n_loops, n_own_loops, scratch)
    for group in range(begin, end):
        message = values[cliques.message[c] + group * n_rows : cliques.message[c] + (group + 1) * n_rows]
        for r in range(n_rows):
            message[r] = -np.inf if is_log else 0.0
        is_complete = False
        while not is_complete:
            if not is_small:
                compute_block(cliques, c, values, is_log, n_block, scratch)
            _add_block(scratch.block, n_block, n_rows, domain, message, scratch.mass)
            is_complete = is_small or advance_loops(cliques, c, cardinality, n_loops, n_own_loops, scratch)
        if domain == LOG_SUM:
            for r in range(n_rows):
                if message[r] > -np.inf:
                    message[r] += np.log(scratch.mass[r])


@kernel((CLIQUES, INT, FLAT, int64, int64, int64, int64, int64, FLAT, FLAT), fastmath={"contract"})
def up(cliques, cardinality, values, domain, first, last, lane, n_lanes, scale, spread):
    """Compute the messages of the cliques first .. last - 1, children before parents.

    Args:
        lane, n_lanes: the part of the rows to compute. With several lanes, there is one clique, and its message is not scaled.
        scale: overwritten by the log of the number by which each message was divided, shape (n_cliques,).
        spread: log ratio of the largest and the smallest positive number of the clique's nodes and factors, shape
            (n_cliques,). The spreads of the children's messages are added. See `scale_message`.
    """
    scratch = allocate_scratch(cliques, first, last)
    for c in range(first, last):
        if cliques.is_agreement[c]:
            scale[c] = _expand_agreement(cliques, c, cardinality, values, domain != LINEAR_SUM)
        else:
            _send_rows(cliques, c, cardinality, values, domain, lane, n_lanes, scratch)
            scale[c] = 0.0
        if n_lanes == 1:
            _scale_message(cliques, c, values, domain, scale, spread)


@kernel((CLIQUES, int64, FLAT, int64, FLAT, FLAT))
def scale_message(cliques, c, values, domain, scale, spread):
    """Divide a message by its maximum; see `_scale_message`."""
    _scale_message(cliques, c, values, domain, scale, spread)


@kernel()
def _condition_rows(table, n_cells, n_rows, is_log, rows):
    """Multiply each column of a block by the factors of the rows, or add their logs and compute the exponentials."""
    for at in range(0, n_cells, n_rows):
        if is_log:
            for r in range(n_rows):
                table[at + r] = exp(table[at + r] + rows[r])
        else:
            for r in range(n_rows):
                table[at + r] *= rows[r]


@kernel((CLIQUES, INT, FLAT, boolean, FLAT, FLAT), fastmath={"contract"})
def down(cliques, cardinality, values, is_log, scale, sums):
    """Compute the marginals of all tables and messages, from parents to children.

    The distribution of a clique is its table times the marginal of the shared nodes, divided by the message. A row whose
    message is 0 is impossible.

    Args:
        values, scale: as computed by `up` in a sum domain.
        sums: zeros in the layout of `values`; overwritten by the marginals. A message is replaced by the factor by which the
            rows of the clique's table are multiplied, or the log of the factor.
    """
    scratch = allocate_scratch(cliques, 0, len(cliques.parent))
    block, local = scratch.block, scratch.local
    for c in range(len(cliques.parent) - 1, -1, -1):
        start = cliques.message[c]
        if cliques.parent[c] < 0:
            sums[start] = 1.0
        if cliques.is_agreement[c]:
            n_states, n_rows = cardinality[cliques.node[cliques.start[c]]], cliques.n_rows[c]
            step = (n_rows - 1) // (n_states - 1) if n_states > 1 else 0
            for x in range(n_states):
                sums[cliques.source[cliques.input_start[c]]] += sums[start + x * step]
            continue
        inverse = np.exp(-scale[c])
        for row in range(start, start + cliques.n_rows[c]):
            if sums[row] <= 0.0:
                sums[row] = -np.inf if is_log else 0.0
            elif is_log:
                sums[row] = np.log(sums[row]) - values[row]
            else:
                sums[row] *= inverse / values[row]
        n_cells = cliques.n_rows[c] * cliques.n_columns[c]
        if n_cells <= len(block):
            visit_table(cliques, c, cardinality, values, is_log, False, scratch.counter, block)
            _condition_rows(block, n_cells, cliques.n_rows[c], is_log, sums[start : start + cliques.n_rows[c]])
            visit_table(cliques, c, cardinality, sums, False, True, scratch.counter, block)
            continue
        n_block, n_rows, n_loops, n_own_loops = plan_blocks(cliques, c, cardinality, scratch)
        start_loops(cliques, c, cardinality, 0, n_loops, n_own_loops, scratch)
        first = cliques.input_start[c]
        for group in range(cliques.n_rows[c] // n_rows):
            rows = sums[start + group * n_rows : start + (group + 1) * n_rows]
            is_complete = False
            while not is_complete:
                compute_block(cliques, c, values, is_log, n_block, scratch)
                _condition_rows(block, n_block, n_rows, is_log, rows)
                total = 0.0
                for j in range(n_block):
                    total += block[j]
                for k in range(cliques.input_start[c + 1] - first):
                    base = cliques.source[first + k] + scratch.position[k]
                    if scratch.pattern[k] == SCALAR:
                        sums[base] += total
                    elif scratch.pattern[k] == CONTIGUOUS:
                        cells = sums[base : base + n_block]
                        for j in range(n_block):
                            cells[j] += block[j]
                    else:
                        index = local[k]
                        for j in range(n_block):
                            sums[base + index[j]] += block[j]
                is_complete = advance_loops(cliques, c, cardinality, n_loops, n_own_loops, scratch)


@kernel()
def _compute_column(cliques, c, cardinality, values, is_log, states, counter, out):
    """Compute the cells of a clique's table for given states of the shared nodes, shape (n_columns,)."""
    begin, n_own = cliques.start[c], cliques.n_own[c]
    n_nodes = cliques.start[c + 1] - begin
    for x in range(cliques.n_columns[c]):
        out[x] = 0.0 if is_log else 1.0
    for i in range(cliques.input_start[c], cliques.input_start[c + 1]):
        stride = cliques.stride[cliques.stride_start[i] : cliques.stride_start[i + 1]]
        at = cliques.source[i]
        for a in range(n_own, n_nodes):
            at += stride[a] * states[cliques.node[begin + a]]
        for a in range(n_own):
            counter[a] = 0
        for x in range(cliques.n_columns[c]):
            if is_log:
                out[x] += values[at]
            else:
                out[x] *= values[at]
            for a in range(n_own - 1, -1, -1):
                counter[a] += 1
                at += stride[a]
                if counter[a] < cardinality[cliques.node[begin + a]]:
                    break
                at -= stride[a] * counter[a]
                counter[a] = 0


@kernel()
def _set_own_states(cliques, c, column, states, cardinality):
    begin = cliques.start[c]
    for at in range(begin + cliques.n_own[c] - 1, begin - 1, -1):
        v = cliques.node[at]
        states[v] = column % cardinality[v]
        column //= cardinality[v]


@kernel()
def _max_columns(cliques):
    largest = 1
    for c in range(len(cliques.parent)):
        largest = max(largest, cliques.n_columns[c])
    return largest


@kernel((CLIQUES, INT, FLAT))
def best_states(cliques, cardinality, values):
    """Return the best joint state, shape (n_nodes,), int32, after `up` with `LOG_MAX`; ties go to the first cell."""
    states = np.zeros(len(cardinality), dtype=np.int32)
    column, counter = np.empty(_max_columns(cliques)), np.empty(len(cardinality), dtype=np.int64)
    for c in range(len(cliques.parent) - 1, -1, -1):
        if cliques.n_own[c] == 0:
            continue
        _compute_column(cliques, c, cardinality, values, True, states, counter, column)
        best = 0
        for x in range(cliques.n_columns[c]):
            if column[x] > column[best]:
                best = x
        _set_own_states(cliques, c, best, states, cardinality)
    return states


@kernel((CLIQUES, INT, FLAT, boolean, float64[:, ::1], int32[:, ::1]))
def draw_states(cliques, cardinality, values, is_log, uniform, out):
    """Draw exact joint states, after `up` in a sum domain with a positive partition function.

    Args:
        uniform: random numbers in [0, 1), shape (n, n_cliques).
        out: overwritten by the joint states, shape (n, n_nodes), int32.
    """
    column, counter = np.empty(_max_columns(cliques)), np.empty(len(cardinality), dtype=np.int64)
    for c in range(len(cliques.parent) - 1, -1, -1):
        n_own, n_columns = cliques.n_own[c], cliques.n_columns[c]
        if n_own == 0:
            continue
        is_root = cliques.start[c + 1] - cliques.start[c] == n_own
        mass = 0.0
        for i in range(len(uniform)):
            if i == 0 or not is_root:
                _compute_column(cliques, c, cardinality, values, is_log, out[i], counter, column)
                mass = 0.0
                top = -np.inf
                for x in range(n_columns):
                    top = max(top, column[x])
                for x in range(n_columns):
                    if is_log:
                        column[x] = np.exp(column[x] - top)
                    mass += column[x]
            _set_own_states(cliques, c, draw_state(n_columns, column, uniform[i, c] * mass), out[i], cardinality)
