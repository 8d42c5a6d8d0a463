"""Gibbs sampling over sets of nodes: each set is drawn exactly given all other nodes."""

from __future__ import annotations

from numba import boolean, float64, int32, int64, types

from relcrf.kernels.compile import allocation_free_kernel, inline_kernel
from relcrf.kernels.factors import FACTORS, common_state, row_offset
from relcrf.kernels.forest_sampling import (
    NODE_SETS,
    condition_on_parent,
    fill_pair_table,
    filter_upward,
    sample_downward,
)

SWEEP_TYPES = (
    (FACTORS, NODE_SETS, float64[::1], float64[::1], float64[:, ::1], boolean, int32[::1])
    + (float64[::1],) * 4
    + (int64[::1], types.UniTuple(float64[::1], 5))
)
"""Types of what both kinds of sweeps take."""


@inline_kernel
def _add_conditionals(factors, sets, factor_table, s, states, belief, pair, out, joint, chance, now, tables):
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
            condition_on_parent(first, n, belief, pair, -1, states[v], out)
            for x in range(n):
                chance[first + x] = out[x]
        else:
            n_parent = cardinality[p]
            fill_pair_table(factors, sets, factor_table, k, n, n_parent, states, pair)
            for x in range(n):
                chance[first + x] = 0.0
            for y in range(n_parent):
                above = chance[state_start[p] + y]
                if above > 0.0:
                    condition_on_parent(first, n, belief, pair, y, states[v], out)
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
                common = common_state(start[f], start[f + 1], place, other, node, states)
                for x in range(n):
                    if common == -2 or common == x:
                        value = joint[x * n + x] if other >= 0 else chance[first + x]
                        tables[table_start[f]] += value
                continue
            cell = table_start[f] + row_offset(start[f], start[f + 1], place, other, node, stride, states)
            for x in range(n):
                at = cell + x * stride[place]
                if other < 0:
                    tables[at] += chance[first + x]
                else:
                    for y in range(n_parent):
                        tables[at + y * stride[other]] += joint[y * n + x]


@allocation_free_kernel(*SWEEP_TYPES)
def run_sweeps(
    factors, sets, node_table, factor_table, uniform, taking, states, now, total, square, tables, n_taken, work
):
    """Draws all sets in turn, once for each row of `uniform`.

    Args:
        uniform: in [0, 1), shape (n_sweeps, len(sets.node)).
        taking: whether probabilities are added up: of each node given what stands still while its set is drawn.
        states: of all nodes; changed.
        now: scratch, flat as node tables.
        total, square: of node probabilities and of their squares, flat; added to. tables: likewise of factors.
        n_taken: shape (1,); how many sweeps `tables` has; added to.
    """
    belief, chance, pair, joint, out = work
    for sweep in range(len(uniform)):
        for s in range(len(sets.start) - 1):
            filter_upward(factors, sets, node_table, factor_table, s, states, belief, pair)
            if taking:
                _add_conditionals(factors, sets, factor_table, s, states, belief, pair, out, joint, chance, now, tables)
            sample_downward(factors, sets, factor_table, s, uniform[sweep, sets.start[s] :], belief, pair, out, states)
        if taking:
            n_taken[0] += 1
            for at in range(len(now)):
                total[at] += now[at]
                square[at] += now[at] * now[at]
