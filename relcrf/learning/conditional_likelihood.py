"""The likelihood of a graph without edges on a GPU; on a graph of local conditionals, it is the pseudo-likelihood."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from relcrf.gpu.conditionals import GpuConditionals
from relcrf.graph.reduction import ReducedGraph
from relcrf.graph.table_matrix import node_matrix
from relcrf.learning.likelihood import AbstractJointLikelihood


@dataclass(frozen=True, eq=False)
class GpuConditionalLikelihood(AbstractJointLikelihood):
    """The exact likelihood of a graph of isolated nodes, computed on a GPU.

    Raises:
        ValueError: If the graph has edges or cliques.
        UsageError: At the first evaluation, if no GPU is found (E382).
    """

    graph: ReducedGraph
    states: np.ndarray
    evidence: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.graph.n_edges or self.graph.clique_terms:
            raise ValueError("the graph has factors over several nodes")

    @cached_property
    def _conditionals(self) -> GpuConditionals:
        return GpuConditionals(node_matrix(self.graph), self.graph.state_start)

    def expectation(self, weights: np.ndarray, added_potentials: np.ndarray | None) -> tuple[float, np.ndarray]:
        return self._conditionals.expectation(weights, added_potentials)
