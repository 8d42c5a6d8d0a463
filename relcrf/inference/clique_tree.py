"""What exact inference would cost: the trees of cliques of each component, found before any table is made."""

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
"""Of the logarithms of cardinalities to base 2: whole numbers, so that sums of the same ones are the same."""

BYTES_PER_CELL = 8
"""Bytes."""

MAX_CLIQUE_CELLS = 1 << 40
"""Of a clique, whatever the memory: sums of them stay whole numbers of 64 bits."""


class CliqueTooLargeError(UnsupportedGraphError):
    """Exact inference needs more memory than it may take.

    Args:
        nodes: of the clique that is too large, or the largest where all together are.
        n_cells: of its table.
        required_bytes: bytes; as far as elimination came.
    """

    def __init__(self, nodes: list[int], n_cells: int, required_bytes: int, memory: int) -> None:
        self.nodes, self.n_cells, self.required_bytes, self.memory = nodes, n_cells, required_bytes, memory
        super().__init__(
            f"a clique over the nodes {listing(map(str, nodes))} has {_format_amount(n_cells)} cells; the tables of the "
            f"cliques need {_format_amount(required_bytes)} bytes or more, and may take {_format_amount(memory)}"
        )


@dataclass(frozen=True, eq=False)
class CliqueTree:
    """Maximal cliques of all components that stay within the memory.

    Args:
        component: the lowest node of each node's component, shape (n_nodes,).
        errors: of components whose cliques need too much: why, by their lowest node. These have no cliques here.
        memory: bytes that the clique tables of one component may take.
        cliques: the cliques, children first.
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
        """Bytes of the clique tables of each component, at its lowest node, shape (n_nodes,); inf where refused."""
        of_clique = self.component[self.cliques.node[self.cliques.start[:-1]]]
        out = np.zeros(self.scopes.n_nodes)
        np.add.at(out, of_clique, BYTES_PER_CELL * np.diff(self.cliques.cell_start))
        out[list(self.errors)] = np.inf
        return out

    def check_memory(self) -> None:
        """Raises CliqueTooLargeError where a component was refused, or all together need more than the memory."""
        for error in self.errors.values():
            raise error
        if BYTES_PER_CELL * self.n_cells > self.memory:
            trees = self.cliques
            largest = int(np.diff(trees.cell_start).argmax())
            nodes = trees.node[trees.start[largest] : trees.start[largest + 1]]
            raise _make_error(self.scopes, nodes, BYTES_PER_CELL * self.n_cells, self.memory)


def _format_amount(n: int) -> str:
    """A whole number of any size in a few letters."""
    return f"{n:,}" if n < 10**6 else f"{n:.3g}" if n < 10**300 else f"1e{int(math.log10(n))}"


def _make_error(scopes: Scopes, nodes: np.ndarray, required_bytes: int, memory: int) -> CliqueTooLargeError:
    n_cells = math.prod(scopes.cardinality[nodes].tolist())
    return CliqueTooLargeError(sorted(nodes.tolist()), n_cells, max(required_bytes, BYTES_PER_CELL * n_cells), memory)


def _adjacent_pairs(scopes: Scopes, is_included: np.ndarray) -> np.ndarray:
    """Distinct pairs of nodes that share a factor, the lower first, shape (n_pairs, 2), int32.

    Args:
        is_included: which places of `scopes.node` count, bool.
    """
    node = scopes.node[is_included]
    arity = np.bincount(scopes.factor[is_included], minlength=scopes.n_factors).astype(np.int64)
    start = offsets(arity)
    found = [np.empty(0, dtype=np.int64)]
    for size in np.unique(arity[arity > 1]):
        scope = node[start[:-1][arity == size, None] + np.arange(size)].astype(np.int64)
        i, j = np.triu_indices(size, 1)
        low, high = np.minimum(scope[:, i], scope[:, j]), np.maximum(scope[:, i], scope[:, j])
        found.append((low * scopes.n_nodes + high).ravel())
    key = np.sort(np.concatenate(found))  # np.unique would hash, which takes ten times as long
    key = key[np.diff(key, prepend=-1) > 0]
    return np.stack([key // max(1, scopes.n_nodes), key % max(1, scopes.n_nodes)], axis=1).astype(np.int32)


def build_clique_tree(scopes: Scopes, memory: int) -> CliqueTree:
    """Cliques by min-fill; components that need more than so many bytes are given up as soon as this is known."""
    component = label_scope_components(scopes)
    weight = np.rint(LOG2_SCALE * np.log2(np.maximum(1, scopes.cardinality))).astype(np.int64)
    limit = (
        int(LOG2_SCALE * math.log2(min(max(1, memory // BYTES_PER_CELL), MAX_CLIQUE_CELLS))) + 64
    )  # which rounding may add
    refused: dict[int, CliqueTooLargeError] = {}

    def refuse(node: int, clique: np.ndarray) -> None:
        if int(component[node]) not in refused:
            refused[int(component[node])] = _make_error(scopes, clique, 0, memory)

    def is_open() -> np.ndarray:
        return ~np.isin(component, list(refused))

    for f in np.flatnonzero(np.add.reduceat(weight[scopes.node], scopes.start[:-1]) > limit):
        refuse(scopes.node[scopes.start[f]], scopes.node[scopes.start[f] : scopes.start[f + 1]])
    pairs = _adjacent_pairs(scopes, (scopes.cardinality > 1)[scopes.node] & is_open()[scopes.node])
    order, start, member = np.empty(0, dtype=np.int32), np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.int32)
    for filling in (False, True):  # first a bound, which costs little
        free = is_open()
        inside = pairs[free[pairs[:, 0]]]
        first, second = np.ascontiguousarray(inside[:, 0]), np.ascontiguousarray(inside[:, 1])
        order, start, member, stopped = elimination.eliminate(weight, component, free, first, second, limit, filling)
        for at in stopped[stopped >= 0]:
            refuse(order[at], member[start[at] : start[at + 1]])
    keep = ~np.isin(component[order], list(refused))
    cliques = _assemble(scopes, *elimination.maximal_cliques(scopes.n_nodes, order, start, member, keep))
    return CliqueTree(scopes, component, refused, memory, cliques)


def _assemble(
    scopes: Scopes,
    clique_start: np.ndarray,
    clique_node: np.ndarray,
    n_shared: np.ndarray,
    parent: np.ndarray,
    own: np.ndarray,
) -> CliqueForest:
    """Return maximal cliques with their tables and their factors; for the arguments see `elimination.maximal_cliques`."""
    sizes = np.diff(clique_start)
    is_shared = np.arange(len(clique_node)) - np.repeat(clique_start[:-1], sizes) < np.repeat(n_shared, sizes)
    cardinality = scopes.cardinality[clique_node].astype(np.int64)
    n_rows = np.multiply.reduceat(np.where(is_shared, cardinality, 1), clique_start[:-1])
    n_columns = np.multiply.reduceat(np.where(is_shared, 1, cardinality), clique_start[:-1])
    # A factor belongs to the first clique that one of its nodes belongs to; nodes with one state count where all have.
    of_place = np.where(scopes.cardinality[scopes.node] > 1, own[scopes.node], len(parent))
    home = np.minimum.reduceat(of_place, scopes.start[:-1])
    home = np.where(home == len(parent), own[scopes.node[scopes.start[:-1]]], home)
    factor = np.argsort(home, kind="stable")
    factor_start = np.searchsorted(home[factor], np.arange(len(parent) + 1))
    tables = n_rows, n_columns, offsets(n_rows * n_columns), offsets(n_rows)
    return CliqueForest(clique_start, clique_node, n_shared, *tables, parent, factor_start, factor)
