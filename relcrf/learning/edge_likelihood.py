"""Pseudo-likelihood of a model with edges chosen out of spaces of candidate tables, none of which is expanded.

Source: Besag, Statistical analysis of non-lattice data (1975); as the objective of edge grafting, Chaabene & Huang. Each
variable is a softmax regression on its neighbours' labels, and an edge's table is one and the same for both of its ends.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from relcrf.graph.candidates import PairSpace
from relcrf.graph.reduction import ReducedGraph
from relcrf.graph.sample_columns import SampleColumns
from relcrf.kernels.threads import frozen
from relcrf.learning.edge_cells import AbstractConditionals, CellConditionals, Edges
from relcrf.learning.edge_columns import MOST_STATES, ColumnBase, ColumnConditionals
from relcrf.learning.edge_counts import EdgeCounts
from relcrf.learning.induced import AbstractGrowing, Chosen
from relcrf.learning.likelihood import curvature


@dataclass(frozen=True, eq=False)
class EdgeLikelihood(AbstractGrowing):
    """Minus the log pseudo-likelihood of labels, a sum over nodes; convex.

    A point has the weights of the base, then those of each chosen edge in turn, one for each of its space's patterns.

    Args:
        base: each variable with its factors at its neighbours' labels (`blanket_graph`), of all that is no candidate.
        states: the labels of its nodes, shape (n_nodes,), int16.
        spaces: of candidate edges; their sides have nodes as variables.
        chosen: edges that are in the model.
        trained: nodes whose labels are learned from, shape (n_nodes,), bool; the others are neighbours only.
    """

    base: ReducedGraph
    states: np.ndarray
    spaces: tuple[PairSpace, ...]
    chosen: Chosen
    trained: np.ndarray

    @classmethod
    def of(cls, base: ReducedGraph, states: np.ndarray, spaces: tuple[PairSpace, ...]) -> EdgeLikelihood:
        """With nothing chosen, trained on all nodes.

        Args:
            states: shape (n_nodes,), all observed.
            spaces: over variables that are nodes.
        """
        node_of = np.full(base.graph.n_variables, -1, dtype=np.int32)
        node_of[base.variables] = np.arange(base.n_nodes, dtype=np.int32)
        placed = []
        for space in spaces:
            sides = [replace(side, variable=node_of[side.variable]) for side in space.sides]
            assert all(side.variable.min(initial=0) >= 0 for side in sides), (
                "a cell speaks of a variable that is no node"
            )
            placed.append(space.placed(sides))
        return cls(base, frozen(states, np.int16), tuple(placed), Chosen.none(), np.ones(base.n_nodes, dtype=bool))

    def having(self, chosen: Chosen) -> EdgeLikelihood:
        other = replace(self, chosen=chosen)
        # They do not depend on the edges.
        other.__dict__.update(
            _columns=self._columns, _conditionals=self._conditionals, _base_curvature=self._base_curvature
        )
        return other

    def held_out(self) -> EdgeLikelihood | None:
        if self.trained.all():
            return None
        other = replace(self, trained=~self.trained)
        other.__dict__.update(_columns=self._columns)
        return other

    @property
    def n_base(self) -> int:
        return self.base.graph.layout.size

    def __call__(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        if not np.isfinite(point).all():
            return np.nan, np.full(len(point), np.nan)
        weights, tables = self._split(point)
        value, base, joint = self._conditionals.value_and_gradient(weights, self.edges, tables)
        return value, np.concatenate((base, self.edges.gradient(joint)))

    def edge_gradients(self, point: np.ndarray, space: int, pairs: np.ndarray) -> np.ndarray:
        """The gradient of edges that are not chosen, at a point of those that are.

        Args:
            space: the number of their space. pairs: their keys, shape (n, 2).

        Returns:
            shape (n, n_weights).
        """
        asked = Edges(self.spaces, Chosen(np.full(len(pairs), space), pairs[:, 0], pairs[:, 1]))
        weights, tables = self._split(point)
        joint = self._conditionals.gradient(weights, self.edges, tables, asked)
        return asked.gradient(joint).reshape(len(pairs), self.spaces[space].patterns.shape[1])

    def edge_counts(self, space: int, pairs: np.ndarray) -> np.ndarray:
        """In how many samples each joint state of some edges is met, both of whose ends are trained on.

        Args:
            space: the number of their space. pairs: their keys, shape (n, 2).

        Returns:
            joint states row by row, shape (n, n_joint_states), int64.
        """
        counts = self._counts[space](pairs)
        return counts.reshape(len(pairs), counts.shape[1] * counts.shape[2])

    def curvature(self) -> np.ndarray:
        """An upper estimate of the Hessian's diagonal, shape (n_base + n_weights of the chosen,).

        Of an edge's weight it is a bound where no variable is in two cells: what a pattern is worth given the other end's label
        has a variance of at most a quarter of its range's square.
        """
        edges, out = self.edges, np.empty(int(self.edges.weight_start[-1]))
        for number, space in enumerate(self.spaces):
            places = self.chosen.places(number)
            counts = self._counts[number](self.chosen.pairs(places))
            patterns = space.patterns.reshape(*counts.shape[1:], -1)
            squares = (
                counts.sum(axis=1) @ np.ptp(patterns, axis=0) ** 2 + counts.sum(axis=2) @ np.ptp(patterns, axis=1) ** 2
            )
            out[edges.weight_start[places, None] + np.arange(patterns.shape[2])] = 0.25 * squares
        return np.concatenate((self._base_curvature, out))

    @cached_property
    def _base_curvature(self) -> np.ndarray:
        return curvature(self.base)

    @cached_property
    def edges(self) -> Edges:
        """The chosen, with the places of their weights."""
        return Edges(self.spaces, self.chosen)

    @cached_property
    def _counts(self) -> tuple[EdgeCounts, ...]:
        return tuple(EdgeCounts.of(space, self.states, self.trained) for space in self.spaces)

    @cached_property
    def _columns(self) -> tuple[SampleColumns, ColumnBase | None] | None:
        """The nodes as a table, and the potentials that its columns have in common; None where they are none."""
        if self.base.cardinality.max(initial=0) > MOST_STATES:
            return None
        columns = SampleColumns.of(self.base.cardinality, self.spaces)
        return None if columns is None else (columns, ColumnBase.of(self.base, columns))

    @cached_property
    def _conditionals(self) -> AbstractConditionals:
        trained = frozen(self.trained, bool)
        if self._columns is None:
            return CellConditionals(self.base, self.states, trained)
        return ColumnConditionals(self.base, *self._columns, self.states, trained)

    def _split(self, point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The weights of the base, and the flat tables of the chosen edges."""
        return point[: self.n_base], self.edges.tables(point[self.n_base :])
