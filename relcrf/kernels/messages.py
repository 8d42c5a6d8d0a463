"""Messages of belief propagation from factors of any arity to nodes, linear or in logs, sum-product or max-product.

A *slot* is an entry of `Factors.node`: one node in the scope of one factor. The message of a slot goes from the factor
to the node. `product` is the product of each node's potential and incoming messages. The *cavity* of a slot is the
product of the slot's node without the slot's message.

Linear messages have largest entry 1 and no entry 0. They are accurate if the product of the potential and the messages
of each node fits a float64, which the caller must ensure. Log messages have largest entry 0 and are accurate for all
potentials: a linear sum that is too small to be accurate is recomputed in logs. Impossible states have log potential
-inf. With log messages, `n_impossible` is the number of -inf among the potential and messages of each state, and
`product` is the sum of the finite ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import boolean, float64, int64, types

from relcrf.kernels.compile import inline_kernel
from relcrf.kernels.factors import FACTORS, Factors, advance_cell

MIN_RELIABLE_SUM = 1e-250
"""Smallest accurate sum of terms of at most 1. In larger sums, terms that underflow are below the rounding error."""
IMPOSSIBLE_CHANGE = 1e9
"""Change that is reported for an entry that becomes -inf or stops being -inf; larger than any tolerance."""


class MessageNetwork(NamedTuple):
    """Factors and the layout of their messages.

    Args:
        message_start: offset of each slot's message.
        appearance: appearance probability of each factor in tree-reweighted propagation, shape (n_factors,); 1 for
            ordinary propagation.
    """

    factors: Factors
    message_start: np.ndarray
    appearance: np.ndarray


class MessageTables(NamedTuple):
    """Potentials, linear and in logs.

    Linear tables are scaled so that the largest entry of each factor is 1; log tables are not scaled. An *agreement* is
    a factor with one log potential, for the cells in which all its nodes have the same state.

    Args:
        log: whether messages are logarithms.
        maximum: whether to use max-product instead of sum-product.
        linear: linear factor tables; empty for max-product in logs.
        logs: log factor tables; linear messages use only the entries of agreements.
        nodes: node potentials, as logarithms if messages are logarithms.
        damping: weight of the old log message in the new log message; entries of -inf are not damped.
    """

    log: bool
    maximum: bool
    linear: np.ndarray
    logs: np.ndarray
    nodes: np.ndarray
    damping: float


class MessageState(NamedTuple):
    """The mutable state of propagation.

    Args:
        message: all messages, flat.
        product: product of each node's potential and incoming messages, flat over states; see the module docstring.
        n_impossible: number of -inf among the potential and messages of each state; empty if messages are linear.
    """

    message: np.ndarray
    product: np.ndarray
    n_impossible: np.ndarray


def allocate_scratch(network: MessageNetwork) -> tuple[np.ndarray, ...]:
    """Allocate scratch arrays for one factor.

    Returns:
        Four arrays of shape (largest arity, largest cardinality), for cavities, exponentials of cavities, sums over all
        other states, and messages; two arrays of shape (largest cardinality,); and a joint state.
    """
    arity = int(np.diff(network.factors.start).max(initial=1))
    max_states = int(network.factors.cardinality.max(initial=1))
    tables = (np.empty((arity, max_states)) for _ in range(4))
    return (*tables, np.empty(max_states), np.empty(max_states), np.empty(arity, dtype=np.int64))


FLAT, LONG = float64[::1], int64[::1]
NETWORK = types.NamedTuple((FACTORS, LONG, FLAT), MessageNetwork)
TABLES = types.NamedTuple((boolean, boolean, FLAT, FLAT, FLAT, float64), MessageTables)
STATE = types.NamedTuple((FLAT, FLAT, LONG), MessageState)
SCRATCH = types.Tuple((*[float64[:, ::1]] * 4, FLAT, FLAT, LONG))
"""The Numba types of the named tuples above, and of the scratch arrays."""


@inline_kernel
def _reweight(message, appearance):
    """Return an entry of a linear message to the power of the appearance probability."""
    return message if appearance == 1.0 else np.exp(appearance * np.log(message))


@inline_kernel
def compute_product(net, tables, state, v):
    """Recompute the product of the potential and incoming messages of node v."""
    first = net.factors.state_start[v]
    k = net.factors.cardinality[v]
    if not tables.log:
        for x in range(first, first + k):
            state.product[x] = tables.nodes[x]
        for i in range(net.factors.touch_start[v], net.factors.touch_start[v + 1]):
            m = net.message_start[net.factors.touch[i]]
            appearance = net.appearance[net.factors.factor[net.factors.touch[i]]]
            for x in range(k):
                state.product[first + x] *= _reweight(state.message[m + x], appearance)
        return
    for x in range(first, first + k):
        impossible = tables.nodes[x] == -np.inf
        state.n_impossible[x] = 1 if impossible else 0
        state.product[x] = 0.0 if impossible else tables.nodes[x]
    for i in range(net.factors.touch_start[v], net.factors.touch_start[v + 1]):
        m = net.message_start[net.factors.touch[i]]
        appearance = net.appearance[net.factors.factor[net.factors.touch[i]]]
        for x in range(k):
            if state.message[m + x] == -np.inf:
                state.n_impossible[first + x] += 1
            else:
                state.product[first + x] += appearance * state.message[m + x]


@inline_kernel
def compute_cavity(net, tables, state, slot, out):
    """Compute the cavity of a slot, normalised to largest entry 1 (0 in logs).

    Returns:
        The normaliser: the divisor or, in logs, the subtracted value.
    """
    v = net.factors.node[slot]
    first = net.factors.state_start[v]
    m = net.message_start[slot]
    k = net.factors.cardinality[v]
    top = -np.inf
    if not tables.log:
        for x in range(k):
            out[x] = state.product[first + x] / state.message[m + x]
            top = max(top, out[x])
        scale = 1.0 / top
        for x in range(k):
            out[x] *= scale
        return top
    for x in range(k):
        n_impossible = state.n_impossible[first + x]
        if state.message[m + x] == -np.inf:
            out[x] = state.product[first + x] if n_impossible == 1 else -np.inf
        else:
            out[x] = state.product[first + x] - state.message[m + x] if n_impossible == 0 else -np.inf
        top = max(top, out[x])
    for x in range(k):
        out[x] -= top
    return top


@inline_kernel
def _compute_pair_message(net, maximum, table, slot, other_slot, cavity, out):
    """Compute a linear message of a factor of two nodes; the inner loop always runs along contiguous rows."""
    cell = net.factors.table_start[net.factors.factor[slot]]
    k = net.factors.cardinality[net.factors.node[slot]]
    n = net.factors.cardinality[net.factors.node[other_slot]]
    if slot > other_slot:
        for x in range(k):
            out[x] = 0.0
        for y in range(n):
            weight = cavity[y]
            if maximum:
                for x in range(k):
                    out[x] = max(out[x], table[cell + x] * weight)
            else:
                for x in range(k):
                    out[x] += table[cell + x] * weight
            cell += k
        return
    for x in range(k):
        total = 0.0
        if maximum:
            for y in range(n):
                total = max(total, table[cell + y] * cavity[y])
        else:
            for y in range(n):
                total += table[cell + y] * cavity[y]
        out[x] = total
        cell += n


@inline_kernel
def _compute_table_message(net, maximum, table, slot, cavities, digit, out):
    """Compute a linear message: for each state of the node, the sum or maximum of table * other cavities."""
    f = net.factors.factor[slot]
    first, stop = net.factors.start[f], net.factors.start[f + 1]
    k = net.factors.cardinality[net.factors.node[slot]]
    step = net.factors.stride[slot]
    out[:k] = 0.0
    digit[:] = 0
    cell = net.factors.table_start[f]
    while cell >= 0:
        weight = 1.0
        for q in range(first, stop):
            if q != slot:
                weight *= cavities[q - first, digit[q - first]]
        if maximum:
            for x in range(k):
                out[x] = max(out[x], table[cell + x * step] * weight)
        else:
            for x in range(k):
                out[x] += table[cell + x * step] * weight
        cell = advance_cell(net.factors, first, stop, slot, digit, cell)


@inline_kernel
def _log_table_message(net, maximum, log_table, slot, cavities, digit, top, out):
    """Compute the logarithm of the message of `_compute_table_message`; log-sum-exp subtracts the largest term."""
    f = net.factors.factor[slot]
    first, stop = net.factors.start[f], net.factors.start[f + 1]
    k = net.factors.cardinality[net.factors.node[slot]]
    step = net.factors.stride[slot]
    top[:k] = -np.inf
    for accumulate in range(1 if maximum else 2):
        out[:k] = 0.0
        digit[:] = 0
        cell = net.factors.table_start[f]
        while cell >= 0:
            weight = 0.0
            for q in range(first, stop):
                if q != slot:
                    weight += cavities[q - first, digit[q - first]]
            for x in range(k):
                value = log_table[cell + x * step] + weight
                if not accumulate:
                    top[x] = max(top[x], value)
                elif value > -np.inf:
                    out[x] += np.exp(value - top[x])
            cell = advance_cell(net.factors, first, stop, slot, digit, cell)
    for x in range(k):
        out[x] = top[x] if maximum or top[x] == -np.inf else top[x] + np.log(out[x])


@inline_kernel
def _semiring_multiply(a, b, log):
    return a + b if log else a * b


@inline_kernel
def semiring_add(a, b, log, maximum):
    """Return the maximum or the sum of two linear values, or of two values in logs."""
    if maximum or a == b == -np.inf:
        return max(a, b)
    if log:
        return max(a, b) + np.log1p(np.exp(-abs(a - b)))
    return a + b


@inline_kernel
def compute_agreement(net, log, maximum, weight, slot, cavities, without, agree, differ):
    """For each state at a slot, sum the product of the other cavities over agreeing and over differing joint states.

    In the agreeing joint state, all other nodes have the given state; in a differing joint state, some other node has a
    different state. To avoid cancellation, the second sum is not computed by subtraction: the differing joint states
    are partitioned by the first node that differs.

    Args:
        weight: log potential of the agreement.
        without: for each other slot and each state, overwritten by the sum of the slot's cavity over all other states.
        agree, differ: overwritten by the two sums for each state. `agree` is multiplied by the agreement's potential;
            both arrays are then divided by the larger of this potential and 1.
    """
    f = net.factors.factor[slot]
    first, stop = net.factors.start[f], net.factors.start[f + 1]
    k = net.factors.cardinality[net.factors.node[slot]]
    one = 0.0 if log else 1.0
    zero = -np.inf if log else 0.0
    total = one
    for x in range(k):
        agree[x] = one
        differ[x] = zero
    for q in range(stop - 1, first - 1, -1):
        if q == slot:
            continue
        row = q - first
        prefix = zero
        for x in range(k):
            without[row, x] = prefix
            prefix = semiring_add(prefix, cavities[row, x], log, maximum)
        suffix = zero
        for x in range(k - 1, -1, -1):
            without[row, x] = semiring_add(without[row, x], suffix, log, maximum)
            suffix = semiring_add(suffix, cavities[row, x], log, maximum)
        for x in range(k):
            differs_here = _semiring_multiply(cavities[row, x], differ[x], log)
            differ[x] = semiring_add(differs_here, _semiring_multiply(without[row, x], total, log), log, maximum)
            agree[x] = _semiring_multiply(agree[x], cavities[row, x], log)
        total = _semiring_multiply(total, suffix, log)
    agree_weight, differ_weight = min(weight, 0.0), min(-weight, 0.0)
    if not log:
        agree_weight, differ_weight = np.exp(agree_weight), np.exp(differ_weight)
    for x in range(k):
        agree[x] = _semiring_multiply(agree[x], agree_weight, log)
        differ[x] = _semiring_multiply(differ[x], differ_weight, log)


@inline_kernel
def _agreement_message(net, tables, log, slot, cavities, scratch, out):
    agree = scratch[4]
    weight = tables.logs[net.factors.table_start[net.factors.factor[slot]]]
    compute_agreement(net, log, tables.maximum, weight, slot, cavities, scratch[2], agree, out)
    for x in range(net.factors.cardinality[net.factors.node[slot]]):
        out[x] = semiring_add(out[x], agree[x], log, tables.maximum)


@inline_kernel
def _compute_linear_message(net, tables, slot, cavities, scratch, out):
    f = net.factors.factor[slot]
    if net.factors.agreement[f]:
        _agreement_message(net, tables, tables.log and tables.maximum, slot, cavities, scratch, out)
    elif net.factors.start[f + 1] - net.factors.start[f] == 2:
        other_slot = 2 * net.factors.start[f] + 1 - slot
        _compute_pair_message(
            net, tables.maximum, tables.linear, slot, other_slot, cavities[other_slot - net.factors.start[f]], out
        )
    else:
        _compute_table_message(net, tables.maximum, tables.linear, slot, cavities, scratch[6], out)


@inline_kernel
def _compute_log_message(net, tables, slot, cavities, scratch, out):
    if net.factors.agreement[net.factors.factor[slot]]:
        _agreement_message(net, tables, tables.log, slot, cavities, scratch, out)
    else:
        _log_table_message(net, tables.maximum, tables.logs, slot, cavities, scratch[6], scratch[4], out)


@inline_kernel
def compute_message(net, tables, slot, scratch, out):
    """Compute the unnormalised message of a slot from the cavities of the factor's other slots in `scratch[0]`."""
    if not (tables.log and tables.maximum):
        cavities = scratch[0]
        if tables.log:
            cavities = scratch[1]
            first = net.factors.start[net.factors.factor[slot]]
            for q in range(first, net.factors.start[net.factors.factor[slot] + 1]):
                if q != slot:
                    for x in range(net.factors.cardinality[net.factors.node[q]]):
                        cavities[q - first, x] = np.exp(scratch[0][q - first, x])
        _compute_linear_message(net, tables, slot, cavities, scratch, out)
        if not tables.log:
            return
        k = net.factors.cardinality[net.factors.node[slot]]
        smallest = np.inf
        for x in range(k):
            smallest = min(smallest, out[x])
        if smallest >= MIN_RELIABLE_SUM:
            for x in range(k):
                out[x] = np.log(out[x])
            return
    _compute_log_message(net, tables, slot, scratch[0], scratch, out)


@inline_kernel
def normalise_and_damp(net, tables, slot, old, new):
    """Normalise and damp a new message.

    Returns:
        The largest change of an entry, as a difference of logs; nan if no state is possible.
    """
    k = net.factors.cardinality[net.factors.node[slot]]
    m = net.message_start[slot]
    top = -np.inf
    for x in range(k):
        top = max(top, new[x])
    damping = tables.damping
    if not tables.log:
        scale = 1.0 / top
        max_change, min_ratio = 1.0, 1.0
        for x in range(k):
            new[x] *= scale
            if damping > 0.0:
                new[x] = np.exp(damping * np.log(old[m + x]) + (1.0 - damping) * np.log(new[x]))
            ratio = new[x] / old[m + x]
            max_change = max(max_change, ratio)
            min_ratio = min(min_ratio, ratio)
        return np.log(max(max_change, 1.0 / min_ratio))
    if top == -np.inf:
        new[:k] = np.nan
        return np.nan
    max_change = 0.0
    for x in range(k):
        value = new[x] - top
        previous = old[m + x]
        if damping > 0.0 and previous > -np.inf and value > -np.inf:
            value = damping * previous + (1.0 - damping) * value
        new[x] = value
        if value == -np.inf or previous == -np.inf:
            max_change = max(max_change, 0.0 if value == previous else IMPOSSIBLE_CHANGE)
        else:
            max_change = max(max_change, abs(value - previous))
    return max_change


@inline_kernel
def compute_update(net, tables, state, slot, scratch, out):
    """Write the new message of a slot to `out`, shape (max_cardinality,); return the largest change of an entry."""
    f = net.factors.factor[slot]
    first, stop = net.factors.start[f], net.factors.start[f + 1]
    for q in range(first, stop):
        if q != slot:
            compute_cavity(net, tables, state, q, scratch[0][q - first])
    compute_message(net, tables, slot, scratch, out)
    return normalise_and_damp(net, tables, slot, state.message, out)


@inline_kernel
def store_message(net, slot, values, messages):
    """Copy the first entries of `values` to a slot's message in the flat array `messages`."""
    m = net.message_start[slot]
    for x in range(net.factors.cardinality[net.factors.node[slot]]):
        messages[m + x] = values[x]


@inline_kernel
def absorb_message(net, tables, slot, product, n_impossible, message):
    """Multiply a slot's message into the product of the slot's node."""
    v = net.factors.node[slot]
    first = net.factors.state_start[v]
    m = net.message_start[slot]
    appearance = net.appearance[net.factors.factor[slot]]
    for x in range(net.factors.cardinality[v]):
        if not tables.log:
            product[first + x] *= _reweight(message[m + x], appearance)
        elif message[m + x] == -np.inf:
            n_impossible[first + x] += 1
        else:
            product[first + x] += appearance * message[m + x]
