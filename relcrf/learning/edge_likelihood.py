"""Pseudo-likelihood of models with edges chosen from spaces of candidate edges that are never enumerated.

Sources: Besag, Statistical analysis of non-lattice data (1975); for edge grafting, Chaabene & Huang, Best-choice edge
grafting for efficient structure learning of Markov random fields (2018). Each variable has a softmax regression on the
labels of its neighbours. The regressions of the two ends of an edge share the edge's table.

See `edge_conditionals.py` for the terms space, side, cell, key, sample and edge.
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
    """The negative log pseudo-likelihood of labels, a sum over nodes; convex.

    A point contains the weights of `base`, followed by the weights of each chosen edge. An edge has one weight for each
    of the `patterns` of the edge's space.

    Args:
        base: The variables, without candidate edges; each factor of a variable is evaluated at the labels of the
            variable's neighbours (`blanket_graph`).
        spaces: The spaces of candidate edges; the `variable` arrays of the sides contain node indices.
        conditionals: The conditionals of the nodes.
        counts: The counts of joint states, for the edges of each space.
    """

    spaces: tuple[PairSpace, ...]
    conditionals: AbstractConditionals
    counts: tuple[EdgeCounts, ...]

    @classmethod
    def build(cls, base: ReducedGraph, states: np.ndarray, spaces: tuple[PairSpace, ...]) -> EdgeLikelihood:
        """Return the objective with no chosen edges, trained on all nodes.

        Args:
            states: Label of each node, shape (n_nodes,); all nodes are labelled.
            spaces: Candidate spaces; the variables of all cells are nodes.
        """
        node_of = np.full(base.graph.n_variables, -1, dtype=np.int32)
        node_of[base.variables] = np.arange(base.n_nodes, dtype=np.int32)
        node_spaces = tuple(
            space.with_sides([replace(s, variable=node_of[s.variable]) for s in space.sides]) for space in spaces
        )
        sides = [side for space in node_spaces for side in space.sides]
        assert all(side.variable.min(initial=0) >= 0 for side in sides), "a variable of a cell is not a node"
        states, all_nodes = freeze(states, np.int16), freeze(np.ones(base.n_nodes), bool)
        few_states = base.cardinality.max(initial=0) <= MAX_STATES
        columns = SampleColumns.from_spaces(base.cardinality, node_spaces) if few_states else None
        conditionals: AbstractConditionals = CellConditionals(base, states, all_nodes)
        if columns is not None:
            conditionals = ColumnConditionals(base, columns, ColumnPotentials.build(base, columns), states, all_nodes)
        counts = tuple(EdgeCounts(space, states, all_nodes) for space in node_spaces)
        return cls(base, states, node_spaces, CandidateSet.empty(), all_nodes, conditionals, counts)

    def trained_on(self, nodes: np.ndarray) -> EdgeLikelihood:
        trained = freeze(nodes, bool)
        counts = tuple(replace(counts, counted_nodes=trained) for counts in self.counts)
        return replace(self, trained=trained, conditionals=self.conditionals.trained_on(trained), counts=counts)

    def __call__(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        if not np.isfinite(point).all():
            return np.nan, np.full(len(point), np.nan)
        weights, tables = self._split(point)
        value, base, table_gradient = self.conditionals.value_and_gradient(weights, self.edges, tables)
        return value, np.concatenate((base, self.edges.gradient(table_gradient)))

    def edge_gradients(self, point: np.ndarray, space_index: int, pairs: np.ndarray) -> np.ndarray:
        """Return the gradients for the weights of edges that are not chosen; these weights are not in `point`.

        Args:
            space_index: The index of the space of the edges.
            pairs: The keys of the edges, shape (n, 2).

        Returns:
            Shape (n, n_weights).
        """
        candidates = EdgeTables(self.spaces, CandidateSet.from_pairs(space_index, pairs))
        weights, tables = self._split(point)
        table_gradient = self.conditionals.gradient(weights, self.edges, tables, candidates)
        return candidates.gradient(table_gradient).reshape(len(pairs), self.spaces[space_index].n_weights)

    def edge_counts(self, space_index: int, pairs: np.ndarray) -> np.ndarray:
        """Count, for each joint state of the given edges, the samples in which both ends are training nodes.

        Args:
            space_index: The index of the space of the edges.
            pairs: The keys of the edges, shape (n, 2).

        Returns:
            Row-major counts of the joint states, shape (n, n_joint_states), int64.
        """
        counts = self.counts[space_index](pairs)
        return counts.reshape(len(pairs), counts.shape[1] * counts.shape[2])

    def candidate_curvature(self, candidates: CandidateSet) -> np.ndarray:
        """Return an upper estimate of the Hessian's diagonal for the candidates' weights, shape (n_weights,).

        The estimate is an upper bound if no variable is in two cells. Given the label of the other end, the variance of
        a pattern is at most a quarter of the squared range of the pattern's values.
        """
        start = self.weight_start(candidates)
        out = np.empty(int(start[-1]))
        for number, space in enumerate(self.spaces):
            indices = candidates.indices_in_space(number)
            counts = self.counts[number](candidates.pairs(indices))
            patterns = space.patterns.reshape(*counts.shape[1:], -1)
            squares = (
                counts.sum(axis=1) @ np.ptp(patterns, axis=0) ** 2 + counts.sum(axis=2) @ np.ptp(patterns, axis=1) ** 2
            )
            out[start[indices, None] + np.arange(space.n_weights)] = 0.25 * squares
        return out

    @cached_property
    def edges(self) -> EdgeTables:
        """Return the chosen edges as `EdgeTables`."""
        return EdgeTables(self.spaces, self.chosen)

    def _split(self, point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the weights of the base, and the flat tables of the chosen edges."""
        return point[: self.n_base], self.edges.tables(point[self.n_base :])
