"""Depth-first branch and bound for the most probable joint state, with the dual of `dual_decomposition` as the bound.

A *search node* restricts the possible states of the nodes of the graph. Messages are updated only where a restriction
changes the max-marginals. Each update of a node v also yields, for each state x of v, an upper bound of the scores of all
joint states with v = x; a state whose bound is not above the best known score is removed.

All changes below the current search node are undone from two trails: pairs of an index and the old value, one trail for
the numbers (messages and bounds) and one for the removed states.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import boolean, float64, int32, int64, types

from relcrf.kernels.compile import kernel
from relcrf.kernels.dual_decomposition import compute_max_marginals
from relcrf.kernels.factors import FACTORS, max_arity, max_cardinality


class BoundedState(NamedTuple):
    """The restrictions, messages and bounds of the current search node, and what is needed to undo their changes.

    Args:
        order: the nodes in the order of the passes, shape (n_nodes,).
        rank: position of each node in `order`.
        message_start: offset of each slot's message in `number`; the bounds of the nodes follow the messages, then the
            bounds of the factors. The sum of all these bounds is the upper bound of the search node.
        number: messages and bounds, flat.
        alive: mask of the possible states of all nodes, flat.
        owner: node of each state.
        n_alive: number of possible states of each node.
        mode: the best state of each node at its last update.
        changed: mask of the nodes whose max-marginals may have changed.
        weight: number of factors of each node plus the number of failures at the node (weighted degree).
        saved_at: for each number, the serial number of the search node that last saved it.
        trail_index, trail_value: the trail of the numbers.
        dead: the trail of removed states, as indices in `alive`.
        total: the bound of the search node, shape (1,).
        counts: sizes of the two trails, and the serial number of the current search node, shape (3,).
    """

    order: np.ndarray
    rank: np.ndarray
    message_start: np.ndarray
    number: np.ndarray
    alive: np.ndarray
    owner: np.ndarray
    n_alive: np.ndarray
    mode: np.ndarray
    changed: np.ndarray
    weight: np.ndarray
    saved_at: np.ndarray
    trail_index: np.ndarray
    trail_value: np.ndarray
    dead: np.ndarray
    total: np.ndarray
    counts: np.ndarray


_I64, _F64, _B = int64[::1], float64[::1], boolean[::1]
BOUNDED_STATE = types.NamedTuple(
    (_I64, _I64, _I64, _F64, _B, int32[::1], _I64, int32[::1], _B, _F64, _I64, _I64, _F64, _I64, _F64, _I64),
    BoundedState,
)
"""The Numba type of `BoundedState`."""

MAX_PASSES = 20
"""Maximum number of passes at a search node. With 6 passes, Promedas_25 of UAI 2014 needs 5 times as many failures."""

TOLERANCE = 0.01
"""Change of a message that is propagated, relative to the gap between the bound and the best score."""


@kernel()
def _write(state, at, value):
    """Change a number, after saving the old value once per search node."""
    if state.saved_at[at] != state.counts[2]:
        state.saved_at[at] = state.counts[2]
        state.trail_index[state.counts[0]] = at
        state.trail_value[state.counts[0]] = state.number[at]
        state.counts[0] += 1
    state.number[at] = value


@kernel()
def _remove(factors, state, v, x):
    """Remove a state of a node, and mark the other nodes of its factors as changed."""
    at = factors.state_start[v] + x
    state.alive[at] = False
    state.n_alive[v] -= 1
    state.dead[state.counts[1]] = at
    state.counts[1] += 1
    state.changed[v] = True
    _mark_neighbours(factors, state, v)


@kernel()
def _mark_neighbours(factors, state, v):
    for t in range(factors.touch_start[v], factors.touch_start[v + 1]):
        _mark_scope(factors, state, factors.touch[t])


@kernel()
def _mark_scope(factors, state, slot):
    f = factors.factor[slot]
    for p in range(factors.start[f], factors.start[f + 1]):
        if p != slot:
            state.changed[factors.node[p]] = True


@kernel()
def _update_node(factors, node_table, factor_table, state, v, forward, cutoff, tolerance, total, out, digit):
    """Update the messages of a node, and remove the states whose bound is at most `cutoff`.

    Returns:
        False if no joint state of the search node has a score above `cutoff`.
    """
    start, node, touch, factor = factors.start, factors.node, factors.touch, factors.factor
    alive, number, n_alive, rank, message_start = (
        state.alive,
        state.number,
        state.n_alive,
        state.rank,
        state.message_start,
    )
    n = factors.cardinality[v]
    first = factors.state_start[v]
    n_touch = factors.touch_start[v + 1] - factors.touch_start[v]
    node_at = message_start[-1] + v
    factor_at = message_start[-1] + len(factors.cardinality)
    before = number[node_at]
    n_receivers = 0
    for x in range(n):
        total[x] = node_table[first + x] if alive[first + x] else -np.inf
    for k in range(n_touch):
        slot = touch[factors.touch_start[v] + k]
        f = factor[slot]
        before += number[factor_at + f]
        compute_max_marginals(factors, factor_table, slot, message_start, number, alive, digit, out[k])
        for x in range(n):
            total[x] += out[k, x]
        receives = False
        for p in range(start[f], start[f + 1]):
            u = node[p]
            receives = receives or (n_alive[u] > 1 and ((rank[u] > rank[v]) if forward else (rank[u] < rank[v])))
        out[k, n] = receives
        n_receivers += receives
    top = -np.inf
    mode = -1
    for x in range(n):
        if total[x] > top:
            top = total[x]
            mode = x
    state.total[0] += top - before
    bound = state.total[0]
    if not bound > cutoff:
        return False
    state.mode[v] = mode
    for x in range(n):
        if alive[first + x] and not bound + (total[x] - top) > cutoff:
            _remove(factors, state, v, x)
    _write(state, node_at, top)
    for k in range(n_touch):
        slot = touch[factors.touch_start[v] + k]
        _write(state, factor_at + factor[slot], 0.0)
        low = np.inf
        high = -np.inf
        for x in range(n):
            at = message_start[slot] + x
            if alive[first + x]:
                value = out[k, x]
                if out[k, n] > 0.0 and n_alive[v] > 1:
                    value -= (total[x] - top) / n_receivers
                low = min(low, value - number[at])
                high = max(high, value - number[at])
                _write(state, at, value)
        if high - low > tolerance:
            _mark_scope(factors, state, slot)
    return True


@kernel((FACTORS, float64[::1], float64[::1], BOUNDED_STATE))
def initialise_bounds(factors, node_table, factor_table, state):
    """Compute the bounds of all nodes and factors from the messages, and their sum."""
    out = np.empty(max_cardinality(factors))
    digit = np.empty(max_arity(factors), dtype=np.int64)
    at = state.message_start[-1]
    state.total[0] = 0.0
    for v in range(len(factors.cardinality)):
        top = -np.inf
        for x in range(factors.cardinality[v]):
            if state.alive[factors.state_start[v] + x]:
                value = node_table[factors.state_start[v] + x]
                for t in range(factors.touch_start[v], factors.touch_start[v + 1]):
                    value += state.number[state.message_start[factors.touch[t]] + x]
                if value > top:
                    top = value
                    state.mode[v] = x
        state.number[at + v] = top
        state.total[0] += top
    at += len(factors.cardinality)
    for f in range(len(factors.start) - 1):
        slot = factors.start[f]
        v = factors.node[slot]
        compute_max_marginals(factors, factor_table, slot, state.message_start, state.number, state.alive, digit, out)
        top = -np.inf
        for x in range(factors.cardinality[v]):
            if state.alive[factors.state_start[v] + x]:
                top = max(top, out[x] - state.number[state.message_start[slot] + x])
        state.number[at + f] = top
        state.total[0] += top


@kernel((FACTORS, float64[::1], float64[::1], BOUNDED_STATE, float64, float64))
def propagate(factors, node_table, factor_table, state, best, epsilon):
    """Update changed nodes in alternating passes, until no node is changed or a pass hardly lowers the bound.

    Args:
        best, epsilon: only joint states with a score above `best + epsilon` are of interest.

    Returns:
        False if the search node contains no such joint state; the node at which this is found gains weight.
    """
    n = len(state.order)
    most = 1
    for v in range(n):
        most = max(most, factors.touch_start[v + 1] - factors.touch_start[v])
    total = np.empty(max_cardinality(factors))
    out = np.empty((most, len(total) + 1))
    digit = np.empty(max_arity(factors), dtype=np.int64)
    tolerance = TOLERANCE
    if best > -np.inf:
        tolerance = max(epsilon, TOLERANCE * (state.total[0] - best))
    for k in range(MAX_PASSES):
        forward = k % 2 == 0
        any_changed = False
        before = state.total[0]
        n_dead = state.counts[1]
        for i in range(n):
            v = state.order[i if forward else n - 1 - i]
            if not state.changed[v]:
                continue
            state.changed[v] = False
            any_changed = True
            if not _update_node(
                factors, node_table, factor_table, state, v, forward, best + epsilon, tolerance, total, out, digit
            ):
                state.weight[v] += 1.0
                state.changed[:] = False
                return False
        if not any_changed or (k > 0 and before - state.total[0] <= tolerance and state.counts[1] == n_dead):
            break
    state.changed[:] = False
    return True


@kernel((FACTORS, float64[::1], float64[::1], int32[::1]))
def joint_score(factors, node_table, factor_table, states):
    """Return the score of a joint state."""
    score = 0.0
    for v in range(len(states)):
        score += node_table[factors.state_start[v] + states[v]]
    for f in range(len(factors.start) - 1):
        cell = factors.table_start[f]
        equal = True
        for p in range(factors.start[f], factors.start[f + 1]):
            equal = equal and states[factors.node[p]] == states[factors.node[factors.start[f]]]
            if not factors.agreement[f]:
                cell += states[factors.node[p]] * factors.stride[p]
        if equal or not factors.agreement[f]:
            score += factor_table[cell]
    return score


@kernel()
def _choose_node(factors, state):
    """Return the undecided node with the largest weight per possible state; -1 if all nodes are decided."""
    best = -1
    score = -1.0
    for v in state.order:
        if state.n_alive[v] > 1 and state.weight[v] > score * state.n_alive[v]:
            best = v
            score = state.weight[v] / state.n_alive[v]
    return best


@kernel()
def _decide(factors, state, v, x, chosen):
    """Choose or remove a state of a node; return False if the node has no possible state."""
    first = factors.state_start[v]
    for y in range(factors.cardinality[v]):
        if state.alive[first + y] and (y != x) == (chosen == 1):
            _remove(factors, state, v, y)
    return state.n_alive[v] > 0


@kernel()
def _restore(state, n_numbers, n_dead, total):
    """Undo all changes until the two trails have the given sizes."""
    for at in range(state.counts[0] - 1, n_numbers - 1, -1):
        state.number[state.trail_index[at]] = state.trail_value[at]
    for at in range(state.counts[1] - 1, n_dead - 1, -1):
        state.alive[state.dead[at]] = True
        state.n_alive[state.owner[state.dead[at]]] += 1
    state.counts[0] = n_numbers
    state.counts[1] = n_dead
    state.total[0] = total


@kernel(
    (
        FACTORS,
        float64[::1],
        float64[::1],
        BOUNDED_STATE,
        int64[:, ::1],
        float64,
        float64,
        int64,
        int32[::1],
        int64[:, ::1],
        float64[::1],
    )
)
def explore(factors, node_table, factor_table, state, path, best, epsilon, max_failures, states, decisions, bounds):
    """Search below a search node depth-first, until it is exhausted or after a number of failures.

    A *decision* is a row (node, state, kind): kind 1 chooses the state, and 0 removes it. Each search node first chooses the
    best state of an undecided node, and then removes it. `state` is unchanged at the end, except for the weights.

    Args:
        path: the decisions that lead to the search node.
        best, epsilon: only joint states with a score above `best + epsilon` are searched for.
        states: overwritten by the joint state if a better one is found.
        decisions: overwritten by the decisions below `path` at the end of the search. Each decision of kind 1 has an open
            alternative. Kind 2 marks the end of the decisions that lead to an open search node.
        bounds: overwritten by the bound of the search node before each of these decisions.

    Returns:
        The best score, the number of decisions at the end, and the number of failures.
    """
    n_numbers = np.empty(len(decisions) + 1, dtype=np.int64)
    n_dead = np.empty(len(decisions) + 1, dtype=np.int64)
    candidate = np.empty(len(states), dtype=np.int32)
    base_numbers = state.counts[0]
    base_dead = state.counts[1]
    base_total = state.total[0]
    depth = 0
    failures = 0
    possible = True
    state.counts[2] += 1
    for k in range(len(path)):
        possible = possible and _decide(factors, state, path[k, 0], path[k, 1], path[k, 2])
    while True:
        possible = possible and propagate(factors, node_table, factor_table, state, best, epsilon)
        v = _choose_node(factors, state) if possible else -1
        if possible and v < 0:
            for at in range(len(state.alive)):
                if state.alive[at]:
                    candidate[state.owner[at]] = at - factors.state_start[state.owner[at]]
            score = joint_score(factors, node_table, factor_table, candidate)
            if score > best:
                best = score
                states[:] = candidate
            possible = False
        if possible:
            bounds[depth] = state.total[0]
            full = depth + 1 == len(decisions) or state.counts[0] + 2 * len(state.number) > len(state.trail_index)
            if failures >= max_failures or full:
                decisions[depth, 2] = 2
                depth += 1
                break
            n_numbers[depth] = state.counts[0]
            n_dead[depth] = state.counts[1]
            decisions[depth, 0] = v
            decisions[depth, 1] = state.mode[v]
            decisions[depth, 2] = 1
        else:
            state.changed[:] = False
            failures += 1
            while depth > 0 and decisions[depth - 1, 2] == 0:
                depth -= 1
            if depth == 0:
                break
            depth -= 1
            _restore(state, n_numbers[depth], n_dead[depth], bounds[depth])
            decisions[depth, 2] = 0
        state.counts[2] += 1
        possible = _decide(factors, state, decisions[depth, 0], decisions[depth, 1], decisions[depth, 2])
        depth += 1
    _restore(state, base_numbers, base_dead, base_total)
    return best, depth, failures
