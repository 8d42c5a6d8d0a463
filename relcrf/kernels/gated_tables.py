"""Belief propagation on gated pairs of nodes of any cardinality, and its adjoint; log messages in float64.

Every log-sum-exp subtracts its largest term, so that log potentials of any size are supported. The *total* of a node is
its log potential plus its incoming messages. For the backward pass, the messages and totals of each iteration are
stored; the terms of each log-sum-exp are recomputed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import float64, int64, types

from relcrf.kernels.compile import kernel, read_only
from relcrf.kernels.gated_layout import SLOTS, PairSlots
from relcrf.kernels.gated_losses import LOSS, evaluate_loss
from relcrf.kernels.vector_math import exp

READ_ONLY_FLAT, FLAT, INDEX = read_only(float64[::1]), float64[::1], read_only(int64[::1])


class TableNetwork(NamedTuple):
    """Gated pairs of nodes of any cardinality; all real arrays are float64.

    Args:
        slots: the pairs, in the order in which they are processed.
        state_start, table_start: offset of each node's states, and of each table.
        nodes, tables: log potentials, flat; those of nodes may be -inf, but each node has a finite one.
        gate: gate of each pair, shape (n_pairs,).
        n_iterations: number of iterations, 0 or more.
    """

    slots: PairSlots
    state_start: np.ndarray
    table_start: np.ndarray
    nodes: np.ndarray
    tables: np.ndarray
    gate: np.ndarray
    n_iterations: int


NETWORK = types.NamedTuple([SLOTS, INDEX, INDEX, READ_ONLY_FLAT, READ_ONLY_FLAT, READ_ONLY_FLAT, int64], TableNetwork)


class BlockOffsets(NamedTuple):
    """The offsets of a block's node states and pair messages.

    Args:
        state: offset of each node's states, shape (number of the block's nodes + 1,), int64.
        message: offset of each pair's two messages (to the first node, then to the second node), shape (number of the
            block's pairs + 1,), int64.
    """

    state: np.ndarray
    message: np.ndarray


@kernel()
def _compute_offsets(network, block):
    slots, state_start = network.slots, network.state_start
    n_nodes = slots.node_start[block + 1] - slots.node_start[block]
    n_pairs = slots.pair_start[block + 1] - slots.pair_start[block]
    state, message = np.zeros(n_nodes + 1, np.int64), np.zeros(n_pairs + 1, np.int64)
    for v in range(n_nodes):
        node = slots.node[slots.node_start[block] + v]
        state[v + 1] = state[v] + state_start[node + 1] - state_start[node]
    for p in range(n_pairs):
        first, second = slots.first[slots.slot_start[block] + p], slots.second[slots.slot_start[block] + p]
        size = state[first + 1] - state[first] + state[second + 1] - state[second]
        message[p + 1] = message[p] + size
    return BlockOffsets(state, message)


@kernel()
def _load_node_potentials(network, block, offsets):
    """Return the log potentials of a block's nodes, flat."""
    slots, out = network.slots, np.empty(offsets.state[-1])
    for v in range(len(offsets.state) - 1):
        source = network.state_start[slots.node[slots.node_start[block] + v]]
        for x in range(offsets.state[v + 1] - offsets.state[v]):
            out[offsets.state[v] + x] = network.nodes[source + x]
    return out


@kernel()
def _compute_message(cavity, gate, table, step, other_step, out):
    """Set `out[y]` to the log of the sum over x of exp(cavity[x] + gate * table[x * step + y * other_step])."""
    for y in range(len(out)):
        top = -np.inf
        for x in range(len(cavity)):
            top = max(top, cavity[x] + gate * table[x * step + y * other_step])
        total = 0.0
        for x in range(len(cavity)):
            total += exp(cavity[x] + gate * table[x * step + y * other_step] - top)
        out[y] = top + np.log(total)


@kernel()
def _backpropagate_message(cavity, gate, table, step, other_step, out, d_out, d_cavity, d_table):
    """Compute the adjoint of `_compute_message`: set `d_cavity`, add to `d_table`, and return the gate's derivative."""
    _compute_message(cavity, gate, table, step, other_step, out)
    d_gate = 0.0
    for x in range(len(cavity)):
        d_cavity[x] = 0.0
        for y in range(len(out)):
            cell = x * step + y * other_step
            d_term = d_out[y] * exp(cavity[x] + gate * table[cell] - out[y])
            d_cavity[x] += d_term
            d_gate += d_term * table[cell]
            d_table[cell] += d_term * gate
    return d_gate


@kernel()
def _locate_pair(network, block, offsets, p):
    """Return the index of a block's pair p, the offsets of its nodes, messages and table, and its cardinalities."""
    slots = network.slots
    slot = slots.slot_start[block] + p
    first, second = slots.first[slot], slots.second[slot]
    k, n = offsets.state[first + 1] - offsets.state[first], offsets.state[second + 1] - offsets.state[second]
    pair, to_first = slots.pair[slot], offsets.message[p]
    cell = network.table_start[slots.table_of[pair]]
    return pair, offsets.state[first], offsets.state[second], to_first, to_first + k, cell, k, n


@kernel()
def _compute_cavity(total, message, state_offset, message_offset, k, out):
    for x in range(k):
        out[x] = total[state_offset + x] - message[message_offset + x]


@kernel()
def _subtract_max(message):
    """Subtract the largest entry from all entries."""
    top = message.max()
    for x in range(len(message)):
        message[x] -= top


@kernel()
def _forward(network, block, offsets, own, totals, messages, cavity):
    """Run all iterations of a block.

    Args:
        own: log potentials of the block's nodes.
        cavity: scratch, as long as the largest cardinality.
        totals, messages: overwritten; row t modulo the number of rows contains the values after iteration t.

    Returns:
        The index of the row with the values after the last iteration.
    """
    n_rows, gate = len(totals), network.gate
    totals[0] = own
    messages[0] = 0.0
    for t in range(network.n_iterations):
        total, message = totals[t % n_rows], messages[t % n_rows]
        next_total, new = totals[(t + 1) % n_rows], messages[(t + 1) % n_rows]
        next_total[:] = own
        for p in range(len(offsets.message) - 1):
            pair, first, second, to_first, to_second, cell, k, n = _locate_pair(network, block, offsets, p)
            table = network.tables[cell : cell + k * n]
            _compute_cavity(total, message, first, to_first, k, cavity)
            _compute_message(cavity[:k], gate[pair], table, n, 1, new[to_second : to_second + n])
            _compute_cavity(total, message, second, to_second, n, cavity)
            _compute_message(cavity[:n], gate[pair], table, 1, n, new[to_first : to_first + k])
            _subtract_max(new[to_second : to_second + n])
            _subtract_max(new[to_first : to_first + k])
            for x in range(k):
                next_total[first + x] += new[to_first + x]
            for y in range(n):
                next_total[second + y] += new[to_second + y]
    return network.n_iterations % n_rows


@kernel()
def _backward(network, block, offsets, totals, messages, d_own, scratch, d_tables, origin, d_gate):
    """Compute derivatives with respect to node potentials, tables and gates.

    Args:
        d_own: derivatives w.r.t. the final node totals; overwritten by derivatives w.r.t. the log potentials of nodes.
        scratch: shape (3, largest cardinality).
    """
    d_total, next_d_total = d_own.copy(), np.empty_like(d_own)
    d_message = np.zeros(offsets.message[-1])
    for t in range(network.n_iterations - 1, -1, -1):
        next_d_total[:] = 0.0
        for p in range(len(offsets.message) - 1):
            pair, first, second, to_first, to_second, cell, k, n = _locate_pair(network, block, offsets, p)
            table, d_table = network.tables[cell : cell + k * n], d_tables[cell - origin : cell - origin + k * n]
            by_first, by_second = d_message[to_first : to_first + k], d_message[to_second : to_second + n]
            for x in range(k):
                by_first[x] = d_total[first + x] - by_first[x]
            for y in range(n):
                by_second[y] = d_total[second + y] - by_second[y]
            _compute_cavity(totals[t], messages[t], first, to_first, k, scratch[0])
            g = network.gate[pair]
            d_gate[pair] += _backpropagate_message(
                scratch[0, :k], g, table, n, 1, scratch[1, :n], by_second, scratch[2, :k], d_table
            )
            _compute_cavity(totals[t], messages[t], second, to_second, n, scratch[0])
            d_gate[pair] += _backpropagate_message(
                scratch[0, :n], g, table, 1, n, scratch[1, :k], by_first, by_second, d_table
            )
            by_first[:] = scratch[2, :k]
            for x in range(k):
                next_d_total[first + x] += by_first[x]
            for y in range(n):
                next_d_total[second + y] += by_second[y]
        d_total[:] = next_d_total
        d_own += next_d_total


@kernel()
def normalise(logs, beliefs):
    """Normalise log beliefs in place, so that their exponentials sum to 1; write the exponentials to `beliefs`."""
    _subtract_max(logs)
    total = 0.0
    for x in range(len(logs)):
        total += exp(logs[x])
    log_total = np.log(total)
    for x in range(len(logs)):
        logs[x] -= log_total
        beliefs[x] = exp(logs[x])


@kernel()
def _max_cardinality(state_start):
    k = 0
    for v in range(len(state_start) - 1):
        k = max(k, state_start[v + 1] - state_start[v])
    return k


@kernel((int64, int64, NETWORK, FLAT))
def propagate_blocks(lo, hi, network, beliefs):
    """Compute the beliefs of blocks lo..hi-1."""
    slots, state_start = network.slots, network.state_start
    cavity = np.empty(_max_cardinality(state_start))
    for block in range(lo, hi):
        offsets = _compute_offsets(network, block)
        own = _load_node_potentials(network, block, offsets)
        totals, messages = np.empty((2, len(own))), np.empty((2, offsets.message[-1]))
        logs = totals[_forward(network, block, offsets, own, totals, messages, cavity)]
        for v in range(len(offsets.state) - 1):
            node = slots.node[slots.node_start[block] + v]
            node_states = slice(offsets.state[v], offsets.state[v + 1])
            normalise(logs[node_states], beliefs[state_start[node] : state_start[node + 1]])


@kernel((int64, int64, NETWORK, LOSS, FLAT, FLAT, int64, FLAT, FLAT))
def differentiate_blocks(lo, hi, network, loss, d_nodes, d_tables, origin, d_gate, beliefs):
    """Compute the beliefs of blocks lo..hi-1, the loss of these beliefs, and the derivatives of the loss.

    Args:
        loss: see `BeliefLoss`.
        d_nodes, beliefs: derivatives w.r.t. node potentials, and beliefs; overwritten for the nodes of these blocks.
        d_tables: the derivatives with respect to tables are added to it; cell c of the tables has index c - origin.
        d_gate: the derivatives with respect to gates are added to it.

    Returns:
        The total loss of the blocks' nodes.
    """
    slots, state_start, n_iterations = network.slots, network.state_start, network.n_iterations
    scratch = np.empty((3, _max_cardinality(state_start)))
    value = 0.0
    for block in range(lo, hi):
        offsets = _compute_offsets(network, block)
        own = _load_node_potentials(network, block, offsets)
        totals = np.empty((n_iterations + 1, len(own)))
        messages = np.empty((n_iterations + 1, offsets.message[-1]))
        _forward(network, block, offsets, own, totals, messages, scratch[0])
        for v in range(len(offsets.state) - 1):
            node, node_states = slots.node[slots.node_start[block] + v], slice(offsets.state[v], offsets.state[v + 1])
            start, logs = state_start[node], totals[n_iterations, node_states]
            belief = beliefs[start : state_start[node + 1]]
            normalise(logs, belief)
            value += evaluate_loss(loss, node, start, belief, logs, own[node_states])
        _backward(network, block, offsets, totals, messages, own, scratch, d_tables, origin, d_gate)
        for v in range(len(offsets.state) - 1):
            start = state_start[slots.node[slots.node_start[block] + v]]
            for x in range(offsets.state[v + 1] - offsets.state[v]):
                d_nodes[start + x] = own[offsets.state[v] + x]
    return value
