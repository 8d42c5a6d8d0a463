"""Propagation through gated pairs of binary nodes, and its adjoint: every message is one number, a difference of logs.

What a pair with log potentials g t says to its second node is, with E = exp(cavity of the first node),

    log(a (1 + E b r) / (1 + E b)),    a = exp(g (t01 - t00)), b = exp(g (t10 - t00)), r = exp(g (t00 - t01 - t10 + t11)),

and to its first the same with a and b exchanged. These three are made once for all iterations; of an iteration only E is kept
for the way back. `LANES` pairs stand beside each other in *rows*, each row of one quantity; a chunk of them is one stretch of
memory, whose offsets the compiler knows: it needs no test of whether rows overlap, and every loop over lanes is vectorised.
Sums of nodes are taken and added to one by one, but where nodes follow each other, as in bundles (see `gated_layout`).

Source: the formulas and their adjoint are our own; the method, see `gated_pairs`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import float32, float64, int64, types

from relcrf.kernels.compile import kernel, read_only
from relcrf.kernels.gated_layout import LANES, SLOTS, PairSlots
from relcrf.kernels.gated_losses import LOSS, evaluate_binary_loss
from relcrf.kernels.lane_vectors import GROUP_SIZE, add_group, subtract_group
from relcrf.kernels.vector_math import exp, exp_like, log_like

A, B, R, TO_FIRST, TO_SECOND, D_A, D_B, D_R = (lanes * LANES for lanes in range(8))
"""Where the rows of a chunk begin. Those of the messages have on the way back the derivatives by them, then those by the
cavities of the same ends; the last three have the derivatives by log a, log b and log r."""
CHUNK_SIZE = 8 * LANES

U = np.uint64
"""Indices without a sign; see `forest.py`."""

MAX_RANGE32, MAX_RANGE64 = 13.0, 150.0
"""Differences between two cells of a row or column, times the gate, up to which all that is made here is a normal number."""
MAX_CAVITY32, MAX_CAVITY64 = MAX_RANGE32 + 17.0, MAX_RANGE64 + 38.0
"""Cavities are cut off here. 1 + exp(-17) or 1 + exp(-38) is 1: a cavity so far beyond all differences of a table makes the
same message as one farther away."""

FASTMATH_OPTIONS: dict[str, Any] = {"fastmath": {"contract"}}
"""Of all that follow: products may be joined with sums."""

inline_kernel = kernel(**FASTMATH_OPTIONS, _nrt=False, forceinline=True)
"""Put into what calls it, with no references counted: else the calls take as long as the work."""


@inline_kernel
def _initialise_pairs(slots, block, contrasts, gate, work):
    """Makes a, b and r of a block's pairs; messages are uniform."""
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
    """Of a chunk, what each end's node has in all but from this pair: the first ends' to `out[e:]`, then the others'."""
    for k in range(U(0), U(LANES), U(GROUP_SIZE)):
        if slots.in_step[(s + k) // U(GROUP_SIZE)]:
            subtract_group(total, U(slots.first[s + k]), work, o + U(TO_FIRST) + k, out, e + k)
            subtract_group(total, U(slots.second[s + k]), work, o + U(TO_SECOND) + k, out, e + U(LANES) + k)
        else:
            for i in range(k, k + U(GROUP_SIZE)):
                out[e + i] = total[U(slots.first[s + i])] - work[o + U(TO_FIRST) + i]
                out[e + U(LANES) + i] = total[U(slots.second[s + i])] - work[o + U(TO_SECOND) + i]


@inline_kernel
def _add_to_nodes(slots, s, o, work, total):
    """Adds the rows of a chunk's ends to their nodes."""
    for k in range(U(0), U(LANES), U(GROUP_SIZE)):
        if slots.in_step[(s + k) // U(GROUP_SIZE)]:
            add_group(total, U(slots.first[s + k]), work, o + U(TO_FIRST) + k)
            add_group(total, U(slots.second[s + k]), work, o + U(TO_SECOND) + k)
        else:
            for i in range(k, k + U(GROUP_SIZE)):
                total[U(slots.first[s + i])] += work[o + U(TO_FIRST) + i]
                total[U(slots.second[s + i])] += work[o + U(TO_SECOND) + i]


@inline_kernel
def _compute_messages(o, e, most, odds, work):
    """New messages of a chunk from its cavities in `odds[e:]`, in whose place their exponentials are left."""
    one = work.dtype.type(1)
    for i in range(U(2 * LANES)):
        c = odds[e + i]
        c = c if c < most else most
        c = c if c > -most else -most
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
    """From the derivatives by a chunk's messages those by its cavities, in the same rows, and by log a, log b and log r."""
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
def _copy(n, source, out):
    for i in range(U(n)):
        out[i] = source[i]


@inline_kernel
def _forward(slots, block, n_nodes, contrasts, gate, n_iterations, kept, most, base, total, following, odds, work):  # fmt: skip
    """All iterations of a block; what its nodes have in the end is left in `total`.

    Args:
        n_nodes: of the block, with the one that empty slots are of.
        kept: 1 where `odds` is to have every iteration's cavities, else 0.
        base: the odds of each of the block's nodes alone. total, following: overwritten, as long.
    """
    _initialise_pairs(slots, block, contrasts, gate, work)
    lo, n = U(slots.slot_start[block]), U(slots.slot_start[block + 1] - slots.slot_start[block])
    _copy(n_nodes, base, total)
    for t in range(n_iterations):
        _copy(n_nodes, base, following)
        for s in range(U(0), n, U(LANES)):
            o, e = U(8) * s, U(2) * (U(t * kept) * n + s)
            _compute_cavities(slots, lo + s, o, total, work, odds, e)
            _compute_messages(o, e, most, odds, work)
            _add_to_nodes(slots, lo + s, o, work, following)
        _copy(n_nodes, following, total)


@inline_kernel
def _backward(slots, block, n_nodes, n_iterations, d_base, d_total, following, odds, work):
    """From the derivatives by what nodes have in the end, in `d_total`, those by their own odds, and those of `_backpropagate_messages`."""
    lo, n = U(slots.slot_start[block]), U(slots.slot_start[block + 1] - slots.slot_start[block])
    zero = work.dtype.type(0)
    for s in range(U(0), n, U(LANES)):
        for i in range(U(TO_FIRST), U(D_A)):
            work[U(8) * s + i] = zero
    _copy(n_nodes, d_total, d_base)
    for t in range(n_iterations - 1, -1, -1):
        for v in range(U(n_nodes)):
            following[v] = zero
        for s in range(U(0), n, U(LANES)):
            o = U(8) * s
            _compute_cavities(slots, lo + s, o, d_total, work, work, o + U(TO_FIRST))
            _backpropagate_messages(o, U(2) * (U(t) * n + s), odds, work)
            _add_to_nodes(slots, lo + s, o, work, following)
        for v in range(U(n_nodes)):
            d_base[v] += following[v]
            d_total[v] = following[v]


@inline_kernel
def _max_length(start, lo, hi):
    n = 0
    for block in range(lo, hi):
        n = max(n, start[block + 1] - start[block])
    return n


@inline_kernel
def _load_node_odds(slots, block, nodes, base):
    """The block's nodes' own odds, and 0 for the node that empty slots are of. Returns how many there are, with that one."""
    n = slots.node_start[block + 1] - slots.node_start[block]
    for v in range(n):
        state = 2 * slots.node[slots.node_start[block] + v]
        base[v] = nodes[state + 1] - nodes[state]
    base[n] = 0.0
    return n + 1


def scratch_size(slots: PairSlots, n_iterations: int) -> int:
    """How many numbers the kernels below need for their work, if they keep the cavities of so many iterations, 1 at least."""
    return int(np.diff(slots.slot_start).max(initial=0)) * (8 + 2 * max(n_iterations, 1))


class BinaryNetwork(NamedTuple):
    """Gated pairs of binary nodes; all arrays of real numbers are float32 or all are float64.

    Args:
        nodes: log potentials, shape (2 * n_nodes,); one of a node's two may be -inf.
        contrasts: the logs of a, b and r of each table at gate 1, flat, shape (3 * n_tables,).
        gate: shape (n_pairs,).
        n_iterations: 0 or more.
    """

    slots: PairSlots
    nodes: np.ndarray
    contrasts: np.ndarray
    gate: np.ndarray
    n_iterations: int


def _network_type(real: Any) -> Any:
    given = read_only(real[::1])
    return types.NamedTuple([SLOTS, given, given, given, int64], BinaryNetwork)


@kernel(*((int64, int64, _network_type(real), real[::1], real[::1]) for real in (float32, float64)), **FASTMATH_OPTIONS)
def propagate_blocks(lo, hi, network, room, beliefs):
    """Compute the beliefs of blocks lo..hi-1; see `scratch_size`."""
    slots, nodes, contrasts, gate = network.slots, network.nodes, network.contrasts, network.gate
    n_slots = _max_length(slots.slot_start, lo, hi)
    work, odds = room[: 8 * n_slots], room[8 * n_slots :]
    base = np.empty(_max_length(slots.node_start, lo, hi) + 1, nodes.dtype)
    total, following = np.empty_like(base), np.empty_like(base)
    most = nodes.dtype.type(MAX_CAVITY32 if nodes.itemsize == 4 else MAX_CAVITY64)
    for block in range(lo, hi):
        n = _load_node_odds(slots, block, nodes, base)
        _forward(slots, block, n, contrasts, gate, network.n_iterations, 0, most, base, total, following, odds, work)
        for v in range(n - 1):
            state = 2 * slots.node[slots.node_start[block] + v]
            small = exp(-abs(float64(total[v])))
            low = 1 if total[v] < 0 else 0
            beliefs[state + low] = small / (1.0 + small)
            beliefs[state + 1 - low] = 1.0 / (1.0 + small)


@kernel(
    *(
        (int64, int64, _network_type(real), real[::1], LOSS, real[::1], float64[::1], int64, real[::1], real[::1])
        for real in (float32, float64)
    ),
    **FASTMATH_OPTIONS,
)
def differentiate_blocks(lo, hi, network, room, loss, d_nodes, d_contrasts, origin, d_gate, beliefs):
    """Compute the beliefs of blocks lo..hi-1, their loss, and its derivatives.

    Args:
        room: overwritten; see `scratch_size`. loss: see `BeliefLoss`.
        d_nodes, d_gate, beliefs: overwritten where the blocks' nodes and pairs are.
        d_contrasts: added to; that of table t begins at 3 * t - origin.

    Returns:
        the loss of all their nodes.
    """
    slots, nodes, contrasts, gate = network.slots, network.nodes, network.contrasts, network.gate
    n_iterations, n_slots = network.n_iterations, _max_length(slots.slot_start, lo, hi)
    work, odds = room[: 8 * n_slots], room[8 * n_slots :]
    base = np.empty(_max_length(slots.node_start, lo, hi) + 1, nodes.dtype)
    total, following = np.empty_like(base), np.empty_like(base)
    most = nodes.dtype.type(MAX_CAVITY32 if nodes.itemsize == 4 else MAX_CAVITY64)
    value = 0.0
    for block in range(lo, hi):
        n = _load_node_odds(slots, block, nodes, base)
        _forward(slots, block, n, contrasts, gate, n_iterations, 1, most, base, total, following, odds, work)
        for v in range(n - 1):
            node = slots.node[slots.node_start[block] + v]
            lost, slope, small = evaluate_binary_loss(loss, node, 2 * node, float64(total[v]))
            low = 1 if total[v] < 0 else 0
            beliefs[2 * node + low] = small
            beliefs[2 * node + 1 - low] = 1.0 - small
            value += lost
            total[v] = slope
        total[n - 1] = 0.0
        _backward(slots, block, n, n_iterations, base, total, following, odds, work)
        for v in range(n - 1):
            node = slots.node[slots.node_start[block] + v]
            d_nodes[2 * node] = -base[v]
            d_nodes[2 * node + 1] = base[v]
        _add_derivatives(slots, block, contrasts, gate, work, d_contrasts, U(origin), d_gate)
    return value


@inline_kernel
def _add_derivatives(slots, block, contrasts, gate, work, d_contrasts, origin, d_gate):
    """From the derivatives by log a, b and r those by the gates and the tables."""
    lo, n_pairs = U(slots.slot_start[block]), U(slots.pair_start[block + 1] - slots.pair_start[block])
    for s in range(U(0), n_pairs, U(GROUP_SIZE)):
        o = s // U(LANES) * U(CHUNK_SIZE) + s % U(LANES)
        if slots.one_table[(lo + s) // U(GROUP_SIZE)] and s + U(GROUP_SIZE) <= n_pairs:
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
