"""Exact sums, maxima and orders on forests of tables of any size.

A forest is laid out by positions: children stand before their parents, and each tree, or part of one, in one run, so that
its tables pass through the cache once on the way up and once on the way down. A *block* is such a run, `lo` to `hi`;
its tables are in a flat array that begins at `cell[lo]`. A table is row-major; its rows are the states of the parent where
`parent_first`, else those of the child. Beliefs and messages are in flat arrays that begin at position `first`: a block of
whole trees needs none but its own.

Sums are linear, in products of exponentials, and take no logarithm but of a tree's total. Whatever leaves the
range in which that is exact is noticed (`ok` is False), and the block is done again in the log domain, where weights of 1e4
and potentials of -inf (what cannot be) do no harm: `log_up` and `log_down`.
"""

from __future__ import annotations

import numpy as np
from numba import boolean, float64, int32, int64

from relcrf.kernels.compile import kernel

FLAT, INDEX = float64[::1], int64[::1]
BLOCK = (int64, int64, int64)
GEOMETRY = (int32[::1], boolean[::1], int32[::1], INDEX, INDEX, INDEX)
TABLES = (FLAT, FLAT, FLAT)
ROOTS = (int64, int32[::1], INDEX, INDEX, FLAT, FLAT)

U = np.uint64
"""Indices without a sign: Numba asks of every signed one whether it counts from the end, and then nothing is vectorised."""

FAST = {"contract", "reassoc", "nsz"}
"""Sums may be taken in another order, and so in vectors; nan and inf keep their meaning."""

WIDE = 200.0
"""Log potentials up to this size are exponentiated as they are: e^200 is 1e87."""

SHORT = 9
"""Rows below this length are not worth a vector: numbers one by one, with their sum in a register, are faster."""

LEAST, MOST = 1e-100, 1e100
"""Products are kept within this range, by taking a factor out."""


@kernel((int64, int32[:, ::1]))
def topological_order(n_nodes, edges):  # type: ignore[no-untyped-def]
    """Breadth-first order of every tree of a forest, roots first.

    Returns:
        order (n_nodes,), parent (n_nodes,) and the edge to the parent (n_nodes,), both -1 at roots; and whether the
        edges form a forest at all.
    """
    n_edges = len(edges)
    degree = np.zeros(n_nodes + 1, dtype=np.int64)
    for e in range(n_edges):
        degree[edges[e, 0] + 1] += 1
        degree[edges[e, 1] + 1] += 1
    start = np.cumsum(degree)
    fill = start[:-1].copy()
    neighbour_edge = np.empty(2 * n_edges, dtype=np.int32)
    for e in range(n_edges):
        for side in range(2):
            v = edges[e, side]
            neighbour_edge[fill[v]] = e
            fill[v] += 1
    order = np.empty(n_nodes, dtype=np.int32)
    parent = np.full(n_nodes, -1, dtype=np.int32)
    parent_edge = np.full(n_nodes, -1, dtype=np.int32)
    seen = np.zeros(n_nodes, dtype=np.bool_)
    is_forest = True
    head = 0
    tail = 0
    for root in range(n_nodes):
        if seen[root]:
            continue
        seen[root] = True
        order[tail] = root
        tail += 1
        while head < tail:
            v = order[head]
            head += 1
            for k in range(start[v], start[v + 1]):
                e = neighbour_edge[k]
                if e == parent_edge[v]:
                    continue
                w = edges[e, 0] + edges[e, 1] - v
                if seen[w]:
                    is_forest = False
                    continue
                seen[w] = True
                parent[w] = v
                parent_edge[w] = e
                order[tail] = w
                tail += 1
    return order, parent, parent_edge, is_forest


@kernel((int32[::1], int32[::1], int32[::1], int64))
def layout(order, parent, cardinality, limit):  # type: ignore[no-untyped-def]
    """Positions of all nodes, children before parents, and where the runs begin that can be done on their own.

    A node whose subtree costs more than `limit` is of the *spine*, and so are all above it. What hangs on the spine
    is cut off there; trees without a spine are whole.

    Args:
        order, parent: of `topological_order`.
        limit: of a run's cost, which is its cells and states.

    Returns:
        the node at each position: whole trees, then hanging subtrees, then the spine; where each run of the first two kinds
        begins, ascending; and the numbers of whole trees and of hanging subtrees.
    """
    n = len(order)
    cost = np.empty(n, dtype=np.int64)
    n_children = np.zeros(n + 1, dtype=np.int64)
    for v in range(n):
        p = parent[v]
        cost[v] = cardinality[v] * (1 + (cardinality[p] if p >= 0 else 0))
        if p >= 0:
            n_children[p + 1] += 1
    for k in range(n - 1, -1, -1):
        v = order[k]
        if parent[v] >= 0:
            cost[parent[v]] += cost[v]
    first = np.cumsum(n_children)
    fill = first[:-1].copy()
    child = np.empty(n, dtype=np.int32)
    for k in range(n):
        v = order[k]
        if parent[v] >= 0:
            child[fill[parent[v]]] = v
            fill[parent[v]] += 1
    placed = np.empty(n, dtype=np.int32)
    stack = np.empty(n, dtype=np.int32)
    start = np.empty(n + 1, dtype=np.int64)
    n_runs = 0
    n_whole = 0
    tail = 0
    for hanging in range(2):
        for k in range(n):
            v = order[k]
            if cost[v] > limit or (parent[v] >= 0) != (hanging == 1):
                continue
            if hanging == 1 and cost[parent[v]] <= limit:
                continue
            start[n_runs] = tail
            n_runs += 1
            head = tail
            stack[0] = v
            top = 1
            while top:
                top -= 1
                w = stack[top]
                placed[tail] = w
                tail += 1
                for c in range(first[w], first[w + 1]):
                    stack[top] = child[c]
                    top += 1
            for k2 in range((tail - head) // 2):
                other = placed[head + k2]
                placed[head + k2] = placed[tail - 1 - k2]
                placed[tail - 1 - k2] = other
        if hanging == 0:
            n_whole = n_runs
    start[n_runs] = tail
    for k in range(n - 1, -1, -1):
        if cost[order[k]] > limit:
            placed[tail] = order[k]
            tail += 1
    return placed, start[: n_runs + 1], n_whole, n_runs - n_whole


@kernel((INDEX, INDEX, int64))
def group_runs(start, cost, limit):  # type: ignore[no-untyped-def]
    """Joins runs that follow each other to blocks that cost at most `limit`, or are one run.

    Args:
        start: where runs begin, and the last one ends, shape (n + 1,). cost: of all positions before one, ascending.

    Returns:
        where blocks begin, and the last one ends.
    """
    blocks = np.empty(len(start), dtype=np.int64)
    n = 0
    blocks[0] = start[0]
    for k in range(1, len(start)):
        if cost[start[k]] - cost[blocks[n]] > limit and start[k - 1] > blocks[n]:
            n += 1
            blocks[n] = start[k - 1]
    if len(start) > 1:
        n += 1
        blocks[n] = start[-1]
    return blocks[: n + 1]


@kernel((int64, int64, int32[::1], INDEX, INDEX, FLAT, FLAT))
def gather(lo, hi, edge, cell, table_start, factors, out):  # type: ignore[no-untyped-def]
    """Brings the tables of a block's edges, which lie anywhere in `factors`, into their order."""
    for v in range(lo, hi):
        if edge[v] >= 0:
            here, there = U(cell[v] - cell[lo]), U(table_start[edge[v]])
            for c in range(U(cell[v + 1] - cell[v])):
                out[here + c] = factors[there + c]


@kernel((int64, int64, int32[::1], INDEX, INDEX, FLAT, FLAT))
def scatter(lo, hi, edge, cell, table_start, tables, factors):  # type: ignore[no-untyped-def]
    """The way back of `gather`."""
    for v in range(lo, hi):
        if edge[v] >= 0:
            here, there = U(cell[v] - cell[lo]), U(table_start[edge[v]])
            for c in range(U(cell[v + 1] - cell[v])):
                factors[there + c] = tables[here + c]


@kernel((INDEX, FLAT))
def shift(start, values):  # type: ignore[no-untyped-def]
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
            if table[c] < -WIDE and table[c] > -np.inf:
                ok = False
    return total, ok


@kernel(inline="always")
def _absorb(k, own, belief, start, message):  # type: ignore[no-untyped-def]
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
    if high > MOST or low < LEAST:
        ok = high > 0.0 and high < np.inf
        taken = np.log(high) if ok else 0.0
        for a in range(k):
            belief[own + a] /= high
            if belief[own + a] < LEAST and belief[own + a] > 0.0:
                ok = False
    return taken, ok


@kernel((*BLOCK, int64, *GEOMETRY, *TABLES), fastmath=FAST, error_model="numpy")
def up(  # type: ignore[no-untyped-def]
    lo, hi, stop, first, parent, parent_first, cardinality, state_start, message_start, cell, tables, belief, message
):
    """Messages from children to parents. The marginals of roots are then in `belief`.

    Args:
        stop: parents at or after this position are not touched; their messages only stand in `message`.
        tables: exponentials of the block's log potentials.
        belief: exponentials of the nodes' log potentials, times messages from before; all positions.
        message: from each position to its parent, at `message_start`; not normalised.

    Returns:
        log of all factors that were taken out, those of roots being their sums; ok.
    """
    state_base, message_base = state_start[first], message_start[first]
    log_scale = 0.0
    for v in range(lo, hi):
        p = parent[v]
        n, own = U(cardinality[v]), U(state_start[v] - state_base)
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
        k, out, c = U(cardinality[p]), U(message_start[v] - message_base), U(cell[v] - cell[lo])
        if parent_first[v]:
            for a in range(k):
                total = 0.0
                for x in range(n):
                    total += tables[c + x] * belief[own + x]
                message[out + a] = total
                c += n
        else:
            for a in range(k):
                message[out + a] = tables[c + a] * belief[own]
            for x in range(U(1), n):
                c += k
                here = belief[own + x]
                for a in range(k):
                    message[out + a] += tables[c + a] * here
        if p < stop:
            taken, ok = _absorb(k, U(state_start[p] - state_base), belief, out, message)
            log_scale += taken
            if not ok:
                return log_scale, False
    return log_scale, True


@kernel((INDEX, *ROOTS))
def absorb_roots(roots, first, parent, state_start, message_start, belief, message):  # type: ignore[no-untyped-def]
    """Multiplies the messages of hanging subtrees into the spine. Returns as `up`."""
    state_base, message_base = state_start[first], message_start[first]
    log_scale = 0.0
    for r in range(len(roots)):
        p = parent[roots[r]]
        k = U(state_start[p + 1] - state_start[p])
        taken, ok = _absorb(
            k, U(state_start[p] - state_base), belief, U(message_start[roots[r]] - message_base), message
        )
        log_scale += taken
        if not ok:
            return log_scale, False
    return log_scale, True


@kernel((*BLOCK, *GEOMETRY, *TABLES), fastmath=FAST, error_model="numpy")
def down(lo, hi, first, parent, parent_first, cardinality, state_start, message_start, cell, tables, belief, message):  # type: ignore[no-untyped-def]
    """Marginals from parents to children: `P(a, x) = P(a) / message(a) * table(a, x) belief(x)`, without a cancellation.

    Args:
        tables: as for `up`; overwritten by the marginals of the edges.
        belief: parents hold their marginals, and so do all positions of the block afterwards.
        message: as `up` leaves it; overwritten.
    """
    state_base, message_base = state_start[first], message_start[first]
    largest = 1
    for v in range(lo, hi):
        largest = max(largest, cardinality[v])
    sums = np.empty(largest)
    for v in range(hi - 1, lo - 1, -1):
        p = parent[v]
        if p < 0:
            continue
        n, own = U(cardinality[v]), U(state_start[v] - state_base)
        k, above = U(cardinality[p]), U(state_start[p] - state_base)
        ratio, c = U(message_start[v] - message_base), U(cell[v] - cell[lo])
        for a in range(k):
            below = message[ratio + a]
            message[ratio + a] = belief[above + a] / below if below > 0.0 else 0.0
        if parent_first[v] and n < SHORT:
            for x in range(n):
                here = belief[own + x]
                total = 0.0
                at = c + x
                for a in range(k):
                    joint = message[ratio + a] * tables[at] * here
                    tables[at] = joint
                    total += joint
                    at += n
                belief[own + x] = total
        elif parent_first[v]:
            for x in range(n):
                sums[x] = 0.0
            for a in range(k):
                here = message[ratio + a]
                for x in range(n):
                    joint = here * tables[c + x] * belief[own + x]
                    tables[c + x] = joint
                    sums[x] += joint
                c += n
            for x in range(n):
                belief[own + x] = sums[x]
        else:
            for x in range(n):
                here = belief[own + x]
                total = 0.0
                for a in range(k):
                    joint = message[ratio + a] * tables[c + a] * here
                    tables[c + a] = joint
                    total += joint
                belief[own + x] = total
                c += k


@kernel((*BLOCK, int64, *GEOMETRY, *TABLES))
def log_up(  # type: ignore[no-untyped-def]
    lo, hi, stop, first, parent, parent_first, cardinality, state_start, message_start, cell, tables, belief, message
):
    """As `up`, in the log domain throughout. Returns the log partition of the block's roots, -inf where nothing can be."""
    state_base, message_base = state_start[first], message_start[first]
    log_partition = 0.0
    for v in range(lo, hi):
        p = parent[v]
        own = belief[state_start[v] - state_base : state_start[v + 1] - state_base]
        if p < 0:
            log_partition += _normalise(own)
            continue
        k = cardinality[p]
        out = message[message_start[v] - message_base : message_start[v] - message_base + k]
        start = cell[v] - cell[lo]
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
        if p < stop:
            for a in range(k):
                belief[state_start[p] - state_base + a] += out[a]
    return log_partition


@kernel()
def _normalise(values):  # type: ignore[no-untyped-def]
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


@kernel((INDEX, *ROOTS))
def log_absorb_roots(roots, first, parent, state_start, message_start, belief, message):  # type: ignore[no-untyped-def]
    """As `absorb_roots`, in the log domain; also of `max_up`."""
    state_base, message_base = state_start[first], message_start[first]
    for r in range(len(roots)):
        p = parent[roots[r]]
        for a in range(state_start[p + 1] - state_start[p]):
            belief[state_start[p] - state_base + a] += message[message_start[roots[r]] - message_base + a]


@kernel((*BLOCK, *GEOMETRY, *TABLES))
def log_down(  # type: ignore[no-untyped-def]
    lo, hi, first, parent, parent_first, cardinality, state_start, message_start, cell, tables, belief, message
):
    """As `down`, with tables, messages and the block's own beliefs in the log domain; parents hold marginals."""
    state_base, message_base = state_start[first], message_start[first]
    largest = 1
    for v in range(lo, hi):
        largest = max(largest, cardinality[v])
    sums = np.empty(largest)
    for v in range(hi - 1, lo - 1, -1):
        p = parent[v]
        if p < 0:
            continue
        own = belief[state_start[v] - state_base : state_start[v + 1] - state_base]
        above = belief[state_start[p] - state_base : state_start[p + 1] - state_base]
        start = cell[v] - cell[lo]
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
                tables[c + x * step] = joint
                sums[x] += joint
        for x in range(len(own)):
            own[x] = sums[x]


@kernel((*BLOCK, int64, *GEOMETRY, *TABLES, int32[::1]), error_model="numpy")
def max_up(  # type: ignore[no-untyped-def]
    lo,
    hi,
    stop,
    first,
    parent,
    parent_first,
    cardinality,
    state_start,
    message_start,
    cell,
    tables,
    belief,
    message,
    choice,
):
    """Max-product from children to parents, on log potentials.

    Args:
        choice: for each state of the parent the child's best state, laid out as `message`; of equal ones the lowest.
    """
    state_base, message_base = state_start[first], message_start[first]
    for v in range(lo, hi):
        p = parent[v]
        if p < 0:
            continue
        n, own = U(cardinality[v]), U(state_start[v] - state_base)
        k, out, c = U(cardinality[p]), U(message_start[v] - message_base), U(cell[v] - cell[lo])
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
        if p < stop:
            above = U(state_start[p] - state_base)
            for a in range(k):
                belief[above + a] += message[out + a]


@kernel((*BLOCK, int32[::1], INDEX, INDEX, FLAT, int32[::1], int32[::1]))
def max_down(lo, hi, first, parent, state_start, message_start, belief, choice, states):  # type: ignore[no-untyped-def]
    """The best states of a block, parents first. Returns the score of its roots."""
    state_base, message_base = state_start[first], message_start[first]
    score = 0.0
    for v in range(hi - 1, lo - 1, -1):
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
