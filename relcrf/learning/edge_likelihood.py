"""Pseudo-likelihood of a model with edges chosen out of spaces of candidate tables, none of which is expanded.

Source: Besag, Statistical analysis of non-lattice data (1975); as the objective of edge grafting, Chaabene & Huang. Each
variable is a softmax regression on its neighbours' labels, and an edge's table is one and the same for both of its ends.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from relcrf.graph.candidates import CandidateSet, PairSpace
from relcrf.graph.reduction import ReducedGraph
from relcrf.graph.sample_columns import SampleColumns
from relcrf.kernels.threads import freeze
from relcrf.learning.candidate_objective import AbstractCandidateObjective
from relcrf.learning.column_conditionals import MAX_STATES, ColumnConditionals, ColumnPotentials
from relcrf.learning.edge_conditionals import AbstractConditionals, CellConditionals, EdgeTables
from relcrf.learning.edge_counts import EdgeCounts


@dataclass(frozen=True, eq=False)
class EdgeLikelihood(AbstractCandidateObjective):
    """Minus the log pseudo-likelihood of labels, a sum over nodes; convex.

    A point has the weights of the base, then those of each chosen edge in turn, one for each of its space's patterns.

    Args:
        base: each variable with its factors at its neighbours' labels (`blanket_graph`), of all that is no candidate.
        spaces: of candidate edges; their sides have nodes as variables.
        conditionals: of the nodes. counts: of the joint states of each space's edges.
    """

    spaces: tuple[PairSpace, ...]
    conditionals: AbstractConditionals
    counts: tuple[EdgeCounts, ...]

    @classmethod
    def build(cls, base: ReducedGraph, states: np.ndarray, spaces: tuple[PairSpace, ...]) -> EdgeLikelihood:
        """Return the objective with nothing chosen, trained on all nodes.

        Args:
            states: shape (n_nodes,), all observed.
            spaces: over variables that are nodes.
        """
        node_of = np.full(base.graph.n_variables, -1, dtype=np.int32)
        node_of[base.variables] = np.arange(base.n_nodes, dtype=np.int32)
        placed = tuple(
            space.with_sides([replace(s, variable=node_of[s.variable]) for s in space.sides]) for space in spaces
        )
        sides = [side for space in placed for side in space.sides]
        assert all(side.variable.min(initial=0) >= 0 for side in sides), "a variable of a cell is not a node"
        states, every = freeze(states, np.int16), freeze(np.ones(base.n_nodes), bool)
        few_states = base.cardinality.max(initial=0) <= MAX_STATES
        columns = SampleColumns.from_spaces(base.cardinality, placed) if few_states else None
        conditionals: AbstractConditionals = CellConditionals(base, states, every)
        if columns is not None:
            conditionals = ColumnConditionals(base, columns, ColumnPotentials.build(base, columns), states, every)
        counts = tuple(EdgeCounts(space, states, every) for space in placed)
        return cls(base, states, placed, CandidateSet.empty(), every, conditionals, counts)

    def trained_on(self, nodes: np.ndarray) -> EdgeLikelihood:
        trained = freeze(nodes, bool)
        counts = tuple(replace(counts, counted_nodes=trained) for counts in self.counts)
        return replace(self, trained=trained, conditionals=self.conditionals.trained_on(trained), counts=counts)

    def __call__(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        if not np.isfinite(point).all():
            return np.nan, np.full(len(point), np.nan)
        weights, tables = self._split(point)
        value, base, joint = self.conditionals.value_and_gradient(weights, self.edges, tables)
        return value, np.concatenate((base, self.edges.gradient(joint)))

    def edge_gradients(self, point: np.ndarray, space_index: int, pairs: np.ndarray) -> np.ndarray:
        """The gradient of edges that are not chosen, at a point of those that are.

        Args:
            space_index: the number of their space. pairs: their keys, shape (n, 2).

        Returns:
            shape (n, n_weights).
        """
        asked = EdgeTables(self.spaces, CandidateSet.from_pairs(space_index, pairs))
        weights, tables = self._split(point)
        joint = self.conditionals.gradient(weights, self.edges, tables, asked)
        return asked.gradient(joint).reshape(len(pairs), self.spaces[space_index].n_weights)

    def edge_counts(self, space_index: int, pairs: np.ndarray) -> np.ndarray:
        """In how many samples each joint state of some edges is met, both of whose ends are trained on.

        Args:
            space_index: the number of their space. pairs: their keys, shape (n, 2).

        Returns:
            joint states row by row, shape (n, n_joint_states), int64.
        """
        counts = self.counts[space_index](pairs)
        return counts.reshape(len(pairs), counts.shape[1] * counts.shape[2])

    def candidate_curvature(self, candidates: CandidateSet) -> np.ndarray:
        """Return an upper estimate of the Hessian's diagonal in the weights of some candidates, shape (n_weights,).

        Of an edge's weight it is a bound where no variable is in two cells: what a pattern is worth given the other end's label
        has a variance of at most a quarter of its range's square.
        """
        start = self.weight_start(candidates)
        out = np.empty(int(start[-1]))
        for number, space in enumerate(self.spaces):
            places = candidates.indices_in_space(number)
            counts = self.counts[number](candidates.pairs(places))
            patterns = space.patterns.reshape(*counts.shape[1:], -1)
            squares = (
                counts.sum(axis=1) @ np.ptp(patterns, axis=0) ** 2 + counts.sum(axis=2) @ np.ptp(patterns, axis=1) ** 2
            )
            out[start[places, None] + np.arange(space.n_weights)] = 0.25 * squares
        return out

    @cached_property
    def edges(self) -> EdgeTables:
        """Return the chosen, with the places of their weights."""
        return EdgeTables(self.spaces, self.chosen)

    def _split(self, point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the weights of the base, and the flat tables of the chosen edges."""
        return point[: self.n_base], self.edges.tables(point[self.n_base :])
