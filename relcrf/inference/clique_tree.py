"""Clique trees of all connected components; their cost is known before any table is allocated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from relcrf.columns.offsets import entries_of_runs, offsets
from relcrf.errors import listing
from relcrf.graph.scope_components import label_scope_components
from relcrf.graph.scopes import Scopes
from relcrf.inference.clique_layout import MaximalCliques, arrange_cliques
from relcrf.inference.elimination_order import (
    MIN_SEARCHED_CELLS,
    Elimination,
    adjacent_pairs,
    greedy_rule,
    node_weights,
    search_order,
)
from relcrf.inference.result import UnsupportedGraphError
from relcrf.kernels import elimination
from relcrf.kernels.clique_blocks import CliqueForest
from relcrf.kernels.distinct import distinct
from relcrf.kernels.elimination import LOG2_SCALE

BYTES_PER_CELL = 16
"""Bytes of a message's cell: a float64 number for the upward pass, and one for the downward pass."""

MAX_SEARCHED_NODES = 1 << 13
"""Maximum number of nodes of a component whose order is searched; one elimination of 30,000 nodes may take a second."""

MAX_COUNTED_NODES = 64
"""Maximum number of nodes of a clique whose cells are counted; with two states each, they have more cells than any limit."""

MAX_CLIQUE_CELLS = 1 << 40
"""Maximum number of cells of a clique for any limits; sums then fit into 64-bit integers."""


class CliqueTooLargeError(UnsupportedGraphError):
    """The error that exact inference exceeds a limit.

    Args:
        nodes: Nodes of the largest clique, or of the clique at which elimination stopped; empty if no order was tried,
            because each one has a clique with at least `n_cells` cells.
        n_cells: Number of cells of this clique's table.
        required: Lower bound of what all cliques require; the exact value is unknown if elimination stops early.
        limit: The limit.
        is_memory: Whether the limit is `memory`, in bytes, rather than `max_cells`.
    """

    def __init__(self, nodes: list[int], n_cells: int, required: int, limit: int, is_memory: bool = False) -> None:
        self.nodes, self.n_cells, self.required, self.limit, self.is_memory = nodes, n_cells, required, limit, is_memory
        need = (
            f"the messages need at least {_format_amount(required)} bytes"
            if is_memory
            else (f"all cliques have at least {_format_amount(required)} cells")
        )
        clique = (
            f"a clique over the nodes {listing(map(str, nodes))} has {_format_amount(n_cells)} cells"
            if nodes
            else f"each elimination order has a clique of at least {_format_amount(n_cells)} cells"
        )
        super().__init__(
            f"{clique}; {need}, and the limit ({'memory' if is_memory else 'max_cells'}) is {_format_amount(limit)}"
        )


@dataclass(frozen=True, eq=False)
class CliqueTree:
    """The maximal cliques of all components that do not exceed the limits.

    Args:
        scopes: Scopes of the graph.
        component: The component of each node, represented by the lowest node index in the component, shape (n_nodes,).
        errors: The error of each component whose cliques are too large, by lowest node; `cliques` omits these components.
        memory: Limit of the messages, in bytes.
        max_cells: Limit of the cells of all cliques.
        cliques: The cliques, children before parents.
    """

    scopes: Scopes
    component: np.ndarray
    errors: dict[int, CliqueTooLargeError]
    memory: int
    max_cells: int
    cliques: CliqueForest

    @property
    def n_cliques(self) -> int:
        return len(self.cliques.parent)

    @cached_property
    def clique_cells(self) -> np.ndarray:
        """Return the number of cells of each clique's table, shape (n_cliques,), int64."""
        return np.asarray(self.cliques.n_rows * self.cliques.n_columns)

    @property
    def max_clique_size(self) -> int:
        """Return the number of nodes of the largest clique, at least 1."""
        return int(np.diff(self.cliques.start).max(initial=1))

    @cached_property
    def component_cells(self) -> np.ndarray:
        """Return the cells of each component's cliques, indexed by lowest node, shape (n_nodes,); inf if too large."""
        return self._sum_by_component(self.clique_cells)

    @cached_property
    def component_bytes(self) -> np.ndarray:
        """Return the bytes of each component's messages, indexed by lowest node, shape (n_nodes,); inf if too large."""
        return self._sum_by_component(BYTES_PER_CELL * self.cliques.n_rows)

    def _sum_by_component(self, values: np.ndarray) -> np.ndarray:
        out = np.zeros(self.scopes.n_nodes)
        np.add.at(out, self.component[self.cliques.node[self.cliques.start[:-1]]], values)
        out[list(self.errors)] = np.inf
        return out

    def check_limits(self) -> None:
        """Raise CliqueTooLargeError if a component, or all components together, exceed a limit."""
        for error in self.errors.values():
            raise error
        n_bytes, n_cells = BYTES_PER_CELL * int(self.cliques.n_rows.sum()), int(self.clique_cells.sum())
        if n_bytes > self.memory or n_cells > self.max_cells:
            largest = int(self.clique_cells.argmax())
            nodes = self.cliques.node[self.cliques.start[largest] : self.cliques.start[largest + 1]]
            if n_bytes > self.memory:
                raise _make_error(self.scopes, nodes, n_bytes, self.memory, is_memory=True)
            raise _make_error(self.scopes, nodes, n_cells, self.max_cells)


def _format_amount(n: int) -> str:
    """Format an integer of any size in a few characters."""
    return f"{n:,}" if n < 10**6 else f"{n:.3g}" if n < 10**300 else f"1e{int(math.log10(n))}"


def _make_error(
    scopes: Scopes, nodes: np.ndarray, required: int, limit: int, is_memory: bool = False
) -> CliqueTooLargeError:
    n_cells = math.prod(scopes.cardinality[nodes].tolist())
    return CliqueTooLargeError(sorted(nodes.tolist()), n_cells, required or n_cells, limit, is_memory)


def build_clique_tree(scopes: Scopes, stage: np.ndarray, memory: int, max_cells: int) -> CliqueTree:
    """Build clique trees by greedy elimination; the orders of components with large cliques are searched.

    The elimination of a component stops early at a clique of more than `max_cells` cells.

    Args:
        stage: Stage of each node in the elimination, shape (n_nodes,), int64; see `kernels.elimination.EliminationRule`.
        memory, max_cells: As in `CliqueTree`.
    """
    component = label_scope_components(scopes)
    weight = node_weights(scopes.cardinality)
    largest = min(max(1, max_cells), MAX_CLIQUE_CELLS)
    limit = int(LOG2_SCALE * math.log2(largest)) + 64  # allows for rounding of `weight`
    errors: dict[int, CliqueTooLargeError] = {}

    def reject(node: int, clique: np.ndarray) -> None:
        if int(component[node]) not in errors:
            errors[int(component[node])] = _make_error(scopes, clique, 0, max_cells)

    def is_accepted() -> np.ndarray:
        return ~np.isin(component, list(errors))

    for f in np.flatnonzero(np.add.reduceat(weight[scopes.node], scopes.start[:-1]) > limit):
        reject(scopes.node[scopes.start[f]], scopes.node[scopes.start[f] : scopes.start[f + 1]])
    pairs = adjacent_pairs(scopes, (scopes.cardinality > 1)[scopes.node] & is_accepted()[scopes.node])
    for root, n_cells in _hopeless_components(scopes.cardinality, component, pairs, max_cells).items():
        errors[root] = CliqueTooLargeError([], n_cells, n_cells, max_cells)
    found, hopeless = None, set(errors)
    for add_edges in (False, True):  # the pass without edges is a cheap lower bound
        hopeless = set(errors)
        accepted = is_accepted()
        remaining = pairs[accepted[pairs[:, 0]]]
        first, second = np.ascontiguousarray(remaining[:, 0]), np.ascontiguousarray(remaining[:, 1])
        rule = greedy_rule(stage, add_edges=add_edges)
        arguments = (weight, component, accepted, first, second, limit, np.inf, rule)
        found = Elimination(*elimination.eliminate(*arguments))
        for step in found.too_heavy[found.too_heavy >= 0]:
            reject(found.order[step], found.member[found.start[step] : found.start[step + 1]])
    assert found is not None
    searched = _search_orders(scopes, stage, component, pairs, found, set(errors) - hopeless, limit, max_cells)
    for root in searched:
        errors.pop(root, None)
    is_kept = ~np.isin(component[found.order], [*errors, *searched])
    parts = [(found.order, np.diff(found.start), found.member), *searched.values()]
    order, sizes, member = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    is_kept = np.concatenate((is_kept, np.ones(len(order) - len(is_kept), dtype=np.bool_)))
    # The nodes of a stage precede those of later stages in each component; after this, they do so in the whole graph.
    by_stage = np.argsort(stage[order], kind="stable")
    start = offsets(sizes[by_stage])
    member = member[entries_of_runs(offsets(sizes), by_stage)]
    order, is_kept = order[by_stage], is_kept[by_stage]
    maximal = MaximalCliques(*elimination.maximal_cliques(stage, order, start, member, is_kept))
    return CliqueTree(scopes, component, errors, memory, max_cells, arrange_cliques(scopes, order, maximal))


def _hopeless_components(
    cardinality: np.ndarray, component: np.ndarray, pairs: np.ndarray, max_cells: int
) -> dict[int, int]:
    """Return large components of which each order has a clique of more than `max_cells` cells, and a minimum of its cells.

    A graph of treewidth k has less than k edges per node, and contraction of edges does not increase the treewidth. Edges are
    therefore contracted until the number of edges per node is a proof. On a graph of 100,000 nodes with eight neighbours on
    average, this takes a tenth of the time of elimination.

    Args:
        cardinality, component: Number of states and component of each node, shape (n_nodes,).
        pairs: Adjacent nodes, shape (n_pairs, 2); the lower node first.

    Returns:
        The number of cells, by the lowest node of the component.
    """
    n_nodes, out = len(cardinality), {}
    fewest_states = np.full(n_nodes, np.iinfo(np.int64).max)
    np.minimum.at(fewest_states, component, np.where(cardinality > 1, cardinality, np.iinfo(np.int64).max))
    is_open = np.bincount(component, minlength=n_nodes) > MAX_SEARCHED_NODES
    while len(pairs := pairs[is_open[component[pairs[:, 0]]]]):
        n_pairs = np.bincount(component[pairs[:, 0]], minlength=n_nodes)
        n_ends = np.bincount(component[distinct(pairs.ravel())], minlength=n_nodes)
        for root in np.flatnonzero(n_pairs).tolist():
            n, n_clique = int(n_ends[root]), int(n_pairs[root]) // int(n_ends[root]) + 2
            n_cells, most = (int(fewest_states[root]) ** min(k, MAX_COUNTED_NODES) for k in (n_clique, n))
            if n_cells > max_cells:
                out[root] = n_cells
            is_open[root] = n_cells <= max_cells < most
        parent = np.arange(n_nodes, dtype=np.int32)
        elimination.contract_matching(*np.ascontiguousarray(pairs.T), parent)
        ends = np.sort(parent[pairs], axis=1).astype(np.int64)
        key = distinct((ends[:, 0] * n_nodes + ends[:, 1])[ends[:, 0] < ends[:, 1]])
        pairs = np.stack([key // n_nodes, key % n_nodes], axis=1).astype(np.int32)
    return out


def _search_orders(
    scopes: Scopes,
    stage: np.ndarray,
    component: np.ndarray,
    pairs: np.ndarray,
    found: Elimination,
    rejected: set[int],
    limit: int,
    max_cells: int,
) -> dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Search better orders for the components with large cliques.

    Args:
        pairs: Adjacent nodes, shape (n_pairs, 2).
        found: The greedy elimination.
        rejected: Components, by lowest node, that the greedy elimination did not complete.

    Returns:
        By the lowest node of a component: the order, the sizes of the cliques, and their nodes.
    """
    cells = np.zeros(scopes.n_nodes)
    if len(found.order):
        clique_weight = np.add.reduceat(node_weights(scopes.cardinality)[found.member], found.start[:-1])
        np.add.at(cells, component[found.order], 2.0 ** (clique_weight / LOG2_SCALE))
    roots = np.union1d(np.flatnonzero(cells > MIN_SEARCHED_CELLS), list(rejected)).astype(np.int64)
    roots = roots[np.bincount(component, minlength=scopes.n_nodes)[roots] <= MAX_SEARCHED_NODES]
    out = {}
    for root in roots.tolist():
        nodes = np.flatnonzero(component == root)
        edges = np.searchsorted(nodes, pairs[component[pairs[:, 0]] == root]).astype(np.int32)
        ends = np.ascontiguousarray(edges[:, 0]), np.ascontiguousarray(edges[:, 1])
        best = search_order(scopes.cardinality[nodes], stage[nodes], *ends, limit, max_cells // len(roots))
        if best is not None:
            out[root] = nodes[best.order].astype(np.int32), np.diff(best.start), nodes[best.member].astype(np.int32)
    return out
