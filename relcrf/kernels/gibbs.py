"""Gibbs sampling over sets of nodes: each set is drawn exactly given all other nodes."""

from __future__ import annotations

import numpy as np
from numba import boolean, float64, int32, int64

from relcrf.kernels.compile import kernel
from relcrf.kernels.factors import FACTORS, agreed, drawn, most_states, row
from relcrf.kernels.sampling import SETS, conditional_of, downward, pair_table, upward

SWEEPS = (
    (FACTORS, SETS, float64[::1], float64[::1], float64[:, ::1], boolean, int32[::1])
    + (float64[::1],) * 4
    + (int64[::1],)
)
"""Types of what both kinds of sweeps take."""


@kernel()
def _take(factors, sets, factor_table, s, states, belief, pair, out, joint, chance, now, tables):
    """Probabilities of set `s` given all other nodes, after `upward`: of nodes that count here, and of factors owned here.

    Args:
        chance: each node's probabilities, flat; overwritten for the set. now: likewise, for the nodes that count.
        tables: added to, one cell for an agreement.
    """
    # Arrays are taken out of their tuples once: to do so costs as much as a small factor.
    factor, start, node, stride = factors.factor, factors.start, factors.node, factors.stride
    agreement, table_start, cardinality = factors.agreement, factors.table_start, factors.cardinality
    state_start, member, parent, entry_start = factors.state_start, sets.node, sets.parent, sets.entry_start
    places, others, owns, counts = sets.place, sets.other, sets.owns, sets.counts
    for k in range(sets.start[s], sets.start[s + 1]):
        v = member[k]
        p = parent[k]
        n = cardinality[v]
        first = state_start[v]
        n_parent = 0
        if p < 0:
            conditional_of(first, n, belief, pair, -1, states[v], out)
            for x in range(n):
                chance[first + x] = out[x]
        else:
            n_parent = cardinality[p]
            pair_table(factors, sets, factor_table, k, n, n_parent, states, pair)
            for x in range(n):
                chance[first + x] = 0.0
            for y in range(n_parent):
                above = chance[state_start[p] + y]
                if above > 0.0:
                    conditional_of(first, n, belief, pair, y, states[v], out)
                for x in range(n):
                    joint[y * n + x] = above * out[x] if above > 0.0 else 0.0
                    chance[first + x] += joint[y * n + x]
        if counts[k]:
            for at in range(first, first + n):
                now[at] = chance[at]
        for e in range(entry_start[k], entry_start[k + 1]):
            if not owns[e]:
                continue
            place = places[e]
            other = others[e]
            f = factor[place]
            if agreement[f]:
                common = agreed(start[f], start[f + 1], place, other, node, states)
                for x in range(n):
                    if common == -2 or common == x:
                        value = joint[x * n + x] if other >= 0 else chance[first + x]
                        tables[table_start[f]] += value
                continue
            cell = table_start[f] + row(start[f], start[f + 1], place, other, node, stride, states)
            for x in range(n):
                at = cell + x * stride[place]
                if other < 0:
                    tables[at] += chance[first + x]
                else:
                    for y in range(n_parent):
                        tables[at + y * stride[other]] += joint[y * n + x]


@kernel(SWEEPS)
def sweeps(factors, sets, node_table, factor_table, uniform, taking, states, now, total, square, tables, n_taken):
    """Draws all sets in turn, once for each row of `uniform`.

    Args:
        uniform: in [0, 1), shape (n_sweeps, len(sets.node)).
        taking: whether probabilities are added up: of each node given what stands still while its set is drawn.
        states: of all nodes; changed.
        now: scratch, flat as node tables.
        total, square: of node probabilities and of their squares, flat; added to. tables: likewise of factors.
        n_taken: shape (1,); how many sweeps `tables` has; added to.
    """
    largest = most_states(factors)
    belief = np.empty(len(node_table))
    chance = np.empty(len(node_table))
    pair = np.empty(largest * largest)
    joint = np.empty(largest * largest)
    out = np.empty(largest)
    for sweep in range(len(uniform)):
        for s in range(len(sets.start) - 1):
            upward(factors, sets, node_table, factor_table, s, states, belief, pair)
            if taking:
                _take(factors, sets, factor_table, s, states, belief, pair, out, joint, chance, now, tables)
            downward(factors, sets, factor_table, s, uniform[sweep, sets.start[s] :], belief, pair, out, states)
        if taking:
            n_taken[0] += 1
            for at in range(len(now)):
                total[at] += now[at]
                square[at] += now[at] * now[at]


@kernel(SWEEPS)
def single_sweeps(
    factors, sets, node_table, factor_table, uniform, taking, states, now, total, square, tables, n_taken
):
    """As `sweeps`, where each set is one node: the same in one loop, ten times as fast as with calls."""
    factor, start, node, stride = factors.factor, factors.start, factors.node, factors.stride
    agreement, table_start, cardinality = factors.agreement, factors.table_start, factors.cardinality
    state_start, member, entry_start, places, owns = (
        factors.state_start, sets.node, sets.entry_start, sets.place, sets.owns,
    )  # fmt: skip
    out = np.empty(most_states(factors))
    for sweep in range(len(uniform)):
        for k in range(len(member)):
            v = member[k]
            n = cardinality[v]
            first = state_start[v]
            for x in range(n):
                out[x] = node_table[first + x]
            for e in range(entry_start[k], entry_start[k + 1]):
                place = places[e]
                f = factor[place]
                if agreement[f]:
                    common = agreed(start[f], start[f + 1], place, -1, node, states)
                    if common >= 0:
                        out[common] += factor_table[table_start[f]]
                    continue
                cell = table_start[f] + row(start[f], start[f + 1], place, -1, node, stride, states)
                for x in range(n):
                    out[x] += factor_table[cell + x * stride[place]]
            top = -np.inf
            for x in range(n):
                top = max(top, out[x])
            mass = 0.0
            for x in range(n):
                if top > -np.inf:
                    out[x] = np.exp(out[x] - top)
                else:  # nothing can be: it stays
                    out[x] = 1.0 if x == states[v] else 0.0
                mass += out[x]
            if taking:
                for x in range(n):
                    now[first + x] = out[x] / mass
                for e in range(entry_start[k], entry_start[k + 1]):
                    if not owns[e]:
                        continue
                    place = places[e]
                    f = factor[place]
                    if agreement[f]:
                        common = agreed(start[f], start[f + 1], place, -1, node, states)
                        if common >= 0:
                            tables[table_start[f]] += out[common] / mass
                        continue
                    cell = table_start[f] + row(start[f], start[f + 1], place, -1, node, stride, states)
                    for x in range(n):
                        tables[cell + x * stride[place]] += out[x] / mass
            states[v] = drawn(n, out, uniform[sweep, k] * mass)
        if taking:
            n_taken[0] += 1
            for at in range(len(now)):
                total[at] += now[at]
                square[at] += now[at] * now[at]
