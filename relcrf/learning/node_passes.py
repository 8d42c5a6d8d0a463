"""Passes over the unary factors of a graph, which read the features of all nodes in the order of memory.

The nodes are divided into a fixed number of ranges, which several threads process; the order of sums, and with it every bit
of the result, does not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relcrf.graph.reduction import ReducedGraph
from relcrf.kernels.threads import map_lanes

MIN_SCATTERED_GAP = 4.0
"""Minimum mean distance of successive feature rows from which reading them costs more than reading all rows in order and
reordering the tables of the nodes; rows in random order of 100 words each are read half as fast."""


def reads_scattered_rows(graph: ReducedGraph) -> bool:
    """Return True if the features of successive nodes are far apart in memory."""
    rows = (terms.factor for terms in graph.node_terms)
    return any(len(row) > 1 and np.abs(np.diff(row)).mean() > MIN_SCATTERED_GAP for row in rows if row is not None)


NODES_PER_RELEASE = 1 << 14
"""Number of nodes after which `node_potentials` releases memory; 2**14 bags of 100 words take 6 MiB."""


def node_potentials(graph: ReducedGraph, weights: np.ndarray, *, is_last: bool = False) -> np.ndarray:
    """Return the flat log potentials of all nodes; see `ReducedGraph.node_log_potentials`.

    Args:
        is_last: Whether the features are not read again soon. The pages of features in files are then removed from the memory
            of the process during the pass, so that it needs little memory.
    """
    out = np.empty(int(graph.state_start[-1]))

    def fill(first: int, last: int) -> None:
        for start in range(first, last, NODES_PER_RELEASE if is_last else max(last - first, 1)):
            stop = min(start + NODES_PER_RELEASE, last) if is_last else last
            graph.node_log_potentials(weights, start, stop, out[graph.state_start[start] : graph.state_start[stop]])
            if is_last:
                graph.graph.release_pages()

    map_lanes(graph.n_nodes, _cost(graph), fill)
    return out


def node_counts(graph: ReducedGraph, node_tables: np.ndarray) -> np.ndarray:
    """Return the pattern counts, shape (layout.size,), given flat tables of all nodes: the adjoint of `node_potentials`."""

    def count(start: int, stop: int) -> np.ndarray:
        out = np.zeros(graph.graph.layout.size)
        graph.add_node_counts(node_tables[graph.state_start[start] : graph.state_start[stop]], out, start, stop)
        return out

    return add_in_place(map_lanes(graph.n_nodes, _cost(graph), count))


def add_in_place(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Return the sum of arrays, in their order; it overwrites the first one."""
    total, *others = arrays
    for each in others:
        total += each
    return total


def _cost(graph: ReducedGraph) -> int:
    """Return an estimate of the number of entries of features and tables that a pass reads."""
    groups = {terms.group for terms in graph.node_terms}
    entries = sum(graph.graph.groups[number].features.n_entries for number in groups)
    return entries + int(graph.state_start[-1])
