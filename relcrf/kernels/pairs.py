"""Pair marginals P(x_i, x_j | e) and mutual information for conditional Chow-Liu; each pair is a separate model."""

from __future__ import annotations

import numpy as np
from numba import float64, int32, int64

from relcrf.kernels.compile import kernel
from relcrf.kernels.vector_math import exp

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
