"""Connected components of `Scopes`, and extraction of selected components as separate `Scopes`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relcrf.columns.offsets import entries_of_runs
from relcrf.graph.scopes import Potentials, Scopes
from relcrf.kernels import components as kernel


def label_scope_components(scopes: Scopes) -> np.ndarray:
    """Return, for each node, the lowest node index in its component, shape (n_nodes,), int32."""
    parent = np.arange(scopes.n_nodes, dtype=np.int32)
    has_predecessor = np.ones(len(scopes.node), dtype=bool)
    has_predecessor[scopes.start[:-1][scopes.arity > 0]] = False
    second = np.flatnonzero(has_predecessor)
    kernel.unite(parent, scopes.node[second - 1], scopes.node[second], np.ones(scopes.n_nodes, dtype=bool))
    kernel.flatten(parent)
    return parent


@dataclass(frozen=True, eq=False)
class ComponentSubset:
    """Some connected components of `Scopes`.

    Args:
        scopes: The extracted components; nodes are renumbered in their original order.
        nodes, factors: Indices of the extracted nodes and factors in the original scopes, ascending.
        node_cells, factor_cells: Indices of the table entries of these nodes and factors in the original flat tables.
    """

    scopes: Scopes
    nodes: np.ndarray
    factors: np.ndarray
    node_cells: np.ndarray
    factor_cells: np.ndarray

    def potentials(self, whole: Potentials) -> Potentials:
        """Return the potentials of these components, given the potentials of the original scopes."""
        return Potentials(whole.nodes[self.node_cells], whole.factors[self.factor_cells])


def extract_components(scopes: Scopes, selected: np.ndarray) -> ComponentSubset:
    """Return the components that contain the selected nodes.

    Args:
        selected: Mask of nodes, shape (n_nodes,), bool; it must contain all or none of the nodes of each component.
    """
    nodes = np.flatnonzero(selected)
    new_index = np.cumsum(selected, dtype=np.int64) - 1
    factors = np.flatnonzero(selected[scopes.node[scopes.start[:-1]]])
    kept_scopes = scopes.with_factors(factors)
    subset_scopes = Scopes(
        scopes.cardinality[nodes], kept_scopes.start, new_index[kept_scopes.node], kept_scopes.agreement
    )
    return ComponentSubset(
        subset_scopes,
        nodes,
        factors,
        entries_of_runs(scopes.state_start, nodes),
        entries_of_runs(scopes.table_start, factors),
    )
