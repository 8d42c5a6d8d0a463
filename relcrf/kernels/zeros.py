"""Propagation of zeros: states that no possible joint state of a factor's nodes contains become impossible.

Source: generalised arc consistency, as in Mackworth, Consistency in networks of relations (1977), and Mohr & Masini, Good old
discrete relaxation (1988).
"""

from __future__ import annotations

import numpy as np
from numba import boolean, float64

from relcrf.kernels.compile import kernel
from relcrf.kernels.factors import FACTORS


@kernel()
def _mark_supported(factors, factor_tables, f, possible, digit, supported):
    """Mark the states of a factor's nodes that occur in a possible cell; `supported` has one number per slot and state."""
    first, stop = factors.start[f], factors.start[f + 1]
    node, state_start, cardinality = factors.node, factors.state_start, factors.cardinality
    width = supported.shape[1]
    for k in range(stop - first):
        digit[k] = 0
        for x in range(width):
            supported[k, x] = False
    if factors.agreement[f]:
        # Only the cells in which all nodes have the same state can be impossible.
        for other in range(stop - first):
            start = state_start[node[first + other]]
            n_possible, last = 0, -1
            for y in range(cardinality[node[first + other]]):
                if possible[start + y]:
                    n_possible += 1
                    last = y
            for k in range(stop - first):
                for x in range(cardinality[node[first + k]]):
                    if other != k and n_possible - (x == last) > 0:
                        supported[k, x] = True
        return
    for cell in range(factors.table_start[f], factors.table_start[f + 1]):
        is_possible = factor_tables[cell] > -np.inf
        for k in range(stop - first):
            is_possible &= possible[state_start[node[first + k]] + digit[k]]
        if is_possible:
            for k in range(stop - first):
                supported[k, digit[k]] = True
        for k in range(stop - first - 1, -1, -1):
            digit[k] += 1
            if digit[k] < cardinality[node[first + k]]:
                break
            digit[k] = 0


@kernel((FACTORS, float64[::1], boolean[::1]))
def propagate_zeros(factors, factor_tables, possible):
    """Mark states as impossible until each possible state of a node occurs in a possible cell of each of the node's factors.

    Args:
        possible: mask of the possible states of all nodes, shape (state_start[-1],); updated in place.

    Returns:
        False if a node has no possible state, i.e. if no joint state is possible; propagation then stops.
    """
    n_nodes, n_factors = len(factors.cardinality), len(factors.start) - 1
    node, state_start = factors.node, factors.state_start
    max_arity = max_states = 1
    queue, is_queued = np.empty(n_factors, dtype=np.int64), np.zeros(n_factors, dtype=np.bool_)
    has_zero = np.zeros(n_factors, dtype=np.bool_)
    for v in range(n_nodes):
        max_states = max(max_states, factors.cardinality[v])
        is_empty = True
        for at in range(state_start[v], state_start[v + 1]):
            is_empty &= not possible[at]
        if is_empty:
            return False
    n_queued = 0
    for f in range(n_factors):
        max_arity = max(max_arity, factors.start[f + 1] - factors.start[f])
        for cell in range(factors.table_start[f], factors.table_start[f + 1]):
            has_zero[f] |= factor_tables[cell] == -np.inf
        if has_zero[f]:
            queue[n_queued] = f
            is_queued[f] = True
            n_queued += 1
    digit, supported = np.empty(max_arity, dtype=np.int64), np.empty((max_arity, max_states), dtype=np.bool_)
    head = 0
    while n_queued > 0:
        f = queue[head]
        head = (head + 1) % n_factors
        n_queued -= 1
        is_queued[f] = False
        _mark_supported(factors, factor_tables, f, possible, digit, supported)
        for slot in range(factors.start[f], factors.start[f + 1]):
            v, k = node[slot], slot - factors.start[f]
            is_changed, is_empty = False, True
            for x in range(factors.cardinality[v]):
                if possible[state_start[v] + x] and not supported[k, x]:
                    possible[state_start[v] + x] = False
                    is_changed = True
                is_empty &= not possible[state_start[v] + x]
            if is_empty:
                return False
            if is_changed:
                for t in range(factors.touch_start[v], factors.touch_start[v + 1]):
                    other = factors.factor[factors.touch[t]]
                    if has_zero[other] and not is_queued[other]:
                        queue[(head + n_queued) % n_factors] = other
                        is_queued[other] = True
                        n_queued += 1
    return True
