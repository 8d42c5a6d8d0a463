"""Exact inference where the factors are pairs that form a forest."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from relcrf.graph.scopes import Potentials, Scopes
from relcrf.inference.result import AbstractInference, MapStates, Marginals, Verdict
from relcrf.kernels import forest


@dataclass(frozen=True)
class ForestInference(AbstractInference):
    """Sum-product and max-product on one forest; the order is found once and serves any potentials.

    Raises:
        ValueError: at the first call, where a factor has more than two nodes, or the pairs have a cycle.
    """

    scopes: Scopes

    @cached_property
    def _structure(self) -> tuple[np.ndarray, ...]:
        scopes = self.scopes
        if (scopes.arity != 2).any():
            raise ValueError("a factor has more than two nodes; forest inference needs pairs")
        edges = scopes.node.reshape(-1, 2)
        order, parent, parent_edge, is_forest = forest.topological_order(scopes.n_nodes, edges)
        if not is_forest:
            raise ValueError("the edges have a cycle; forest inference needs a forest")
        return order, parent, parent_edge, edges, scopes.cardinality, scopes.state_start

    def marginals(self, potentials: Potentials) -> Marginals:
        full, tables = self.scopes.full(potentials)
        log_partition, nodes, edges = forest.sum_product(*self._structure, full.table_start, *tables)
        return Marginals(float(log_partition), nodes, self.scopes.of_full(edges), Verdict("exact"))

    def map_states(self, potentials: Potentials) -> MapStates:
        full, tables = self.scopes.full(potentials)
        score, states = forest.max_product(*self._structure, full.table_start, *tables)
        return MapStates(float(score), states, float(score), Verdict("exact"))
