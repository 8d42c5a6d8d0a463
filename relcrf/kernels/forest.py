"""Exact sum-product and max-product on forests, with tables of any size.

The nodes of a forest are numbered by *position*: children precede parents, and each tree (or part of a tree) is a
contiguous range of positions, so that a sweep loads each table into the cache once. Several edges may share one table.
Tables are row-major. The rows are the states of the parent if `parent_first`, otherwise the states of the child.

Sum-product runs in the linear domain, on exponentials of log potentials. Unless values must be rescaled, it computes
only one logarithm per tree. If a value leaves the range in which this arithmetic is accurate, the kernel returns
`ok` = False. The caller then repeats the computation in the log domain (`log_up`, `log_down`), which supports weights
of 1e4 and log potentials of -inf (impossible states).

A *sweep* (`up`, `down` and variants) visits a range of positions. It takes a `PositionRange` (`span`), a `Forest` and
    tables: the tables of the edges between the range's nodes and their parents, flat.
    belief, message: beliefs and messages of all positions from `span.first` to the end of the range or beyond, flat.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import boolean, float64, int32, int64, types

from relcrf.kernels.compile import kernel
from relcrf.kernels.vectors import is_any_outside, make_loader, quotients, store, sum_of, with_element, zeros_like


class Forest(NamedTuple):
    """The structure of a forest of n nodes; all arrays are indexed by position.

    Args:
        parent: position of the node's parent, -1 for a root.
        parent_first: whether the parent is the first node of the factor that connects the node to its parent.
        cardinality: number of states of the node.
        state_start, message_start: offset of the node's states, and of its message to the parent, shape (n + 1,).
        cell: offset of the table of the edge between the node and its parent, shape (n + 1,). The table begins at index
            `cell - PositionRange.origin` of `tables`.
    """

    parent: np.ndarray
    parent_first: np.ndarray
    cardinality: np.ndarray
    state_start: np.ndarray
    message_start: np.ndarray
    cell: np.ndarray


class PositionRange(NamedTuple):
    """A range of positions, lo..hi-1.

    Args:
        stop: first position whose belief the upward sweep does not update. The messages to nodes from this position on
            are only stored in `message`.
        first: the first position of which `belief` and `message` contain values.
        origin: the offset, in `Forest.cell`, of the first entry of `tables`.
    """

    lo: int
    hi: int
    stop: int
    first: int
    origin: int


FLAT, INDEX = float64[::1], int64[::1]
FOREST = types.NamedTuple((int32[::1], boolean[::1], int32[::1], INDEX, INDEX, INDEX), Forest)
POSITION_RANGE = types.NamedUniTuple(int64, len(PositionRange._fields), PositionRange)
SWEEP_TYPES = (POSITION_RANGE, FOREST, FLAT, FLAT, FLAT)
"""The Numba types of the arguments that all sweeps have: range, forest, tables, beliefs and messages."""

U = np.uint64
"""Unsigned type of loop indices. Numba tests whether a signed index is negative, which prevents vectorisation."""

FASTMATH_FLAGS = {"contract", "reassoc", "nsz"}
"""Fastmath flags that allow sums to be reordered and therefore vectorised, but preserve nan and inf."""

MAX_LOG_RANGE = 200.0
"""Maximum difference of two log potentials of one table in the linear domain; e^200 is about 1e87."""

MIN_VECTOR_LENGTH = 9
"""Minimum row length at which vectorised loops are faster than scalar loops with the sum in a register."""

MIN_PRODUCT, MAX_PRODUCT = 1e-100, 1e100
"""Range of the entries of a belief. If an entry leaves the range, the belief is divided by its largest entry."""


@kernel((INDEX, FLAT))
def subtract_maxima(start, values):
    """Subtract the largest value of each table from the entries of the table.

    Args:
        start: offset of each table in `values`, followed by the end of the last table.
        values: the tables, flat; updated in place.

    Returns:
        The sum of the subtracted values, and whether the tables fit the linear domain. They fit if each largest value
        is finite and no finite result is below -`MAX_LOG_RANGE`.
    """
    total = 0.0
    ok = True
    for t in range(len(start) - 1):
        table = values[start[t] : start[t + 1]]
        if len(table) == 0:
            continue
        top = -np.inf
        for c in range(len(table)):
            top = table[c] if table[c] > top else top
        if not (top > -np.inf and top < np.inf):
            return total, False
        total += top
        for c in range(len(table)):
            table[c] -= top
            if table[c] < -MAX_LOG_RANGE and table[c] > -np.inf:
                ok = False
    return total, ok


@kernel(inline="always")
def _multiply_message(k, own, belief, start, message):
    """Multiply a message into a belief, `belief[own + a] *= message[start + a]` for a < k, in the linear domain.

    Returns:
        The log of the divisor that rescaled the belief (0 without rescaling), and whether all values are in range.
    """
    largest = 0.0
    smallest = 1e300
    for a in range(k):
        z = belief[own + a] * message[start + a]
        belief[own + a] = z
        largest = z if z > largest else largest
        smallest = z if z < smallest else smallest
    log_scale = 0.0
    ok = True
    if largest > MAX_PRODUCT or smallest < MIN_PRODUCT:
        ok = largest > 0.0 and largest < np.inf
        log_scale = np.log(largest) if ok else 0.0
        for a in range(k):
            belief[own + a] /= largest
            if belief[own + a] < MIN_PRODUCT and belief[own + a] > 0.0:
                ok = False
    return log_scale, ok


@kernel(SWEEP_TYPES, fastmath=FASTMATH_FLAGS)
def up(span, forest, tables, belief, message):
    """Send messages from children to parents and write the marginals of roots to `belief`, for any numbers of states.

    Args:
        tables: exponentials of the log potentials.
        belief: exponentials of the nodes' log potentials; the messages of children are multiplied into them.
        message: overwritten by the unnormalised message from each position to its parent.

    Returns:
        The log of the product of all divisors by which beliefs were rescaled, including the totals of roots, and
        whether all values are in range.
    """
    parent, parent_first, cardinality, state_start, message_start, cell = forest
    first, stop = span.first, span.stop
    state_base, message_base = state_start[first], message_start[first]
    log_scale = 0.0
    for v in range(span.lo, span.hi):
        p, n, own = parent[v], U(cardinality[v]), U(state_start[v] - state_base)
        if p < 0:
            log_total, ok = _normalise_root(n, own, belief)
            if not ok:
                return log_scale, False
            log_scale += log_total
            continue
        m = U(cardinality[p])
        out, c = U(message_start[v] - message_base), U(cell[v] - span.origin)
        if parent_first[v]:
            for a in range(m):
                total = 0.0
                for x in range(n):
                    total += tables[c + x] * belief[own + x]
                message[out + a] = total
                c += n
        else:
            for a in range(m):
                message[out + a] = tables[c + a] * belief[own]
            for x in range(U(1), n):
                c += m
                child_belief = belief[own + x]
                for a in range(m):
                    message[out + a] += tables[c + a] * child_belief
        if p < stop:
            log_factor, ok = _multiply_message(m, U(state_start[p] - state_base), belief, out, message)
            log_scale += log_factor
            if not ok:
                return log_scale, False
    return log_scale, True


@kernel(inline="always")
def _normalise_root(k, own, belief):
    """Divide the belief of a root with k states by its sum; return the log of the sum, and whether it is in range."""
    total = 0.0
    for x in range(k):
        total += belief[own + x]
    if not (total > 0.0 and total < np.inf):
        return 0.0, False
    scale = 1.0 / total
    for x in range(k):
        belief[own + x] *= scale
    return np.log(total), True


def _make_up_kernel(k: int) -> Any:
    """Make the kernel `up` for forests in which all nodes have k states, which computes with vectors of k numbers."""
    known, load = U(k), make_loader(k)

    @kernel(SWEEP_TYPES, label=f"[{k}]", fastmath={"contract"})
    def up(span, forest, tables, belief, message):
        parent, parent_first, _, _, message_start, cell = forest
        first, stop, message_base = span.first, span.stop, message_start[span.first]
        log_scale = 0.0
        for v in range(span.lo, span.hi):
            p, own = parent[v], U(v - first) * known
            if p < 0:
                log_total, ok = _normalise_root(known, own, belief)
                if not ok:
                    return log_scale, False
                log_scale += log_total
                continue
            out, c, here = U(message_start[v] - message_base), U(cell[v] - span.origin), load(belief, own)
            # Beliefs are read and written as whole vectors. Otherwise, a read would have to wait for the writes of its parts.
            sent = here[0] * load(tables, c)
            if parent_first[v]:
                for a in range(known):
                    total = 0.0
                    for x in range(known):
                        total += tables[c + x] * here[x]
                    sent = with_element(sent, a, total)
                    c += known
            else:
                for x in range(U(1), known):
                    c += known
                    sent = sent + here[x] * load(tables, c)
            store(message, out, sent)
            if p < stop:
                above = U(p - first) * known
                product = load(belief, above) * sent
                if is_any_outside(product, MIN_PRODUCT, MAX_PRODUCT):
                    log_factor, ok = _multiply_message(known, above, belief, out, message)
                    log_scale += log_factor
                    if not ok:
                        return log_scale, False
                else:
                    store(belief, above, product)
        return log_scale, True

    return up


@kernel((INDEX, int64, FOREST, FLAT, FLAT))
def absorb_roots(roots, first, forest, belief, message):
    """Multiply the messages of subtree roots into the beliefs of their parents.

    Returns:
        The log of the product of all divisors by which beliefs were rescaled, and whether all values are in range.
    """
    state_start, message_start = forest.state_start, forest.message_start
    state_base, message_base = state_start[first], message_start[first]
    log_scale = 0.0
    for r in range(len(roots)):
        p = forest.parent[roots[r]]
        k = U(state_start[p + 1] - state_start[p])
        log_factor, ok = _multiply_message(
            k, U(state_start[p] - state_base), belief, U(message_start[roots[r]] - message_base), message
        )
        log_scale += log_factor
        if not ok:
            return log_scale, False
    return log_scale, True


def _make_down_kernel(shared: bool) -> Any:
    """Make the kernel of downward sum-product, which computes marginals, for any numbers of states.

    Args:
        shared: whether edges share tables. The kernel does not overwrite shared tables; it adds the marginals of all
            edges that share a table in `out`.
    """

    @kernel((*SWEEP_TYPES, FLAT), label=f"[{shared}]", fastmath=FASTMATH_FLAGS)
    def down(span, forest, tables, belief, message, out):
        """Compute marginals from parents to children.

        For state a of the parent and state x of the child, `P(a, x) = P(a) / message(a) * table(a, x) * belief(x)`.

        Args:
            tables: as for `up`. If tables are not shared, they are overwritten by the marginals of the edges.
            belief: on entry, as `up` returns it, with marginals for parents outside the range; on return, marginals.
            message: as `up` returns it; overwritten.
            out: if tables are shared, the marginals of the edges are added to it; otherwise unused.
        """
        parent, parent_first, cardinality, state_start, message_start, cell = forest
        first = span.first
        state_base, message_base = state_start[first], message_start[first]
        joints = out if shared else tables
        largest = 1
        for v in range(span.lo, span.hi):
            largest = max(largest, cardinality[v])
        sums = np.empty(largest)
        for v in range(span.hi - 1, span.lo - 1, -1):
            p = parent[v]
            if p < 0:
                continue
            n, m = U(cardinality[v]), U(cardinality[p])
            own, above = U(state_start[v] - state_base), U(state_start[p] - state_base)
            ratio, c = U(message_start[v] - message_base), U(cell[v] - span.origin)
            for a in range(m):
                below = message[ratio + a]
                message[ratio + a] = belief[above + a] / below if below > 0.0 else 0.0
            if parent_first[v] and n < MIN_VECTOR_LENGTH:
                for x in range(n):
                    here = belief[own + x]
                    total = 0.0
                    at = c
                    for a in range(m):
                        joint = message[ratio + a] * tables[at] * here
                        joints[at] = joints[at] + joint if shared else joint
                        total += joint
                        at += n
                    belief[own + x] = total
                    c += U(1)
            elif parent_first[v]:
                for x in range(n):
                    sums[x] = 0.0
                for a in range(m):
                    here = message[ratio + a]
                    for x in range(n):
                        joint = here * tables[c + x] * belief[own + x]
                        joints[c + x] = joints[c + x] + joint if shared else joint
                        sums[x] += joint
                    c += n
                for x in range(n):
                    belief[own + x] = sums[x]
            else:
                for x in range(n):
                    here = belief[own + x]
                    total = 0.0
                    for a in range(m):
                        joint = message[ratio + a] * tables[c + a] * here
                        joints[c + a] = joints[c + a] + joint if shared else joint
                        total += joint
                    belief[own + x] = total
                    c += m

    return down


def _make_vector_down_kernel(k: int, shared: bool) -> Any:
    """Make the kernel `down` for forests in which all nodes have k states, which computes with vectors of k numbers."""
    known, load = U(k), make_loader(k)

    @kernel((*SWEEP_TYPES, FLAT), label=f"[{k},{shared}]", fastmath={"contract"})
    def down(span, forest, tables, belief, message, out):
        parent, parent_first, _, _, message_start, cell = forest
        first, message_base = span.first, message_start[span.first]
        joints = out if shared else tables
        for v in range(span.hi - 1, span.lo - 1, -1):
            p = parent[v]
            if p < 0:
                continue
            own, above = U(v - first) * known, U(p - first) * known
            at, c = U(message_start[v] - message_base), U(cell[v] - span.origin)
            ratio, here = quotients(load(belief, above), load(message, at)), load(belief, own)
            if parent_first[v]:
                total = zeros_like(here)
                for a in range(known):
                    joint = ratio[a] * (load(tables, c) * here)
                    store(joints, c, load(joints, c) + joint if shared else joint)
                    total = total + joint
                    c += known
                store(belief, own, total)
            else:
                total = here
                for x in range(known):
                    joint = here[x] * (load(tables, c) * ratio)
                    store(joints, c, load(joints, c) + joint if shared else joint)
                    total = with_element(total, x, sum_of(joint))
                    c += known
                store(belief, own, total)

    return down


class SweepKernels(NamedTuple):
    """The linear-domain sweeps; see `up` and `_make_down_kernel`."""

    up: Callable[..., Any]
    down: Callable[..., Any]
    down_shared: Callable[..., Any]


SWEEP_KERNELS = {0: SweepKernels(up, _make_down_kernel(False), _make_down_kernel(True))} | {
    k: SweepKernels(_make_up_kernel(k), _make_vector_down_kernel(k, False), _make_vector_down_kernel(k, True))
    for k in (2, 3, 4, 5)
}
"""Sweeps for forests in which all nodes have k states, by k; key 0 is for all other forests."""


@kernel(SWEEP_TYPES)
def log_up(span, forest, tables, belief, message):
    """Run `up` in the log domain; return the log partition of the trees rooted in the range (-inf if impossible)."""
    parent, parent_first, cardinality, state_start, message_start, cell = forest
    state_base, message_base = state_start[span.first], message_start[span.first]
    log_partition = 0.0
    for v in range(span.lo, span.hi):
        p = parent[v]
        own = belief[state_start[v] - state_base : state_start[v + 1] - state_base]
        if p < 0:
            log_partition += normalise(own)
            continue
        k = cardinality[p]
        out = message[message_start[v] - message_base : message_start[v] - message_base + k]
        start = cell[v] - span.origin
        step = 1 if parent_first[v] else k
        for a in range(k):
            c = start + (a * len(own) if parent_first[v] else a)
            top = -np.inf
            for x in range(len(own)):
                top = max(top, tables[c + x * step] + own[x])
            if top > -np.inf:
                total = 0.0
                for x in range(len(own)):
                    total += np.exp(tables[c + x * step] + own[x] - top)
                top += np.log(total)
            out[a] = top
        if p < span.stop:
            for a in range(k):
                belief[state_start[p] - state_base + a] += out[a]
    return log_partition


@kernel()
def normalise(values):
    """Return the log-sum-exp of log values; replace the values by their softmax, or by nan if all are -inf."""
    top = -np.inf
    for x in range(len(values)):
        top = max(top, values[x])
    if top == -np.inf:
        values[:] = np.nan
        return top
    total = 0.0
    for x in range(len(values)):
        values[x] = np.exp(values[x] - top)
        total += values[x]
    for x in range(len(values)):
        values[x] /= total
    return top + np.log(total)


@kernel((INDEX, int64, FOREST, FLAT, FLAT))
def log_absorb_roots(roots, first, forest, belief, message):
    """Run `absorb_roots` in the log domain, for `log_up` and `max_up`."""
    state_start, message_start = forest.state_start, forest.message_start
    state_base, message_base = state_start[first], message_start[first]
    for r in range(len(roots)):
        p = forest.parent[roots[r]]
        for a in range(state_start[p + 1] - state_start[p]):
            belief[state_start[p] - state_base + a] += message[message_start[roots[r]] - message_base + a]


@kernel((*SWEEP_TYPES, FLAT, boolean))
def log_down(span, forest, tables, belief, message, out, shared):
    """Run `down` after `log_up`: tables, messages and beliefs are logarithms, except the marginals of roots.

    Args:
        out: if `shared`, the marginals of all edges with the same table are added to this table's entries in `out`.
            Otherwise `out`, which may be `tables` itself, is overwritten by the marginals of the edges.
    """
    parent, parent_first, cardinality, state_start, message_start, cell = forest
    state_base, message_base = state_start[span.first], message_start[span.first]
    largest = 1
    for v in range(span.lo, span.hi):
        largest = max(largest, cardinality[v])
    sums = np.empty(largest)
    for v in range(span.hi - 1, span.lo - 1, -1):
        p = parent[v]
        if p < 0:
            continue
        own = belief[state_start[v] - state_base : state_start[v + 1] - state_base]
        above = belief[state_start[p] - state_base : state_start[p + 1] - state_base]
        start = cell[v] - span.origin
        step = 1 if parent_first[v] else len(above)
        sums[: len(own)] = 0.0
        for a in range(len(above)):
            from_below = message[message_start[v] - message_base + a]
            c = start + (a * len(own) if parent_first[v] else a)
            for x in range(len(own)):
                if from_below == -np.inf:
                    joint = 0.0 if above[a] == 0.0 else np.nan
                else:
                    joint = above[a] * np.exp(tables[c + x * step] + own[x] - from_below)
                out[c + x * step] = joint + (out[c + x * step] if shared else 0.0)
                sums[x] += joint
        for x in range(len(own)):
            own[x] = sums[x]


@kernel((*SWEEP_TYPES, int32[::1]))
def max_up(span, forest, tables, belief, message, choice):
    """Send max-product messages from children to parents, on log potentials.

    Args:
        choice: overwritten by the child's best state for each state of the parent, in the layout of `message`. Among
            equally good states, the lowest is chosen.
    """
    parent, parent_first, cardinality, state_start, message_start, cell = forest
    state_base, message_base = state_start[span.first], message_start[span.first]
    for v in range(span.lo, span.hi):
        p = parent[v]
        if p < 0:
            continue
        n, own = U(cardinality[v]), U(state_start[v] - state_base)
        k, out, c = U(cardinality[p]), U(message_start[v] - message_base), U(cell[v] - span.origin)
        over_child = U(1) if parent_first[v] else k
        over_parent = n if parent_first[v] else U(1)
        for a in range(k):
            at = c
            best = tables[at] + belief[own]
            chosen = U(0)
            for x in range(U(1), n):
                at += over_child
                value = tables[at] + belief[own + x]
                chosen = U(x) if value > best else chosen
                best = value if value > best else best
            message[out + a] = best
            choice[out + a] = chosen
            c += over_parent
        if p < span.stop:
            above = U(state_start[p] - state_base)
            for a in range(k):
                belief[above + a] += message[out + a]


@kernel((POSITION_RANGE, FOREST, FLAT, int32[::1], int32[::1]))
def max_down(span, forest, belief, choice, states):
    """Decode the best state of each node of a range, parents first; return the total score of the range's roots."""
    parent, state_start, message_start = forest.parent, forest.state_start, forest.message_start
    state_base, message_base = state_start[span.first], message_start[span.first]
    score = 0.0
    for v in range(span.hi - 1, span.lo - 1, -1):
        p = parent[v]
        if p >= 0:
            states[v] = choice[message_start[v] - message_base + states[p]]
            continue
        own = belief[state_start[v] - state_base : state_start[v + 1] - state_base]
        best = 0
        for x in range(1, len(own)):
            if own[x] > own[best]:
                best = x
        states[v] = best
        score += own[best]
    return score
