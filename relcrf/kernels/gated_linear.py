"""Belief propagation on gated pairs of nodes of any cardinality, and its adjoint; linear messages, many pairs at a time.

A *group* interleaves the data of up to `LANES` pairs of the same cardinalities: in each row of numbers, each pair has one
*lane*, so that every loop over lanes is vectorised. With the linear cavities a of the first node, b of the second node
and the linear table e, whose logarithm is the gate times the table, the messages of a pair are

    to the second node: s[y] = sum over x of a[x] e[x, y],    to the first node: s[x] = sum over y of e[x, y] b[y].

The *total* of a node is its log potential plus its incoming log messages; the linear totals, whose largest entry is 1,
are computed once per node and iteration. Thus an iteration needs no exponential per pair, and one logarithm per entry of
a message. Let q be the derivative by a log message divided by s. The derivatives by log cavities are a[x] times the sum
of e[x, y] q[y], and those by the gated table e[x, y] times the sum over all iterations of a[x] q[y] + q[x] b[y]. For the
backward pass, a, b and s of all iterations are stored.

The tables have a limited range (`MAX_RANGE`); the kernels of `gated_tables` support any range.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import boolean, int32, int64, types

from relcrf.columns.offsets import offsets
from relcrf.kernels.compile import kernel, read_only
from relcrf.kernels.gated_binary import copy, inline_kernel
from relcrf.kernels.gated_layout import LANES, PairSlots
from relcrf.kernels.gated_losses import LOSS, evaluate_loss
from relcrf.kernels.gated_tables import FLAT, INDEX, READ_ONLY_FLAT, normalise
from relcrf.kernels.threads import freeze
from relcrf.kernels.vector_math import exp, log

MAX_RANGE = 300.0
"""Maximum of |gate| times the difference of two cells of tables.

Linear messages and cavities are then between exp(-300) and exp(300), and their products are normal numbers. A linear
total below exp(-708) is rounded to 0; its cavity would contribute less than exp(-108) of the sum to any message.
"""


class PairGroups(NamedTuple):
    """Pairs in groups of equal cardinalities, block after block; see `group_pairs`.

    Args:
        group_start: first group of each block, followed by the number of groups, shape (n_blocks + 1,), int64.
        row_start: first row of each group among the rows of its block; a group has a row for each state of the first node
            and of the second node, shape (n_groups,), int64.
        size: cardinalities of the first and the second node of each group's pairs, shape (n_groups, 2), int64.
        n_pairs: number of pairs of each group; the other lanes are empty, shape (n_groups,), int64.
        pair: the pair in each lane, shape (n_groups, LANES), int32; for an empty lane, a pair of the same group.
        ends: offsets of the states of the pair's two nodes within the block, shape (n_groups, 2, LANES), int32; for an
            empty lane, those of a dummy node, which follows the block's nodes.
        shared_table: whether all pairs of a group have one table, shape (n_groups,), bool.
        node_start, node: the nodes of each block; see `PairSlots`.
        n_states: number of states of each block's nodes, shape (n_blocks,), int64.
    """

    group_start: np.ndarray
    row_start: np.ndarray
    size: np.ndarray
    n_pairs: np.ndarray
    pair: np.ndarray
    ends: np.ndarray
    shared_table: np.ndarray
    node_start: np.ndarray
    node: np.ndarray
    n_states: np.ndarray


class LinearNetwork(NamedTuple):
    """Gated pairs of nodes of any cardinality; all real arrays are float64.

    Args:
        groups: the pairs, in the order in which they are processed.
        state_start, table_start: offset of each node's states, and of each table.
        table_of: the table of each pair, shape (n_pairs,), int32.
        nodes, tables: log potentials, flat; those of nodes may be -inf, but each node has a finite one.
        gate: gate of each pair, shape (n_pairs,).
        n_iterations: number of iterations, 0 or more.
    """

    groups: PairGroups
    state_start: np.ndarray
    table_start: np.ndarray
    table_of: np.ndarray
    nodes: np.ndarray
    tables: np.ndarray
    gate: np.ndarray
    n_iterations: int


_INT_CUBE, _INT_ROWS = read_only(int32[:, :, ::1]), read_only(int32[:, ::1])
GROUPS = types.NamedTuple(
    [
        INDEX,
        INDEX,
        read_only(int64[:, ::1]),
        INDEX,
        _INT_ROWS,
        _INT_CUBE,
        read_only(boolean[::1]),
        INDEX,
        read_only(int32[::1]),
        INDEX,
    ],
    PairGroups,
)
NETWORK = types.NamedTuple(
    [GROUPS, INDEX, INDEX, read_only(int32[::1]), READ_ONLY_FLAT, READ_ONLY_FLAT, READ_ONLY_FLAT, int64], LinearNetwork
)


def group_pairs(slots: PairSlots, state_start: np.ndarray) -> PairGroups:
    """Group the pairs of each block by cardinalities and, within these, by table.

    Args:
        state_start: offset of each node's states, shape (n_nodes + 1,).
    """
    cardinality, n_blocks = np.diff(state_start)[slots.node], len(slots.slot_start) - 1
    # offset of each node's states within the block, in the order of `slots.node`
    state, block_state = offsets(cardinality), offsets(cardinality)[slots.node_start]
    n_pairs = np.diff(slots.pair_start)
    block = np.repeat(np.arange(n_blocks), n_pairs)
    slot = np.arange(len(block)) - slots.pair_start[block] + slots.slot_start[block]
    pair = slots.pair[slot]
    nodes = np.stack([slots.node_start[block] + end[slot] for end in (slots.first, slots.second)])
    order = np.lexsort((slots.table_of[pair], *cardinality[nodes[::-1]], block))
    block, pair, nodes = block[order], pair[order], nodes[:, order]
    keys = np.stack((block, *cardinality[nodes]))
    is_first = np.append(True, (keys[:, 1:] != keys[:, :-1]).any(axis=0))[: len(pair)]
    run = np.cumsum(is_first) - 1
    rank = np.arange(len(pair)) - np.flatnonzero(is_first)[run]
    is_first |= rank % LANES == 0
    first, group = np.flatnonzero(is_first), np.cumsum(is_first) - 1
    n_groups, lane = len(first), rank % LANES
    size = cardinality[nodes[:, first]].T
    lanes = np.repeat(pair[first], LANES).reshape(n_groups, LANES)
    ends = np.repeat(np.diff(block_state)[block[first]], 2 * LANES).reshape(n_groups, 2, LANES)
    lanes[group, lane] = pair
    ends[group, :, lane] = (state[nodes] - block_state[block]).T
    tables = slots.table_of[lanes]
    group_start = offsets(np.bincount(block[first], minlength=n_blocks))
    row_start = offsets(size.sum(axis=1))
    return PairGroups(
        freeze(group_start, np.int64),
        freeze(row_start[:-1] - row_start[group_start[block[first]]], np.int64),
        freeze(size, np.int64),
        freeze(np.bincount(group, minlength=n_groups), np.int64),
        freeze(lanes, np.int32),
        freeze(ends, np.int32),
        freeze((tables == tables[:, :1]).all(axis=1), np.bool_),
        slots.node_start,
        slots.node,
        freeze(np.diff(block_state), np.int64),
    )


def n_stored(groups: PairGroups, n_arrays: int) -> int:
    """Return the length of the scratch array of kernels that store `n_arrays` arrays of the values of a block's groups."""
    n_rows = np.diff(offsets(groups.size.sum(axis=1))[groups.group_start])
    return int(n_rows.max(initial=0)) * LANES * n_arrays


@inline_kernel
def _load_tables(network, group, previous, table, lanes):
    """Write the linear tables of a group, whose largest cell is 1, to `table`, shape (n_cells, LANES).

    Args:
        previous: the result for the group whose tables `table` contains; they are reused if they are equal.

    Returns:
        The table and the gate of all pairs; the table is -1 if the pairs have different tables or gates.
    """
    groups, tables = network.groups, network.tables
    pair, n_cells = groups.pair[group], groups.size[group, 0] * groups.size[group, 1]
    gate, number, is_uniform = network.gate[pair[0]], network.table_of[pair[0]], groups.shared_table[group]
    tops, gates, start = lanes[0], lanes[1], network.table_start[number]
    for i in range(LANES):
        gates[i] = network.gate[pair[i]]
        is_uniform &= gates[i] == gate
    if is_uniform:
        if previous[0] == number and previous[1] == gate:
            return previous
        top = -np.inf
        for c in range(n_cells):
            top = max(top, gate * tables[start + c])
        for c in range(n_cells):
            table[c] = exp(gate * tables[start + c] - top)
        return int64(number), gate
    tops[:] = -np.inf
    for c in range(n_cells):
        row, cell = table[c], tables[start + c]
        if groups.shared_table[group]:
            for i in range(LANES):
                row[i] = gates[i] * cell
        else:
            for i in range(LANES):
                row[i] = gates[i] * tables[network.table_start[network.table_of[pair[i]]] + c]
        for i in range(LANES):
            tops[i] = row[i] if row[i] > tops[i] else tops[i]
    for c in range(n_cells):
        row = table[c]
        for i in range(LANES):
            row[i] = exp(row[i] - tops[i])
    return int64(-1), gate


@inline_kernel
def _gather(ends, k, values, out):
    """Write the values of the states of both nodes of each pair to `out`; k is the first node's cardinality."""
    for row in range(len(out)):
        start, x = (ends[0], row) if row < k else (ends[1], row - k)
        for i in range(LANES):
            out[row, i] = values[start[i] + x]


@inline_kernel
def _add_to_nodes(ends, k, row, n_pairs, values, out):
    """Add a row's values in the first `n_pairs` lanes to the nodes' states in `out`."""
    start, x = (ends[0], row) if row < k else (ends[1], row - k)
    for i in range(n_pairs):
        out[start[i] + x] += values[i]


@inline_kernel
def _multiply_tables(k, table, rows, out):
    """Multiply each pair's table by the rows of each of its nodes; write the products to the rows of the other node."""
    out[:] = 0.0
    n = len(rows) - k
    for x in range(k):
        to_first, from_first = out[x], rows[x]
        for y in range(n):
            to_second, from_second, cell = out[k + y], rows[k + y], table[x * n + y]
            for i in range(LANES):
                to_first[i] += cell[i] * from_second[i]
                to_second[i] += cell[i] * from_first[i]


@inline_kernel
def _exponentiate(network, block, total, linear):
    """Compute the linear totals of a block's nodes, whose largest entry is 1; the entries of the dummy node are 1."""
    groups, state = network.groups, 0
    for v in range(groups.node_start[block], groups.node_start[block + 1]):
        node = groups.node[v]
        stop = state + network.state_start[node + 1] - network.state_start[node]
        top = -np.inf
        for x in range(state, stop):
            top = max(top, total[x])
        for x in range(state, stop):
            linear[x] = total[x] - top
        state = stop
    linear[state:] = 0.0
    for x in range(len(linear)):
        linear[x] = exp(linear[x])


@inline_kernel
def _largest_values(rows, top):
    """Write the largest value of each lane to `top`."""
    top[:] = 0.0
    for row in range(len(rows)):
        for i in range(LANES):
            top[i] = rows[row, i] if rows[row, i] > top[i] else top[i]


@inline_kernel
def _divide_by_messages(sums, k, top, cavity):
    """Divide linear totals by the linear messages s / max(s), where s has the rows of `sums`."""
    for side in range(2):
        lo, hi = (0, k) if side == 0 else (k, len(sums))
        _largest_values(sums[lo:hi], top)
        for row in range(lo, hi):
            for i in range(LANES):
                cavity[row, i] *= top[i] / sums[row, i]


@inline_kernel
def _forward(network, block, own, total, linear, cavities, sums, table, scratch, lanes):
    """Run all iterations of a block.

    Args:
        own: log potentials of the block's nodes, and 0 for the dummy node.
        total: overwritten by the totals after the last iteration.
        linear: scratch like `total`.
        cavities: overwritten; row t contains a and b of iteration t. They are not stored if the array has no rows.
        sums: overwritten; row t modulo the number of rows contains s of iteration t.
        table, scratch: shapes (largest number of cells, LANES) and (largest number of states of a pair, LANES).
    """
    groups, n_rows = network.groups, len(sums)
    top, message = lanes[0], lanes[1]
    previous = int64(-1), 0.0
    copy(len(own), own, total)
    for t in range(network.n_iterations):
        _exponentiate(network, block, total, linear)
        copy(len(own), own, total)
        for group in range(groups.group_start[block], groups.group_start[block + 1]):
            previous = _load_tables(network, group, previous, table, lanes)
            ends, k, n = groups.ends[group], groups.size[group, 0], groups.size[group, 0] + groups.size[group, 1]
            lo, hi = groups.row_start[group], groups.row_start[group] + n
            cavity = cavities[t, lo:hi] if len(cavities) else scratch[:n]
            _gather(ends, k, linear, cavity)
            if t:
                _divide_by_messages(sums[(t - 1) % n_rows, lo:hi], k, top, cavity)
            new = sums[t % n_rows, lo:hi]
            _multiply_tables(k, table, cavity, new)
            for side in range(2):
                first, stop = (0, k) if side == 0 else (k, n)
                _largest_values(new[first:stop], top)
                for i in range(LANES):
                    top[i] = 1.0 / top[i]
                for row in range(first, stop):
                    for i in range(LANES):
                        message[i] = log(new[row, i] * top[i])
                    _add_to_nodes(ends, k, row, groups.n_pairs[group], message, total)


@inline_kernel
def _backward(
    network, block, d_own, d_total, next_d_total, cavities, sums, table, scratch, lanes, d_tables, origin, d_gate
):
    """Compute the derivatives by a block's node potentials, and add those by tables and gates to `d_tables` and `d_gate`.

    Args:
        d_own: derivatives w.r.t. the final node totals; overwritten by derivatives w.r.t. the log potentials of nodes.
        d_total, next_d_total: scratch.
        sums: overwritten; the sums s of iteration t are replaced by derivatives w.r.t. log cavities.
        table, scratch: see `_forward`; `scratch` has shape (2, largest number of states of a pair, LANES).
    """
    groups, n_iterations = network.groups, network.n_iterations
    previous = int64(-1), 0.0
    copy(len(d_own), d_own, d_total)
    for t in range(n_iterations - 1, -1, -1):
        next_d_total[:] = 0.0
        for group in range(groups.group_start[block], groups.group_start[block + 1]):
            previous = _load_tables(network, group, previous, table, lanes)
            ends, k, n = groups.ends[group], groups.size[group, 0], groups.size[group, 0] + groups.size[group, 1]
            lo, hi = groups.row_start[group], groups.row_start[group] + n
            cavity, d_cavity = cavities[t, lo:hi], sums[t, lo:hi]
            q, product = scratch[0, :n], scratch[1, :n]
            _gather(ends, k, d_total, q)
            for row in range(n):
                if t < n_iterations - 1:
                    for i in range(LANES):
                        q[row, i] -= sums[t + 1, lo + row, i]
                for i in range(LANES):
                    q[row, i] /= d_cavity[row, i]
            _multiply_tables(k, table, q, product)
            for row in range(n):
                for i in range(LANES):
                    d_cavity[row, i] = cavity[row, i] * product[row, i]
                _add_to_nodes(ends, k, row, groups.n_pairs[group], d_cavity[row], next_d_total)
            _add_table_derivatives(network, group, cavity, q, table, lanes, d_tables, origin, d_gate)
        for x in range(len(d_own)):
            d_own[x] += next_d_total[x]
            d_total[x] = next_d_total[x]


@inline_kernel
def _sum_lanes(row):
    """Return the sum of a row; the row is overwritten. A sum of one number at a time would wait for each addition."""
    n = LANES // 2
    while n:
        for i in range(n):
            row[i] += row[n + i]
        n //= 2
    return row[0]


@inline_kernel
def _add_table_derivatives(network, group, cavity, q, table, lanes, d_tables, origin, d_gate):
    """Add the derivatives by the tables and gates of a group in one iteration to `d_tables` and `d_gate`."""
    groups, tables = network.groups, network.tables
    pair, n_pairs, k = groups.pair[group], groups.n_pairs[group], groups.size[group, 0]
    n = k + groups.size[group, 1]
    d_cell, d_gates, gates = lanes[0], lanes[1], lanes[2]
    d_gates[:] = 0.0
    for i in range(LANES):
        gates[i] = network.gate[pair[i]] if i < n_pairs else 0.0
    start = network.table_start[network.table_of[pair[0]]]
    for x in range(k):
        a, to_first = cavity[x], q[x]
        for y in range(k, n):
            c = x * (n - k) + y - k
            b, to_second, cell = cavity[y], q[y], table[c]
            for i in range(LANES):
                d_cell[i] = cell[i] * (a[i] * to_second[i] + to_first[i] * b[i])
            if groups.shared_table[group]:
                log_cell = tables[start + c]
                for i in range(LANES):
                    d_gates[i] += d_cell[i] * log_cell
                    d_cell[i] *= gates[i]
                d_tables[start + c - origin] += _sum_lanes(d_cell)
            else:
                for i in range(n_pairs):
                    index = network.table_start[network.table_of[pair[i]]] + c
                    d_gates[i] += d_cell[i] * tables[index]
                    d_tables[index - origin] += gates[i] * d_cell[i]
    for i in range(n_pairs):
        d_gate[pair[i]] += d_gates[i]


@inline_kernel
def _load_node_potentials(network, block, own):
    """Write the log potentials of a block's nodes to `own`, and 0 for the dummy node."""
    groups, state = network.groups, 0
    own[:] = 0.0
    for v in range(groups.node_start[block], groups.node_start[block + 1]):
        node = groups.node[v]
        for x in range(network.state_start[node], network.state_start[node + 1]):
            own[state] = network.nodes[x]
            state += 1


@inline_kernel
def _largest_sizes(size):
    """Return the largest cardinality, sum of two cardinalities, and number of cells of all groups."""
    k, n, n_cells = 0, 0, 0
    for group in range(len(size)):
        first, second = size[group, 0], size[group, 1]
        k, n, n_cells = max(k, first, second), max(n, first + second), max(n_cells, first * second)
    return k, n, n_cells


@inline_kernel
def _n_rows(groups, block):
    """Return the number of rows of a block's groups."""
    last = groups.group_start[block + 1] - 1
    if last < groups.group_start[block]:
        return 0
    return groups.row_start[last] + groups.size[last, 0] + groups.size[last, 1]


@kernel((int64, int64, NETWORK, FLAT, FLAT))
def propagate_blocks(lo, hi, network, stored, beliefs):
    """Compute the beliefs of blocks lo..hi-1; for `stored`, see `n_stored` with one array."""
    groups, state_start = network.groups, network.state_start
    largest, n_states, n_cells = _largest_sizes(groups.size)
    table, scratch, cavities = np.empty((n_cells, LANES)), np.empty((n_states, LANES)), np.empty((0, 0, LANES))
    lanes = np.empty((3, LANES))
    for block in range(lo, hi):
        n = _n_rows(groups, block)
        sums = stored[: n * LANES].reshape((1, n, LANES))
        node_values = np.empty((3, groups.n_states[block] + largest))
        own, total, linear = node_values[0], node_values[1], node_values[2]
        _load_node_potentials(network, block, own)
        _forward(network, block, own, total, linear, cavities, sums, table, scratch, lanes)
        state = 0
        for v in range(groups.node_start[block], groups.node_start[block + 1]):
            start, stop = state_start[groups.node[v]], state_start[groups.node[v] + 1]
            normalise(total[state : state + stop - start], beliefs[start:stop])
            state += stop - start


@kernel((int64, int64, NETWORK, FLAT, LOSS, FLAT, FLAT, int64, FLAT, FLAT))
def differentiate_blocks(lo, hi, network, stored, loss, d_nodes, d_tables, origin, d_gate, beliefs):
    """Compute the beliefs of blocks lo..hi-1, the loss of these beliefs, and the derivatives of the loss.

    Args:
        stored: overwritten; for its length, see `n_stored`.
        For the other arguments and the result, see `gated_tables.differentiate_blocks`.
    """
    groups, state_start = network.groups, network.state_start
    largest, n_states, n_cells = _largest_sizes(groups.size)
    table, scratch, value = np.empty((n_cells, LANES)), np.empty((2, n_states, LANES)), 0.0
    lanes = np.empty((3, LANES))
    for block in range(lo, hi):
        shape = network.n_iterations, _n_rows(groups, block), LANES
        n = shape[0] * shape[1] * LANES
        cavities, sums = stored[:n].reshape(shape), stored[n : 2 * n].reshape(shape)
        node_values = np.empty((3, groups.n_states[block] + largest))
        own, total, linear = node_values[0], node_values[1], node_values[2]
        _load_node_potentials(network, block, own)
        _forward(network, block, own, total, linear, cavities, sums, table, scratch[0], lanes)
        state = 0
        for v in range(groups.node_start[block], groups.node_start[block + 1]):
            start, stop = state_start[groups.node[v]], state_start[groups.node[v] + 1]
            logs, slope = total[state : state + stop - start], own[state : state + stop - start]
            normalise(logs, beliefs[start:stop])
            value += evaluate_loss(loss, groups.node[v], start, beliefs[start:stop], logs, slope)
            state += stop - start
        own[state:] = 0.0
        _backward(network, block, own, total, linear, cavities, sums, table, scratch, lanes, d_tables, origin, d_gate)
        state = 0
        for v in range(groups.node_start[block], groups.node_start[block + 1]):
            for x in range(state_start[groups.node[v]], state_start[groups.node[v] + 1]):
                d_nodes[x] = own[state]
                state += 1
    return value
