"""Conditional distributions of nodes that form a table with one row per sample; faster than `CellConditionals`.

A column contains the nodes of one or more keys; see `edge_conditionals.py` for the terms space, side, key and edge.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from relcrf.columns.offsets import offsets
from relcrf.graph.reduction import ReducedGraph
from relcrf.graph.sample_columns import SampleColumns
from relcrf.kernels import edge_columns
from relcrf.kernels.edge_columns import BLOCK_SIZE, GRADIENT_COPIES, VECTOR_LENGTH, ColumnEdges, SampleTable
from relcrf.kernels.threads import freeze, map_key_ranges
from relcrf.learning.edge_conditionals import AbstractConditionals, EdgeTables

MAX_STATES = 127
"""Maximum number of states of a variable, because labels are stored in 8 bits."""

COMPARISON_CHUNK = 1 << 16
"""Number of nodes whose tables are compared per pass."""

SOFTMAX_COST = 4
"""Cost of a column's softmax relative to the cost of one edge; all threads receive columns of about equal cost."""


@dataclass(frozen=True, eq=False)
class ColumnPotentials:
    """Node potentials of columns in which all nodes have the same potentials for any weights; one node per column.

    Args:
        graph: The nodes that represent the columns.
        node: The node of `graph` that represents each column, shape (n_columns,).
    """

    graph: ReducedGraph
    node: np.ndarray

    @classmethod
    def build(cls, base: ReducedGraph, columns: SampleColumns) -> ColumnPotentials | None:
        """Return the potentials of the columns, or None if two nodes of a column have different potentials.

        Potentials are linear in the weights. Potentials that are equal for random weights are therefore always equal.
        """
        potentials = cls.from_representatives(base, columns)
        weights = np.random.default_rng(0).normal(size=base.graph.layout.size)
        column_tables = potentials.graph.node_log_potentials(weights)
        representative = np.empty(base.n_nodes, dtype=np.int32)
        for node, column in zip(potentials.node, columns.node, strict=True):
            representative[column[column >= 0]] = node
        for first in range(0, base.n_nodes, COMPARISON_CHUNK):
            nodes = slice(first, first + COMPARISON_CHUNK)
            sizes = base.cardinality[nodes]
            state = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
            expected = column_tables[np.repeat(potentials.graph.state_start[representative[nodes]], sizes) + state]
            if not np.array_equal(expected, base.node_log_potentials(weights, first, first + len(sizes))):
                return None
        return potentials

    @classmethod
    def from_representatives(cls, base: ReducedGraph, columns: SampleColumns) -> ColumnPotentials:
        """Return the potentials of one node per column, without a comparison with the other nodes of the column.

        An empty column is represented by the first node of the graph.
        """
        nodes, node = np.unique(np.maximum(columns.node.max(axis=1, initial=-1), 0), return_inverse=True)
        new_index = np.full(base.n_nodes, -1, dtype=np.int32)
        new_index[nodes] = np.arange(len(nodes))
        kept_terms = [(terms, np.flatnonzero(new_index[terms.target] >= 0)) for terms in base.node_terms]
        cardinality = base.cardinality[nodes]
        graph = replace(
            base,
            variables=base.variables[nodes],
            cardinality=cardinality,
            state_start=offsets(cardinality),
            node_terms=tuple(
                terms.take(rows, new_index[terms.target[rows]]) for terms, rows in kept_terms if len(rows)
            ),
        )
        return cls(graph, node)

    @property
    def n_states(self) -> np.ndarray:
        """The number of states of each column."""
        return np.asarray(self.graph.cardinality[self.node])

    def _state_offsets(self, width: int) -> tuple[np.ndarray, np.ndarray]:
        """Return a mask of the states in padded rows, shape (n_columns, width), and the states' flat table offsets."""
        offset = self.graph.state_start[self.node][:, None] + np.arange(width)
        is_state = np.arange(width) < self.n_states[:, None]
        return is_state, offset[is_state]

    def log_potentials(self, weights: np.ndarray, width: int) -> np.ndarray:
        """Return the log potentials of the columns' states, shape (n_columns, width); 0 in the padding."""
        is_state, offset = self._state_offsets(width)
        out = np.zeros(is_state.shape)
        out[is_state] = self.graph.node_log_potentials(weights)[offset]
        return out

    def counts(self, rows: np.ndarray) -> np.ndarray:
        """Apply the adjoint of `log_potentials` and return the gradient of the weights, shape (layout.size,)."""
        is_state, offset = self._state_offsets(rows.shape[1])
        out = np.zeros(self.graph.graph.layout.size)
        self.graph.add_node_counts(np.bincount(offset, rows[is_state], int(self.graph.state_start[-1])), out)
        return out


@dataclass(frozen=True, eq=False)
class EdgeRows:
    """Edge tables stored twice: with one row per state of the second end, and with one row per state of the first end.

    Args:
        edges: All edges that have tables.
        side_columns: For each candidate space, the column of each key of each side; see `SampleColumns`.
        width: Number of entries of a row, with padding.
    """

    edges: EdgeTables
    side_columns: tuple[tuple[np.ndarray, ...], ...]
    width: int

    @cached_property
    def start(self) -> np.ndarray:
        """Return the start of each edge's rows, shape (n_edges + 1,).

        The rows of an edge are, in this order: a row for a missing state of the second end, a row for each state of the
        second end, and the same rows for the first end.
        """
        return self.edges.chosen.entry_offsets(
            [2 + sum(len(side.truth) for side in space.sides) for space in self.edges.spaces]
        )

    @cached_property
    def _row_offsets(self) -> np.ndarray:
        """Return the offsets of the two copies of each flat table entry in the flat rows, shape (2, n_entries).

        Copy 0 is in the row for the state of the second end; copy 1 is in the row for the state of the first end.
        """
        out = np.empty((2, int(self.edges.table_start[-1])), dtype=np.int64)
        for number, space in enumerate(self.edges.spaces):
            edges = self.edges.chosen.indices_in_space(number)
            first, second = np.indices([len(side.truth) for side in space.sides]).reshape(2, -1)
            entries = self.edges.table_start[edges, None] + np.arange(len(first))
            row = self.start[edges, None] + 1
            out[0, entries] = (row + second) * self.width + first
            out[1, entries] = (row + len(space.second.truth) + 1 + first) * self.width + second
        return out

    def rows(self, tables: np.ndarray) -> np.ndarray:
        """Return the flat rows that contain two copies of the given flat tables."""
        out = edge_columns.aligned_zeros(int(self.start[-1]) * self.width)
        out[self._row_offsets] = tables
        return out

    def tables(self, rows: np.ndarray) -> np.ndarray:
        """Return flat tables; each entry is the sum of its two copies in the flat rows (the adjoint of `rows`)."""
        return np.asarray(rows[self._row_offsets].sum(axis=0))

    def incidence(self, n_columns: int) -> ColumnEdges:
        """Return the edges that are incident to each column."""
        chosen = self.edges.chosen
        ends, rows = np.zeros((2, len(chosen)), dtype=np.int64), np.stack((self.start[:-1], self.start[:-1]))
        for number, (space, side_columns) in enumerate(zip(self.edges.spaces, self.side_columns, strict=True)):
            edges = chosen.indices_in_space(number)
            ends[0, edges] = side_columns[0][chosen.first[edges]]
            ends[1, edges] = side_columns[1][chosen.second[edges]]
            rows[1, edges] += 1 + len(space.second.truth)
        order = np.argsort(ends.ravel(), kind="stable")
        start = offsets(np.bincount(ends.ravel(), minlength=n_columns))
        other = ends[::-1].ravel()[order]
        return ColumnEdges(freeze(start, np.int64), freeze(other, np.int32), freeze(rows.ravel()[order], np.int64))


@dataclass(frozen=True, eq=False)
class ColumnConditionals(AbstractConditionals):
    """Conditional distributions of nodes in a table, computed for one block of samples at a time.

    If all nodes of a column have the same potentials, the tables of individual nodes are never stored.

    Args:
        base: The nodes; each factor of a node is evaluated at the labels of the node's neighbours (`blanket_graph`).
        columns: The nodes arranged as a table.
        shared: The potentials of the columns; None if two nodes of a column have different potentials.
        states: The label of each node, shape (n_nodes,).
        trained: Mask of the nodes whose conditionals are included, shape (n_nodes,), bool.
    """

    base: ReducedGraph
    columns: SampleColumns
    shared: ColumnPotentials | None
    states: np.ndarray
    trained: np.ndarray

    def trained_on(self, trained: np.ndarray) -> ColumnConditionals:
        return replace(self, trained=trained)

    @cached_property
    def _columns(self) -> SampleTable:
        node, is_node = self.columns.node, self.columns.node >= 0
        states = np.where(is_node, self.states.astype(np.int8)[node], np.int8(-1))
        labels = states if self.trained.all() else np.where(is_node & self.trained[node], states, np.int8(-1))
        starts = self.base.state_start
        if self.shared is not None:  # nodes depend only on nodes of their sample: omit samples without trained nodes
            has_label = (labels >= 0).any(axis=0)
            if not has_label.all():
                states, labels = states[:, has_label], labels[:, has_label]
            node, starts = np.empty((0, 0)), np.empty(0)
        return SampleTable(
            freeze(self._representatives.n_states, np.int32),
            freeze(states, np.int8),
            freeze(labels, np.int8),
            freeze(node, np.int32),
            freeze(starts, np.int64),
        )

    @cached_property
    def _representatives(self) -> ColumnPotentials:
        return ColumnPotentials.from_representatives(self.base, self.columns) if self.shared is None else self.shared

    @cached_property
    def _observed(self) -> np.ndarray:
        """Return the number of occurrences of each label in each column, shape (n_columns, width)."""
        counts = [np.bincount(labels[labels >= 0], minlength=self._width) for labels in self._columns.labels]
        return np.array(counts, dtype=np.float64)

    @cached_property
    def _width(self) -> int:
        return VECTOR_LENGTH * -(-int(self.base.cardinality.max()) // VECTOR_LENGTH)

    def value_and_gradient(
        self, weights: np.ndarray, edges: EdgeTables, tables: np.ndarray
    ) -> tuple[float, np.ndarray, np.ndarray]:
        rows = self._rows(edges)
        value, probability_sums, residuals, gradient = self._sweep(weights, rows, tables, rows, all_columns=True)
        if self.shared is not None:
            counts = self.shared.counts(probability_sums - self._observed)
        else:
            counts = np.zeros(self.base.graph.layout.size)
            self.base.add_node_counts(residuals, counts)
        return float(value.sum()), counts, rows.tables(gradient)

    def gradient(
        self, weights: np.ndarray, edges: EdgeTables, tables: np.ndarray, candidates: EdgeTables
    ) -> np.ndarray:
        rows = self._rows(candidates)
        return rows.tables(self._sweep(weights, self._rows(edges), tables, rows, all_columns=False)[3])

    def _rows(self, edges: EdgeTables) -> EdgeRows:
        return EdgeRows(edges, self.columns.side_columns, self._width)

    def _sweep(
        self, weights: np.ndarray, active: EdgeRows, tables: np.ndarray, requested: EdgeRows, all_columns: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return the value and the sums of probabilities of each column, flat residuals, and the gradient of rows."""
        columns = self._columns
        n_columns = len(columns.states)
        n_samples = columns.states.shape[1]
        if self.shared is None:
            base, flat = np.zeros((n_columns, self._width)), self.base.node_log_potentials(weights)
        else:
            base, flat = self.shared.log_potentials(weights, self._width), np.empty(0)
        value, probability_sums = np.empty(n_columns), np.empty((n_columns, self._width))
        gradient = edge_columns.aligned_zeros(GRADIENT_COPIES * int(requested.start[-1]) * self._width)
        active_edges, requested_edges = active.incidence(n_columns), requested.incidence(n_columns)
        base, rows = freeze(base, np.float64), freeze(active.rows(tables), np.float64)

        def run(lo: int, hi: int) -> None:
            scratch = edge_columns.aligned_zeros(int(BLOCK_SIZE) * self._width)
            edge_columns.sweep_columns(
                columns,
                active_edges,
                requested_edges,
                all_columns,
                lo,
                hi,
                base,
                rows,
                flat,
                value,
                probability_sums,
                gradient,
                scratch,
            )

        n_edges, n_requested = np.diff(active_edges.start), np.diff(requested_edges.start)
        cost = (SOFTMAX_COST + n_edges + n_requested) * (n_samples if all_columns else n_samples * (n_requested > 0))
        list(map_key_ranges(cost, run))
        return value, probability_sums, flat, gradient.reshape(GRADIENT_COPIES, -1).sum(axis=0)
