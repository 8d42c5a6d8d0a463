"""Connected components of `Scopes`, and extraction of selected components as separate `Scopes`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from relcrf.columns.offsets import entries_of_runs
from relcrf.graph.scopes import Potentials, Scopes, SharedPotentials
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
        whole: The original scopes.
        nodes, factors: Indices of the extracted nodes and factors in the original scopes, ascending; slices if all are
            extracted.
    """

    scopes: Scopes
    whole: Scopes
    nodes: np.ndarray | slice
    factors: np.ndarray | slice

    @cached_property
    def node_cells(self) -> np.ndarray | slice:
        """The indices of the table entries of these nodes in the original flat tables."""
        return self.nodes if isinstance(self.nodes, slice) else entries_of_runs(self.whole.state_start, self.nodes)

    @cached_property
    def factor_cells(self) -> np.ndarray | slice:
        """The indices of the table entries of these factors in the original flat tables."""
        return (
            self.factors if isinstance(self.factors, slice) else entries_of_runs(self.whole.table_start, self.factors)
        )

    def potentials(self, whole: Potentials) -> Potentials:
        """Return the potentials of these components, given the potentials of the original scopes."""
        return Potentials(whole.nodes[self.node_cells], whole.factors[self.factor_cells])

    def shared_potentials(self, whole: SharedPotentials) -> SharedPotentials:
        """Return the potentials of these components, with the same tables if factors of the original scopes share tables."""
        nodes = whole.nodes[self.node_cells]
        if whole.table is None:
            return SharedPotentials(nodes, whole.tables[self.factor_cells], self.scopes.table_start)
        return SharedPotentials(nodes, whole.tables, whole.table_start, whole.table[self.factors])


def extract_components(scopes: Scopes, selected: np.ndarray) -> ComponentSubset:
    """Return the components that contain the selected nodes.

    Args:
        selected: Mask of nodes, shape (n_nodes,), bool; it must contain all or none of the nodes of each component.
    """
    if selected.all():
        return ComponentSubset(scopes, scopes, slice(None), slice(None))
    nodes = np.flatnonzero(selected)
    new_index = np.cumsum(selected, dtype=np.int64) - 1
    factors = np.flatnonzero(selected[scopes.node[scopes.start[:-1]]])
    kept_scopes = scopes.with_factors(factors)
    subset_scopes = replace(kept_scopes, cardinality=scopes.cardinality[nodes], node=new_index[kept_scopes.node])
    return ComponentSubset(subset_scopes, scopes, nodes, factors)
