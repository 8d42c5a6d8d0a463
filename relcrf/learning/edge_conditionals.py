"""Edges with tables on the nodes of any graph: nodes may be in any number of cells, and have any features."""

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
    """Edges of some spaces with their tables, and where their weights and the entries of their tables are in flat arrays.

    Args:
        spaces: whose sides have nodes as variables.
        chosen: of each edge its space and its keys.
    """

    spaces: tuple[PairSpace, ...]
    chosen: CandidateSet

    @cached_property
    def weight_start(self) -> np.ndarray:
        """Return where each edge's weights begin, shape (n_edges + 1,)."""
        return self.chosen.entry_offsets([space.n_weights for space in self.spaces])

    @cached_property
    def table_start(self) -> np.ndarray:
        """Return where each edge's table begins, row by row, shape (n_edges + 1,)."""
        return self.chosen.entry_offsets([len(space.patterns) for space in self.spaces])

    def tables(self, weights: np.ndarray) -> np.ndarray:
        """The flat tables of some weights."""
        out = np.empty(int(self.table_start[-1]))
        for number, space in enumerate(self.spaces):
            at, table = self._offsets(number)
            out[table] = weights[at] @ space.patterns.T
        return out

    def gradient(self, tables: np.ndarray) -> np.ndarray:
        """The adjoint: of each weight the sum of the entries of flat tables that it is worth."""
        out = np.empty(int(self.weight_start[-1]))
        for number, space in enumerate(self.spaces):
            at, table = self._offsets(number)
            out[at] = tables[table] @ space.patterns
        return out

    def _offsets(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Of the edges of one space the places of their weights, and those of their tables' entries."""
        places, (n_cells, n_weights) = self.chosen.indices_in_space(number), self.spaces[number].patterns.shape
        return (
            self.weight_start[places, None] + np.arange(n_weights),
            self.table_start[places, None] + np.arange(n_cells),
        )

    def kernel_arguments(self) -> list[tuple[EdgeCells, np.ndarray, tuple[int, int, int]]]:
        """Of each space with edges: these for kernels, the places of their entries in flat tables, and the tables' shape."""
        out = []
        for number, space in enumerate(self.spaces):
            pairs = self.chosen.pairs(self.chosen.indices_in_space(number))
            if len(pairs):
                n_first, n_second = (len(side.truth) for side in space.sides)
                out.append((joined_cells(space, pairs), self._offsets(number)[1], (len(pairs), n_first, n_second)))
        return out


def joined_cells(space: PairSpace, pairs: np.ndarray) -> EdgeCells:
    """Return edges of one space, named by pairs of keys of shape (n, 2), as kernels take them."""
    first, second = space.sides
    return EdgeCells(
        freeze(pairs[:, 0], np.int64), freeze(pairs[:, 1], np.int64), first.kernel_cells, second.kernel_cells
    )


class AbstractConditionals(ABC):
    """Minus the sum of log conditionals of nodes, each given the labels of all others, with tables on edges.

    Args:
        trained: nodes whose conditionals count, shape (n_nodes,), bool.
    """

    trained: np.ndarray

    @abstractmethod
    def trained_on(self, trained: np.ndarray) -> Self:
        """Return the conditionals of other nodes."""

    @abstractmethod
    def value_and_gradient(
        self, weights: np.ndarray, edges: EdgeTables, tables: np.ndarray
    ) -> tuple[float, np.ndarray, np.ndarray]:
        """The value, and its gradients in the weights of the base and in the flat tables of the edges."""

    @abstractmethod
    def gradient(
        self, weights: np.ndarray, edges: EdgeTables, tables: np.ndarray, candidates: EdgeTables
    ) -> np.ndarray:
        """The gradient in the flat tables of edges that are `candidates` for, at 0 where they do not act."""


@dataclass(frozen=True, eq=False)
class CellConditionals(AbstractConditionals):
    """Of the nodes of any graph, each with its table in memory.

    Args:
        base: each node with its factors at its neighbours' labels (`blanket_graph`), but for the edges.
        states: the labels, shape (n_nodes,), int16.
        trained: nodes whose conditionals count, shape (n_nodes,), bool.
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
        return value, counts, self._collect_tables(edges, residual)

    def gradient(
        self, weights: np.ndarray, edges: EdgeTables, tables: np.ndarray, candidates: EdgeTables
    ) -> np.ndarray:
        return self._collect_tables(candidates, self._residual(weights, edges, tables)[1])

    def _residual(self, weights: np.ndarray, edges: EdgeTables, tables: np.ndarray) -> tuple[float, np.ndarray]:
        """The value, and flat tables of each state's probability, less 1 at the label; 0 where it is not trained on."""
        out = self.base.node_log_potentials(weights)
        for pairs, cells, shape in edges.kernel_arguments():
            tables_here = freeze(tables[cells].reshape(shape), np.float64)
            edge_tables.add_table_scores(pairs, self.states, self._state_start, tables_here, out)
        return label_residual(self.base, out, self.states, self.trained)

    def _collect_tables(self, edges: EdgeTables, residual: np.ndarray) -> np.ndarray:
        out = np.empty(int(edges.table_start[-1]))
        for pairs, cells, shape in edges.kernel_arguments():
            found = np.zeros(shape)
            edge_tables.add_table_gradients(pairs, self.states, self._state_start, freeze(residual, np.float64), found)
            out[cells] = found.reshape(cells.shape)
        return out
