"""Exact samples of sets of nodes whose factors form a forest, the other nodes given: filtering upward, sampling downward.

A *set* is a list of nodes, parents before children. Each factor that touches it has one *entry*: at its only node in the
set, or at the child where it joins two. All other nodes of the factor stand still while the set is drawn.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import boolean, int32, int64, types

from relcrf.kernels.compile import inline_kernel
from relcrf.kernels.factors import common_state, draw_state, row_offset


class NodeSets(NamedTuple):
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


_INT32, _INT64 = int32[::1], int64[::1]
NODE_SETS = types.NamedTuple((_INT64, _INT32, _INT32, _INT64, _INT64, _INT64, boolean[::1], boolean[::1]), NodeSets)
"""The type of `NodeSets` as they are made."""


@inline_kernel
def _add_unary_factors(factors, sets, factor_table, first_place, last_place, states, belief):
    """Adds to the beliefs of positions first_place .. last_place - 1 the factors that have no other node in the set."""
    # Arrays are taken out of their tuples once: to do so costs as much as a small factor.
    factor, start, node, stride = factors.factor, factors.start, factors.node, factors.stride
    agreement, table_start, cardinality = factors.agreement, factors.table_start, factors.cardinality
    state_start, member, entry_start = factors.state_start, sets.node, sets.entry_start
    places, others = sets.place, sets.other
    for k in range(first_place, last_place):
        v = member[k]
        first = state_start[v]
        for e in range(entry_start[k], entry_start[k + 1]):
            if others[e] >= 0:
                continue
            place = places[e]
            f = factor[place]
            if agreement[f]:
                x = common_state(start[f], start[f + 1], place, -1, node, states)
                if x >= 0:
                    belief[first + x] += factor_table[table_start[f]]
                continue
            cell = table_start[f] + row_offset(start[f], start[f + 1], place, -1, node, stride, states)
            for x in range(cardinality[v]):
                belief[first + x] += factor_table[cell + x * stride[place]]


@inline_kernel
def fill_pair_table(factors, sets, factor_table, k, n_child, n_parent, states, pair):
    """Log potentials of a node and its parent, row-major, a row for each state of the parent; into `pair`."""
    factor, start, node, stride = factors.factor, factors.start, factors.node, factors.stride
    agreement, table_start, places, others = factors.agreement, factors.table_start, sets.place, sets.other
    for at in range(n_child * n_parent):
        pair[at] = 0.0
    for e in range(sets.entry_start[k], sets.entry_start[k + 1]):
        place = places[e]
        other = others[e]
        if other < 0:
            continue
        f = factor[place]
        if agreement[f]:
            common = common_state(start[f], start[f + 1], place, other, node, states)
            for x in range(n_child):
                if common == -2 or common == x:
                    pair[x * n_child + x] += factor_table[table_start[f]]
            continue
        cell = table_start[f] + row_offset(start[f], start[f + 1], place, other, node, stride, states)
        for y in range(n_parent):
            for x in range(n_child):
                pair[y * n_child + x] += factor_table[cell + y * stride[other] + x * stride[place]]


@inline_kernel
def filter_upward(factors, sets, node_table, factor_table, s, states, belief, pair):
    """Log of the sum over all that is below each node of set `s`, for each of its states; into `belief`, flat.

    Args:
        pair: scratch, the square of the largest cardinality.
    """
    cardinality, state_start, member, parent = factors.cardinality, factors.state_start, sets.node, sets.parent
    for k in range(sets.start[s], sets.start[s + 1]):
        v = member[k]
        for at in range(state_start[v], state_start[v + 1]):
            belief[at] = node_table[at]
    _add_unary_factors(factors, sets, factor_table, sets.start[s], sets.start[s + 1], states, belief)
    for k in range(sets.start[s + 1] - 1, sets.start[s] - 1, -1):
        p = parent[k]
        if p < 0:
            continue
        v = member[k]
        n = cardinality[v]
        first = state_start[v]
        fill_pair_table(factors, sets, factor_table, k, n, cardinality[p], states, pair)
        for y in range(cardinality[p]):
            top = -np.inf
            for x in range(n):
                top = max(top, belief[first + x] + pair[y * n + x])
            if top > -np.inf:
                total = 0.0
                for x in range(n):
                    total += np.exp(belief[first + x] + pair[y * n + x] - top)
                top += np.log(total)
            belief[state_start[p] + y] += top


@inline_kernel
def condition_on_parent(first, n, belief, pair, y, stay, out):
    """Probabilities of a node given its parent's state `y` (-1 at roots) and all that is below; into `out`.

    Args:
        first, n: where the node's states begin in `belief`, and how many they are.
        pair: as `fill_pair_table` makes it. stay: the state that gets all where nothing can be.
    """
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
    else:
        total = 0.0
        for x in range(n):
            out[x] = np.exp(out[x] - top)
            total += out[x]
        for x in range(n):
            out[x] /= total


@inline_kernel
def sample_downward(factors, sets, factor_table, s, uniform, belief, pair, out, states):
    """Draws set `s` after `upward`, each node given its parent; into `states`.

    Args:
        uniform: in [0, 1), one for each node of the set. out: scratch, the largest cardinality.
    """
    cardinality, state_start, member, parent = factors.cardinality, factors.state_start, sets.node, sets.parent
    for k in range(sets.start[s], sets.start[s + 1]):
        v = member[k]
        p = parent[k]
        n = cardinality[v]
        if p >= 0:
            fill_pair_table(factors, sets, factor_table, k, n, cardinality[p], states, pair)
        condition_on_parent(state_start[v], n, belief, pair, states[p] if p >= 0 else -1, states[v], out)
        states[v] = draw_state(n, out, uniform[k - sets.start[s]])
