"""Scores and gradients of edge tables.

A *side* is a sparse matrix of variables, with a row for each *key* and a column for each *sample*; its entries are
*cells*. An *edge* is a pair of keys, one from each of two sides. It connects the cells of the two keys in each sample
in which both keys have a cell, and has one table for all these pairs of cells.

A variable may have any number of cells. The cells of a key are sorted by sample. The connected pairs of cells are
therefore found by a merge join and are not stored.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import float64, int32, int64, types

from relcrf.kernels.compile import kernel, read_only
from relcrf.kernels.keyed_cells import CELLS, KeyedCells

U = np.uint64
"""Unsigned type of loop indices; signed indices would prevent vectorisation (see `forest.py`)."""

INDEX, LABELS, FLAT = int64[::1], int32[::1], float64[::1]


class EdgeCells(NamedTuple):
    """Edges between keys, with the cells of both sides.

    Args:
        a, b: each edge's keys on the first and on the second side, shape (n_edges,), int64.
        first, second: the cells of the two sides; their variables are nodes.
    """

    a: np.ndarray
    b: np.ndarray
    first: KeyedCells
    second: KeyedCells


EDGES = types.NamedTuple([read_only(INDEX), read_only(INDEX), CELLS, CELLS], EdgeCells)
NODES = (read_only(LABELS), read_only(INDEX))


@kernel()
def _find_next_pair(edges, edge, first_cell, second_cell):
    """Return the next two cells that an edge connects, from two given cells on, and whether they exist."""
    stop, other_stop = edges.first.start[edges.a[edge] + 1], edges.second.start[edges.b[edge] + 1]
    while first_cell < stop and second_cell < other_stop:
        sample, other_sample = edges.first.sample[first_cell], edges.second.sample[second_cell]
        if sample == other_sample:
            return first_cell, second_cell, True
        if sample < other_sample:
            first_cell += 1
        else:
            second_cell += 1
    return first_cell, second_cell, False


@kernel((EDGES, *NODES, read_only(float64[:, :, ::1]), FLAT))
def add_table_scores(edges, states, state_start, tables, scores):
    """For each pair of connected nodes, add the table row or column of one node's state to the other node's scores.

    Args:
        states: state of each node, shape (n_nodes,), int32.
        state_start: offset of each node's states in `scores`, shape (n_nodes + 1,).
        tables: table of each edge, shape (n_edges, n_first_states, n_second_states).
        scores: scores of the states of all nodes, flat; updated in place.
    """
    for edge in range(len(edges.a)):
        cell, other_cell = edges.first.start[edges.a[edge]], edges.second.start[edges.b[edge]]
        cell, other_cell, found = _find_next_pair(edges, edge, cell, other_cell)
        while found:
            a, b = edges.first.variable[cell], edges.second.variable[other_cell]
            for x in range(tables.shape[1]):
                scores[state_start[a] + x] += tables[edge, x, states[b]]
            for y in range(tables.shape[2]):
                scores[state_start[b] + y] += tables[edge, states[a], y]
            cell, other_cell, found = _find_next_pair(edges, edge, cell + 1, other_cell + 1)


@kernel((EDGES, *NODES, read_only(FLAT), float64[:, :, ::1]))
def add_table_gradients(edges, states, state_start, residual, out):
    """Add the residual of each score to the table entries that contribute to it: the adjoint of `add_table_scores`.

    Args:
        out: the gradients are added to it, shape (n_edges, n_first_states, n_second_states).
    """
    for edge in range(len(edges.a)):
        cell, other_cell = edges.first.start[edges.a[edge]], edges.second.start[edges.b[edge]]
        cell, other_cell, found = _find_next_pair(edges, edge, cell, other_cell)
        while found:
            a, b = edges.first.variable[cell], edges.second.variable[other_cell]
            for x in range(out.shape[1]):
                out[edge, x, states[b]] += residual[state_start[a] + x]
            for y in range(out.shape[2]):
                out[edge, states[a], y] += residual[state_start[b] + y]
            cell, other_cell, found = _find_next_pair(edges, edge, cell + 1, other_cell + 1)


@kernel((EDGES, read_only(INDEX), read_only(FLAT), float64[:, :, ::1]))
def add_marginal_products(edges, state_start, marginals, out):
    """Add, for each edge, the products of the marginals of the two nodes in each pair of cells that it connects.

    Args:
        state_start: offset of each node's states in `marginals`, shape (n_nodes + 1,).
        marginals: marginal probabilities of the states of all nodes, flat.
        out: the products are added to it, shape (n_edges, n_first_states, n_second_states).
    """
    for edge in range(len(edges.a)):
        cell, other_cell = edges.first.start[edges.a[edge]], edges.second.start[edges.b[edge]]
        cell, other_cell, found = _find_next_pair(edges, edge, cell, other_cell)
        while found:
            a, b = state_start[edges.first.variable[cell]], state_start[edges.second.variable[other_cell]]
            for x in range(out.shape[1]):
                for y in range(out.shape[2]):
                    out[edge, x, y] += marginals[a + x] * marginals[b + y]
            cell, other_cell, found = _find_next_pair(edges, edge, cell + 1, other_cell + 1)


@kernel((EDGES, read_only(LABELS), int64[:, :, ::1]))
def count_joint_states(edges, labels, out):
    """Count, for each edge, the joint labels of the pairs of cells that it connects.

    Args:
        labels: label of each node, shape (n_nodes,), int32; -1 for nodes that are not counted.
        out: the counts are added to it, shape (n_edges, n_first_states, n_second_states).
    """
    for edge in range(len(edges.a)):
        cell, other_cell = edges.first.start[edges.a[edge]], edges.second.start[edges.b[edge]]
        cell, other_cell, found = _find_next_pair(edges, edge, cell, other_cell)
        while found:
            x, y = labels[edges.first.variable[cell]], labels[edges.second.variable[other_cell]]
            if x >= 0 and y >= 0:
                out[edge, x, y] += 1
            cell, other_cell, found = _find_next_pair(edges, edge, cell + 1, other_cell + 1)
