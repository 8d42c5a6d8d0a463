"""Gibbs sampling over sets of nodes: each set is drawn exactly given all other nodes."""

from __future__ import annotations

import numpy as np
from numba import njit

from relcrf.kernels.factors import agreed, row
from relcrf.kernels.sampling import conditional_of, downward, pair_table, upward


@njit(cache=True, nogil=True)
def _take(factors, sets, factor_table, s, states, belief, pair, out, joint, chance, now, tables):  # type: ignore[no-untyped-def]
    """Probabilities of set `s` given all other nodes, after `upward`: of nodes that count here, and of factors owned here.

    Args:
        chance: each node's probabilities, flat; overwritten for the set. now: likewise, for the nodes that count.
        tables: added to, one cell for an agreement.
    """
    for k in range(sets.start[s], sets.start[s + 1]):
        v = sets.node[k]
        p = sets.parent[k]
        n = factors.cardinality[v]
        first = factors.state_start[v]
        if p < 0:
            conditional_of(factors, belief, pair, v, -1, states[v], out)
            for x in range(n):
                chance[first + x] = out[x]
        else:
            n_parent = factors.cardinality[p]
            pair_table(factors, sets, factor_table, k, n, n_parent, states, pair)
            for x in range(n):
                chance[first + x] = 0.0
            for y in range(n_parent):
                above = chance[factors.state_start[p] + y]
                if above > 0.0:
                    conditional_of(factors, belief, pair, v, y, states[v], out)
                for x in range(n):
                    joint[y * n + x] = above * out[x] if above > 0.0 else 0.0
                    chance[first + x] += joint[y * n + x]
        if sets.counts[k]:
            for at in range(first, first + n):
                now[at] = chance[at]
        for e in range(sets.entry_start[k], sets.entry_start[k + 1]):
            if not sets.owns[e]:
                continue
            place = sets.place[e]
            other = sets.other[e]
            f = factors.factor[place]
            if factors.agreement[f]:
                common = agreed(factors, place, other, states)
                for x in range(n):
                    if common == -2 or common == x:
                        value = joint[x * n + x] if other >= 0 else chance[first + x]
                        tables[factors.table_start[f]] += value
                continue
            cell = row(factors, place, other, states)
            for x in range(n):
                at = cell + x * factors.stride[place]
                if other < 0:
                    tables[at] += chance[first + x]
                else:
                    for y in range(n_parent):
                        tables[at + y * factors.stride[other]] += joint[y * n + x]


@njit(cache=True, nogil=True)
def sweeps(  # type: ignore[no-untyped-def]
    factors, sets, node_table, factor_table, uniform, taking, states, now, total, square, tables, n_taken
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
    largest = 1
    for v in range(len(factors.cardinality)):
        largest = max(largest, factors.cardinality[v])
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
