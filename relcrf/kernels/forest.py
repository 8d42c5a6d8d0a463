"""Exact sums, maxima and orders on forests of tables of any size.

A forest is laid out by positions: children stand before their parents, and each tree, or part of one, in one run, so that
its tables pass through the cache once on the way up and once on the way down. Many edges may share a table. A table is
row-major; its rows are the states of the parent where `parent_first`, else those of the child.

Sums are linear, in products of exponentials, and take no logarithm but of a tree's total. Whatever leaves the
range in which that is exact is noticed (`ok` is False), and the block is done again in the log domain, where weights of 1e4
and potentials of -inf (what cannot be) do no harm: `log_up` and `log_down`.

All kernels take a `PositionRange` and a `Forest`, and of the run
    tables: potentials of the edges above its positions, flat.
    belief, message: flat arrays that begin at the position `run.first`: a run of whole trees needs none but its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import boolean, float64, int32, int64, types

from relcrf.kernels.compile import kernel


class Forest(NamedTuple):
    """A forest by position; see `ForestPlan`.

    Args:
        parent: -1 at roots. parent_first: whether the parent stands first in the factor between the two.
        cardinality: number of states.
        state_start, message_start: where each position's states begin, and its message to its parent, shape (n + 1,).
        cell: where the table of the edge above each position begins, likewise; `Run.origin` comes off it.
    """

    parent: np.ndarray
    parent_first: np.ndarray
    cardinality: np.ndarray
    state_start: np.ndarray
    message_start: np.ndarray
    cell: np.ndarray


class PositionRange(NamedTuple):
    """The positions lo..hi-1.

    Args:
        stop: parents at or after this position are not touched on the way up; their messages only stand in `message`.
        first: the position at which beliefs and messages begin. origin: the cell at which tables begin.
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
"""The types of what a sweep takes: a run, the forest, tables, beliefs and messages."""

U = np.uint64
"""Indices without a sign: Numba asks of every signed one whether it counts from the end, and then nothing is vectorised."""

FAST = {"contract", "reassoc", "nsz"}
"""Sums may be taken in another order, and so in vectors; nan and inf keep their meaning."""

MAX_LOG_RANGE = 200.0
"""Log potentials up to this size are exponentiated as they are: e^200 is 1e87."""

MIN_VECTOR_LENGTH = 9
"""Rows below this length are not worth a vector: numbers one by one, with their sum in a register, are faster."""

MIN_PRODUCT, MAX_PRODUCT = 1e-100, 1e100
"""Products are kept within this range, by taking a factor out."""


@kernel((int64, int64, int32[::1], INDEX, INDEX, FLAT, FLAT))
def gather(lo, hi, edge, cell, table_start, factors, out):
    """Brings the tables of a block's edges, which lie anywhere in `factors`, into their order."""
    for v in range(lo, hi):
        if edge[v] >= 0:
            here, there = U(cell[v] - cell[lo]), U(table_start[edge[v]])
            for c in range(U(cell[v + 1] - cell[v])):
                out[here + c] = factors[there + c]


@kernel((int64, int64, int32[::1], INDEX, INDEX, FLAT, FLAT))
def scatter(lo, hi, edge, cell, table_start, tables, factors):
    """The way back of `gather`."""
    for v in range(lo, hi):
        if edge[v] >= 0:
            here, there = U(cell[v] - cell[lo]), U(table_start[edge[v]])
            for c in range(U(cell[v + 1] - cell[v])):
                factors[there + c] = tables[here + c]


@kernel((INDEX, FLAT))
def subtract_maxima(start, values):
    """Takes the largest value of each table off it.

    Args:
        start: where tables begin in `values`, and the last one ends. values: overwritten.

    Returns:
        the sum of what was taken off; whether what is left has a linear range: finite values not below -`WIDE`.
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
    """`belief[own + a] *= message[start + a]` for a < k, all linear.

    Returns the log of what was taken out, and whether the range still holds.
    """
    high = 0.0
    low = 1e300
    for a in range(k):
        z = belief[own + a] * message[start + a]
        belief[own + a] = z
        high = z if z > high else high
        low = z if z < low else low
    taken = 0.0
    ok = True
    if high > MAX_PRODUCT or low < MIN_PRODUCT:
        ok = high > 0.0 and high < np.inf
        taken = np.log(high) if ok else 0.0
        for a in range(k):
            belief[own + a] /= high
            if belief[own + a] < MIN_PRODUCT and belief[own + a] > 0.0:
                ok = False
    return taken, ok


def _make_up_kernel(k: int) -> Any:
    """Return the kernel that sends messages from children to parents, for k states of every node, or any numbers where k is 0.

    A number of states that is known when it is compiled writes the loops out, so that nothing but products is left of them:
    half the time at k = 2, three quarters at k = 5. Above that the general loops are as fast.
    """
    known = U(k)

    @kernel(SWEEP_TYPES, label=f"[{k}]" if k else "", fastmath=FAST)
    def up(run, forest, tables, belief, message):
        """Messages from children to parents. The marginals of roots are then in `belief`.

        Args:
            tables: exponentials of the log potentials.
            belief: exponentials of the nodes' log potentials, times messages from before; all positions.
            message: from each position to its parent; not normalised.

        Returns:
            log of all factors that were taken out, those of roots being their sums; ok.
        """
        parent, parent_first, cardinality, state_start, message_start, cell = forest
        first, stop = run.first, run.stop
        state_base, message_base = state_start[first], message_start[first]
        log_scale = 0.0
        for v in range(run.lo, run.hi):
            p = parent[v]
            n = known if k else U(cardinality[v])
            own = U(v - first) * known if k else U(state_start[v] - state_base)
            if p < 0:
                total = 0.0
                for x in range(n):
                    total += belief[own + x]
                if not (total > 0.0 and total < np.inf):
                    return log_scale, False
                log_scale += np.log(total)
                total = 1.0 / total
                for x in range(n):
                    belief[own + x] *= total
                continue
            m = known if k else U(cardinality[p])
            out, c = U(message_start[v] - message_base), U(cell[v] - run.origin)
            if k:
                over_child = U(1) if parent_first[v] else m
                over_parent = n if parent_first[v] else U(1)
                for a in range(m):
                    at = c
                    total = 0.0
                    for x in range(n):
                        total += tables[at] * belief[own + x]
                        at += over_child
                    c += over_parent
                    message[out + a] = total
            elif parent_first[v]:
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
                    here = belief[own + x]
                    for a in range(m):
                        message[out + a] += tables[c + a] * here
            if p < stop:
                above = U(p - first) * known if k else U(state_start[p] - state_base)
                taken, ok = _multiply_message(m, above, belief, out, message)
                log_scale += taken
                if not ok:
                    return log_scale, False
        return log_scale, True

    return up


@kernel((INDEX, int64, FOREST, FLAT, FLAT))
def absorb_roots(roots, first, forest, belief, message):
    """Multiplies the messages of hanging subtrees into the spine. Returns as `up`."""
    state_start, message_start = forest.state_start, forest.message_start
    state_base, message_base = state_start[first], message_start[first]
    log_scale = 0.0
    for r in range(len(roots)):
        p = forest.parent[roots[r]]
        k = U(state_start[p + 1] - state_start[p])
        taken, ok = _multiply_message(
            k, U(state_start[p] - state_base), belief, U(message_start[roots[r]] - message_base), message
        )
        log_scale += taken
        if not ok:
            return log_scale, False
    return log_scale, True


def _make_down_kernel(k: int, shared: bool) -> Any:
    """Return the kernel that computes marginals from parents to children; for `k` see `_up`.

    Args:
        shared: edges share tables, which stay as they are: the marginals of their edges are added up in `out`.
    """
    known = U(k)

    @kernel((*SWEEP_TYPES, FLAT), label=f"[{k},{shared}]" if k else f"[{shared}]", fastmath=FAST)
    def down(run, forest, tables, belief, message, out):
        """Marginals from parents to children: `P(a, x) = P(a) / message(a) * table(a, x) belief(x)`, without a cancellation.

        Args:
            tables: as for `up`; overwritten by the marginals of the edges, unless they are shared.
            belief: parents hold their marginals, and so do all positions of the run afterwards.
            message: as `up` leaves it; overwritten.
            out: sums of the shared tables' marginals; else not touched.
        """
        parent, parent_first, cardinality, state_start, message_start, cell = forest
        first = run.first
        state_base, message_base = state_start[first], message_start[first]
        joints = out if shared else tables
        largest = 1
        if not k:
            for v in range(run.lo, run.hi):
                largest = max(largest, cardinality[v])
        sums = np.empty(largest)
        for v in range(run.hi - 1, run.lo - 1, -1):
            p = parent[v]
            if p < 0:
                continue
            n = known if k else U(cardinality[v])
            m = known if k else U(cardinality[p])
            own = U(v - first) * known if k else U(state_start[v] - state_base)
            above = U(p - first) * known if k else U(state_start[p] - state_base)
            ratio, c = U(message_start[v] - message_base), U(cell[v] - run.origin)
            for a in range(m):
                below = message[ratio + a]
                message[ratio + a] = belief[above + a] / below if below > 0.0 else 0.0
            if k or (parent_first[v] and n < MIN_VECTOR_LENGTH):
                over_child = U(1) if parent_first[v] else m
                over_parent = n if parent_first[v] else U(1)
                for x in range(n):
                    here = belief[own + x]
                    total = 0.0
                    at = c
                    for a in range(m):
                        joint = message[ratio + a] * tables[at] * here
                        joints[at] = joints[at] + joint if shared else joint
                        total += joint
                        at += over_parent
                    belief[own + x] = total
                    c += over_child
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


class SweepKernels(NamedTuple):
    """The linear kernels for one number of states: `up` of `_up`, and `down` and `down_shared` of `_make_down_kernel`."""

    up: Callable[..., Any]
    down: Callable[..., Any]
    down_shared: Callable[..., Any]


SWEEP_KERNELS = {
    k: SweepKernels(_make_up_kernel(k), _make_down_kernel(k, False), _make_down_kernel(k, True))
    for k in (0, 2, 3, 4, 5)
}
"""Kernels for forests whose nodes all have so many states; of 0 for any others."""


@kernel(SWEEP_TYPES)
def log_up(run, forest, tables, belief, message):
    """As `up`, in the log domain throughout. Returns the log partition of the block's roots, -inf where nothing can be."""
    parent, parent_first, cardinality, state_start, message_start, cell = forest
    state_base, message_base = state_start[run.first], message_start[run.first]
    log_partition = 0.0
    for v in range(run.lo, run.hi):
        p = parent[v]
        own = belief[state_start[v] - state_base : state_start[v + 1] - state_base]
        if p < 0:
            log_partition += normalise(own)
            continue
        k = cardinality[p]
        out = message[message_start[v] - message_base : message_start[v] - message_base + k]
        start = cell[v] - run.origin
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
        if p < run.stop:
            for a in range(k):
                belief[state_start[p] - state_base + a] += out[a]
    return log_partition


@kernel()
def normalise(values):
    """Overwrites log values by their softmax, or by nan where all are -inf; returns their log-sum-exp."""
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
    """As `absorb_roots`, in the log domain; also of `max_up`."""
    state_start, message_start = forest.state_start, forest.message_start
    state_base, message_base = state_start[first], message_start[first]
    for r in range(len(roots)):
        p = forest.parent[roots[r]]
        for a in range(state_start[p + 1] - state_start[p]):
            belief[state_start[p] - state_base + a] += message[message_start[roots[r]] - message_base + a]


@kernel((*SWEEP_TYPES, FLAT, boolean))
def log_down(run, forest, tables, belief, message, out, shared):
    """As `down`, with tables, messages and the block's own beliefs in the log domain; parents hold marginals.

    Args:
        out: marginals of the edges: `tables` itself, or where they are shared, sums of each table's.
    """
    parent, parent_first, cardinality, state_start, message_start, cell = forest
    state_base, message_base = state_start[run.first], message_start[run.first]
    largest = 1
    for v in range(run.lo, run.hi):
        largest = max(largest, cardinality[v])
    sums = np.empty(largest)
    for v in range(run.hi - 1, run.lo - 1, -1):
        p = parent[v]
        if p < 0:
            continue
        own = belief[state_start[v] - state_base : state_start[v + 1] - state_base]
        above = belief[state_start[p] - state_base : state_start[p + 1] - state_base]
        start = cell[v] - run.origin
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
def max_up(run, forest, tables, belief, message, choice):
    """Max-product from children to parents, on log potentials.

    Args:
        choice: for each state of the parent the child's best state, laid out as `message`; of equal ones the lowest.
    """
    parent, parent_first, cardinality, state_start, message_start, cell = forest
    state_base, message_base = state_start[run.first], message_start[run.first]
    for v in range(run.lo, run.hi):
        p = parent[v]
        if p < 0:
            continue
        n, own = U(cardinality[v]), U(state_start[v] - state_base)
        k, out, c = U(cardinality[p]), U(message_start[v] - message_base), U(cell[v] - run.origin)
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
        if p < run.stop:
            above = U(state_start[p] - state_base)
            for a in range(k):
                belief[above + a] += message[out + a]


@kernel((POSITION_RANGE, FOREST, FLAT, int32[::1], int32[::1]))
def max_down(run, forest, belief, choice, states):
    """Best states of a run, parents first. Returns the score of its roots."""
    parent, state_start, message_start = forest.parent, forest.state_start, forest.message_start
    state_base, message_base = state_start[run.first], message_start[run.first]
    score = 0.0
    for v in range(run.hi - 1, run.lo - 1, -1):
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
