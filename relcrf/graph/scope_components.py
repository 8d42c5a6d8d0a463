"""Connected components of scopes, and some of them taken out as scopes of their own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relcrf.columns.offsets import entries_of_runs
from relcrf.graph.scopes import Potentials, Scopes
from relcrf.kernels import components as kernel


def label_scope_components(scopes: Scopes) -> np.ndarray:
    """The lowest node of each node's component, shape (n_nodes,), int32."""
    parent = np.arange(scopes.n_nodes, dtype=np.int32)
    follows = np.ones(len(scopes.node), dtype=bool)
    follows[scopes.start[:-1][scopes.arity > 0]] = False
    second = np.flatnonzero(follows)
    kernel.unite(parent, scopes.node[second - 1], scopes.node[second], np.ones(scopes.n_nodes, dtype=bool))
    kernel.flatten(parent)
    return parent


@dataclass(frozen=True, eq=False)
class ComponentSubset:
    """Some components of scopes.

    Args:
        scopes: of these alone, their nodes numbered anew in the same order.
        nodes, factors: which ones, ascending.
        node_cells, factor_cells: where their tables are in the flat tables of the whole.
    """

    scopes: Scopes
    nodes: np.ndarray
    factors: np.ndarray
    node_cells: np.ndarray
    factor_cells: np.ndarray

    def potentials(self, whole: Potentials) -> Potentials:
        """Those of the part."""
        return Potentials(whole.nodes[self.node_cells], whole.factors[self.factor_cells])


def extract_components(scopes: Scopes, selected: np.ndarray) -> ComponentSubset:
    """The part of some nodes.

    Args:
        selected: shape (n_nodes,), bool; whole components.
    """
    nodes = np.flatnonzero(selected)
    number = np.cumsum(selected, dtype=np.int64) - 1
    factors = np.flatnonzero(selected[scopes.node[scopes.start[:-1]]])
    chosen = scopes.with_factors(factors)
    own = Scopes(scopes.cardinality[nodes], chosen.start, number[chosen.node], chosen.agreement)
    return ComponentSubset(
        own, nodes, factors, entries_of_runs(scopes.state_start, nodes), entries_of_runs(scopes.table_start, factors)
    )
