"""Clique trees of all connected components; their memory requirement is known before any table is allocated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from relcrf.columns.offsets import offsets
from relcrf.errors import listing
from relcrf.graph.scope_components import label_scope_components
from relcrf.graph.scopes import Scopes
from relcrf.inference.result import UnsupportedGraphError
from relcrf.kernels import elimination
from relcrf.kernels.junction_tree import CliqueForest

LOG2_SCALE = 1 << 20
"""Factor that converts base-2 logarithms of cardinalities to integers; sums of integers do not depend on the order."""

BYTES_PER_CELL = 8
"""Bytes of a table cell, float64."""

MAX_CLIQUE_CELLS = 1 << 40
"""Maximum number of cells of a clique for any memory limit; sums then fit into 64-bit integers."""


class CliqueTooLargeError(UnsupportedGraphError):
    """The error that exact inference exceeds its memory limit.

    Args:
        nodes: Nodes of the clique that is too large, or of the largest clique if only the total is too large.
        n_cells: Number of cells of the clique's table.
        required_bytes: Lower bound of the required memory; the exact value is unknown, because elimination stops early.
        memory: Memory limit in bytes.
    """

    def __init__(self, nodes: list[int], n_cells: int, required_bytes: int, memory: int) -> None:
        self.nodes, self.n_cells, self.required_bytes, self.memory = nodes, n_cells, required_bytes, memory
        super().__init__(
            f"a clique over the nodes {listing(map(str, nodes))} has {_format_amount(n_cells)} cells; the clique tables "
            f"need at least {_format_amount(required_bytes)} bytes, and the limit is {_format_amount(memory)}"
        )


@dataclass(frozen=True, eq=False)
class CliqueTree:
    """The maximal cliques of all components that fit into the memory limit.

    Args:
        scopes: Scopes of the graph.
        component: The component of each node, represented by the lowest node index in the component, shape (n_nodes,).
        errors: The error of each component whose cliques are too large, by lowest node; `cliques` omits these components.
        memory: Memory limit for the clique tables of one component, in bytes.
        cliques: The cliques, children before parents.
    """

    scopes: Scopes
    component: np.ndarray
    errors: dict[int, CliqueTooLargeError]
    memory: int
    cliques: CliqueForest

    @property
    def n_cliques(self) -> int:
        return len(self.cliques.parent)

    @property
    def n_cells(self) -> int:
        """Return the number of cells of all clique tables."""
        return int(self.cliques.cell_start[-1])

    @property
    def max_clique_size(self) -> int:
        """Return the number of nodes of the largest clique, at least 1."""
        return int(np.diff(self.cliques.start).max(initial=1))

    @cached_property
    def component_bytes(self) -> np.ndarray:
        """Return the bytes of each component's clique tables, indexed by lowest node, shape (n_nodes,); inf if too large."""
        clique_component = self.component[self.cliques.node[self.cliques.start[:-1]]]
        out = np.zeros(self.scopes.n_nodes)
        np.add.at(out, clique_component, BYTES_PER_CELL * np.diff(self.cliques.cell_start))
        out[list(self.errors)] = np.inf
        return out

    def check_memory(self) -> None:
        """Raise CliqueTooLargeError if a component, or all components together, exceed the memory limit."""
        for error in self.errors.values():
            raise error
        if BYTES_PER_CELL * self.n_cells > self.memory:
            trees = self.cliques
            largest = int(np.diff(trees.cell_start).argmax())
            nodes = trees.node[trees.start[largest] : trees.start[largest + 1]]
            raise _make_error(self.scopes, nodes, BYTES_PER_CELL * self.n_cells, self.memory)


def _format_amount(n: int) -> str:
    """Format an integer of any size in a few characters."""
    return f"{n:,}" if n < 10**6 else f"{n:.3g}" if n < 10**300 else f"1e{int(math.log10(n))}"


def _make_error(scopes: Scopes, nodes: np.ndarray, required_bytes: int, memory: int) -> CliqueTooLargeError:
    n_cells = math.prod(scopes.cardinality[nodes].tolist())
    return CliqueTooLargeError(sorted(nodes.tolist()), n_cells, max(required_bytes, BYTES_PER_CELL * n_cells), memory)


def _adjacent_pairs(scopes: Scopes, is_included: np.ndarray) -> np.ndarray:
    """Return the distinct pairs of nodes that share a factor, the lower node first, shape (n_pairs, 2), int32.

    Args:
        is_included: Mask of the entries of `scopes.node` that are considered, bool.
    """
    node = scopes.node[is_included]
    arity = np.bincount(scopes.factor[is_included], minlength=scopes.n_factors).astype(np.int64)
    start = offsets(arity)
    keys = [np.empty(0, dtype=np.int64)]
    for size in np.unique(arity[arity > 1]):
        scope = node[start[:-1][arity == size, None] + np.arange(size)].astype(np.int64)
        i, j = np.triu_indices(size, 1)
        low, high = np.minimum(scope[:, i], scope[:, j]), np.maximum(scope[:, i], scope[:, j])
        keys.append((low * scopes.n_nodes + high).ravel())
    key = np.sort(np.concatenate(keys))  # np.unique would hash and take ten times as long
    key = key[np.diff(key, prepend=-1) > 0]
    return np.stack([key // max(1, scopes.n_nodes), key % max(1, scopes.n_nodes)], axis=1).astype(np.int32)


def build_clique_tree(scopes: Scopes, memory: int) -> CliqueTree:
    """Build clique trees by min-fill elimination; the elimination of a component that exceeds `memory` bytes stops early."""
    component = label_scope_components(scopes)
    weight = np.rint(LOG2_SCALE * np.log2(np.maximum(1, scopes.cardinality))).astype(np.int64)
    max_cells = min(max(1, memory // BYTES_PER_CELL), MAX_CLIQUE_CELLS)
    limit = int(LOG2_SCALE * math.log2(max_cells)) + 64  # allows for rounding of `weight`
    errors: dict[int, CliqueTooLargeError] = {}

    def reject(node: int, clique: np.ndarray) -> None:
        if int(component[node]) not in errors:
            errors[int(component[node])] = _make_error(scopes, clique, 0, memory)

    def is_accepted() -> np.ndarray:
        return ~np.isin(component, list(errors))

    for f in np.flatnonzero(np.add.reduceat(weight[scopes.node], scopes.start[:-1]) > limit):
        reject(scopes.node[scopes.start[f]], scopes.node[scopes.start[f] : scopes.start[f + 1]])
    pairs = _adjacent_pairs(scopes, (scopes.cardinality > 1)[scopes.node] & is_accepted()[scopes.node])
    order, start, member = np.empty(0, dtype=np.int32), np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.int32)
    for with_fill_in in (False, True):  # the pass without fill-in is a cheap lower bound
        accepted = is_accepted()
        remaining = pairs[accepted[pairs[:, 0]]]
        first, second = np.ascontiguousarray(remaining[:, 0]), np.ascontiguousarray(remaining[:, 1])
        order, start, member, stopped = elimination.eliminate(
            weight, component, accepted, first, second, limit, with_fill_in
        )
        for step in stopped[stopped >= 0]:
            reject(order[step], member[start[step] : start[step + 1]])
    is_kept = ~np.isin(component[order], list(errors))
    cliques = _assemble(scopes, *elimination.maximal_cliques(scopes.n_nodes, order, start, member, is_kept))
    return CliqueTree(scopes, component, errors, memory, cliques)


def _assemble(
    scopes: Scopes,
    clique_start: np.ndarray,
    clique_node: np.ndarray,
    n_shared: np.ndarray,
    parent: np.ndarray,
    owner: np.ndarray,
) -> CliqueForest:
    """Return maximal cliques with table layouts and assigned factors; see `elimination.maximal_cliques` for the arguments."""
    sizes = np.diff(clique_start)
    is_shared = np.arange(len(clique_node)) - np.repeat(clique_start[:-1], sizes) < np.repeat(n_shared, sizes)
    cardinality = scopes.cardinality[clique_node].astype(np.int64)
    n_rows = np.multiply.reduceat(np.where(is_shared, cardinality, 1), clique_start[:-1])
    n_columns = np.multiply.reduceat(np.where(is_shared, 1, cardinality), clique_start[:-1])
    # A factor is assigned to the first clique of which a node of the factor is an own node. Nodes with one state are ignored,
    # unless all nodes of the factor have one state.
    slot_clique = np.where(scopes.cardinality[scopes.node] > 1, owner[scopes.node], len(parent))
    assigned = np.minimum.reduceat(slot_clique, scopes.start[:-1])
    assigned = np.where(assigned == len(parent), owner[scopes.node[scopes.start[:-1]]], assigned)
    factor = np.argsort(assigned, kind="stable")
    factor_start = np.searchsorted(assigned[factor], np.arange(len(parent) + 1))
    tables = n_rows, n_columns, offsets(n_rows * n_columns), offsets(n_rows)
    return CliqueForest(clique_start, clique_node, n_shared, *tables, parent, factor_start, factor)
