"""The linear map from weights to tables of log potentials as one sparse matrix, for small graphs.

A graph with few factors per group spends most of an evaluation on calls of kernels, a few for each group. The matrix replaces
them by one product.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csc_array, csr_array

from relcrf.columns.offsets import entries_of_runs, offsets
from relcrf.graph.reduction import ReducedGraph, TableTerms

MAX_ENTRIES = 1 << 20
"""Maximum number of entries of the matrices. From about this size, the kernels of the groups are as fast and need less memory."""


@dataclass(frozen=True, eq=False)
class TableMatrices:
    """The matrices whose products with the weights are the log potentials of a reduced graph.

    Args:
        nodes, edges: shape (n_cells, layout.size).
    """

    nodes: csr_array
    edges: csr_array

    @cached_property
    def _transposed(self) -> tuple[csc_array, csc_array]:
        return self.nodes.T, self.edges.T

    def potentials(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the flat tables of `ReducedGraph.node_log_potentials` and `edge_log_potentials`."""
        return self.nodes @ weights, self.edges @ weights

    def counts(self, nodes: np.ndarray, edges: np.ndarray) -> np.ndarray:
        """Return the pattern counts, shape (layout.size,), of flat tables: the adjoint of `potentials`."""
        of_nodes, of_edges = self._transposed
        return np.asarray(of_nodes @ nodes + of_edges @ edges if len(edges) else of_nodes @ nodes)


def table_matrices(graph: ReducedGraph) -> TableMatrices | None:
    """Return the matrices of a graph without tables of agreements; its cliques are ignored.

    Returns:
        None if the matrices would have more than about `MAX_ENTRIES` entries together.
    """
    assert graph.agreement is None
    if sum(_estimate_entries(graph, terms) for terms in (*graph.node_terms, *graph.edge_terms)) > MAX_ENTRIES:
        return None
    return TableMatrices(
        node_matrix(graph),
        _matrix(graph, graph.edge_terms, int(graph.table_start[-1])),
    )


def node_matrix(graph: ReducedGraph) -> csr_array:
    """Return the matrix whose product with the weights is `ReducedGraph.node_log_potentials`, of any size."""
    return _matrix(graph, graph.node_terms, int(graph.state_start[-1]))


def _estimate_entries(graph: ReducedGraph, terms: TableTerms) -> int:
    """Return the number of entries of the matrix that some terms cause, if their factors have as many features as others."""
    group, n = graph.graph.groups[terms.group], len(terms.target)
    *_, n_rows, n_columns, _ = graph.table_geometry(terms, slice(0, n), 0)
    n_cells = int((n_rows.astype(np.int64) * n_columns).sum())
    per_cell = 1.0 if group.patterns is None else np.count_nonzero(group.patterns) / group.n_joint_states
    return int(n_cells * per_cell * group.features.n_entries / max(group.n_factors, 1))


def _matrix(graph: ReducedGraph, all_terms: tuple[TableTerms, ...], n_cells: int) -> csr_array:
    parts = [_entries(graph, terms) for terms in all_terms]
    cell, weight, value = (
        (np.concatenate([np.empty(0), *each]) for each in zip(*parts, strict=True)) if parts else [[]] * 3
    )
    shape = (n_cells, graph.graph.layout.size)
    return csr_array((value, (np.asarray(cell, dtype=np.int64), np.asarray(weight, dtype=np.int64))), shape=shape)


def _entries(graph: ReducedGraph, terms: TableTerms) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the cell, the weight and the coefficient of each entry of the matrix that some terms cause."""
    group, n = graph.graph.groups[terms.group], len(terms.target)
    base, stride_row, stride_column, n_rows, n_columns, start = graph.table_geometry(terms, slice(0, n), 0)
    # The cells of each term, with their joint states.
    n_term_cells = n_rows.astype(np.int64) * n_columns
    first_cell = offsets(n_term_cells)
    term = np.repeat(np.arange(n), n_term_cells)
    within = np.arange(len(term)) - first_cell[term]
    row, column = within // n_columns[term], within % n_columns[term]
    cell = start[term] + within
    state = base[term] + row * stride_row[term] + column * stride_column[term]
    # Each cell with each pattern whose value is not 0 in the cell's joint state.
    if group.patterns is None:
        pattern, pattern_value = state, np.ones(len(state))
    else:
        which, pattern = np.nonzero(group.patterns[state])
        term, cell, pattern_value = term[which], cell[which], group.patterns[state[which], pattern]
    # Each of these with each feature of the term's factor.
    entries = group.features.entries(np.arange(n) if terms.factor is None else terms.factor)
    first_entry = offsets(np.bincount(entries.row, minlength=n))
    entry, repeats = entries_of_runs(first_entry, term), np.diff(first_entry)[term]
    weight = graph.graph.layout.starts[group.block] + entries.feature[entry].astype(np.int64) * group.n_patterns
    value = entries.value[entry] * np.repeat(pattern_value, repeats)
    return np.repeat(cell, repeats), weight + np.repeat(pattern, repeats), value
