"""The partition of buckets into mini-buckets of bounded size.

The *bucket* of a node contains all functions over the node that remain when it is eliminated: its own table, factors and
messages. A bucket is split into *mini-buckets*, each with a table over the nodes of its functions and a message over all of
these nodes but the eliminated one. All tables are in one flat array: nodes, factors, shifts, messages. The mini-buckets of a
split bucket have *shifts*: tables over their common nodes, which are added to the mini-buckets and sum to 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import float64, int32, int64, types

from relcrf.kernels.compile import kernel


class MiniBuckets(NamedTuple):
    """The mini-buckets of a graph in order of elimination.

    Args:
        bucket_start: first mini-bucket of each bucket, shape (n_buckets + 1,).
        start, node, size: nodes and cardinalities of each mini-bucket's axes, in CSR form.
        input_start, input: offset of each input in the flat tables, in CSR form by mini-bucket.
        stride_start, stride: strides of each input along the axes of the mini-bucket, in CSR form; 0 for missing axes.
        message: offset of each mini-bucket's message in the flat tables, shape (n,).
        shift: offset of each mini-bucket's shift table, shape (n,); the table is the last input. -1 if the bucket is not split.
        shift_size: number of cells of each bucket's shift tables, shape (n_buckets,).
        region: offsets of factors, shifts and messages in the flat tables, and the number of cells in all, shape (4,).
    """

    bucket_start: np.ndarray
    start: np.ndarray
    node: np.ndarray
    size: np.ndarray
    input_start: np.ndarray
    input: np.ndarray
    stride_start: np.ndarray
    stride: np.ndarray
    message: np.ndarray
    shift: np.ndarray
    shift_size: np.ndarray
    region: np.ndarray


FLAT, INT, LONG = float64[::1], int32[::1], int64[::1]
MINI_BUCKETS = types.NamedTuple((LONG, LONG, INT, *[LONG] * 9), MiniBuckets)


@kernel()
def _reserve(values, size):
    """Return an array of at least `size` items that starts with `values`, the same array if it is long enough."""
    if size <= len(values):
        return values
    out = np.empty(2 * size, dtype=values.dtype)
    out[: len(values)] = values
    return out


class _Functions(NamedTuple):
    """The functions over nodes: nodes, factors and messages. Each is in the bucket of the first node of its scope.

    Args:
        start, scope, stride: ascending positions of the nodes in the elimination order, and strides, in CSR form.
        offset: offset of each function's table in its region of the flat tables.
        head, following: linked list of the functions of each bucket, -1 at the end.
    """

    start: np.ndarray
    scope: np.ndarray
    stride: np.ndarray
    offset: np.ndarray
    head: np.ndarray
    following: np.ndarray


@kernel()
def _list_functions(size_at, position, factor_start, factor_node, factor_stride, table_start, n_functions):
    """Return the functions of nodes and factors, with capacity for `n_functions`; nodes with one state are omitted."""
    n_nodes, n_factors = len(position), len(table_start) - 1
    start = np.zeros(n_functions + 1, dtype=np.int64)
    n_slots = n_nodes + len(factor_node)
    scope, stride = np.empty(n_slots, dtype=np.int64), np.empty(n_slots, dtype=np.int64)
    offset = np.empty(n_functions, dtype=np.int64)
    head, following = np.full(n_nodes, -1, dtype=np.int64), np.full(n_functions, -1, dtype=np.int64)
    state_start = 0
    for v in range(n_nodes):
        offset[v], scope[v], stride[v], start[v + 1] = state_start, position[v], 1, v + 1
        state_start += size_at[position[v]]
        head[position[v]] = v
    end = n_nodes
    for f in range(n_factors):
        g, at = n_nodes + f, end
        offset[g] = state_start + table_start[f]
        for slot in range(factor_start[f], factor_start[f + 1]):
            p = position[factor_node[slot]]
            if size_at[p] > 1:
                k = end
                while k > at and scope[k - 1] > p:
                    scope[k], stride[k] = scope[k - 1], stride[k - 1]
                    k -= 1
                scope[k], stride[k] = p, factor_stride[slot]
                end += 1
        if end == at:  # all nodes have one state
            scope[at], stride[at] = position[factor_node[factor_start[f]]], 1
            end += 1
        start[g + 1] = end
        following[g] = head[scope[at]]
        head[scope[at]] = g
    return _Functions(start, scope, stride, offset, head, following)


@kernel()
def _split_bucket(functions, members, size_at, max_cells):
    """Assign the functions of a bucket, in descending order of cells, to the mini-bucket that grows by the smallest factor.

    Returns:
        The mini-bucket of each member; the nodes of each mini-bucket, ascending positions; the number of these nodes.
    """
    start, scope = functions.start, functions.scope
    n_cells = np.ones(len(members))
    capacity = 1
    for k in range(len(members)):
        g = members[k]
        capacity = max(capacity, start[g + 1] - start[g])
        for at in range(start[g], start[g + 1]):
            n_cells[k] *= size_at[scope[at]]
    while 1 << capacity <= max_cells:
        capacity += 1
    union, arity = np.empty((len(members), capacity), dtype=np.int64), np.zeros(len(members), dtype=np.int64)
    mini_cells, chosen = np.ones(len(members)), np.empty(len(members), dtype=np.int64)
    n_split = 0
    for k in np.argsort(-n_cells, kind="mergesort"):
        g = members[k]
        best, best_growth = n_split, np.inf
        for m in range(n_split):
            growth = 1.0
            i = 0
            for at in range(start[g], start[g + 1]):
                while i < arity[m] and union[m, i] < scope[at]:
                    i += 1
                if i == arity[m] or union[m, i] != scope[at]:
                    growth *= size_at[scope[at]]
            if growth < best_growth and (growth == 1.0 or growth * mini_cells[m] <= max_cells):
                best, best_growth = m, growth
        chosen[k] = best
        if best == n_split:
            n_split += 1
            best_growth = n_cells[k]
        elif best_growth == 1.0:
            continue
        mini_cells[best] *= best_growth
        for at in range(start[g], start[g + 1]):
            i = arity[best]
            while i > 0 and union[best, i - 1] >= scope[at]:
                i -= 1
            if i < arity[best] and union[best, i] == scope[at]:
                continue
            for j in range(arity[best], i, -1):
                union[best, j] = union[best, j - 1]
            union[best, i] = scope[at]
            arity[best] += 1
    return chosen, union, arity[:n_split]


@kernel()
def _common_nodes(union, arity, size_at, max_cells):
    """Return the common nodes of the mini-buckets of a bucket, with at most `max_cells` joint states, and this number."""
    common = np.empty(arity[0], dtype=np.int64)
    n, n_cells = 0, 1
    for i in range(arity[0]):
        p = union[0, i]
        is_common = i == 0 or n_cells * size_at[p] <= max_cells
        for m in range(1, len(arity)):
            found = False
            for j in range(arity[m]):
                found |= union[m, j] == p
            is_common &= found
        if is_common:
            common[n] = p
            n += 1
            n_cells *= size_at[p]
    return common[:n], n_cells


@kernel((INT, INT, LONG, INT, LONG, LONG, int64, int64))
def partition_buckets(cardinality, order, factor_start, factor_node, factor_stride, table_start, max_cells, max_shift):
    """Partition the buckets greedily into mini-buckets of at most `max_cells` cells; larger factors keep their size.

    Args:
        order: the nodes in order of elimination, shape (n_nodes,).
        factor_start, factor_node, factor_stride, table_start: see `Scopes`.
        max_shift: maximum number of cells of a shift table, except for a table over the eliminated node only.

    Returns:
        The mini-buckets.
    """
    n_nodes, n_factors = len(order), len(table_start) - 1
    # A mini-bucket depends on at least one factor over its eliminated node, or on no factor.
    max_minis = n_nodes + len(factor_node)
    position, size_at = np.empty(n_nodes, dtype=np.int64), np.empty(n_nodes, dtype=np.int64)
    for p in range(n_nodes):
        position[order[p]], size_at[p] = p, cardinality[order[p]]
    n_functions = n_nodes + n_factors
    functions = _list_functions(
        size_at, position, factor_start, factor_node, factor_stride, table_start, n_functions + max_minis
    )
    scope_start, offset, head, following = functions.start, functions.offset, functions.head, functions.following

    bucket_start = np.zeros(n_nodes + 1, dtype=np.int64)
    shift_size = np.zeros(n_nodes, dtype=np.int64)
    start, input_start = np.zeros(max_minis + 1, dtype=np.int64), np.zeros(max_minis + 1, dtype=np.int64)
    node, size = np.empty(64, dtype=np.int32), np.empty(64, dtype=np.int64)
    inputs, stride, stride_start = (
        np.empty(64, dtype=np.int64),
        np.empty(64, dtype=np.int64),
        np.zeros(64, dtype=np.int64),
    )
    kind = np.empty(64, dtype=np.int64)  # 0 for nodes and factors, 1 for shifts, 2 for messages
    message, shift = np.empty(max_minis, dtype=np.int64), np.full(max_minis, -1, dtype=np.int64)
    n_minis = n_inputs = n_shift_cells = n_message_cells = 0
    for p in range(n_nodes):
        n_members = 0
        g = head[p]
        while g >= 0:
            n_members += 1
            g = following[g]
        members = np.empty(n_members, dtype=np.int64)
        g = head[p]
        for k in range(n_members):
            members[k] = g
            g = following[g]
        chosen, union, arity = _split_bucket(functions, members, size_at, max_cells)
        n_split = len(arity)
        common, common_cells = _common_nodes(union, arity, size_at, max_shift)
        if n_split > 1:
            shift_size[p] = common_cells
        for m in range(n_split):
            first = start[n_minis]
            start[n_minis + 1] = first + arity[m]
            node, size = _reserve(node, first + arity[m]), _reserve(size, first + arity[m])
            columns = 1
            for i in range(arity[m]):
                node[first + i], size[first + i] = order[union[m, i]], size_at[union[m, i]]
                if i > 0:
                    columns *= size_at[union[m, i]]
            for k in range(n_members + 1):
                if (k < n_members and chosen[k] != m) or (k == n_members and n_split == 1):
                    continue
                inputs, kind = _reserve(inputs, n_inputs + 1), _reserve(kind, n_inputs + 1)
                stride_start = _reserve(stride_start, n_inputs + 2)
                stride = _reserve(stride, stride_start[n_inputs] + arity[m])
                end = stride_start[n_inputs] + arity[m]
                stride_start[n_inputs + 1] = end
                stride[end - arity[m] : end] = 0
                if k < n_members:
                    g = members[k]
                    inputs[n_inputs], kind[n_inputs] = offset[g], 2 if g >= n_nodes + n_factors else 0
                    i = 0
                    for at in range(scope_start[g], scope_start[g + 1]):
                        while union[m, i] != functions.scope[at]:
                            i += 1
                        stride[end - arity[m] + i] = functions.stride[at]
                else:
                    inputs[n_inputs], kind[n_inputs] = n_shift_cells, 1
                    shift[n_minis] = n_shift_cells
                    n_shift_cells += common_cells
                    step = 1
                    i = arity[m] - 1
                    for j in range(len(common) - 1, -1, -1):
                        while union[m, i] != common[j]:
                            i -= 1
                        stride[end - arity[m] + i] = step
                        step *= size_at[common[j]]
                n_inputs += 1
            input_start[n_minis + 1] = n_inputs
            message[n_minis] = n_message_cells
            if arity[m] > 1:
                at = scope_start[n_functions]
                end = at + arity[m] - 1
                scope, scope_stride = _reserve(functions.scope, end), _reserve(functions.stride, end)
                functions = _Functions(scope_start, scope, scope_stride, offset, head, following)
                step = 1
                for i in range(arity[m] - 1, 0, -1):
                    scope[at + i - 1], scope_stride[at + i - 1] = union[m, i], step
                    step *= size_at[union[m, i]]
                scope_start[n_functions + 1] = end
                offset[n_functions] = n_message_cells
                following[n_functions] = head[union[m, 1]]
                head[union[m, 1]] = n_functions
                n_functions += 1
            n_message_cells += columns
            n_minis += 1
        bucket_start[p + 1] = n_minis

    region = np.empty(4, dtype=np.int64)
    region[0] = size_at.sum()
    region[1] = region[0] + table_start[n_factors]
    region[2] = region[1] + n_shift_cells
    region[3] = region[2] + n_message_cells
    for k in range(n_inputs):
        if kind[k] > 0:
            inputs[k] += region[kind[k]]
    for c in range(n_minis):
        message[c] += region[2]
        if shift[c] >= 0:
            shift[c] += region[1]
    n_axes, n_strides = start[n_minis], stride_start[n_inputs]
    return MiniBuckets(
        bucket_start,
        start[: n_minis + 1].copy(),
        node[:n_axes].copy(),
        size[:n_axes].copy(),
        input_start[: n_minis + 1].copy(),
        inputs[:n_inputs].copy(),
        stride_start[: n_inputs + 1].copy(),
        stride[:n_strides].copy(),
        message[:n_minis].copy(),
        shift[:n_minis].copy(),
        shift_size,
        region,
    )


@kernel()
def table_cells(minis, c):
    """Return the number of cells of a mini-bucket's table."""
    cells = 1
    for at in range(minis.start[c], minis.start[c + 1]):
        cells *= minis.size[at]
    return cells


@kernel((MINI_BUCKETS,))
def count_cells(minis):
    """Return the number of cells of all mini-buckets, of the largest bucket and of the largest mini-bucket."""
    total = largest_bucket = largest = 0
    for b in range(len(minis.shift_size)):
        bucket = 0
        for c in range(minis.bucket_start[b], minis.bucket_start[b + 1]):
            cells = table_cells(minis, c)
            bucket += cells
            largest = max(largest, cells)
        largest_bucket = max(largest_bucket, bucket)
        total += bucket
    return total, largest_bucket, largest
