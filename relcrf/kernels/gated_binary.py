"""Belief propagation on gated pairs of binary nodes, and its adjoint, with messages as log odds.

A pair has a table t of log potentials, which is multiplied by the pair's gate g. The *total* of a node is the log odds
of its potential plus its incoming messages. The *cavity* of a node for a pair is the total minus the pair's message.
With E = exp(cavity of the first node), the message of the pair to the second node is

    log(a (1 + E b r) / (1 + E b)),    a = exp(g (t01 - t00)), b = exp(g (t10 - t00)), r = exp(g (t00 - t01 - t10 + t11)).

In the message to the first node, a and b are exchanged, and E is computed from the second node. The kernels compute
a, b and r once for all iterations. For the backward pass they store E of every iteration.

`gated_layout` assigns each pair to a *slot*, and the slots to *blocks* of whole components. `LANES` slots form a
*chunk*: a contiguous range of memory with a *row* of `LANES` numbers for each quantity. The offsets of the rows are
compile-time constants, so that the compiler needs no overlap checks and vectorises every loop over lanes. Totals are
gathered and scattered one by one, except those of consecutive nodes, which occur in the bundles of `gated_layout`.

These formulas have no published source; `gated_pairs` cites the source of the method.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import float32, float64, int64, types

from relcrf.kernels.compile import kernel, read_only
from relcrf.kernels.gated_layout import GROUP_SIZE, LANES, SLOTS, PairSlots
from relcrf.kernels.gated_losses import LOSS, evaluate_binary_loss
from relcrf.kernels.vector_math import exp, exp_like, log_like
from relcrf.kernels.vectors import make_loader, store

A, B, R, TO_FIRST, TO_SECOND, D_A, D_B, D_R = (lanes * LANES for lanes in range(8))
"""Offsets of the rows of a chunk: a, b, r, the messages to the first and the second node, and derivatives.

The last three rows contain the derivatives with respect to log a, log b and log r. In the backward pass, the message
rows contain derivatives with respect to messages, and then derivatives with respect to the cavities of the same nodes.
"""
CHUNK_SIZE = 8 * LANES

U = np.uint64
"""Unsigned type of loop indices; signed indices would prevent vectorisation (see `forest.py`)."""

MAX_RANGE32, MAX_RANGE64 = 13.0, 150.0
"""Maximum of |gate * (difference of two cells in a row or column)|; all results are then normal numbers."""
MAX_CAVITY32, MAX_CAVITY64 = MAX_RANGE32 + 17.0, MAX_RANGE64 + 38.0
"""Maximum absolute value of cavities; larger cavities are clipped.

1 + exp(-17) in float32 and 1 + exp(-38) in float64 round to 1. A cavity that exceeds all differences of a gated table
by 17 or 38, respectively, therefore gives the same message as any larger cavity.
"""

FASTMATH_OPTIONS: dict[str, Any] = {"fastmath": {"contract"}}
"""Compiler options of all kernels below: a multiplication and an addition may be fused."""

inline_kernel = kernel(**FASTMATH_OPTIONS, _nrt=False, forceinline=True)
"""Decorator of inlined functions without reference counting; a call would take as long as the function's arithmetic."""

_load = make_loader(GROUP_SIZE)


@inline_kernel
def _initialise_pairs(slots, block, contrasts, gate, work):
    """Compute a, b and r of all pairs of a block, and set all messages to 0 (uniform)."""
    lo, n = U(slots.slot_start[block]), U(slots.slot_start[block + 1] - slots.slot_start[block])
    zero = work.dtype.type(0)
    for s in range(U(0), n, U(LANES)):
        o = s * U(8)
        for i in range(U(LANES)):
            pair = U(slots.pair[lo + s + i])
            g = gate[pair]
            c = U(3) * U(slots.table_of[pair])
            work[o + i] = g * contrasts[c]
            work[o + U(B) + i] = g * contrasts[c + U(1)]
            work[o + U(R) + i] = g * contrasts[c + U(2)]
        for i in range(U(TO_FIRST)):
            work[o + i] = exp_like(work[o + i])
        for i in range(U(TO_FIRST), U(CHUNK_SIZE)):
            work[o + i] = zero


@inline_kernel
def _compute_cavities(slots, s, o, total, work, out, e):
    """Write the cavities of a chunk to `out[e:]`: first a row for the first nodes, then a row for the second nodes."""
    for k in range(U(0), U(LANES), U(GROUP_SIZE)):
        if slots.contiguous[(s + k) // U(GROUP_SIZE)]:
            first, second = U(slots.first[s + k]), U(slots.second[s + k])
            store(out, e + k, _load(total, first) - _load(work, o + U(TO_FIRST) + k))
            store(out, e + U(LANES) + k, _load(total, second) - _load(work, o + U(TO_SECOND) + k))
        else:
            for i in range(k, k + U(GROUP_SIZE)):
                out[e + i] = total[U(slots.first[s + i])] - work[o + U(TO_FIRST) + i]
                out[e + U(LANES) + i] = total[U(slots.second[s + i])] - work[o + U(TO_SECOND) + i]


@inline_kernel
def _add_to_nodes(slots, s, o, work, total):
    """Add the two message rows of a chunk to the totals of the first and the second nodes."""
    for k in range(U(0), U(LANES), U(GROUP_SIZE)):
        if slots.contiguous[(s + k) // U(GROUP_SIZE)]:
            first, second = U(slots.first[s + k]), U(slots.second[s + k])
            store(total, first, _load(total, first) + _load(work, o + U(TO_FIRST) + k))
            store(total, second, _load(total, second) + _load(work, o + U(TO_SECOND) + k))
        else:
            for i in range(k, k + U(GROUP_SIZE)):
                total[U(slots.first[s + i])] += work[o + U(TO_FIRST) + i]
                total[U(slots.second[s + i])] += work[o + U(TO_SECOND) + i]


@inline_kernel
def _compute_messages(o, e, max_cavity, odds, work):
    """Compute the new messages of a chunk from the cavities in `odds[e:]`; replace each cavity by its exponential."""
    one = work.dtype.type(1)
    for i in range(U(2 * LANES)):
        c = odds[e + i]
        c = c if c < max_cavity else max_cavity
        c = c if c > -max_cavity else -max_cavity
        odds[e + i] = exp_like(c)
    for i in range(U(LANES)):
        x, y = odds[e + i], odds[e + U(LANES) + i]
        a, b, r = work[o + i], work[o + U(B) + i], work[o + U(R) + i]
        x_b, y_a = x * b, y * a
        without_x, without_y = one + x_b, one + y_a
        inverse = one / (without_x * without_y)
        work[o + U(TO_SECOND) + i] = log_like(a * ((one + x_b * r) * (without_y * inverse)))
        work[o + U(TO_FIRST) + i] = log_like(b * ((one + y_a * r) * (without_x * inverse)))


@inline_kernel
def _backpropagate_messages(o, e, odds, work):
    """Convert a chunk's derivatives w.r.t. messages to derivatives w.r.t. cavities, log a, log b and log r."""
    one = work.dtype.type(1)
    for i in range(U(LANES)):
        x, y = odds[e + i], odds[e + U(LANES) + i]
        a, b, r = work[o + i], work[o + U(B) + i], work[o + U(R) + i]
        to_first, to_second = work[o + U(TO_FIRST) + i], work[o + U(TO_SECOND) + i]
        x_b, y_a = x * b, y * a
        without_x, without_y = one + x_b, one + y_a
        to_second_x = to_second * x_b / (without_x * (one + x_b * r))
        to_first_y = to_first * y_a / (without_y * (one + y_a * r))
        from_first, from_second = to_second_x * (r - one), to_first_y * (r - one)
        work[o + U(D_A) + i] += to_second + from_second
        work[o + U(D_B) + i] += to_first + from_first
        work[o + U(D_R) + i] += r * (to_second_x * without_x + to_first_y * without_y)
        work[o + U(TO_FIRST) + i] = from_first
        work[o + U(TO_SECOND) + i] = from_second


@inline_kernel
def copy(n, source, out):
    """Copy the first n entries of an array to another array."""
    for i in range(U(n)):
        out[i] = source[i]


@inline_kernel
def _forward(
    slots, block, n_nodes, contrasts, gate, n_iterations, store_all, max_cavity, base, total, next_total, odds, work
):
    """Run all iterations of a block.

    Args:
        n_nodes: number of nodes of the block, including the dummy node to which empty slots refer.
        store_all: 1 to store exp(cavity) of every iteration in `odds`, 0 to store only the last iteration.
        max_cavity: maximum absolute value of cavities.
        base: log odds of each node's potential.
        total, next_total: overwritten, same shape as `base`; on return, `total` is the final total of each node.
    """
    _initialise_pairs(slots, block, contrasts, gate, work)
    lo, n = U(slots.slot_start[block]), U(slots.slot_start[block + 1] - slots.slot_start[block])
    copy(n_nodes, base, total)
    for t in range(n_iterations):
        copy(n_nodes, base, next_total)
        for s in range(U(0), n, U(LANES)):
            o, e = U(8) * s, U(2) * (U(t * store_all) * n + s)
            _compute_cavities(slots, lo + s, o, total, work, odds, e)
            _compute_messages(o, e, max_cavity, odds, work)
            _add_to_nodes(slots, lo + s, o, work, next_total)
        copy(n_nodes, next_total, total)


@inline_kernel
def _backward(slots, block, n_nodes, n_iterations, d_base, d_total, next_total, odds, work):
    """Compute derivatives w.r.t. potentials (`d_base`), log a, b and r from those w.r.t. final totals (`d_total`)."""
    lo, n = U(slots.slot_start[block]), U(slots.slot_start[block + 1] - slots.slot_start[block])
    zero = work.dtype.type(0)
    for s in range(U(0), n, U(LANES)):
        for i in range(U(TO_FIRST), U(D_A)):
            work[U(8) * s + i] = zero
    copy(n_nodes, d_total, d_base)
    for t in range(n_iterations - 1, -1, -1):
        for v in range(U(n_nodes)):
            next_total[v] = zero
        for s in range(U(0), n, U(LANES)):
            o = U(8) * s
            _compute_cavities(slots, lo + s, o, d_total, work, work, o + U(TO_FIRST))
            _backpropagate_messages(o, U(2) * (U(t) * n + s), odds, work)
            _add_to_nodes(slots, lo + s, o, work, next_total)
        for v in range(U(n_nodes)):
            d_base[v] += next_total[v]
            d_total[v] = next_total[v]


@inline_kernel
def _max_length(start, lo, hi):
    n = 0
    for block in range(lo, hi):
        n = max(n, start[block + 1] - start[block])
    return n


@inline_kernel
def _load_node_odds(slots, block, nodes, base):
    """Write the log odds of a block's node potentials to `base`, with 0 for the dummy node; return the length."""
    n = slots.node_start[block + 1] - slots.node_start[block]
    for v in range(n):
        state = 2 * slots.node[slots.node_start[block] + v]
        base[v] = nodes[state + 1] - nodes[state]
    base[n] = 0.0
    return n + 1


def scratch_size(slots: PairSlots, n_iterations: int) -> int:
    """Return the length of the scratch array of kernels that store the cavities of `n_iterations` iterations."""
    return int(np.diff(slots.slot_start).max(initial=0)) * (8 + 2 * max(n_iterations, 1))


class BinaryNetwork(NamedTuple):
    """Gated pairs of binary nodes; all real arrays have the same type, float32 or float64.

    Args:
        slots: the pairs, in the order in which they are processed.
        nodes: two log potentials of each node, flat, shape (2 * n_nodes,); at most one of the two is -inf.
        contrasts: log a, log b and log r of each table for gate 1, flat, shape (3 * n_tables,).
        gate: gate of each pair, shape (n_pairs,).
        n_iterations: number of iterations, 0 or more.
    """

    slots: PairSlots
    nodes: np.ndarray
    contrasts: np.ndarray
    gate: np.ndarray
    n_iterations: int


def _network_type(real: Any) -> Any:
    array = read_only(real[::1])
    return types.NamedTuple([SLOTS, array, array, array, int64], BinaryNetwork)


@kernel(*((int64, int64, _network_type(real), real[::1], real[::1]) for real in (float32, float64)), **FASTMATH_OPTIONS)
def propagate_blocks(lo, hi, network, scratch, beliefs):
    """Compute the beliefs of blocks lo..hi-1; for `scratch`, see `scratch_size`."""
    slots, nodes, contrasts, gate = network.slots, network.nodes, network.contrasts, network.gate
    n_slots = _max_length(slots.slot_start, lo, hi)
    work, odds = scratch[: 8 * n_slots], scratch[8 * n_slots :]
    base = np.empty(_max_length(slots.node_start, lo, hi) + 1, nodes.dtype)
    total, next_total = np.empty_like(base), np.empty_like(base)
    max_cavity = nodes.dtype.type(MAX_CAVITY32 if nodes.itemsize == 4 else MAX_CAVITY64)
    for block in range(lo, hi):
        n = _load_node_odds(slots, block, nodes, base)
        _forward(
            slots, block, n, contrasts, gate, network.n_iterations, 0, max_cavity, base, total, next_total, odds, work
        )
        for v in range(n - 1):
            state = 2 * slots.node[slots.node_start[block] + v]
            ratio = exp(-abs(float64(total[v])))
            less_likely = 1 if total[v] < 0 else 0
            beliefs[state + less_likely] = ratio / (1.0 + ratio)
            beliefs[state + 1 - less_likely] = 1.0 / (1.0 + ratio)


@kernel(
    *(
        (int64, int64, _network_type(real), real[::1], LOSS, real[::1], float64[::1], int64, real[::1], real[::1])
        for real in (float32, float64)
    ),
    **FASTMATH_OPTIONS,
)
def differentiate_blocks(lo, hi, network, scratch, loss, d_nodes, d_contrasts, origin, d_gate, beliefs):
    """Compute the beliefs of blocks lo..hi-1, the loss of these beliefs, and the derivatives of the loss.

    Args:
        scratch: overwritten; for its length, see `scratch_size`.
        loss: see `BeliefLoss`.
        d_nodes, d_gate, beliefs: derivatives by node potentials and gates, and beliefs; overwritten for these blocks.
        d_contrasts: the derivatives by the contrasts of table t are added to entries 3 * t - origin and the next two.

    Returns:
        The total loss of the blocks' nodes.
    """
    slots, nodes, contrasts, gate = network.slots, network.nodes, network.contrasts, network.gate
    n_iterations, n_slots = network.n_iterations, _max_length(slots.slot_start, lo, hi)
    work, odds = scratch[: 8 * n_slots], scratch[8 * n_slots :]
    base = np.empty(_max_length(slots.node_start, lo, hi) + 1, nodes.dtype)
    total, next_total = np.empty_like(base), np.empty_like(base)
    max_cavity = nodes.dtype.type(MAX_CAVITY32 if nodes.itemsize == 4 else MAX_CAVITY64)
    value = 0.0
    for block in range(lo, hi):
        n = _load_node_odds(slots, block, nodes, base)
        _forward(slots, block, n, contrasts, gate, n_iterations, 1, max_cavity, base, total, next_total, odds, work)
        for v in range(n - 1):
            node = slots.node[slots.node_start[block] + v]
            node_loss, slope, small = evaluate_binary_loss(loss, node, 2 * node, float64(total[v]))
            less_likely = 1 if total[v] < 0 else 0
            beliefs[2 * node + less_likely] = small
            beliefs[2 * node + 1 - less_likely] = 1.0 - small
            value += node_loss
            total[v] = slope
        total[n - 1] = 0.0
        _backward(slots, block, n, n_iterations, base, total, next_total, odds, work)
        for v in range(n - 1):
            node = slots.node[slots.node_start[block] + v]
            d_nodes[2 * node] = -base[v]
            d_nodes[2 * node + 1] = base[v]
        _add_derivatives(slots, block, contrasts, gate, work, d_contrasts, U(origin), d_gate)
    return value


@inline_kernel
def _add_derivatives(slots, block, contrasts, gate, work, d_contrasts, origin, d_gate):
    """Compute derivatives with respect to gates and contrasts from those with respect to log a, log b and log r."""
    lo, n_pairs = U(slots.slot_start[block]), U(slots.pair_start[block + 1] - slots.pair_start[block])
    for s in range(U(0), n_pairs, U(GROUP_SIZE)):
        o = s // U(LANES) * U(CHUNK_SIZE) + s % U(LANES)
        if slots.shared_table[(lo + s) // U(GROUP_SIZE)] and s + U(GROUP_SIZE) <= n_pairs:
            c = U(3) * U(slots.table_of[U(slots.pair[lo + s])])
            d_a, d_b, d_r = 0.0, 0.0, 0.0
            for i in range(U(GROUP_SIZE)):
                pair = U(slots.pair[lo + s + i])
                g = gate[pair]
                d_gate[pair] = _gate_derivative(contrasts, c, work, o + i)
                d_a += g * work[o + U(D_A) + i]
                d_b += g * work[o + U(D_B) + i]
                d_r += g * work[o + U(D_R) + i]
            d_contrasts[c - origin] += d_a
            d_contrasts[c - origin + U(1)] += d_b
            d_contrasts[c - origin + U(2)] += d_r
        else:
            for i in range(min(U(GROUP_SIZE), n_pairs - s)):
                pair = U(slots.pair[lo + s + i])
                c, g = U(3) * U(slots.table_of[pair]), gate[pair]
                d_gate[pair] = _gate_derivative(contrasts, c, work, o + i)
                d_contrasts[c - origin] += g * work[o + U(D_A) + i]
                d_contrasts[c - origin + U(1)] += g * work[o + U(D_B) + i]
                d_contrasts[c - origin + U(2)] += g * work[o + U(D_R) + i]


@inline_kernel
def _gate_derivative(contrasts, c, work, at):
    return (
        work[at + U(D_A)] * contrasts[c]
        + work[at + U(D_B)] * contrasts[c + U(1)]
        + work[at + U(D_R)] * contrasts[c + U(2)]
    )
