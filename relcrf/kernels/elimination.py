"""Elimination of the nodes of a graph one by one, and the cliques that it leaves.

Source: min-fill, as in Kjaerulff (1990). How many pairs are missing around a node is kept up to date and never counted anew.
"""

from __future__ import annotations

import numpy as np
from numba import boolean, int32, int64

from relcrf.kernels.compile import kernel

INT, LONG, BOOL = int32[::1], int64[::1], boolean[::1]

_HASH_MULTIPLIER = -7046029254386353131
"""2^64 divided by the golden ratio, as a signed number: neighbouring keys times it are far apart."""


@kernel()
def _find_slot(a, b, n_nodes, pairs):
    """Where a pair of nodes is in the hash table `pairs`, or would be: its key is there, or 0.

    Args:
        a, b: int64. pairs: keys by open addressing, int64; a power of two of them, of which some are 0 (a key is at least 1).

    Returns:
        The slot, and the key.
    """
    key = a * n_nodes + b if a < b else b * n_nodes + a
    slot = (key * _HASH_MULTIPLIER >> 24) & (len(pairs) - 1)
    while pairs[slot] != 0 and pairs[slot] != key:
        slot = (slot + 1) & (len(pairs) - 1)
    return slot, key


@kernel()
def _rehash(pairs, n_nodes, n_pairs):
    """The same pairs in a table with room for so many, at most half full."""
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
    """The same values at the start of a longer array."""
    out = np.empty(size, dtype=values.dtype)
    for k in range(len(values)):
        out[k] = values[k]
    return out


@kernel()
def _collect_neighbours(v, head, following, item, alive, out):
    """Neighbours of `v` that are alive, into `out`, and how many; the others leave its list for good."""
    n = 0
    last = -1
    at = head[v]
    while at >= 0:
        if alive[item[at]]:
            out[n] = item[at]
            n += 1
            last = at
        elif last < 0:
            head[v] = following[at]
        else:
            following[last] = following[at]
        at = following[at]
    return n


@kernel()
def _update_missing_pairs(a, b, pairs, head, following, item, alive, degree, missing, scratch, changed, n_changed):
    """What a new pair does to the counts: it is missing no more around all that are next to both.

    Args:
        changed: to which these are added, after the first `n_changed`; each node once. Its second row: whether it is there.

    Returns:
        how many there are then.
    """
    n_nodes = len(head)
    near, far = a, b
    if degree[a] > degree[b]:
        near, far = b, a
    common = 0
    for k in range(_collect_neighbours(near, head, following, item, alive, scratch)):
        c = scratch[k]
        slot, key = _find_slot(c, far, n_nodes, pairs)
        if pairs[slot] == key:
            common += 1
            missing[c] -= 1
            if changed[1, c] == 0:
                changed[1, c] = 1
                changed[0, n_changed] = c
                n_changed += 1
    missing[a] += degree[a] - common
    missing[b] += degree[b] - common
    slot, key = _find_slot(a, b, n_nodes, pairs)
    pairs[slot] = key
    return n_changed


@kernel()
def _add_neighbours(a, b, n_items, head, following, item, degree, weight, whole):
    """Puts two nodes on each other's lists of neighbours, which are linked; returns how long the lists are together."""
    item[n_items], following[n_items], head[a] = b, head[a], n_items
    item[n_items + 1], following[n_items + 1], head[b] = a, head[b], n_items + 1
    degree[a] += 1
    degree[b] += 1
    whole[a] += weight[b]
    whole[b] += weight[a]
    return n_items + 2


@kernel()
def _precedes(missing, whole, v, other_missing, other_whole, other):
    """Whether node `v` goes out before another."""
    if missing != other_missing:
        return missing < other_missing
    if whole != other_whole:
        return whole < other_whole
    return v < other


@kernel()
def _sift(missing, whole, v, place, heap, n_heap, where, key_missing, key_whole):
    """Puts a node with its keys into a heap, at `place` or wherever they bring it from there; `where` each node is."""
    while place > 0:
        up = (place - 1) >> 1
        if not _precedes(missing, whole, v, key_missing[up], key_whole[up], heap[up]):
            break
        heap[place], key_missing[place], key_whole[place] = heap[up], key_missing[up], key_whole[up]
        where[heap[up]] = place
        place = up
    while 2 * place + 1 < n_heap:
        low = 2 * place + 1
        if low + 1 < n_heap and _precedes(
            key_missing[low + 1], key_whole[low + 1], heap[low + 1], key_missing[low], key_whole[low], heap[low]
        ):
            low += 1
        if not _precedes(key_missing[low], key_whole[low], heap[low], missing, whole, v):
            break
        heap[place], key_missing[place], key_whole[place] = heap[low], key_missing[low], key_whole[low]
        where[heap[low]] = place
        place = low
    heap[place], key_missing[place], key_whole[place] = v, missing, whole
    where[v] = place


@kernel((LONG, INT, BOOL, INT, INT, int64, boolean))
def eliminate(weight, component, is_open, first, second, limit, filling):
    """Takes out node after node: first that around which the fewest pairs are missing; these are joined.

    Ties go to the lighter clique, and then to the lowest node. A component ends where a clique is heavier than `limit`.

    Args:
        weight: of each node, shape (n_nodes,), int64; a clique's is the sum.
        component: the lowest node of each node's component, shape (n_nodes,).
        is_open: nodes that take part, shape (n_nodes,), bool; whole components.
        first, second: distinct pairs of nodes that take part, shape (n_pairs,), int32.
        filling: False for a bound: no pair is joined, and the lightest clique goes first. Any order has to begin somewhere
            in what is then left, so that its heaviest clique is no lighter than the heaviest of these.

    Returns:
        order (n,); start (n + 1,) and member: the clique of each, itself first; and `refused`, shape (n_nodes,): at a
        component's lowest node, where in the order the clique stands that is too heavy, or -1.
    """
    n_nodes = len(weight)
    head = np.empty(n_nodes, dtype=np.int64)
    item = np.empty(2 * len(first), dtype=np.int32)
    following = np.empty(2 * len(first), dtype=np.int64)
    alive = np.empty(n_nodes, dtype=np.bool_)
    degree = np.empty(n_nodes, dtype=np.int64)
    missing = np.empty(n_nodes, dtype=np.int64)
    whole = np.empty(n_nodes, dtype=np.int64)
    refused = np.empty(n_nodes, dtype=np.int64)
    around = np.empty(n_nodes, dtype=np.int64)
    scratch = np.empty(n_nodes, dtype=np.int64)
    changed = np.empty((2, n_nodes), dtype=np.int64)
    for v in range(n_nodes):
        head[v] = refused[v] = -1
        degree[v] = missing[v] = 0
        changed[1, v] = 0
        whole[v] = weight[v]
        alive[v] = is_open[v]
    pairs = _rehash(np.empty(0, dtype=np.int64), n_nodes, len(first) if filling else 0)
    n_pairs = n_items = n_changed = 0
    for e in range(len(first)):
        a, b = np.int64(first[e]), np.int64(second[e])
        if filling:
            n_changed = _update_missing_pairs(
                a, b, pairs, head, following, item, alive, degree, missing, scratch, changed, n_changed
            )
            n_pairs += 1
        n_items = _add_neighbours(a, b, n_items, head, following, item, degree, weight, whole)
    for k in range(n_changed):
        changed[1, changed[0, k]] = 0

    heap = np.empty(n_nodes, dtype=np.int64)
    where = np.empty(n_nodes, dtype=np.int64)
    key_missing = np.empty(n_nodes, dtype=np.int64)
    key_whole = np.empty(n_nodes, dtype=np.int64)
    n_heap = 0
    for v in range(n_nodes):
        if alive[v]:
            n_heap += 1
            _sift(missing[v], whole[v], v, n_heap - 1, heap, n_heap, where, key_missing, key_whole)
    order = np.empty(n_heap, dtype=np.int32)
    start = np.empty(n_heap + 1, dtype=np.int64)
    start[0] = 0
    member = np.empty(2 * len(first) + 2 * n_nodes + 1, dtype=np.int32)
    n = 0
    while n_heap > 0:
        v = heap[0]
        n_heap -= 1
        if n_heap > 0:
            last = heap[n_heap]
            _sift(key_missing[n_heap], key_whole[n_heap], last, 0, heap, n_heap, where, key_missing, key_whole)
        if refused[component[v]] >= 0:
            continue
        size = _collect_neighbours(v, head, following, item, alive, around)
        end = start[n] + size + 1
        if end > len(member):
            member = _grow_array(member, 2 * end)
        order[n] = v
        member[start[n]] = v
        for i in range(size):
            member[start[n] + 1 + i] = around[i]
        n += 1
        start[n] = end
        if whole[v] > limit:
            refused[component[v]] = n - 1
            continue
        n_changed = 0
        if filling and missing[v] > 0:
            if n_items + 2 * missing[v] > len(item):
                item = _grow_array(item, 2 * (n_items + missing[v]))
                following = _grow_array(following, len(item))
            if 2 * (n_pairs + missing[v]) > len(pairs):
                pairs = _rehash(pairs, n_nodes, 2 * (n_pairs + missing[v]))
            n_pairs += missing[v]
            for i in range(size):
                for j in range(i):
                    a, b = around[i], around[j]
                    slot, key = _find_slot(a, b, n_nodes, pairs)
                    if pairs[slot] != key:
                        n_changed = _update_missing_pairs(
                            a, b, pairs, head, following, item, alive, degree, missing, scratch, changed, n_changed
                        )
                        n_items = _add_neighbours(a, b, n_items, head, following, item, degree, weight, whole)
        alive[v] = False
        for i in range(size):
            a = around[i]
            if filling:
                missing[a] -= degree[a] - size
            degree[a] -= 1
            whole[a] -= weight[v]
            if changed[1, a] == 0:
                changed[1, a] = 1
                changed[0, n_changed] = a
                n_changed += 1
        for k in range(n_changed):
            a = changed[0, k]
            changed[1, a] = 0
            if alive[a] and (missing[a] != key_missing[where[a]] or whole[a] != key_whole[where[a]]):
                _sift(missing[a], whole[a], a, where[a], heap, n_heap, where, key_missing, key_whole)
    return order[:n], start[: n + 1], member[: start[n]], refused


@kernel((int64, INT, LONG, INT, BOOL))
def maximal_cliques(n_nodes, order, start, member, keep):
    """The maximal ones among the cliques of an elimination, as trees with the running intersection property.

    A clique that is just what another had beyond its own first node is part of it. Each maximal clique stands before its
    parent, and has the nodes that it shares with its parent first, and then its own, the last eliminated first.

    Args:
        order, start, member: as `eliminate` returns them.
        keep: which of these cliques count, shape (n,), bool; whole components.

    Returns:
        clique_start (n_cliques + 1,) and clique_node; n_shared (n_cliques,); parent (n_cliques,), -1 at roots; and the
        clique of which each node is an own one, shape (n_nodes,), -1 where none.
    """
    n = len(order)
    position = np.empty(n_nodes, dtype=np.int64)
    for i in range(n):
        position[order[i]] = i
    up = np.full(n, -1, dtype=np.int64)
    inside = np.arange(n)  # the maximal clique that each is part of, by where it stands in the order
    for i in range(n):
        if not keep[i]:
            continue
        for k in range(start[i] + 1, start[i + 1]):
            p = position[member[k]]
            if up[i] < 0 or p < up[i]:
                up[i] = p
    is_part = np.zeros(n, dtype=np.bool_)
    top = np.arange(n)  # the last that is part of a maximal clique
    for i in range(n):
        q = up[i]
        if q >= 0 and not is_part[q] and start[i + 1] - start[i] - 1 == start[q + 1] - start[q]:
            is_part[q] = True
            inside[q] = inside[i]
            top[inside[i]] = q
    number = np.full(n, -1, dtype=np.int64)
    n_cliques = 0
    n_members = 0
    for i in range(n):
        if keep[i] and top[inside[i]] == i:
            number[inside[i]] = n_cliques
            n_cliques += 1
            n_members += start[inside[i] + 1] - start[inside[i]]
    clique_start = np.zeros(n_cliques + 1, dtype=np.int64)
    clique_node = np.empty(n_members, dtype=np.int32)
    n_shared = np.empty(n_cliques, dtype=np.int64)
    parent = np.full(n_cliques, -1, dtype=np.int64)
    own = np.full(n_nodes, -1, dtype=np.int64)
    c = 0
    for i in range(n):
        if not keep[i]:
            continue
        own[order[i]] = number[inside[i]]
        if top[inside[i]] != i:
            continue
        first = inside[i]
        begin = clique_start[c]
        size = start[first + 1] - start[first]
        clique_start[c + 1] = begin + size
        for k in range(size):  # the last eliminated first
            v = member[start[first] + k]
            at = begin + k
            while at > begin and position[clique_node[at - 1]] < position[v]:
                clique_node[at] = clique_node[at - 1]
                at -= 1
            clique_node[at] = v
        n_shared[c] = start[i + 1] - start[i] - 1
        if up[i] >= 0:
            parent[c] = number[inside[up[i]]]
        c += 1
    return clique_start, clique_node, n_shared, parent, own
