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

    def _enumerate(self, potentials: Potentials) -> tuple[Scopes, np.ndarray]:
        """Return the graph with full tables, and the score of each joint state, shape (n_joint_states,)."""
        scopes, full = self.scopes.expand_agreements(potentials)
        if np.log(scopes.cardinality).sum() > np.log(MAX_JOINT_STATES) + 1e-9:
            raise UnsupportedGraphError(f"the graph has more than {MAX_JOINT_STATES} joint states")
        scores = np.zeros(int(np.prod(scopes.cardinality, dtype=np.int64)))
        for node in range(scopes.n_nodes):
            scores += full.nodes[scopes.state_start[node] + _states(scopes, node)]
        for factor in range(scopes.n_factors):
            scores += full.factors[_cells(scopes, factor)]
        return scopes, scores

    def marginals(self, potentials: Potentials) -> Marginals:
        scopes, scores = self._enumerate(potentials)
        top = scores.max()
        if top == -np.inf:
            nan = np.full(int(self.scopes.state_start[-1]), np.nan), np.full(int(self.scopes.table_start[-1]), np.nan)
            return Marginals(-np.inf, *nan, Verdict("exact"))
        probability = np.exp(scores - top)
        log_partition = float(top + np.log(probability.sum()))
        probability /= probability.sum()
        nodes, tables = np.zeros(int(scopes.state_start[-1])), np.zeros(int(scopes.table_start[-1]))
        for node in range(scopes.n_nodes):
            np.add.at(nodes, scopes.state_start[node] + _states(scopes, node), probability)
        for factor in range(scopes.n_factors):
            np.add.at(tables, _cells(scopes, factor), probability)
        return Marginals(log_partition, nodes, self.scopes.collapse_agreements(tables), Verdict("exact"))

    def map_states(self, potentials: Potentials) -> MapStates:
        scopes, scores = self._enumerate(potentials)
        best = int(scores.argmax())
        states = np.array([_states(scopes, node)[best] for node in range(scopes.n_nodes)], dtype=np.int32)
        return MapStates(float(scores[best]), states, float(scores[best]), Verdict("exact"))


def _states(scopes: Scopes, node: int) -> np.ndarray:
    """Return the state of a node in each joint state, shape (n_joint_states,); the states of the last node change first."""
    n_after = int(np.prod(scopes.cardinality[node + 1 :], dtype=np.int64))
    n_before = int(np.prod(scopes.cardinality[:node], dtype=np.int64))
    return np.tile(np.repeat(np.arange(scopes.cardinality[node]), n_after), n_before)


def _cells(scopes: Scopes, factor: int) -> np.ndarray:
    """Return the table cell of a factor that each joint state selects, shape (n_joint_states,)."""
    cells = np.full(int(np.prod(scopes.cardinality, dtype=np.int64)), scopes.table_start[factor], dtype=np.int64)
    for slot in range(int(scopes.start[factor]), int(scopes.start[factor + 1])):
        cells += scopes.stride[slot] * _states(scopes, int(scopes.node[slot]))
    return cells
