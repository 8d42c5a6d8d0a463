"""Pseudo-likelihood of models with edges chosen from spaces of candidate edges that are never enumerated.

Sources: Besag, Statistical analysis of non-lattice data (1975); for edge grafting, Chaabene & Huang, Best-choice edge
grafting for efficient structure learning of Markov random fields (2018). Each variable has a softmax regression on the
labels of its neighbours. The regressions of the two ends of an edge share the edge's table.

See `edge_conditionals.py` for the terms space, side, cell, key, sample and edge.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from relcrf.graph.candidates import CandidateSet, PairSpace
from relcrf.graph.reduction import ReducedGraph
from relcrf.graph.sample_columns import SampleColumns
from relcrf.kernels.threads import freeze
from relcrf.learning.column_conditionals import MAX_STATES, ColumnConditionals, ColumnPotentials
from relcrf.learning.edge_conditionals import AbstractConditionals, CellConditionals, EdgeTables
from relcrf.learning.edge_counts import EdgeCounts
from relcrf.learning.edge_objective import AbstractEdgeObjective, spaces_of_nodes


@dataclass(frozen=True, eq=False)
class EdgeLikelihood(AbstractEdgeObjective):
    """The negative log pseudo-likelihood of labels, a sum over nodes; convex.

    Args:
        base: The variables, without candidate edges; each factor of a variable is evaluated at the labels of the
            variable's neighbours (`blanket_graph`).
        conditionals: The conditionals of the nodes.
    """

    terms_per_edge: ClassVar[int] = 2
    conditionals: AbstractConditionals

    @classmethod
    def build(cls, base: ReducedGraph, states: np.ndarray, spaces: tuple[PairSpace, ...]) -> EdgeLikelihood:
        """Return the objective with no chosen edges, trained on all nodes.

        Args:
            states: Label of each node, shape (n_nodes,); all nodes are labelled.
            spaces: Candidate spaces; the variables of all cells are nodes.
        """
        node_spaces = spaces_of_nodes(base, spaces)
        states, all_nodes = freeze(states, np.int32), freeze(np.ones(base.n_nodes), bool)
        few_states = base.cardinality.max(initial=0) <= MAX_STATES
        columns = SampleColumns.from_spaces(base.cardinality, node_spaces) if few_states else None
        conditionals: AbstractConditionals = CellConditionals(base, states, all_nodes)
        if columns is not None:
            conditionals = ColumnConditionals(base, columns, ColumnPotentials.build(base, columns), states, all_nodes)
        counts = tuple(EdgeCounts(space, states, all_nodes) for space in node_spaces)
        return cls(base, states, node_spaces, CandidateSet.empty(), all_nodes, counts, conditionals)

    def trained_on(self, nodes: np.ndarray) -> EdgeLikelihood:
        objective = super().trained_on(nodes)
        return replace(objective, conditionals=self.conditionals.trained_on(objective.trained))

    def __call__(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        if not np.isfinite(point).all():
            return np.nan, np.full(len(point), np.nan)
        weights, tables = self._split(point)
        value, base, table_gradient = self.conditionals.value_and_gradient(weights, self.edges, tables)
        return value, np.concatenate((base, self.edges.gradient(table_gradient)))

    def edge_gradients(self, point: np.ndarray, space_index: int, pairs: np.ndarray) -> np.ndarray:
        candidates = EdgeTables(self.spaces, CandidateSet.from_pairs(space_index, pairs))
        weights, tables = self._split(point)
        table_gradient = self.conditionals.gradient(weights, self.edges, tables, candidates)
        return candidates.gradient(table_gradient).reshape(len(pairs), self.spaces[space_index].n_weights)

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
