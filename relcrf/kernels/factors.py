"""Factors around a joint state: what is left of them for one node, coordinate ascent, and a search for what can be.

An impossible cell (-inf) is counted and not added: of two states that one is better whose rules are broken less, and only
where they are broken equally often the larger log potential. So a joint state that cannot be still has a direction.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import boolean, float64, int32, int64, types

from relcrf.kernels.compile import inline_kernel, kernel

NOISE_PROBABILITY = 0.1
"""Share of the draws of `search` at broken rules that look at nothing, so that it leaves dead ends."""


class Factors(NamedTuple):
    """Scopes as kernels take them.

    Args:
        cardinality, state_start, start, node, stride, table_start, agreement: as in `Scopes`; `agreement` is never None.
        factor: the factor of each place of `node`.
        touch_start, touch: for each node the places of `node` where it stands, as CSR.
    """

    cardinality: np.ndarray
    state_start: np.ndarray
    start: np.ndarray
    node: np.ndarray
    stride: np.ndarray
    table_start: np.ndarray
    agreement: np.ndarray
    factor: np.ndarray
    touch_start: np.ndarray
    touch: np.ndarray


_INT32, _INT64 = int32[::1], int64[::1]
FACTORS = types.NamedTuple(
    (_INT32, _INT64, _INT64, _INT32, _INT64, _INT64, boolean[::1], _INT64, _INT64, _INT64), Factors
)
"""The type of `Factors` as they are made."""


@kernel()
def max_cardinality(factors):
    """The largest cardinality, at least 1."""
    most = 1
    for v in range(len(factors.cardinality)):
        most = max(most, factors.cardinality[v])
    return most


@kernel((FACTORS,))
def max_arity(factors):
    """The largest arity, at least 1."""
    most = 1
    for f in range(len(factors.start) - 1):
        most = max(most, factors.start[f + 1] - factors.start[f])
    return most


@inline_kernel
def advance_cell(factors, first, stop, place, digit, cell):
    """Counts on to the next joint state of a factor's nodes, the last fastest, but for the node at `place`, if it is one of them.

    Args:
        first, stop: the factor's places are first .. stop - 1.
        digit: the states of its nodes, from 0 on; changed. cell: of its table.

    Returns:
        the next cell; -1 after the last, and then all digits are 0 again.
    """
    for q in range(stop - 1, first - 1, -1):
        if q == place:
            continue
        digit[q - first] += 1
        cell += factors.stride[q]
        if digit[q - first] < factors.cardinality[factors.node[q]]:
            return cell
        cell -= factors.stride[q] * digit[q - first]
        digit[q - first] = 0
    return np.int64(-1)


@kernel()
def draw_state(n, weight, left):
    """The state in which so much of the weight of n states is used up; of weight 0 none is drawn but state 0."""
    state = 0
    for x in range(n):
        if weight[x] > 0.0:
            state = x
            left -= weight[x]
            if left < 0.0:
                break
    return state


@kernel()
def row_offset(first, last, place, other, node, stride, states):
    """How far into its table a factor's nodes lead with their states, without those at two places.

    Args:
        first, last: the factor's places are first .. last - 1.
        other: the second of the places that are left out, or -1.
    """
    step = 0
    for p in range(first, last):
        if p != place and p != other:
            step += states[node[p]] * stride[p]
    return step


@kernel()
def common_state(first, last, place, other, node, states):
    """The state that these nodes have; -1 where they differ, -2 where there are none. See `row`."""
    common = -2
    for p in range(first, last):
        if p != place and p != other:
            x = states[node[p]]
            if common == -2:
                common = x
            elif common != x:
                return -1
    return common


@kernel()
def compute_conditional(factors, node_table, factor_table, v, states, value, broken):
    """For each state of a node, the others at theirs: the sum of what is finite, and how many rules it breaks.

    What a node by itself cannot be breaks more than all its factors.

    Args:
        value, broken: overwritten up to the node's cardinality.
    """
    # Arrays are taken out of their tuple once: to do so costs as much as a small factor.
    touch_start, touch, factor, start = factors.touch_start, factors.touch, factors.factor, factors.start
    node, stride, table_start, agreement = factors.node, factors.stride, factors.table_start, factors.agreement
    first = factors.state_start[v]
    n = factors.cardinality[v]
    for x in range(n):
        value[x] = node_table[first + x]
        broken[x] = 0
        if value[x] == -np.inf:
            value[x] = 0.0
            broken[x] = 1 + touch_start[v + 1] - touch_start[v]
    for t in range(touch_start[v], touch_start[v + 1]):
        place = touch[t]
        f = factor[place]
        if agreement[f]:
            x = common_state(start[f], start[f + 1], place, -1, node, states)
            if x >= 0:
                weight = factor_table[table_start[f]]
                if weight == -np.inf:
                    broken[x] += 1
                else:
                    value[x] += weight
            continue
        cell = table_start[f] + row_offset(start[f], start[f + 1], place, -1, node, stride, states)
        for x in range(n):
            weight = factor_table[cell + x * stride[place]]
            if weight == -np.inf:
                broken[x] += 1
            else:
                value[x] += weight


@kernel((FACTORS, float64[::1], float64[::1], int64, int32[::1]))
def iterate_conditional_modes(factors, node_table, factor_table, most, states):
    """Sets each node to its best state given the others until none changes (iterated conditional modes, Besag 1986).

    Args:
        most: sweeps, after which it ends anyway.
        states: of all nodes; changed.
    """
    largest = max_cardinality(factors)
    value = np.empty(largest)
    broken = np.empty(largest, dtype=np.int64)
    for _ in range(most):
        changed = False
        for v in range(len(factors.cardinality)):
            compute_conditional(factors, node_table, factor_table, v, states, value, broken)
            best = states[v]
            for x in range(factors.cardinality[v]):
                if broken[x] < broken[best] or (broken[x] == broken[best] and value[x] > value[best]):
                    best = x
            if best != states[v]:
                states[v] = best
                changed = True
        if not changed:
            break


@kernel((FACTORS, float64[::1], float64[::1], float64[:, :, ::1], int32[::1]))
def search_feasible_state(factors, node_table, factor_table, uniform, states):
    """Draws each node among its states of fewest broken rules, until no rule is broken or the random numbers end.

    Args:
        uniform: in [0, 1), shape (n_sweeps, n_nodes, 2).
        states: of all nodes; changed.

    Returns:
        whether the joint state can be.
    """
    largest = max_cardinality(factors)
    value = np.empty(largest)
    broken = np.empty(largest, dtype=np.int64)
    for s in range(len(uniform)):
        total = 0
        for v in range(len(factors.cardinality)):
            n = factors.cardinality[v]
            compute_conditional(factors, node_table, factor_table, v, states, value, broken)
            fewest = broken[0]
            for x in range(n):
                fewest = min(fewest, broken[x])
            limit = fewest
            if fewest > 0 and uniform[s, v, 1] < NOISE_PROBABILITY:
                limit = max(fewest, factors.touch_start[v + 1] - factors.touch_start[v])
                for x in range(n):
                    value[x] = 0.0
            top = -np.inf
            for x in range(n):
                if broken[x] <= limit:
                    top = max(top, value[x])
            mass = 0.0
            for x in range(n):
                value[x] = np.exp(value[x] - top) if broken[x] <= limit else 0.0
                mass += value[x]
            states[v] = draw_state(n, value, uniform[s, v, 0] * mass)
            total += broken[states[v]]
        if total == 0:
            return True
    return False
