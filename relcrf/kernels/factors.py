"""Factors given a joint state: conditional potentials of one node, coordinate ascent, and search for a feasible state.

A *violation* is a factor whose table cell for the joint state is impossible (-inf). Violations are counted separately
from the sum of finite log potentials. The better of two states has fewer violations or, if the numbers of violations
are equal, the larger sum. Infeasible joint states can therefore be compared and improved.

A *slot* is an entry of `Factors.node`: one node in the scope of one factor. An *agreement* is a factor with a single
parameter: the log potential of the cells in which all its nodes have the same state. Other cells have log potential 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import boolean, float64, int32, int64, types

from relcrf.kernels.compile import inline_kernel, kernel

NOISE_PROBABILITY = 0.1
"""Probability that `search_feasible_state` draws the state of a violating node uniformly, to escape dead ends."""


class Factors(NamedTuple):
    """The scopes of all factors, as arguments of kernels; see `Scopes`.

    Args:
        cardinality, state_start, start, node, stride, table_start, agreement: as in `Scopes`; `agreement` is never
            None.
        factor: the factor of each slot.
        touch_start, touch: the slots of each node, in CSR form.
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
"""The Numba type of `Factors`."""


@kernel()
def max_cardinality(factors):
    """Return the largest cardinality, at least 1."""
    largest = 1
    for v in range(len(factors.cardinality)):
        largest = max(largest, factors.cardinality[v])
    return largest


@kernel((FACTORS,))
def max_arity(factors):
    """Return the largest arity, at least 1."""
    largest = 1
    for f in range(len(factors.start) - 1):
        largest = max(largest, factors.start[f + 1] - factors.start[f])
    return largest


@inline_kernel
def advance_cell(factors, first, stop, slot, digit, cell):
    """Advance to the next joint state of a factor's nodes, with the last node fastest and the node at `slot` fixed.

    Args:
        first, stop: the factor's slots are first .. stop - 1.
        digit: the states of the factor's nodes; updated in place.
        cell: index of the current joint state in the factor's table.

    Returns:
        The index of the next joint state; -1 after the last joint state, when all digits are 0 again.
    """
    for q in range(stop - 1, first - 1, -1):
        if q == slot:
            continue
        digit[q - first] += 1
        cell += factors.stride[q]
        if digit[q - first] < factors.cardinality[factors.node[q]]:
            return cell
        cell -= factors.stride[q] * digit[q - first]
        digit[q - first] = 0
    return np.int64(-1)


@kernel()
def draw_state(n, weight, remaining):
    """Return the first of n states whose cumulative weight exceeds `remaining`, or state 0 if all weights are 0.

    Args:
        remaining: a random number in [0, 1) times the sum of the weights.
    """
    state = 0
    for x in range(n):
        if weight[x] > 0.0:
            state = x
            remaining -= weight[x]
            if remaining < 0.0:
                break
    return state


@kernel()
def row_offset(first, last, slot, other, node, stride, states):
    """Return the sum of state * stride over a factor's nodes, except the nodes at two slots.

    Args:
        first, last: the factor's slots are first .. last - 1.
        slot, other: the slots to skip; `other` may be -1 (none).
    """
    offset = 0
    for p in range(first, last):
        if p != slot and p != other:
            offset += states[node[p]] * stride[p]
    return offset


@kernel()
def common_state(first, last, slot, other, node, states):
    """Return the common state of all nodes except those at two slots; -1 if states differ, -2 without other nodes."""
    common = -2
    for p in range(first, last):
        if p != slot and p != other:
            x = states[node[p]]
            if common == -2:
                common = x
            elif common != x:
                return -1
    return common


@kernel()
def compute_conditional(factors, node_table, factor_table, v, states, value, violations):
    """Sum the finite log potentials and count the violations of each state of a node, given the states of other nodes.

    A state whose node potential is -inf counts as one violation more than the node has factors.

    Args:
        value, violations: overwritten by the sum and the count of each state of the node.
    """
    # Unpack the tuple once: accessing its arrays costs as much as a small factor.
    touch_start, touch, factor, start = factors.touch_start, factors.touch, factors.factor, factors.start
    node, stride, table_start, agreement = factors.node, factors.stride, factors.table_start, factors.agreement
    first = factors.state_start[v]
    n = factors.cardinality[v]
    for x in range(n):
        value[x] = node_table[first + x]
        violations[x] = 0
        if value[x] == -np.inf:
            value[x] = 0.0
            violations[x] = 1 + touch_start[v + 1] - touch_start[v]
    for t in range(touch_start[v], touch_start[v + 1]):
        slot = touch[t]
        f = factor[slot]
        if agreement[f]:
            x = common_state(start[f], start[f + 1], slot, -1, node, states)
            if x >= 0:
                weight = factor_table[table_start[f]]
                if weight == -np.inf:
                    violations[x] += 1
                else:
                    value[x] += weight
            continue
        cell = table_start[f] + row_offset(start[f], start[f + 1], slot, -1, node, stride, states)
        for x in range(n):
            weight = factor_table[cell + x * stride[slot]]
            if weight == -np.inf:
                violations[x] += 1
            else:
                value[x] += weight


@kernel((FACTORS, float64[::1], float64[::1], int64, int32[::1]))
def iterate_conditional_modes(factors, node_table, factor_table, max_sweeps, states):
    """Set each node in turn to its best state given all other nodes, until a sweep changes no state (Besag 1986).

    A sweep skips the nodes without a neighbour whose state has changed since the node was visited.

    Args:
        max_sweeps: maximum number of sweeps.
        states: states of all nodes; updated in place.
    """
    largest = max_cardinality(factors)
    value = np.empty(largest)
    violations = np.empty(largest, dtype=np.int64)
    is_stale = np.ones(len(factors.cardinality), dtype=np.bool_)
    for _ in range(max_sweeps):
        changed = False
        for v in range(len(factors.cardinality)):
            if not is_stale[v]:
                continue
            is_stale[v] = False
            compute_conditional(factors, node_table, factor_table, v, states, value, violations)
            best = states[v]
            for x in range(factors.cardinality[v]):
                if violations[x] < violations[best] or (violations[x] == violations[best] and value[x] > value[best]):
                    best = x
            if best == states[v]:
                continue
            states[v] = best
            changed = True
            for t in range(factors.touch_start[v], factors.touch_start[v + 1]):
                f = factors.factor[factors.touch[t]]
                for q in range(factors.start[f], factors.start[f + 1]):
                    is_stale[factors.node[q]] = factors.node[q] != v or is_stale[v]
        if not changed:
            break


@kernel((FACTORS, float64[::1], float64[::1], float64[:, :, ::1], int32[::1]))
def search_feasible_state(factors, node_table, factor_table, uniform, states):
    """Draw each node in turn from its states with the fewest violations, until the joint state is feasible.

    Args:
        uniform: random numbers in [0, 1), shape (n_sweeps, n_nodes, 2).
        states: states of all nodes; updated in place.

    Returns:
        True if the joint state is feasible.
    """
    largest = max_cardinality(factors)
    value = np.empty(largest)
    violations = np.empty(largest, dtype=np.int64)
    for s in range(len(uniform)):
        total = 0
        for v in range(len(factors.cardinality)):
            n = factors.cardinality[v]
            compute_conditional(factors, node_table, factor_table, v, states, value, violations)
            fewest = violations[0]
            for x in range(n):
                fewest = min(fewest, violations[x])
            limit = fewest
            if fewest > 0 and uniform[s, v, 1] < NOISE_PROBABILITY:
                limit = max(fewest, factors.touch_start[v + 1] - factors.touch_start[v])
                for x in range(n):
                    value[x] = 0.0
            top = -np.inf
            for x in range(n):
                if violations[x] <= limit:
                    top = max(top, value[x])
            mass = 0.0
            for x in range(n):
                value[x] = np.exp(value[x] - top) if violations[x] <= limit else 0.0
                mass += value[x]
            states[v] = draw_state(n, value, uniform[s, v, 0] * mass)
            total += violations[states[v]]
        if total == 0:
            return True
    return False
