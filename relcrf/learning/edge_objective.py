"""The interface of training objectives for models with edges chosen from spaces of candidate edges.

See `edge_conditionals.py` for the terms space, side, cell, key, sample and edge.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from relcrf.graph.candidates import PairSpace
from relcrf.graph.reduction import ReducedGraph
from relcrf.kernels.threads import freeze
from relcrf.learning.candidate_objective import AbstractCandidateObjective
from relcrf.learning.edge_counts import EdgeCounts


@dataclass(frozen=True, eq=False)
class AbstractEdgeObjective(AbstractCandidateObjective):
    """A training loss for a model with chosen edges; an edge has one weight for each of its space's `patterns`.

    Args:
        spaces: The spaces of candidate edges; the `variable` arrays of the sides contain node indices.
        counts: The counts of joint states of training nodes, for the edges of each space.
    """

    terms_per_edge: ClassVar[int]
    """Number of terms of the loss that depend on the factor of an edge in one sample."""
    spaces: tuple[PairSpace, ...]
    counts: tuple[EdgeCounts, ...]

    def trained_on(self, nodes: np.ndarray) -> Self:
        trained = freeze(nodes, bool)
        counts = tuple(replace(counts, counted_nodes=trained) for counts in self.counts)
        return replace(super().trained_on(trained), counts=counts)

    @abstractmethod
    def edge_gradients(self, point: np.ndarray, space_index: int, pairs: np.ndarray) -> np.ndarray:
        """Return the gradients for the weights of edges that are not chosen; these weights are not in `point`.

        Args:
            space_index: The index of the space of the edges.
            pairs: The keys of the edges, shape (n, 2).

        Returns:
            Shape (n, n_weights).
        """

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


def spaces_of_nodes(base: ReducedGraph, spaces: tuple[PairSpace, ...]) -> tuple[PairSpace, ...]:
    """Return the spaces with node indices instead of variables; the variables of all cells must be nodes."""
    node_of = np.full(base.graph.n_variables, -1, dtype=np.int32)
    node_of[base.variables] = np.arange(base.n_nodes, dtype=np.int32)
    node_spaces = tuple(
        space.with_sides([replace(side, variable=node_of[side.variable]) for side in space.sides]) for space in spaces
    )
    sides = [side for space in node_spaces for side in space.sides]
    assert all(side.variable.min(initial=0) >= 0 for side in sides), "a variable of a cell is not a node"
    return node_spaces
