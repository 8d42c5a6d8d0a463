"""Conditional distributions of the nodes of any graph whose edges have tables of weights.

A candidate *space* has two *sides*. A side is a table with at most one *cell* for each *key* and *sample*; the cell
contains a variable, here a node. An *edge* is a pair of keys, one from each side, with one table of weights. The edge
connects the cells of the two keys in each sample in which both keys have a cell (see `graph/candidates.py`).

A node may be in any number of cells and have any features.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from relcrf.graph.candidates import CandidateSet, PairSpace
from relcrf.graph.reduction import ReducedGraph
from relcrf.kernels import edge_tables
from relcrf.kernels.edge_tables import EdgeCells
from relcrf.kernels.threads import freeze
from relcrf.learning.candidate_objective import label_residual


@dataclass(frozen=True)
class EdgeTables:
    """Edges from some candidate spaces, with the offsets of the edges' weights and table entries in flat arrays.

    Args:
        spaces: The spaces; the `variable` arrays of the sides contain node indices.
        chosen: The space and the keys of each edge.
    """

    spaces: tuple[PairSpace, ...]
    chosen: CandidateSet

    @cached_property
    def weight_start(self) -> np.ndarray:
        """Return the start of each edge's weights, shape (n_edges + 1,)."""
        return self.chosen.entry_offsets([space.n_weights for space in self.spaces])

    @cached_property
    def table_start(self) -> np.ndarray:
        """Return the start of each edge's row-major table, shape (n_edges + 1,)."""
        return self.chosen.entry_offsets([len(space.patterns) for space in self.spaces])

    def tables(self, weights: np.ndarray) -> np.ndarray:
        """Return the flat tables of all edges for the given weights."""
        out = np.empty(int(self.table_start[-1]))
        for number, space in enumerate(self.spaces):
            weight_offsets, entry_offsets = self._offsets(number)
            out[entry_offsets] = weights[weight_offsets] @ space.patterns.T
        return out

    def gradient(self, tables: np.ndarray) -> np.ndarray:
        """Return, for each weight, the sum of the flat table entries that use the weight (the adjoint of `tables`)."""
        out = np.empty(int(self.weight_start[-1]))
        for number, space in enumerate(self.spaces):
            weight_offsets, entry_offsets = self._offsets(number)
            out[weight_offsets] = tables[entry_offsets] @ space.patterns
        return out

    def _offsets(self, space_index: int) -> tuple[np.ndarray, np.ndarray]:
        """Return, for the edges of one space, the offsets of all weights and the offsets of all table entries."""
        edges, (n_cells, n_weights) = self.chosen.indices_in_space(space_index), self.spaces[space_index].patterns.shape
        return (
            self.weight_start[edges, None] + np.arange(n_weights),
            self.table_start[edges, None] + np.arange(n_cells),
        )

    def kernel_arguments(self) -> list[tuple[EdgeCells, np.ndarray, tuple[int, int, int]]]:
        """Return, for each space with edges: the edges (see `to_edge_cells`), table entry offsets, and table shape."""
        out = []
        for number, space in enumerate(self.spaces):
            pairs = self.chosen.pairs(self.chosen.indices_in_space(number))
            if len(pairs):
                n_first, n_second = (len(side.truth) for side in space.sides)
                out.append((to_edge_cells(space, pairs), self._offsets(number)[1], (len(pairs), n_first, n_second)))
        return out


def to_edge_cells(space: PairSpace, pairs: np.ndarray) -> EdgeCells:
    """Return edges of one space, given as pairs of keys of shape (n, 2), in the form that kernels accept."""
    first, second = space.sides
    return EdgeCells(
        freeze(pairs[:, 0], np.int64), freeze(pairs[:, 1], np.int64), first.kernel_cells, second.kernel_cells
    )


class AbstractConditionals(ABC):
    """The negative sum, over nodes, of the log conditional probability of the node's label given all other labels.

    Args:
        trained: Mask of the nodes whose conditionals are included, shape (n_nodes,), bool.
    """

    trained: np.ndarray

    @abstractmethod
    def trained_on(self, trained: np.ndarray) -> Self:
        """Return the same function with the conditionals of the given nodes only."""

    @abstractmethod
    def value_and_gradient(
        self, weights: np.ndarray, edges: EdgeTables, tables: np.ndarray
    ) -> tuple[float, np.ndarray, np.ndarray]:
        """Return the value, the gradient for the base weights, and the gradient for the flat tables of the edges."""

    @abstractmethod
    def gradient(
        self, weights: np.ndarray, edges: EdgeTables, tables: np.ndarray, candidates: EdgeTables
    ) -> np.ndarray:
        """Return the gradient for the flat tables of `candidates`; the table of a candidate outside `edges` is 0."""


@dataclass(frozen=True, eq=False)
class CellConditionals(AbstractConditionals):
    """Conditional distributions for any graph, with the table of each node in memory.

    Args:
        base: The nodes, without candidate edges; each factor of a node is evaluated at the labels of the node's
            neighbours (`blanket_graph`).
        states: The label of each node, shape (n_nodes,), int32.
        trained: Mask of the nodes whose conditionals are included, shape (n_nodes,), bool.
    """

    base: ReducedGraph
    states: np.ndarray
    trained: np.ndarray

    def trained_on(self, trained: np.ndarray) -> CellConditionals:
        return replace(self, trained=trained)

    @cached_property
    def _state_start(self) -> np.ndarray:
        return freeze(self.base.state_start, np.int64)

    def value_and_gradient(
        self, weights: np.ndarray, edges: EdgeTables, tables: np.ndarray
    ) -> tuple[float, np.ndarray, np.ndarray]:
        value, residual = self._residual(weights, edges, tables)
        counts = np.zeros(self.base.graph.layout.size)
        self.base.add_node_counts(residual, counts)
        return value, counts, self._table_gradients(edges, residual)

    def gradient(
        self, weights: np.ndarray, edges: EdgeTables, tables: np.ndarray, candidates: EdgeTables
    ) -> np.ndarray:
        return self._table_gradients(candidates, self._residual(weights, edges, tables)[1])

    def _residual(self, weights: np.ndarray, edges: EdgeTables, tables: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the value and the flat residuals; see `label_residual`."""
        scores = self.base.node_log_potentials(weights)
        for pairs, cells, shape in edges.kernel_arguments():
            space_tables = freeze(tables[cells].reshape(shape), np.float64)
            edge_tables.add_table_scores(pairs, self.states, self._state_start, space_tables, scores)
        return label_residual(self.base, scores, self.states, self.trained)

    def _table_gradients(self, edges: EdgeTables, residual: np.ndarray) -> np.ndarray:
        out = np.empty(int(edges.table_start[-1]))
        for pairs, cells, shape in edges.kernel_arguments():
            gradients = np.zeros(shape)
            edge_tables.add_table_gradients(
                pairs, self.states, self._state_start, freeze(residual, np.float64), gradients
            )
            out[cells] = gradients.reshape(cells.shape)
        return out
