"""Tables on edges whose ends are the cells of two keys that meet in a sample: what they add to the scores of the ends' states,
and the gradient of their entries. A variable may have any number of cells.

Cells of a key ascend by sample, so that those of two keys are merged as they are read, and nothing is kept of what meets.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import float64, int16, int64, types

from relcrf.kernels.compile import kernel, read_only
from relcrf.kernels.keyed_cells import CELLS, KeyedCells

U = np.uint64
"""Indices without a sign; see `forest.py`."""

INDEX, LABELS, FLAT = int64[::1], int16[::1], float64[::1]


class EdgeCells(NamedTuple):
    """Edges of one space, as pairs of keys, and the cells of its sides.

    Args:
        a, b: the keys, shape (n_edges,), int64.
        first, second: the cells of the sides; their variables are nodes.
    """

    a: np.ndarray
    b: np.ndarray
    first: KeyedCells
    second: KeyedCells


EDGES = types.NamedTuple([read_only(INDEX), read_only(INDEX), CELLS, CELLS], EdgeCells)
NODES = (read_only(LABELS), read_only(INDEX))


@kernel()
def _find_next_pair(edges, edge, at, other):
    """The next cells of an edge, from these places of its sides on, that are of one sample, if there are any."""
    stop, other_stop = edges.first.start[edges.a[edge] + 1], edges.second.start[edges.b[edge] + 1]
    while at < stop and other < other_stop:
        sample, other_sample = edges.first.sample[at], edges.second.sample[other]
        if sample == other_sample:
            return at, other, True
        if sample < other_sample:
            at += 1
        else:
            other += 1
    return at, other, False


@kernel((EDGES, *NODES, read_only(float64[:, :, ::1]), FLAT))
def add_table_scores(edges, states, state_start, tables, scores):
    """Adds to the scores of each end's states the row or column of its edge's table that the other end's state selects.

    Args:
        states: of each node, shape (n_nodes,), int16.
        state_start: where each node's states begin in `scores`, shape (n_nodes + 1,).
        tables: shape (n_edges, n_first_states, n_second_states).
        scores: added to, flat.
    """
    for edge in range(len(edges.a)):
        at, other = edges.first.start[edges.a[edge]], edges.second.start[edges.b[edge]]
        at, other, meet = _find_next_pair(edges, edge, at, other)
        while meet:
            a, b = edges.first.variable[at], edges.second.variable[other]
            for x in range(tables.shape[1]):
                scores[state_start[a] + x] += tables[edge, x, states[b]]
            for y in range(tables.shape[2]):
                scores[state_start[b] + y] += tables[edge, states[a], y]
            at, other, meet = _find_next_pair(edges, edge, at + 1, other + 1)


@kernel((EDGES, *NODES, read_only(FLAT), float64[:, :, ::1]))
def add_table_gradients(edges, states, state_start, residual, out):
    """The adjoint of `add_tables`: adds the flat residuals of scores to the entries of tables that act on them.

    Args:
        out: added to, shape (n_edges, n_first_states, n_second_states).
    """
    for edge in range(len(edges.a)):
        at, other = edges.first.start[edges.a[edge]], edges.second.start[edges.b[edge]]
        at, other, meet = _find_next_pair(edges, edge, at, other)
        while meet:
            a, b = edges.first.variable[at], edges.second.variable[other]
            for x in range(out.shape[1]):
                out[edge, x, states[b]] += residual[state_start[a] + x]
            for y in range(out.shape[2]):
                out[edge, states[a], y] += residual[state_start[b] + y]
            at, other, meet = _find_next_pair(edges, edge, at + 1, other + 1)


@kernel((EDGES, read_only(LABELS), int64[:, :, ::1]))
def count_joint_states(edges, labels, out):
    """Adds how often each joint state is met, where both ends have a label.

    Args:
        labels: of each node, shape (n_nodes,), int16; -1 where it is not counted.
        out: shape (n_edges, n_first_states, n_second_states).
    """
    for edge in range(len(edges.a)):
        at, other = edges.first.start[edges.a[edge]], edges.second.start[edges.b[edge]]
        at, other, meet = _find_next_pair(edges, edge, at, other)
        while meet:
            x, y = labels[edges.first.variable[at]], labels[edges.second.variable[other]]
            if x >= 0 and y >= 0:
                out[edge, x, y] += 1
            at, other, meet = _find_next_pair(edges, edge, at + 1, other + 1)
