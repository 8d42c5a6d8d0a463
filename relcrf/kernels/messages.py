"""Messages of belief propagation from factors of any size to their nodes, in linear numbers or in logs, as sums or maxima.

A *place* is a node's seat in a factor's scope; the message of a place goes from the factor to that node. `product` has of
each node its potentials and all that came in; the *cavity* of a place is that product without the place's own message.

Linear messages have their largest entry 1, are never 0, and are right while the potentials and messages that meet in a
node differ by less than what a float64 holds; the caller sees to that. Messages in logs have their largest entry 0 and hold
for all potentials: where a sum is too small beside what it was taken from, it is done again in logs. There -inf is what
cannot be; `barred` counts, of each state, how many of those that meet there say so, and `product` has the sum of the others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import boolean, float64, int64, types

from relcrf.kernels.compile import inline_kernel
from relcrf.kernels.factors import FACTORS, Factors, advance_cell

MIN_RELIABLE_SUM = 1e-250
"""A sum below it, of terms of at most 1, may have lost terms that count; above it they are below its last place."""
IMPOSSIBLE_CHANGE = 1e9
"""The change of an entry to or from -inf."""


class MessageNetwork(NamedTuple):
    """Factors and the messages on them.

    Args:
        message_start: where each place's message begins. appearance: shape (n_factors,), 1 for ordinary propagation.
    """

    factors: Factors
    message_start: np.ndarray
    appearance: np.ndarray


class MessageTables(NamedTuple):
    """Potentials as numbers and as logs, in each factor the largest 1 and 0; of an agreement the log of its one number.

    Args:
        log: whether messages are logs. maximum: whether they are maxima.
        numbers: empty where messages are maxima of logs. logs: empty where messages are linear, but for agreements.
        nodes: as the messages are. damping: the share of the old message's log in the new one; what cannot be is not damped.
    """

    log: bool
    maximum: bool
    numbers: np.ndarray
    logs: np.ndarray
    nodes: np.ndarray
    damping: float


class MessageState(NamedTuple):
    """What changes: the messages, and what they make of each node's states. barred: empty where messages are linear."""

    message: np.ndarray
    product: np.ndarray
    barred: np.ndarray


def allocate_scratch(network: MessageNetwork) -> tuple[np.ndarray, ...]:
    """What kernels work in: cavities of one factor, as they are and as numbers; sums without one state; of each place of a
    factor a message; two more; and digits that count."""
    arity = int(np.diff(network.factors.start).max(initial=1))
    widest = int(network.factors.cardinality.max(initial=1))
    tables = (np.empty((arity, widest)) for _ in range(4))
    return (*tables, np.empty(widest), np.empty(widest), np.empty(arity, dtype=np.int64))


FLAT, LONG = float64[::1], int64[::1]
NETWORK = types.NamedTuple((FACTORS, LONG, FLAT), MessageNetwork)
TABLES = types.NamedTuple((boolean, boolean, FLAT, FLAT, FLAT, float64), MessageTables)
STATE = types.NamedTuple((FLAT, FLAT, LONG), MessageState)
SCRATCH = types.Tuple((*[float64[:, ::1]] * 4, FLAT, FLAT, LONG))
"""The types of the tuples above."""


@inline_kernel
def compute_product(net, tables, state, v):
    """Makes the product of node v anew."""
    first = net.factors.state_start[v]
    k = net.factors.cardinality[v]
    if not tables.log:
        for x in range(first, first + k):
            state.product[x] = tables.nodes[x]
        for i in range(net.factors.touch_start[v], net.factors.touch_start[v + 1]):
            m = net.message_start[net.factors.touch[i]]
            for x in range(k):
                state.product[first + x] *= state.message[m + x]
        return
    for x in range(first, first + k):
        impossible = tables.nodes[x] == -np.inf
        state.barred[x] = 1 if impossible else 0
        state.product[x] = 0.0 if impossible else tables.nodes[x]
    for i in range(net.factors.touch_start[v], net.factors.touch_start[v + 1]):
        m = net.message_start[net.factors.touch[i]]
        share = net.appearance[net.factors.factor[net.factors.touch[i]]]
        for x in range(k):
            if state.message[m + x] == -np.inf:
                state.barred[first + x] += 1
            else:
                state.product[first + x] += share * state.message[m + x]


@inline_kernel
def compute_cavity(net, tables, state, place, out):
    """What the place's node says to the factor: all that it has but the place's own message, its largest made 1, or 0 of logs.

    Returns:
        what it was divided by, or what was taken from the logs.
    """
    v = net.factors.node[place]
    first = net.factors.state_start[v]
    m = net.message_start[place]
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
        barred = state.barred[first + x]
        if state.message[m + x] == -np.inf:
            out[x] = state.product[first + x] if barred == 1 else -np.inf
        else:
            out[x] = state.product[first + x] - state.message[m + x] if barred == 0 else -np.inf
        top = max(top, out[x])
    for x in range(k):
        out[x] -= top
    return top


@inline_kernel
def _compute_pair_message(net, maximum, numbers, place, other, cavity, out):
    """As `_compute_table_message` does, of a pair: along its rows, which lie together, whichever node they are of."""
    cell = net.factors.table_start[net.factors.factor[place]]
    k = net.factors.cardinality[net.factors.node[place]]
    n = net.factors.cardinality[net.factors.node[other]]
    if place > other:
        for x in range(k):
            out[x] = 0.0
        for y in range(n):
            weight = cavity[y]
            if maximum:
                for x in range(k):
                    out[x] = max(out[x], numbers[cell + x] * weight)
            else:
                for x in range(k):
                    out[x] += numbers[cell + x] * weight
            cell += k
        return
    for x in range(k):
        total = 0.0
        if maximum:
            for y in range(n):
                total = max(total, numbers[cell + y] * cavity[y])
        else:
            for y in range(n):
                total += numbers[cell + y] * cavity[y]
        out[x] = total
        cell += n


@inline_kernel
def _compute_table_message(net, maximum, numbers, place, cavities, digit, out):
    """Numbers: the sum or the maximum of table times cavities, of each state at `place`."""
    f = net.factors.factor[place]
    first, stop = net.factors.start[f], net.factors.start[f + 1]
    k = net.factors.cardinality[net.factors.node[place]]
    step = net.factors.stride[place]
    out[:k] = 0.0
    digit[:] = 0
    cell = net.factors.table_start[f]
    while cell >= 0:
        weight = 1.0
        for q in range(first, stop):
            if q != place:
                weight *= cavities[q - first, digit[q - first]]
        if maximum:
            for x in range(k):
                out[x] = max(out[x], numbers[cell + x * step] * weight)
        else:
            for x in range(k):
                out[x] += numbers[cell + x * step] * weight
        cell = advance_cell(net.factors, first, stop, place, digit, cell)


@inline_kernel
def _log_table_message(net, maximum, logs, place, cavities, digit, top, out):
    """Logs: the same; a sum is taken beside its largest term."""
    f = net.factors.factor[place]
    first, stop = net.factors.start[f], net.factors.start[f + 1]
    k = net.factors.cardinality[net.factors.node[place]]
    step = net.factors.stride[place]
    top[:k] = -np.inf
    for adding in range(1 if maximum else 2):
        out[:k] = 0.0
        digit[:] = 0
        cell = net.factors.table_start[f]
        while cell >= 0:
            weight = 0.0
            for q in range(first, stop):
                if q != place:
                    weight += cavities[q - first, digit[q - first]]
            for x in range(k):
                value = logs[cell + x * step] + weight
                if not adding:
                    top[x] = max(top[x], value)
                elif value > -np.inf:
                    out[x] += np.exp(value - top[x])
            cell = advance_cell(net.factors, first, stop, place, digit, cell)
    for x in range(k):
        out[x] = top[x] if maximum or top[x] == -np.inf else top[x] + np.log(out[x])


@inline_kernel
def _semiring_multiply(a, b, log):
    return a + b if log else a * b


@inline_kernel
def semiring_add(a, b, log, maximum):
    """The sum of two numbers or of what two logs stand for, or the larger."""
    if maximum or a == b == -np.inf:
        return max(a, b)
    if log:
        return max(a, b) + np.log1p(np.exp(-abs(a - b)))
    return a + b


@inline_kernel
def compute_agreement(net, log, maximum, weight, place, cavities, without, agree, differ):
    """Of each state at `place`: the product of the others' cavities at that state, and the sum over all else they may be.

    Nothing is subtracted: those that are not all alike are told apart by the first that differs.

    Args:
        without: overwritten: of each other place and state, the sum of the cavity's other states.
        agree, differ: overwritten; the first with the factor's potential, both beside the larger of it and 1.
    """
    f = net.factors.factor[place]
    first, stop = net.factors.start[f], net.factors.start[f + 1]
    k = net.factors.cardinality[net.factors.node[place]]
    one = 0.0 if log else 1.0
    zero = -np.inf if log else 0.0
    total = one
    for x in range(k):
        agree[x] = one
        differ[x] = zero
    for q in range(stop - 1, first - 1, -1):
        if q == place:
            continue
        row = q - first
        before = zero
        for x in range(k):
            without[row, x] = before
            before = semiring_add(before, cavities[row, x], log, maximum)
        after = zero
        for x in range(k - 1, -1, -1):
            without[row, x] = semiring_add(without[row, x], after, log, maximum)
            after = semiring_add(after, cavities[row, x], log, maximum)
        for x in range(k):
            here = _semiring_multiply(cavities[row, x], differ[x], log)
            differ[x] = semiring_add(here, _semiring_multiply(without[row, x], total, log), log, maximum)
            agree[x] = _semiring_multiply(agree[x], cavities[row, x], log)
        total = _semiring_multiply(total, after, log)
    together, apart = min(weight, 0.0), min(-weight, 0.0)
    if not log:
        together, apart = np.exp(together), np.exp(apart)
    for x in range(k):
        agree[x] = _semiring_multiply(agree[x], together, log)
        differ[x] = _semiring_multiply(differ[x], apart, log)


@inline_kernel
def _agreement_message(net, tables, log, place, cavities, work, out):
    alike = work[4]
    weight = tables.logs[net.factors.table_start[net.factors.factor[place]]]
    compute_agreement(net, log, tables.maximum, weight, place, cavities, work[2], alike, out)
    for x in range(net.factors.cardinality[net.factors.node[place]]):
        out[x] = semiring_add(out[x], alike[x], log, tables.maximum)


@inline_kernel
def _compute_linear_message(net, tables, place, cavities, work, out):
    f = net.factors.factor[place]
    if net.factors.agreement[f]:
        _agreement_message(net, tables, tables.log and tables.maximum, place, cavities, work, out)
    elif net.factors.start[f + 1] - net.factors.start[f] == 2:
        other = 2 * net.factors.start[f] + 1 - place
        _compute_pair_message(
            net, tables.maximum, tables.numbers, place, other, cavities[other - net.factors.start[f]], out
        )
    else:
        _compute_table_message(net, tables.maximum, tables.numbers, place, cavities, work[6], out)


@inline_kernel
def _compute_log_message(net, tables, place, cavities, work, out):
    if net.factors.agreement[net.factors.factor[place]]:
        _agreement_message(net, tables, tables.log, place, cavities, work, out)
    else:
        _log_table_message(net, tables.maximum, tables.logs, place, cavities, work[6], work[4], out)


@inline_kernel
def compute_message(net, tables, place, work, out):
    """From the cavities of a factor's other nodes, which stand in the first part of `work`, what it says to `place`."""
    if not (tables.log and tables.maximum):
        numbers = work[0]
        if tables.log:
            numbers = work[1]
            first = net.factors.start[net.factors.factor[place]]
            for q in range(first, net.factors.start[net.factors.factor[place] + 1]):
                if q != place:
                    for x in range(net.factors.cardinality[net.factors.node[q]]):
                        numbers[q - first, x] = np.exp(work[0][q - first, x])
        _compute_linear_message(net, tables, place, numbers, work, out)
        if not tables.log:
            return
        k = net.factors.cardinality[net.factors.node[place]]
        least = np.inf
        for x in range(k):
            least = min(least, out[x])
        if least >= MIN_RELIABLE_SUM:
            for x in range(k):
                out[x] = np.log(out[x])
            return
    _compute_log_message(net, tables, place, work[0], work, out)


@inline_kernel
def normalise_and_damp(net, tables, place, old, new):
    """Normalises and damps a new message.

    Returns:
        its largest change, as a difference of logs; nan where nothing is possible.
    """
    k = net.factors.cardinality[net.factors.node[place]]
    m = net.message_start[place]
    top = -np.inf
    for x in range(k):
        top = max(top, new[x])
    keep = tables.damping
    if not tables.log:
        scale = 1.0 / top
        most, least = 1.0, 1.0
        for x in range(k):
            new[x] *= scale
            if keep > 0.0:
                new[x] = np.exp(keep * np.log(old[m + x]) + (1.0 - keep) * np.log(new[x]))
            ratio = new[x] / old[m + x]
            most = max(most, ratio)
            least = min(least, ratio)
        return np.log(max(most, 1.0 / least))
    if top == -np.inf:
        new[:k] = np.nan
        return np.nan
    most = 0.0
    for x in range(k):
        value = new[x] - top
        before = old[m + x]
        if keep > 0.0 and before > -np.inf and value > -np.inf:
            value = keep * before + (1.0 - keep) * value
        new[x] = value
        if value == -np.inf or before == -np.inf:
            most = max(most, 0.0 if value == before else IMPOSSIBLE_CHANGE)
        else:
            most = max(most, abs(value - before))
    return most


@inline_kernel
def compute_update(net, tables, state, place, work, out):
    """The new message of a place, written to `out` (shape (widest,)); returns its largest change."""
    f = net.factors.factor[place]
    first, stop = net.factors.start[f], net.factors.start[f + 1]
    for q in range(first, stop):
        if q != place:
            compute_cavity(net, tables, state, q, work[0][q - first])
    compute_message(net, tables, place, work, out)
    return normalise_and_damp(net, tables, place, state.message, out)


@inline_kernel
def store_message(net, place, values, messages):
    """Writes the first entries of `values` to a place's message in flat ones."""
    m = net.message_start[place]
    for x in range(net.factors.cardinality[net.factors.node[place]]):
        messages[m + x] = values[x]


@inline_kernel
def absorb_message(net, tables, place, product, barred, message):
    """Brings this place's message into a product of its node."""
    v = net.factors.node[place]
    first = net.factors.state_start[v]
    m = net.message_start[place]
    share = net.appearance[net.factors.factor[place]]
    for x in range(net.factors.cardinality[v]):
        if not tables.log:
            product[first + x] *= message[m + x]
        elif message[m + x] == -np.inf:
            barred[first + x] += 1
        else:
            product[first + x] += share * message[m + x]
