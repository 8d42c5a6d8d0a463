"""Exact inference by enumeration of all joint states; on small graphs, it is the reference for other methods."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relcrf.graph.scopes import Potentials, Scopes
from relcrf.inference.result import AbstractInference, MapStates, Marginals, UnsupportedGraphError, Verdict

MAX_JOINT_STATES = 1 << 20
"""Maximum number of joint states; 2**20 take about a second."""


@dataclass(frozen=True)
class Enumeration(AbstractInference):
    """Marginals and most probable states of any graph with few joint states.

    Raises:
        UnsupportedGraphError: If the graph has more than `MAX_JOINT_STATES` joint states.
    """

    scopes: Scopes

    def _enumerate(self, potentials: Potentials) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return all joint states, shape (n_nodes, n), the table cells that they select, shape (n_factors, n), and scores."""
        scopes, full = self.scopes.expand_agreements(potentials)
        if np.log(scopes.cardinality).sum() > np.log(MAX_JOINT_STATES) + 1e-9:
            raise UnsupportedGraphError(f"the graph has more than {MAX_JOINT_STATES} joint states")
        n_joint = int(np.prod(scopes.cardinality, dtype=np.int64))
        states = np.indices(tuple(scopes.cardinality)).reshape(scopes.n_nodes, n_joint)
        scores = np.zeros(states.shape[1])
        for node in range(scopes.n_nodes):
            scores += full.nodes[scopes.state_start[node] + states[node]]
        cells = np.empty((scopes.n_factors, states.shape[1]), dtype=np.int64)
        for factor in range(scopes.n_factors):
            slots = slice(int(scopes.start[factor]), int(scopes.start[factor + 1]))
            cells[factor] = scopes.table_start[factor] + scopes.stride[slots] @ states[scopes.node[slots]]
            scores += full.factors[cells[factor]]
        return states, cells, scores

    def marginals(self, potentials: Potentials) -> Marginals:
        states, cells, scores = self._enumerate(potentials)
        top = scores.max()
        if top == -np.inf:
            nan = np.full(int(self.scopes.state_start[-1]), np.nan), np.full(int(self.scopes.table_start[-1]), np.nan)
            return Marginals(-np.inf, *nan, Verdict("exact"))
        probability = np.exp(scores - top)
        log_partition = float(top + np.log(probability.sum()))
        probability /= probability.sum()
        full, _ = self.scopes.expand_agreements(potentials)
        nodes, tables = np.zeros(int(full.state_start[-1])), np.zeros(int(full.table_start[-1]))
        for node in range(full.n_nodes):
            np.add.at(nodes, full.state_start[node] + states[node], probability)
        for factor in range(full.n_factors):
            np.add.at(tables, cells[factor], probability)
        return Marginals(log_partition, nodes, self.scopes.collapse_agreements(tables), Verdict("exact"))

    def map_states(self, potentials: Potentials) -> MapStates:
        states, _, scores = self._enumerate(potentials)
        best = int(scores.argmax())
        return MapStates(float(scores[best]), states[:, best].astype(np.int32), float(scores[best]), Verdict("exact"))
