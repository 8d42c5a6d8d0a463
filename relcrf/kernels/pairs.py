"""Pair marginals P(x_i, x_j | e) and mutual information for conditional Chow-Liu; each pair is a separate model."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float64, int32, int64

from relcrf.kernels.compile import kernel
from relcrf.kernels.prefetch import prefetch
from relcrf.kernels.vector_math import exp
from relcrf.kernels.vectors import make_loader, store

U = np.uint64
"""Unsigned type of loop indices; signed indices would prevent vectorisation (see `forest.py`)."""

PAIRS = (int32[:, ::1], int32[::1])
FLAT, INDEX = float64[::1], int64[::1]


@kernel((*PAIRS, INDEX, INDEX, FLAT, FLAT, FLAT), fastmath={"contract"})
def pair_marginals(edges, cardinality, state_start, table_start, node_table, edge_table, log_partition):
    """Compute the joint distribution of every pair (i, j) from `node_table[i] + node_table[j] + edge_table[ij]`.

    Args:
        table_start: offset of each pair's table in `edge_table`, shape (n_pairs,).
        edge_table: log potentials of all pairs, flat; overwritten by the joint distributions.
        log_partition: overwritten by the log partition of each pair, shape (n_pairs,).
    """
    for e in range(len(edges)):
        i, j = edges[e, 0], edges[e, 1]
        first, n_columns = U(table_start[e]), U(cardinality[j])
        last = first + U(cardinality[i]) * n_columns
        column = U(state_start[j])
        cell = first
        for x in range(state_start[i], state_start[i + 1]):
            row = node_table[x]
            for y in range(n_columns):
                edge_table[cell + y] += row + node_table[column + y]
            cell += n_columns
        top = -np.inf
        for at in range(first, last):
            top = edge_table[at] if edge_table[at] > top else top
        for at in range(first, last):
            edge_table[at] = exp(edge_table[at] - top)
        total = 0.0
        for at in range(first, last):
            total += edge_table[at]
        scale = 1.0 / total if top > -np.inf else np.nan
        for at in range(first, last):
            edge_table[at] *= scale
        log_partition[e] = top + np.log(total)


PREFETCH_DISTANCE = 16
"""Number of pairs between the prefetch of a node's numbers and their use. On a graph of 500,000 nodes with 5 states, this halves
the time; 8 pairs are not enough."""

MIN_LINEAR_TOTAL, MIN_PRODUCT, MAX_PRODUCT = 1e-200, 1e-100, 1e100
"""Minimum linear partition function of a pair, below which underflow could lose digits, and the range of products of several
partition functions whose logarithm is computed once."""


@kernel()
def _add_log_pair(row, column, first, n_rows, n_columns, node_table, edge_table, node_sum, edge_sum):
    """Add the distribution of one pair, computed with logarithms; return the log of its linear partition function."""
    joint = np.empty(n_rows * n_columns)
    row_top = column_top = table_top = top = -np.inf
    for y in range(n_columns):
        column_top = max(column_top, node_table[column + y])
    for x in range(n_rows):
        row_top = max(row_top, node_table[row + x])
        for y in range(n_columns):
            cell = x * n_columns + y
            table_top = max(table_top, edge_table[first + cell])
            joint[cell] = node_table[row + x] + node_table[column + y] + edge_table[first + cell]
            top = max(top, joint[cell])
    total = 0.0
    for cell in range(n_rows * n_columns):
        joint[cell] = np.exp(joint[cell] - top)
        total += joint[cell]
    for x in range(n_rows):
        for y in range(n_columns):
            value = joint[x * n_columns + y] / total
            edge_sum[first + x * n_columns + y] += value
            node_sum[row + x] += value
            node_sum[column + y] += value
    return top + np.log(total) - row_top - column_top - table_top


SHARED_PAIRS = (*PAIRS, INDEX, INDEX, FLAT, FLAT, FLAT, FLAT, FLAT, FLAT)


@kernel(SHARED_PAIRS, label="[0]", fastmath={"contract"})
def shared_pair_marginals(
    edges, cardinality, state_start, table_start, node_table, node_weight, edge_table, edge_weight, node_sum, edge_sum
):
    """Sum the joint distributions of pairs (i, j) with shared edge tables; the model is that of `pair_marginals`.

    The exponentials are computed once per node and per shared table instead of once per pair. A pair whose linear partition
    function is too small is computed with logarithms.

    Args:
        table_start: offset of each pair's table in `edge_table`, shape (n_pairs,).
        node_table, edge_table: log potentials of the nodes and of the shared tables, flat.
        node_weight, edge_weight: the exponentials of the log potentials, divided by the maximum of each node or table.
        node_sum: the marginals of both nodes of each pair are added to it, flat.
        edge_sum: the joint distribution of each pair is added to the shared table of the pair, flat.

    Returns:
        The sum of the log partitions of all pairs, computed from `node_weight` and `edge_weight`.
    """
    largest, smallest = 1, cardinality[0]
    for v in range(len(cardinality)):
        largest, smallest = max(largest, cardinality[v]), min(smallest, cardinality[v])
    # Reading the offsets of scattered nodes takes longer than computing them.
    common = U(largest) if largest == smallest else U(0)
    row_sum, column_sum = np.empty(largest), np.empty(largest)
    log_total, product = 0.0, 1.0
    for e in range(len(edges)):
        i, j, first = edges[e, 0], edges[e, 1], U(table_start[e])
        if common:
            if e + PREFETCH_DISTANCE < len(edges):  # pairs are sorted by their first node; the second one is scattered
                ahead = U(edges[e + PREFETCH_DISTANCE, 1]) * common
                for at in (ahead, ahead + common - U(1)):
                    prefetch(node_weight, at)
                    prefetch(node_sum, at)
            row, column = U(i) * common, U(j) * common
        else:
            row, column = U(state_start[i]), U(state_start[j])
        n_rows, n_columns = U(cardinality[i]), U(cardinality[j])
        total, cell = 0.0, first
        for x in range(n_rows):
            value = 0.0
            for y in range(n_columns):
                value += edge_weight[cell + y] * node_weight[column + y]
            row_sum[x] = value
            total += node_weight[row + x] * value
            cell += n_columns
        if total >= MIN_LINEAR_TOTAL:
            log_total, product = _multiply(log_total, product, total)
            scale = 1.0 / total
            for y in range(n_columns):
                column_sum[y] = 0.0
            cell = first
            for x in range(n_rows):
                factor = node_weight[row + x] * scale
                node_sum[row + x] += factor * row_sum[x]
                for y in range(n_columns):
                    value = factor * edge_weight[cell + y] * node_weight[column + y]
                    edge_sum[cell + y] += value
                    column_sum[y] += value
                cell += n_columns
            for y in range(n_columns):
                node_sum[column + y] += column_sum[y]
        else:
            log_total += _add_log_pair(
                row, column, first, n_rows, n_columns, node_table, edge_table, node_sum, edge_sum
            )
    return log_total + np.log(product)


@kernel()
def _multiply(log_total, product, total):
    """Return a sum of logarithms and the product of the other factors, times a factor, with the product in a safe range."""
    product *= total
    if product < MIN_PRODUCT or product > MAX_PRODUCT:
        return log_total + np.log(product), 1.0
    return log_total, product


def _make_shared_kernel(k: int) -> Any:
    """Make the kernel `shared_pair_marginals` for nodes with k states each, which computes with vectors of k numbers."""
    known, load = U(k), make_loader(k)

    @kernel(SHARED_PAIRS, label=f"[{k}]", fastmath={"contract"})
    def shared_pair_marginals(
        edges,
        cardinality,
        state_start,
        table_start,
        node_table,
        node_weight,
        edge_table,
        edge_weight,
        node_sum,
        edge_sum,
    ):
        transposed = np.empty_like(edge_weight)
        for start in range(U(0), U(len(edge_weight)), known * known):
            for x in range(known):
                for y in range(known):
                    transposed[start + y * known + x] = edge_weight[start + x * known + y]
        log_total, product = 0.0, 1.0
        for e in range(len(edges)):
            if e + PREFETCH_DISTANCE < len(edges):  # as above
                ahead = U(edges[e + PREFETCH_DISTANCE, 1]) * known
                for at in (ahead, ahead + known - U(1)):
                    prefetch(node_weight, at)
                    prefetch(node_sum, at)
            row, column, first = U(edges[e, 0]) * known, U(edges[e, 1]) * known, U(table_start[e])
            row_sum = node_weight[column] * load(transposed, first)
            for y in range(U(1), known):
                row_sum = row_sum + node_weight[column + y] * load(transposed, first + y * known)
            rows = load(node_weight, row) * row_sum
            total = 0.0
            for x in range(known):
                total += rows[x]
            if total >= MIN_LINEAR_TOTAL:
                log_total, product = _multiply(log_total, product, total)
                scale = 1.0 / total
                store(node_sum, row, load(node_sum, row) + scale * rows)
                columns, at = load(node_weight, column), first
                column_sum = load(node_sum, column)
                for x in range(known):
                    joint = (node_weight[row + x] * scale) * load(edge_weight, at) * columns
                    store(edge_sum, at, load(edge_sum, at) + joint)
                    column_sum = column_sum + joint
                    at += known
                store(node_sum, column, column_sum)
            else:
                log_total += _add_log_pair(row, column, first, known, known, node_table, edge_table, node_sum, edge_sum)
        return log_total + np.log(product)

    return shared_pair_marginals


SHARED_PAIR_KERNELS = {0: shared_pair_marginals, **{k: _make_shared_kernel(k) for k in (2, 3, 4, 5)}}
"""Kernels of pairs that share tables, by the number of states of all nodes; key 0 is for all other graphs. With 5 states, the
specialised kernel takes 15 ns per pair, and the other one more than 28 ns."""


@kernel((*PAIRS, INDEX, INDEX, FLAT, FLAT))
def add_to_nodes(edges, cardinality, state_start, table_start, edge_table, node_table):
    """Add the row sums of every pair's table to the pair's first node, and the column sums to the second node."""
    for e in range(len(edges)):
        n_columns = U(cardinality[edges[e, 1]])
        column = U(state_start[edges[e, 1]])
        cell = U(table_start[e])
        for x in range(state_start[edges[e, 0]], state_start[edges[e, 0] + 1]):
            total = 0.0
            for y in range(n_columns):
                total += edge_table[cell + y]
                node_table[column + y] += edge_table[cell + y]
            node_table[x] += total
            cell += n_columns


@kernel((*PAIRS, INDEX, FLAT, FLAT))
def mutual_information(edges, cardinality, table_start, edge_table, out):
    """Compute the mutual information of every pair, `sum p(x, y) log p(x, y) / (p(x) p(y))`, in nats, clipped at 0."""
    largest = 0
    for v in range(len(cardinality)):
        largest = max(largest, cardinality[v])
    row = np.empty(largest)
    column = np.empty(largest)
    for e in range(len(edges)):
        n_rows = cardinality[edges[e, 0]]
        n_columns = cardinality[edges[e, 1]]
        row[:n_rows] = 0.0
        column[:n_columns] = 0.0
        for x in range(n_rows):
            for y in range(n_columns):
                p = edge_table[table_start[e] + x * n_columns + y]
                row[x] += p
                column[y] += p
        information = 0.0
        for x in range(n_rows):
            for y in range(n_columns):
                p = edge_table[table_start[e] + x * n_columns + y]
                if p > 0.0:
                    information += p * np.log(p / (row[x] * column[y]))
        out[e] = max(information, 0.0)
