"""Elimination of the nodes of a graph one by one, and the cliques that it leaves.

Source: min-fill, as in Kjaerulff (1990). How many pairs are missing around a node is kept up to date and never counted anew.
"""

from __future__ import annotations

import heapq

import numpy as np
from numba import boolean, int32, int64

from relcrf.kernels.compile import kernel

INT, LONG, BOOL = int32[::1], int64[::1], boolean[::1]


@kernel()
def _key(a, b, n_nodes):  # type: ignore[no-untyped-def]
    return np.int64(min(a, b)) * n_nodes + max(a, b)


@kernel()
def _neighbours(v, head, following, item, alive, out):  # type: ignore[no-untyped-def]
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
def _join(a, b, pairs, head, following, item, alive, degree, missing, scratch, changed):  # type: ignore[no-untyped-def]
    """What a new pair does to the counts: it is missing no more around all that are next to both.

    Args:
        changed: a list, to which these are added.
    """
    n_nodes = len(head)
    near, far = (a, b) if degree[a] <= degree[b] else (b, a)
    common = 0
    for k in range(_neighbours(near, head, following, item, alive, scratch)):
        c = scratch[k]
        if _key(c, far, n_nodes) in pairs:
            common += 1
            missing[c] -= 1
            changed.append(c)
    missing[a] += degree[a] - common
    missing[b] += degree[b] - common
    pairs.add(_key(a, b, n_nodes))


@kernel()
def _link(a, b, n_items, head, following, item, degree, weight, whole):  # type: ignore[no-untyped-def]
    """Puts two nodes on each other's lists of neighbours, which are linked; returns how long the lists are together."""
    item[n_items], following[n_items], head[a] = b, head[a], n_items
    item[n_items + 1], following[n_items + 1], head[b] = a, head[b], n_items + 1
    degree[a] += 1
    degree[b] += 1
    whole[a] += weight[b]
    whole[b] += weight[a]
    return n_items + 2


@kernel((LONG, INT, BOOL, INT, INT, int64, boolean))
def eliminate(weight, component, is_open, first, second, limit, filling):  # type: ignore[no-untyped-def]
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
    head = np.full(n_nodes, -1, dtype=np.int64)
    item = np.empty(2 * len(first), dtype=np.int32)
    following = np.empty(2 * len(first), dtype=np.int64)
    n_items = 0
    alive = is_open.copy()
    degree = np.zeros(n_nodes, dtype=np.int64)
    missing = np.zeros(n_nodes, dtype=np.int64)
    whole = weight.copy()
    around = np.empty(n_nodes, dtype=np.int32)
    scratch = np.empty(n_nodes, dtype=np.int32)
    pairs = {np.int64(-1)}
    changed = [np.int32(0)]
    for e in range(len(first)):
        a, b = first[e], second[e]
        if filling:
            _join(a, b, pairs, head, following, item, alive, degree, missing, scratch, changed)
            changed.clear()
        n_items = _link(a, b, n_items, head, following, item, degree, weight, whole)

    heap = [(missing[0], whole[0], np.int32(0)) for _ in range(0)]
    for node in range(n_nodes):
        if alive[node]:
            heap.append((missing[node], whole[node], np.int32(node)))
    heapq.heapify(heap)
    queued_missing, queued_whole = missing.copy(), whole.copy()
    order = np.empty(n_nodes, dtype=np.int32)
    start = np.zeros(n_nodes + 1, dtype=np.int64)
    member = np.empty(2 * len(first) + 2 * n_nodes + 1, dtype=np.int32)
    refused = np.full(n_nodes, -1, dtype=np.int64)
    n = 0
    while len(heap) > 0:
        key_missing, key_whole, v = heapq.heappop(heap)
        if not alive[v] or key_missing != missing[v] or key_whole != whole[v] or refused[component[v]] >= 0:
            continue
        size = _neighbours(v, head, following, item, alive, around)
        if start[n] + size + 1 > len(member):
            member = np.concatenate((member, np.empty(len(member) + size, dtype=np.int32)))
        order[n] = v
        member[start[n]] = v
        member[start[n] + 1 : start[n] + 1 + size] = around[:size]
        start[n + 1] = start[n] + 1 + size
        n += 1
        if whole[v] > limit:
            refused[component[v]] = n - 1
            continue
        if filling and missing[v] > 0:
            if n_items + size * size > len(item):
                more = len(item) + size * size
                item = np.concatenate((item, np.empty(more, dtype=np.int32)))
                following = np.concatenate((following, np.empty(more, dtype=np.int64)))
            for i in range(size):
                for j in range(i):
                    a, b = around[i], around[j]
                    if _key(a, b, n_nodes) in pairs:
                        continue
                    _join(a, b, pairs, head, following, item, alive, degree, missing, scratch, changed)
                    n_items = _link(a, b, n_items, head, following, item, degree, weight, whole)
        alive[v] = False
        for i in range(size):
            a = around[i]
            if filling:
                missing[a] -= degree[a] - size
            degree[a] -= 1
            whole[a] -= weight[v]
            changed.append(a)
        for a in changed:
            if alive[a] and (missing[a] != queued_missing[a] or whole[a] != queued_whole[a]):
                queued_missing[a], queued_whole[a] = missing[a], whole[a]
                heapq.heappush(heap, (missing[a], whole[a], a))
        changed.clear()
    return order[:n], start[: n + 1], member[: start[n]], refused


@kernel((int64, INT, LONG, INT, BOOL))
def maximal_cliques(n_nodes, order, start, member, keep):  # type: ignore[no-untyped-def]
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
