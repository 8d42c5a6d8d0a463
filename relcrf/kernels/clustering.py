"""Clustering of records by the weights of their pairs: constrained single linkage, average linkage, moves of records.

The weight of a pair is positive if the pair speaks for one cluster. A pair that is not listed has the weight `unlisted`,
which is negative. Two records of the same group never share a cluster.

A cluster is represented by its lowest record. Its records form a circular list, so that two clusters are joined in
constant time.

Source: Murtagh, A survey of recent advances in hierarchical clustering algorithms (1983), for nearest-neighbour chains.
Deviations: only listed pairs are searched, and a chain ends where no mean weight is positive.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import float64, int32, int64, types

from relcrf.kernels.compile import kernel
from relcrf.kernels.components import find

TOLERANCE = 1e-9
"""Minimum difference of two weights that is not a tie; sums of the same weights in another order differ by less."""


class PairLists(NamedTuple):
    """The listed pairs in CSR form; each pair is listed for both of its records.

    Args:
        start: Offset of the pairs of each record, shape (n + 1,), int64.
        neighbour: The other record of each pair, ascending for each record, shape (2 m,), int32.
        weight: Weight of each pair in nats, shape (2 m,).
    """

    start: Any
    neighbour: Any
    weight: Any


class Groups(NamedTuple):
    """Groups of records that never share a cluster.

    Args:
        group: Group of each record, shape (n,), int32; -1 for a record that no other record excludes.
        start: Offset of the records of each group, shape (n_groups + 1,), int64.
        member: Records of the groups, shape (n_grouped,), int32.
    """

    group: Any
    start: Any
    member: Any


class _Clusters(NamedTuple):
    """The state of clusters that are joined.

    Args:
        parent: Parent of each record in a tree whose root is the lowest record, shape (n,), int32.
        size: Number of records, valid for roots, shape (n,), int64.
        search: Total size of the groups of the records, valid for roots, shape (n,), int64.
        successor: Next record of the same cluster in a circle, shape (n,), int32.
        mark: Scratch mask of groups, all False between calls, shape (n_groups,), bool.
    """

    parent: Any
    size: Any
    search: Any
    successor: Any
    mark: Any


_PAIR_LISTS = types.NamedTuple((int64[::1], int32[::1], float64[::1]), PairLists)
_GROUPS = types.NamedTuple((int32[::1], int64[::1], int32[::1]), Groups)


@kernel()
def _create_clusters(n, groups):
    """Return clusters of one record each."""
    parent, successor = np.empty(n, np.int32), np.empty(n, np.int32)
    size, search = np.ones(n, np.int64), np.zeros(n, np.int64)
    for record in range(n):
        parent[record] = record
        successor[record] = record
        group = groups.group[record]
        if group >= 0:
            search[record] = groups.start[group + 1] - groups.start[group]
    return _Clusters(parent, size, search, successor, np.zeros(len(groups.start), np.bool_))


@kernel()
def _share_group(clusters, groups, a, b):
    """Return True if two clusters, given by their roots, contain records of the same group.

    The cheaper of two searches runs: over the groups of one cluster, or over the records of both clusters.
    """
    if clusters.search[b] < clusters.search[a]:
        a, b = b, a
    if clusters.search[a] == 0:
        return False
    is_short = clusters.search[a] <= clusters.size[a] + clusters.size[b]
    found = False
    record = a
    while True:
        group = groups.group[record]
        if group >= 0:
            if is_short:
                for k in range(groups.start[group], groups.start[group + 1]):
                    if find(clusters.parent, groups.member[k]) == b:
                        return True
            else:
                clusters.mark[group] = True
        record = clusters.successor[record]
        if record == a:
            break
    if is_short:
        return False
    record = b
    while True:
        group = groups.group[record]
        if group >= 0 and clusters.mark[group]:
            found = True
        record = clusters.successor[record]
        if found or record == b:
            break
    record = a
    while True:
        if groups.group[record] >= 0:
            clusters.mark[groups.group[record]] = False
        record = clusters.successor[record]
        if record == a:
            break
    return found


@kernel()
def _join(clusters, a, b):
    """Join two clusters, given by their roots, and return the root of the result."""
    if b < a:
        a, b = b, a
    clusters.parent[b] = a
    clusters.size[a] += clusters.size[b]
    clusters.search[a] += clusters.search[b]
    clusters.successor[a], clusters.successor[b] = clusters.successor[b], clusters.successor[a]
    return a


@kernel()
def _roots(clusters):
    """Return the lowest record of each record's cluster, shape (n,), int32."""
    out = np.empty_like(clusters.parent)
    for record in range(len(out)):
        out[record] = find(clusters.parent, record)
    return out


@kernel((int32[::1], int32[::1], _GROUPS))
def link_pairs(first, second, groups):
    """Join the clusters of each pair in turn, unless they contain records of the same group.

    Args:
        first, second: The two records of each pair, in the order in which pairs are joined; shape (m,).

    Returns:
        The lowest record of each record's cluster, shape (n,), int32.
    """
    clusters = _create_clusters(len(groups.group), groups)
    for k in range(len(first)):
        a, b = find(clusters.parent, first[k]), find(clusters.parent, second[k])
        if a != b and not _share_group(clusters, groups, a, b):
            _join(clusters, a, b)
    return _roots(clusters)


class _NeighbourLists(NamedTuple):
    """Linked lists of the pairs between each cluster and its neighbours; lists of joined clusters are concatenated.

    Args:
        head, tail: First and last entry of each cluster's list, valid for roots, shape (n,), int32; -1 if it is empty.
        following: Next entry of the list, shape (n_entries,), int32; -1 for the last entry.
        target: A record of the neighbour, shape (n_entries,), int32.
        total: Sum of the weights of the pairs of the entry, in nats, shape (n_entries,).
        count: Number of pairs of the entry, shape (n_entries,), int64.
        slot: Scratch array: the entry of each neighbour; -1 between calls; shape (n,), int32.
    """

    head: Any
    tail: Any
    following: Any
    target: Any
    total: Any
    count: Any
    slot: Any


@kernel()
def _create_lists(pairs):
    """Return the list of each record, with one entry per pair."""
    n, m = len(pairs.start) - 1, len(pairs.neighbour)
    head, tail = np.full(n, -1, np.int32), np.full(n, -1, np.int32)
    following = np.full(m, -1, np.int32)
    for record in range(n):
        if pairs.start[record] < pairs.start[record + 1]:
            head[record] = pairs.start[record]
            tail[record] = pairs.start[record + 1] - 1
            for k in range(head[record], tail[record]):
                following[k] = k + 1
    target, total, count = pairs.neighbour.copy(), pairs.weight.copy(), np.ones(m, np.int64)
    return _NeighbourLists(head, tail, following, target, total, count, np.full(n, -1, np.int32))


@kernel()
def _join_with_lists(clusters, lists, a, b):
    """Join two clusters and their lists, and return the root of the result."""
    if b < a:
        a, b = b, a
    if lists.head[a] < 0:
        lists.head[a] = lists.head[b]
    else:
        lists.following[lists.tail[a]] = lists.head[b]
    if lists.head[b] >= 0:
        lists.tail[a] = lists.tail[b]
    return _join(clusters, a, b)


@kernel()
def _merge_entries(clusters, lists, a):
    """Merge the entries of a cluster that have the same neighbour, and remove those within the cluster."""
    entry, last = lists.head[a], -1
    lists.head[a] = -1
    while entry >= 0:
        after = lists.following[entry]
        b = find(clusters.parent, lists.target[entry])
        if b != a and lists.slot[b] >= 0:
            lists.total[lists.slot[b]] += lists.total[entry]
            lists.count[lists.slot[b]] += lists.count[entry]
        elif b != a:
            lists.target[entry] = b
            lists.slot[b] = entry
            lists.following[entry] = -1
            if last < 0:
                lists.head[a] = entry
            else:
                lists.following[last] = entry
            last = entry
        entry = after
    lists.tail[a] = last
    entry = lists.head[a]
    while entry >= 0:
        lists.slot[lists.target[entry]] = -1
        entry = lists.following[entry]


@kernel()
def _find_nearest(clusters, lists, groups, unlisted, a, least):
    """Return the neighbour with the highest mean weight, and this mean; -1 if none exceeds `least` by the tolerance."""
    best, nearest = least, -1
    entry = lists.head[a]
    while entry >= 0:
        b = lists.target[entry]
        n_pairs = clusters.size[a] * clusters.size[b]
        mean = (lists.total[entry] + (n_pairs - lists.count[entry]) * unlisted) / n_pairs
        if mean > best + TOLERANCE and not _share_group(clusters, groups, a, b):
            best, nearest = mean, b
        entry = lists.following[entry]
    return nearest, best


@kernel((int32[::1], _PAIR_LISTS, float64, _GROUPS))
def agglomerate(root, pairs, unlisted, groups):
    """Join the two clusters with the highest mean weight of their pairs, as long as this mean is positive.

    Nearest-neighbour chains find the same clusters as a search for the highest mean in each step, because a joined
    cluster is never nearer to a third cluster than the nearer one of its two parts. In a tie, a chain ends or, if it cannot
    end, continues with the neighbour that is listed first.

    Args:
        root: The lowest record of each record's cluster at the start, shape (n,), int32.
        unlisted: Weight of a pair that is not listed, in nats; negative.

    Returns:
        The lowest record of each record's cluster, shape (n,), int32.
    """
    n = len(root)
    clusters, lists = _create_clusters(n, groups), _create_lists(pairs)
    for record in range(n):
        if root[record] != record:
            _join_with_lists(clusters, lists, root[record], record)
    chain, link = np.empty(n + 1, np.int32), np.zeros(n + 1)
    for record in range(n):
        if clusters.parent[record] != record:
            continue
        chain[0], length = record, 1
        while length:
            a = chain[length - 1]
            _merge_entries(clusters, lists, a)
            nearest, mean = _find_nearest(clusters, lists, groups, unlisted, a, link[length - 1])
            if nearest >= 0:
                chain[length], link[length] = nearest, mean
                length += 1
            elif length > 1:
                joined = _join_with_lists(clusters, lists, a, chain[length - 2])
                length -= 2
                if length == 0:
                    chain[0], length = joined, 1
            else:
                length = 0
    return _roots(clusters)


@kernel()
def _has_member_of_group(label, head, after, size, groups, record, cluster):
    """Return True if a cluster contains another record of the record's group; the cheaper of two searches runs."""
    group = groups.group[record]
    if group < 0:
        return False
    first, last = groups.start[group], groups.start[group + 1]
    if last - first <= size[cluster]:
        found = False
        for k in range(first, last):
            found = found or label[groups.member[k]] == cluster
        return found
    member = head[cluster]
    while member >= 0:
        if groups.group[member] == group:
            return True
        member = after[member]
    return False


@kernel()
def _insert(head, before, after, cluster, record):
    """Insert a record at the head of a cluster's doubly linked list."""
    before[record], after[record] = -1, head[cluster]
    if head[cluster] >= 0:
        before[head[cluster]] = record
    head[cluster] = record


@kernel((int32[::1], _PAIR_LISTS, float64, _GROUPS))
def move_records(root, pairs, unlisted, groups):
    """Move single records to other or new clusters, as long as a move raises the sum of weights within clusters.

    Each record moves to the cluster with the largest gain; in a tie, to a new cluster, or else to the cluster of its first
    neighbour. The neighbours of a moved record are tested again.

    Args:
        root: The lowest record of each record's cluster at the start, shape (n,), int32.
        unlisted: Weight of a pair that is not listed, in nats; negative.

    Returns:
        The lowest record of each record's cluster, shape (n,), int32, and the number of moves.
    """
    n, n_moves = len(root), 0
    label, size = root.copy(), np.zeros(n, np.int64)
    head, before, after = np.full(n, -1, np.int32), np.full(n, -1, np.int32), np.full(n, -1, np.int32)
    for record in range(n - 1, -1, -1):
        size[label[record]] += 1
        _insert(head, before, after, label[record], record)
    unused, n_unused = np.empty(n, np.int32), 0
    for cluster in range(n - 1, -1, -1):
        if size[cluster] == 0:
            unused[n_unused] = cluster
            n_unused += 1
    total, count = np.zeros(n), np.zeros(n, np.int64)
    queue, is_queued, position, n_queued = np.arange(n).astype(np.int32), np.ones(n, np.bool_), 0, n
    while n_queued:
        record = queue[position]
        position = (position + 1) % n
        n_queued -= 1
        is_queued[record] = False
        own, first, last = label[record], pairs.start[record], pairs.start[record + 1]
        for k in range(first, last):
            cluster = label[pairs.neighbour[k]]
            total[cluster] += pairs.weight[k]
            count[cluster] += 1
        present = total[own] + (size[own] - 1 - count[own]) * unlisted
        best, target = present, own
        if size[own] > 1 and best + TOLERANCE < 0.0:
            best, target = 0.0, -1
        for k in range(first, last):
            cluster = label[pairs.neighbour[k]]
            if count[cluster] > 0 and cluster != own:
                value = total[cluster] + (size[cluster] - count[cluster]) * unlisted
                if value > best + TOLERANCE and not _has_member_of_group(
                    label, head, after, size, groups, record, cluster
                ):
                    best, target = value, cluster
            total[cluster], count[cluster] = 0.0, 0
        if target == own:
            continue
        if target < 0:
            n_unused -= 1
            target = unused[n_unused]
        if before[record] >= 0:
            after[before[record]] = after[record]
        else:
            head[own] = after[record]
        if after[record] >= 0:
            before[after[record]] = before[record]
        _insert(head, before, after, target, record)
        label[record] = target
        size[own] -= 1
        size[target] += 1
        if size[own] == 0:
            unused[n_unused] = own
            n_unused += 1
        n_moves += 1
        for k in range(first, last):
            neighbour = pairs.neighbour[k]
            if not is_queued[neighbour]:
                is_queued[neighbour] = True
                queue[(position + n_queued) % n] = neighbour
                n_queued += 1
    lowest, out = np.full(n, -1, np.int32), np.empty(n, np.int32)
    for record in range(n):
        if lowest[label[record]] < 0:
            lowest[label[record]] = record
        out[record] = lowest[label[record]]
    return out, n_moves
