"""Conditionals of single nodes as flat tables over states; scores and expectations of literals (state conditions)."""

from __future__ import annotations

import numpy as np
from numba import float64, int32, int64

from relcrf.kernels.compile import kernel, read_only
from relcrf.kernels.vector_math import exp

U = np.uint64
"""Unsigned type of loop indices; signed indices would prevent vectorisation (see `forest.py`)."""

FLAT = float64[::1]
READ_ONLY_FLAT, STARTS, NODES = (read_only(array) for array in (FLAT, int64[::1], int32[::1]))


@kernel((STARTS, FLAT, FLAT), fastmath={"contract"})
def normalise(start, tables, log_partition):
    """Convert the log potentials in `tables` to probabilities, in place.

    Args:
        start: offset of each node's states, shape (n_nodes + 1,).
        log_partition: overwritten by the log partition of each node, shape (n_nodes,).
    """
    for node in range(len(log_partition)):
        first, last = U(start[node]), U(start[node + 1])
        top = tables[first]
        for at in range(first + U(1), last):
            top = max(top, tables[at])
        total = 0.0
        for at in range(first, last):
            tables[at] = exp(tables[at] - top)
            total += tables[at]
        for at in range(first, last):
            tables[at] /= total
        log_partition[node] = top + np.log(total)


@kernel((NODES, STARTS, READ_ONLY_FLAT, READ_ONLY_FLAT, FLAT))
def add_literal_scores(nodes, start, truth, score, tables):
    """Add the score of each node's literal to the states in which the literal is true.

    Args:
        truth: truth value of the literal in each state, 0 or 1.
        score: score of each node's literal, shape (n_nodes,).
    """
    for node in nodes:
        first = U(start[node])
        for state in range(U(len(truth))):
            tables[first + state] += score[U(node)] * truth[state]


@kernel((NODES, STARTS, READ_ONLY_FLAT, READ_ONLY_FLAT, FLAT))
def compute_expectations(nodes, start, truth, tables, out):
    """Set `out[node]` to the probability that the node's literal is true: the adjoint of `add_literal_scores`."""
    for node in nodes:
        first, total = U(start[node]), 0.0
        for state in range(U(len(truth))):
            total += tables[first + state] * truth[state]
        out[U(node)] = total
