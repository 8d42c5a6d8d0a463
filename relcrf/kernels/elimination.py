"""Greedy elimination of nodes, and the maximal cliques of the resulting chordal graph.

A *missing pair* of a node is a pair of its neighbours without an edge; elimination of the node would add this edge
(fill-in). The *fill* of a node is the sum of the weights of its missing pairs; it is updated incrementally.

Source: min-fill and weighted min-fill, as in Kjaerulff (1990).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import boolean, float64, int32, int64, types

from relcrf.kernels.compile import kernel

INT, LONG, BOOL = int32[::1], int64[::1], boolean[::1]

LOG2_SCALE = 1 << 20
"""Factor that converts base-2 logarithms of cardinalities to integers; sums of integers do not depend on the order."""

_HASH_MULTIPLIER = -7046029254386353131
"""2^64 divided by the golden ratio, as a signed integer: multiplication spreads consecutive keys (Fibonacci hashing)."""


@kernel()
def _find_slot(a, b, n_nodes, pairs):
    """Find the slot of a pair of nodes in the hash table `pairs` or, if the pair is missing, the empty slot for it.

    Args:
        a, b: the nodes, int64.
        pairs: open-addressing hash table of keys, int64. Its length is a power of two. Keys are at least 1. Empty slots
            contain 0, and the table has at least one empty slot.

    Returns:
        The slot of the pair, and the key of the pair.
    """
    key = a * n_nodes + b if a < b else b * n_nodes + a
    slot = (key * _HASH_MULTIPLIER >> 24) & (len(pairs) - 1)
    while pairs[slot] != 0 and pairs[slot] != key:
        slot = (slot + 1) & (len(pairs) - 1)
    return slot, key


@kernel()
def _rehash(pairs, n_nodes, n_pairs):
    """Copy the pairs to a new hash table, in which `n_pairs` pairs fill at most half of the slots."""
    size = 64
    while size < 2 * n_pairs:
        size *= 2
    out = np.zeros(size, dtype=np.int64)
    for key in pairs:
        if key != 0:
            slot, _ = _find_slot(key // n_nodes, key % n_nodes, n_nodes, out)
            out[slot] = key
    return out


@kernel()
def _grow_array(values, size):
    """Copy an array to the start of a longer one."""
    out = np.empty(size, dtype=values.dtype)
    for k in range(len(values)):
        out[k] = values[k]
    return out


@kernel()
def _collect_neighbours(v, head, next_item, item, alive, out):
    """Write the remaining neighbours of `v` to `out` and return their number; unlink eliminated nodes from v's list."""
    n = 0
    last = -1
    at = head[v]
    while at >= 0:
        if alive[item[at]]:
            out[n] = item[at]
            n += 1
            last = at
        elif last < 0:
            head[v] = next_item[at]
        else:
            next_item[last] = next_item[at]
        at = next_item[at]
    return n


@kernel()
def _update_fill(a, b, pairs, head, next_item, item, alive, factor, strength, fill, scratch, changed, n_changed):
    """Insert a new edge (a, b) into `pairs`; update the fill of a, b and their common neighbours.

    Args:
        factor: weight of each node in the weights of pairs; the weight of a pair is the product for its nodes.
        strength: sum of `factor` over the remaining neighbours of each node.
        changed: the first row is a list of `n_changed` distinct nodes, to which the common neighbours are appended; the
            second row flags the nodes in the list.

    Returns:
        The new length of the list.
    """
    n_nodes = len(head)
    smaller, larger = a, b
    if strength[a] > strength[b]:
        smaller, larger = b, a
    common = 0
    for k in range(_collect_neighbours(smaller, head, next_item, item, alive, scratch)):
        c = scratch[k]
        slot, key = _find_slot(c, larger, n_nodes, pairs)
        if pairs[slot] == key:
            common += factor[c]
            fill[c] -= factor[a] * factor[b]
            if changed[1, c] == 0:
                changed[1, c] = 1
                changed[0, n_changed] = c
                n_changed += 1
    fill[a] += factor[b] * (strength[a] - common)
    fill[b] += factor[a] * (strength[b] - common)
    slot, key = _find_slot(a, b, n_nodes, pairs)
    pairs[slot] = key
    return n_changed


@kernel()
def _add_neighbours(a, b, n_items, head, next_item, item, factor, strength, weight, clique_weight):
    """Add two nodes to each other's linked lists of neighbours; return the total length of all lists."""
    item[n_items], next_item[n_items], head[a] = b, head[a], n_items
    item[n_items + 1], next_item[n_items + 1], head[b] = a, head[b], n_items + 1
    strength[a] += factor[b]
    strength[b] += factor[a]
    clique_weight[a] += weight[b]
    clique_weight[b] += weight[a]
    return n_items + 2


@kernel()
def _precedes(first, second, v, other_first, other_second, other, stage, priority):
    """Return True if node `v` precedes `other` in order of stage, then the first key, then the second key, then priority."""
    if stage[v] != stage[other]:
        return stage[v] < stage[other]
    if first != other_first:
        return first < other_first
    if second != other_second:
        return second < other_second
    return priority[v] < priority[other]


@kernel()
def _sift(first, second, v, at, heap, n_heap, position, key_first, key_second, stage, priority):
    """Insert node v with its keys at index `at` of a heap; restore the heap order and the `position` of each node."""
    while at > 0:
        above = (at - 1) >> 1
        if not _precedes(first, second, v, key_first[above], key_second[above], heap[above], stage, priority):
            break
        heap[at], key_first[at], key_second[at] = heap[above], key_first[above], key_second[above]
        position[heap[above]] = at
        at = above
    while 2 * at + 1 < n_heap:
        below = 2 * at + 1
        if below + 1 < n_heap and _precedes(
            key_first[below + 1],
            key_second[below + 1],
            heap[below + 1],
            key_first[below],
            key_second[below],
            heap[below],
            stage,
            priority,
        ):
            below += 1
        if not _precedes(key_first[below], key_second[below], heap[below], first, second, v, stage, priority):
            break
        heap[at], key_first[at], key_second[at] = heap[below], key_first[below], key_second[below]
        position[heap[below]] = at
        at = below
    heap[at], key_first[at], key_second[at] = v, first, second
    position[v] = at


class EliminationRule(NamedTuple):
    """The order in which nodes are eliminated.

    The next node is the one with the least fill; with `lightest_clique`, it is the one with the lightest clique. Ties
    go to the node with the lighter clique (with less fill), then to the node with the lower priority.

    Args:
        factor: weight of each node in the weights of pairs, shape (n_nodes,), int64, at least 1; the weight of a pair is
            the product for its nodes. Weights of 1 give min-fill, where fill is the number of missing pairs.
        stage: stage of each node, shape (n_nodes,), int64; all nodes of a stage are eliminated before those of later stages.
        priority: a distinct number for each node, shape (n_nodes,), int64.
        lightest_clique: whether the weight of the clique comes first.
        add_edges: whether to add the missing pairs of eliminated nodes as edges. If not, each step eliminates the node
            with the lightest clique. The weight of the heaviest clique is then a lower bound for every elimination order:
            at each of these steps, every remaining node has a clique at least as heavy, and every order eliminates one of
            these nodes first.
    """

    factor: np.ndarray
    stage: np.ndarray
    priority: np.ndarray
    lightest_clique: bool
    add_edges: bool


ELIMINATION_RULE = types.NamedTuple((LONG, LONG, LONG, boolean, boolean), EliminationRule)


@kernel((LONG, INT, BOOL, INT, INT, int64, float64, ELIMINATION_RULE))
def eliminate(weight, component, is_included, first, second, limit, max_cells, rule):
    """Eliminate nodes in the greedy order of a rule.

    The *clique* of a node consists of the node and its remaining neighbours. Elimination of a component stops at a clique
    heavier than `limit`; elimination of all components stops if all cliques together have more than `max_cells` cells.

    Args:
        weight: weight of each node, shape (n_nodes,), int64: `LOG2_SCALE` times the base-2 logarithm of its number of
            states. The weight of a clique is the sum over its nodes.
        component: the lowest node of each node's component, shape (n_nodes,).
        is_included: mask of the nodes to eliminate, shape (n_nodes,), bool; a component is included as a whole or not.
        first, second: the two nodes of each edge between included nodes, shape (n_pairs,), int32, without duplicates.

    Returns:
        `order`: the eliminated nodes in order, shape (n,). `start`, shape (n + 1,), and `member`: the clique of each
        eliminated node in CSR form, with the node itself first. `too_heavy`, shape (n_nodes,): for the lowest node of a
        component, the index in `order` of the clique that exceeds the limit, or -1. The number of cells of all cliques.
        The number of steps of the elimination: pairs of nodes in a clique.
    """
    n_nodes = len(weight)
    factor, stage, priority = rule.factor, rule.stage, rule.priority
    head = np.empty(n_nodes, dtype=np.int64)
    item = np.empty(2 * len(first), dtype=np.int32)
    next_item = np.empty(2 * len(first), dtype=np.int64)
    alive = np.empty(n_nodes, dtype=np.bool_)
    strength = np.empty(n_nodes, dtype=np.int64)
    fill = np.empty(n_nodes, dtype=np.int64)
    clique_weight = np.empty(n_nodes, dtype=np.int64)
    too_heavy = np.empty(n_nodes, dtype=np.int64)
    neighbours = np.empty(n_nodes, dtype=np.int64)
    scratch = np.empty(n_nodes, dtype=np.int64)
    changed = np.empty((2, n_nodes), dtype=np.int64)
    for v in range(n_nodes):
        head[v] = too_heavy[v] = -1
        strength[v] = fill[v] = 0
        changed[1, v] = 0
        clique_weight[v] = weight[v]
        alive[v] = is_included[v]
    pairs = _rehash(np.empty(0, dtype=np.int64), n_nodes, len(first) if rule.add_edges else 0)
    n_pairs = n_items = n_changed = 0
    for e in range(len(first)):
        a, b = np.int64(first[e]), np.int64(second[e])
        if rule.add_edges:
            n_changed = _update_fill(
                a, b, pairs, head, next_item, item, alive, factor, strength, fill, scratch, changed, n_changed
            )
            n_pairs += 1
        n_items = _add_neighbours(a, b, n_items, head, next_item, item, factor, strength, weight, clique_weight)
    for k in range(n_changed):
        changed[1, changed[0, k]] = 0

    heap = np.empty(n_nodes, dtype=np.int64)
    position = np.empty(n_nodes, dtype=np.int64)
    key_first = np.empty(n_nodes, dtype=np.int64)
    key_second = np.empty(n_nodes, dtype=np.int64)
    n_heap = 0
    for v in range(n_nodes):
        if alive[v]:
            n_heap += 1
            a, b = (clique_weight[v], fill[v]) if rule.lightest_clique else (fill[v], clique_weight[v])
            _sift(a, b, v, n_heap - 1, heap, n_heap, position, key_first, key_second, stage, priority)
    order = np.empty(n_heap, dtype=np.int32)
    start = np.empty(n_heap + 1, dtype=np.int64)
    start[0] = 0
    member = np.empty(2 * len(first) + 2 * n_nodes + 1, dtype=np.int32)
    n = n_steps = 0
    n_cells = 0.0
    while n_heap > 0 and n_cells <= max_cells:
        v = heap[0]
        n_heap -= 1
        if n_heap > 0:
            last = heap[n_heap]
            a, b = key_first[n_heap], key_second[n_heap]
            _sift(a, b, last, 0, heap, n_heap, position, key_first, key_second, stage, priority)
        if too_heavy[component[v]] >= 0:
            continue
        size = _collect_neighbours(v, head, next_item, item, alive, neighbours)
        end = start[n] + size + 1
        if end > len(member):
            member = _grow_array(member, 2 * end)
        order[n] = v
        member[start[n]] = v
        for i in range(size):
            member[start[n] + 1 + i] = neighbours[i]
        n += 1
        n_steps += (size + 1) * (size + 1)
        start[n] = end
        if clique_weight[v] > limit:
            too_heavy[component[v]] = n - 1
            continue
        n_cells += 2.0 ** (clique_weight[v] / LOG2_SCALE)
        n_changed = 0
        if rule.add_edges and fill[v] > 0:
            n_missing = min(fill[v], size * (size - 1) // 2)
            if n_items + 2 * n_missing > len(item):
                item = _grow_array(item, 2 * (n_items + n_missing))
                next_item = _grow_array(next_item, len(item))
            if 2 * (n_pairs + n_missing) > len(pairs):
                pairs = _rehash(pairs, n_nodes, 2 * (n_pairs + n_missing))
            for i in range(size):
                for j in range(i):
                    a, b = neighbours[i], neighbours[j]
                    slot, key = _find_slot(a, b, n_nodes, pairs)
                    if pairs[slot] != key:
                        n_changed = _update_fill(
                            a,
                            b,
                            pairs,
                            head,
                            next_item,
                            item,
                            alive,
                            factor,
                            strength,
                            fill,
                            scratch,
                            changed,
                            n_changed,
                        )
                        n_items = _add_neighbours(
                            a, b, n_items, head, next_item, item, factor, strength, weight, clique_weight
                        )
                        n_pairs += 1
        alive[v] = False
        for i in range(size):
            a = neighbours[i]
            if rule.add_edges:  # the pairs of v and a neighbour of a that is not a neighbour of v are no longer missing
                fill[a] -= factor[v] * (strength[a] - factor[v] - strength[v] + factor[a])
            strength[a] -= factor[v]
            clique_weight[a] -= weight[v]
            if changed[1, a] == 0:
                changed[1, a] = 1
                changed[0, n_changed] = a
                n_changed += 1
        for k in range(n_changed):
            v = changed[0, k]
            changed[1, v] = 0
            a, b = (clique_weight[v], fill[v]) if rule.lightest_clique else (fill[v], clique_weight[v])
            if alive[v] and (a != key_first[position[v]] or b != key_second[position[v]]):
                _sift(a, b, v, position[v], heap, n_heap, position, key_first, key_second, stage, priority)
    return order[:n], start[: n + 1], member[: start[n]], too_heavy, n_cells, n_steps


@kernel((INT, INT, INT))
def contract_matching(first, second, parent):
    """Contract each edge whose two nodes have no contracted edge, in the order of the edges.

    Args:
        first, second: the lower and the higher node of each edge.
        parent: the node itself, for all nodes; for the higher node of a contracted edge, overwritten by the lower one.
    """
    is_matched = np.zeros(len(parent), dtype=np.bool_)
    for e in range(len(first)):
        a, b = first[e], second[e]
        if not is_matched[a] and not is_matched[b]:
            is_matched[a] = is_matched[b] = True
            parent[b] = a


@kernel((LONG, INT, LONG, INT, BOOL))
def maximal_cliques(stage, order, start, member, is_included):
    """Select the maximal cliques of an elimination, as trees with the running intersection property.

    A clique C is not maximal if C and one earlier eliminated node of the same stage form another clique. Maximal cliques are
    ordered children before parents. Within a clique, nodes are in the order of elimination; the nodes shared with the parent
    follow the other nodes, the clique's *own* nodes.

    Args:
        stage: stage of each node, see `EliminationRule`.
        order, start, member: as `eliminate` returns them.
        is_included: mask of the cliques to use, shape (n,), bool; a component is included as a whole or not.

    Returns:
        `start`, shape (n_cliques + 1,), and `node`: nodes of each clique in CSR form. `n_shared`, shape (n_cliques,):
        number of nodes that each clique shares with its parent. `parent`, shape (n_cliques,): the parent of each
        clique, -1 for a root. `own`, shape (n_nodes,): the clique of which each node is an own node, -1 if none.
    """
    n, n_nodes = len(order), len(stage)
    position = np.empty(n_nodes, dtype=np.int64)
    for i in range(n):
        position[order[i]] = i
    parent_position = np.full(n, -1, dtype=np.int64)
    container = np.arange(n)  # for each clique, the index of the maximal clique that contains it
    for i in range(n):
        if not is_included[i]:
            continue
        for k in range(start[i] + 1, start[i + 1]):
            p = position[member[k]]
            if parent_position[i] < 0 or p < parent_position[i]:
                parent_position[i] = p
    is_contained = np.zeros(n, dtype=np.bool_)
    top = np.arange(n)  # for each maximal clique, the highest index of a clique that it contains
    for i in range(n):
        q = parent_position[i]
        has_size = q >= 0 and start[i + 1] - start[i] - 1 == start[q + 1] - start[q]
        if has_size and not is_contained[q] and stage[order[i]] == stage[order[q]]:
            is_contained[q] = True
            container[q] = container[i]
            top[container[i]] = q
    number = np.full(n, -1, dtype=np.int64)
    n_cliques = 0
    n_members = 0
    for i in range(n):
        if is_included[i] and top[container[i]] == i:
            number[container[i]] = n_cliques
            n_cliques += 1
            n_members += start[container[i] + 1] - start[container[i]]
    clique_start = np.zeros(n_cliques + 1, dtype=np.int64)
    clique_node = np.empty(n_members, dtype=np.int32)
    n_shared = np.empty(n_cliques, dtype=np.int64)
    parent = np.full(n_cliques, -1, dtype=np.int64)
    own = np.full(n_nodes, -1, dtype=np.int64)
    c = 0
    for i in range(n):
        if not is_included[i]:
            continue
        own[order[i]] = number[container[i]]
        if top[container[i]] != i:
            continue
        first = container[i]
        begin = clique_start[c]
        size = start[first + 1] - start[first]
        clique_start[c + 1] = begin + size
        for k in range(size):  # insertion sort: the node eliminated first comes first
            v = member[start[first] + k]
            at = begin + k
            while at > begin and position[clique_node[at - 1]] > position[v]:
                clique_node[at] = clique_node[at - 1]
                at -= 1
            clique_node[at] = v
        n_shared[c] = start[i + 1] - start[i] - 1
        if parent_position[i] >= 0:
            parent[c] = number[container[parent_position[i]]]
        c += 1
    return clique_start, clique_node, n_shared, parent, own
