"""Exact samples of sets of nodes whose factors form a forest, the other nodes given: filtering upward, sampling downward.

A *set* is a list of nodes, parents before children. Each factor that touches it has one *entry*: at its only node in the
set, or at the child where it joins two. All other nodes of the factor stand still while the set is drawn.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from relcrf.kernels.factors import agreed, row


class Sets(NamedTuple):
    """Sets of nodes one after the other.

    Args:
        start: where each set begins in `node`, shape (n_sets + 1,).
        node, parent: the nodes, and in each set their parents, -1 at roots.
        entry_start: the entries of each position of `node`, as CSR. place: of the node in the scopes' `node`; other: of its
            parent in the same factor, or -1.
        counts: of each position, whether the node's probabilities are to be taken here. owns: likewise of each entry and
            its factor; so that in a sweep each is taken once.
    """

    start: np.ndarray
    node: np.ndarray
    parent: np.ndarray
    entry_start: np.ndarray
    place: np.ndarray
    other: np.ndarray
    counts: np.ndarray
    owns: np.ndarray


@njit(cache=True, nogil=True)
def _add_alone(factors, sets, factor_table, k, v, states, belief):  # type: ignore[no-untyped-def]
    """Adds to a node's belief the factors that have no other node in the set."""
    first = factors.state_start[v]
    n = factors.cardinality[v]
    for e in range(sets.entry_start[k], sets.entry_start[k + 1]):
        place = sets.place[e]
        if sets.other[e] >= 0:
            continue
        f = factors.factor[place]
        if factors.agreement[f]:
            x = agreed(factors, place, -1, states)
            if x >= 0:
                belief[first + x] += factor_table[factors.table_start[f]]
            continue
        cell = row(factors, place, -1, states)
        step = factors.stride[place]
        for x in range(n):
            belief[first + x] += factor_table[cell + x * step]


@njit(cache=True, nogil=True)
def pair_table(factors, sets, factor_table, k, n_child, n_parent, states, pair):  # type: ignore[no-untyped-def]
    """Log potentials of a node and its parent, row-major, a row for each state of the parent; into `pair`."""
    pair[: n_child * n_parent] = 0.0
    for e in range(sets.entry_start[k], sets.entry_start[k + 1]):
        place = sets.place[e]
        other = sets.other[e]
        if other < 0:
            continue
        f = factors.factor[place]
        if factors.agreement[f]:
            common = agreed(factors, place, other, states)
            for x in range(n_child):
                if common == -2 or common == x:
                    pair[x * n_child + x] += factor_table[factors.table_start[f]]
            continue
        cell = row(factors, place, other, states)
        for y in range(n_parent):
            for x in range(n_child):
                at = cell + y * factors.stride[other] + x * factors.stride[place]
                pair[y * n_child + x] += factor_table[at]


@njit(cache=True, nogil=True)
def upward(factors, sets, node_table, factor_table, s, states, belief, pair):  # type: ignore[no-untyped-def]
    """Log of the sum over all that is below each node of set `s`, for each of its states; into `belief`, flat.

    Args:
        pair: scratch, the square of the largest cardinality.
    """
    for k in range(sets.start[s], sets.start[s + 1]):
        v = sets.node[k]
        for at in range(factors.state_start[v], factors.state_start[v + 1]):
            belief[at] = node_table[at]
        _add_alone(factors, sets, factor_table, k, v, states, belief)
    for k in range(sets.start[s + 1] - 1, sets.start[s] - 1, -1):
        p = sets.parent[k]
        if p < 0:
            continue
        v = sets.node[k]
        n = factors.cardinality[v]
        first = factors.state_start[v]
        pair_table(factors, sets, factor_table, k, n, factors.cardinality[p], states, pair)
        for y in range(factors.cardinality[p]):
            top = -np.inf
            for x in range(n):
                top = max(top, belief[first + x] + pair[y * n + x])
            if top > -np.inf:
                total = 0.0
                for x in range(n):
                    total += np.exp(belief[first + x] + pair[y * n + x] - top)
                top += np.log(total)
            belief[factors.state_start[p] + y] += top


@njit(cache=True, nogil=True)
def conditional_of(factors, belief, pair, v, y, stay, out):  # type: ignore[no-untyped-def]
    """Probabilities of a node given its parent's state `y` (-1 at roots) and all that is below; into `out`.

    Args:
        pair: as `pair_table` makes it. stay: the state that gets all where nothing can be.
    """
    n = factors.cardinality[v]
    first = factors.state_start[v]
    top = -np.inf
    for x in range(n):
        out[x] = belief[first + x]
        if y >= 0:
            out[x] += pair[y * n + x]
        top = max(top, out[x])
    if top == -np.inf:
        for x in range(n):
            out[x] = 0.0
        out[stay] = 1.0
        return
    total = 0.0
    for x in range(n):
        out[x] = np.exp(out[x] - top)
        total += out[x]
    for x in range(n):
        out[x] /= total


@njit(cache=True, nogil=True)
def downward(factors, sets, factor_table, s, uniform, belief, pair, out, states):  # type: ignore[no-untyped-def]
    """Draws set `s` after `upward`, each node given its parent; into `states`.

    Args:
        uniform: in [0, 1), one for each node of the set. out: scratch, the largest cardinality.
    """
    for k in range(sets.start[s], sets.start[s + 1]):
        v = sets.node[k]
        p = sets.parent[k]
        n = factors.cardinality[v]
        if p >= 0:
            pair_table(factors, sets, factor_table, k, n, factors.cardinality[p], states, pair)
        conditional_of(factors, belief, pair, v, states[p] if p >= 0 else -1, states[v], out)
        left = uniform[k - sets.start[s]]
        for x in range(n):
            if out[x] > 0.0:
                states[v] = x
                left -= out[x]
                if left < 0.0:
                    break


@njit(cache=True, nogil=True)
def draws(factors, sets, node_table, factor_table, uniform, states):  # type: ignore[no-untyped-def]
    """Independent draws of set 0, which has all nodes.

    Args:
        uniform: in [0, 1), shape (n, n_nodes). states: shape (n, n_nodes); overwritten.

    Returns:
        whether anything can be.
    """
    largest = 1
    for v in range(len(factors.cardinality)):
        largest = max(largest, factors.cardinality[v])
    belief = np.empty(len(node_table))
    pair = np.empty(largest * largest)
    out = np.empty(largest)
    if len(states) > 0:
        states[0] = 0
        upward(factors, sets, node_table, factor_table, 0, states[0], belief, pair)
    for k in range(len(sets.node)):
        if sets.parent[k] < 0:
            v = sets.node[k]
            if belief[factors.state_start[v] : factors.state_start[v + 1]].max() == -np.inf:
                return False
    for i in range(len(states)):
        states[i] = 0
        downward(factors, sets, factor_table, 0, uniform[i], belief, pair, out, states[i])
    return True
