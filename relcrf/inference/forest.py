"""Exact inference on forests of pairwise factors.

Nodes have *positions*, children before parents; the *edge above* a node joins the node to its parent. A *block* is a range of
positions. Blocks are processed in the linear domain (not in logs) unless values exceed its range.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from relcrf.columns.offsets import offsets
from relcrf.graph.scopes import Potentials, Scopes
from relcrf.inference.result import AbstractInference, MapStates, Marginals, UnsupportedGraphError, Verdict
from relcrf.kernels import forest, forest_layout, runs
from relcrf.kernels.forest import SWEEP_KERNELS, Forest, PositionRange
from relcrf.kernels.threads import map_lanes, map_ranges
from relcrf.kernels.vector_math import exp_in_place

BLOCK_SIZE, MIN_BLOCK_SIZE = 1 << 17, 1 << 16
"""Number of table cells and states per block; a block of a megabyte stays in a core's cache between the two passes. Blocks are
half as large at least if there would otherwise be fewer blocks than lanes."""

MAX_BLOCK_SIZE = 1 << 60
"""Maximum block size; it is larger than any forest, but 64-bit sums in kernels do not overflow."""

LANES = 8
"""Number of lanes. A lane is a sequence of blocks for one thread; the order of sums is independent of the number of threads."""

Block = tuple[int, int]
"""A range of positions, lo..hi-1."""


class SharedTables(NamedTuple):
    """Flat log potentials of distinct edge tables, and the offset of the table of each edge, by position, shape (n + 1,)."""

    potentials: np.ndarray
    table_start: np.ndarray


class AbstractForestTables(ABC):
    """The input log potentials and the output marginals of a sweep, accessed block by block.

    A block consists of some nodes and the edges above them. Arrays are flat, in the order of positions. Calls for different
    blocks may come from different threads.
    """

    @abstractmethod
    def node_potentials(self, block: Block, out: np.ndarray) -> None:
        """Write the log potentials of a block's nodes to `out`."""

    @abstractmethod
    def edge_potentials(self, block: Block, out: np.ndarray) -> None:
        """Write the log potentials of the edges above a block's nodes to `out`."""

    def shared_tables(self) -> SharedTables | None:
        """Return the log potentials of all edges if many of them share a table; `edge_potentials` is then not called."""
        return None

    def store_shared(self, sums: np.ndarray) -> None:
        """Store, for each shared table, the sum of the marginals of its edges; `store_marginals` then ignores `edges`."""
        raise NotImplementedError("these tables are not shared")

    @abstractmethod
    def store_marginals(self, block: Block, nodes: np.ndarray, edges: np.ndarray, lane: int) -> None:
        """Store the marginals of a block. Two threads never use the same lane at the same time."""


@dataclass(frozen=True, eq=False)
class ForestPlan:
    """The layout of a forest for sweeps; see `kernels/forest.py`. Arrays are indexed by position, children before parents.

    A tree larger than a block is *cut* into a *spine*, which contains the root of the tree, and the subtrees below the spine.

    Args:
        order: The node at each position, shape (n,), int32.
        edge: Index of the factor between the node at each position and the node's parent; -1 for roots.
        forest: The forest as an argument of kernels; the offsets `cell` assume that the tables of all edges are concatenated.
        whole_trees, subtrees, spines: Blocks that consist of whole trees, of subtrees of cut trees, and of nodes of spines.
        subtree_roots: Positions of the roots of the subtrees.
    """

    order: np.ndarray
    edge: np.ndarray
    forest: Forest
    whole_trees: tuple[tuple[int, int], ...]
    subtrees: tuple[tuple[int, int], ...]
    spines: tuple[tuple[int, int], ...]
    subtree_roots: np.ndarray

    @classmethod
    def from_scopes(cls, scopes: Scopes, block_size: int = BLOCK_SIZE) -> ForestPlan:
        """Build the plan of a forest.

        Raises:
            UnsupportedGraphError: A ValueError, if a factor has more than two nodes or the pairs have a cycle.
        """
        if (scopes.arity != 2).any():
            raise UnsupportedGraphError("a factor has more than two nodes; forest inference requires pairs")
        edges = scopes.node.reshape(-1, 2)
        visit_order, parent_of, edge_of, is_forest = forest_layout.topological_order(scopes.n_nodes, edges)
        if not is_forest:
            raise UnsupportedGraphError("the edges have a cycle; forest inference requires a forest")
        parent_sizes = np.where(edge_of >= 0, scopes.cardinality[parent_of], 0).astype(np.int64)
        per_lane = int((scopes.cardinality * (1 + parent_sizes)).sum()) // LANES
        block_size = min(block_size, max(per_lane, MIN_BLOCK_SIZE), MAX_BLOCK_SIZE)
        order, run_start, n_whole, _ = forest_layout.lay_out_nodes(
            visit_order, parent_of, scopes.cardinality, block_size
        )
        position = np.empty(scopes.n_nodes, dtype=np.int32)
        position[order] = np.arange(scopes.n_nodes, dtype=np.int32)
        edge = edge_of[order]
        parent = np.where(edge >= 0, position[parent_of[order]], np.int32(-1))
        cardinality = scopes.cardinality[order]
        parent_cardinality = np.where(edge >= 0, cardinality[parent], np.int32(0)).astype(np.int64)
        cost = offsets(cardinality * (1 + parent_cardinality))
        spine_positions = np.arange(run_start[-1], scopes.n_nodes + 1)
        whole_trees, subtrees, spines = (
            tuple(pairwise(forest_layout.group_runs(starts, cost, block_size).tolist()))
            for starts in (run_start[: n_whole + 1], run_start[n_whole:], spine_positions)
        )
        parent_first = np.zeros(scopes.n_nodes, dtype=np.bool_)
        with_parent = np.flatnonzero(edge >= 0)
        parent_first[with_parent] = edges[edge[with_parent], 1] == order[with_parent]
        roots = run_start[n_whole + 1 :] - 1  # the root of a subtree is at the last position of its run
        table_offsets = offsets(cardinality), offsets(parent_cardinality), offsets(parent_cardinality * cardinality)
        layout = Forest(parent, parent_first, cardinality, *table_offsets)
        return cls(order, edge, layout, whole_trees, subtrees, spines, roots)

    @property
    def n(self) -> int:
        return len(self.order)

    def sort_states(self, start: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return flat node tables with offsets `start`, sorted by position."""
        sorted_start, out = self.forest.state_start, np.empty_like(values)

        def gather(lo: int, hi: int) -> None:
            part = out[sorted_start[lo] : sorted_start[hi]]
            runs.gather(lo, hi, self.order, sorted_start, start, values, part)

        map_lanes(self.n, len(values), gather)
        return out

    def restore_states(self, start: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return flat node tables in the order of the offsets `start`: the inverse of `sort_states`."""
        sorted_start, out = self.forest.state_start, np.empty_like(values)

        def scatter(lo: int, hi: int) -> None:
            part = values[sorted_start[lo] : sorted_start[hi]]
            runs.scatter(lo, hi, self.order, sorted_start, start, part, out)

        map_lanes(self.n, len(values), scatter)
        return out


class _ForestScratch:
    """Scratch buffers for one block, or for all cut trees."""

    def __init__(self, states: int, messages: int, cells: int) -> None:
        self.belief = np.empty(states)
        self.message = np.empty(messages)
        self.choice = np.empty(messages, dtype=np.int32)
        self.edges = np.empty(cells)


class ForestSweep:
    """Upward and downward passes over a forest.

    Both passes over a block of whole trees run consecutively, in the buffers of a lane. Cut trees have separate buffers and
    three stages: upward over the subtrees, upward and downward over the spines, and downward over the subtrees. All calls of
    one object share the buffers; they must not be concurrent.
    """

    def __init__(self, plan: ForestPlan) -> None:
        self._plan = plan
        sizes = np.unique(plan.forest.cardinality).tolist()
        self._kernels = SWEEP_KERNELS[sizes[0] if len(sizes) == 1 and sizes[0] in SWEEP_KERNELS else 0]
        self._forest = plan.forest
        cut = (*plan.subtrees, *plan.spines)
        self._first_cut = cut[0][0] if cut else plan.n
        starts = plan.forest.state_start, plan.forest.message_start, plan.forest.cell
        maxima = [max((int(s[hi] - s[lo]) for lo, hi in (*plan.whole_trees, *cut)), default=0) for s in starts]
        self._lane_scratch = [
            _ForestScratch(*maxima) for _ in range(LANES if len(plan.whole_trees) + len(cut) >= LANES else 1)
        ]
        n_states, n_messages = (int(start[-1] - start[self._first_cut]) for start in starts[:2])
        self._cut_scratch = _ForestScratch(n_states, n_messages, 0)
        self._shared_tables = _SharedTableState(None, LANES)

    def marginals(self, tables: AbstractForestTables) -> float:
        """Compute marginals, store them in the tables, and return the log partition function."""
        self._shared_tables = _SharedTableState(tables.shared_tables(), len(self._lane_scratch))
        total = self._run_blocks(
            self._plan.whole_trees, lambda block, lane: self._sweep_whole_trees(tables, block, lane)
        )
        if self._plan.spines:
            cut_value = self._sweep_cut_trees(tables, linear=True)
            if cut_value is None:
                cut_value = self._sweep_cut_trees(tables, linear=False)
            assert cut_value is not None
            total += cut_value
        if self._shared_tables.tables is not None:
            tables.store_shared(self._shared_tables.sums.sum(axis=0))
        return total

    def _sweep_whole_trees(self, tables: AbstractForestTables, block: Block, lane: int) -> float:
        """Run both passes over a block of whole trees, and return the log partition function of these trees."""
        (lo, hi), scratch = block, self._lane_scratch[lane]
        belief = scratch.belief[: self._n_states(block)]
        for linear in (True, False):
            value = self._load_nodes(tables, block, belief, linear)
            edges, scale = self._load_edges(tables, block, lane, linear)
            value += scale
            if not np.isnan(value):
                value += self._upward_pass(block, hi, lo, edges, scratch, linear)
            if not (linear and np.isnan(value)):
                break
        self._downward_pass(block, lo, edges, scratch, linear, lane)
        tables.store_marginals(block, belief, edges, lane)
        return value

    def _sweep_cut_trees(self, tables: AbstractForestTables, linear: bool) -> float | None:
        """Run both passes over all cut trees; if values are out of the linear range, store nothing and return None."""
        plan, scratch, first = self._plan, self._cut_scratch, self._first_cut

        def pass_upward(block: Block, lane: int) -> float:
            value = self._load_nodes(tables, block, self._cut_beliefs(block), linear)
            edges, scale = self._load_edges(tables, block, lane, linear)
            value += scale
            return (
                value if np.isnan(value) else value + self._upward_pass(block, block[1], first, edges, scratch, linear)
            )

        def pass_downward(block: Block, lane: int) -> float:
            edges, _ = self._load_edges(tables, block, lane, linear)
            self._downward_pass(block, first, edges, scratch, linear, lane)
            tables.store_marginals(block, self._cut_beliefs(block), edges, lane)
            return 0.0

        total = self._run_blocks(plan.subtrees, pass_upward)
        for block in plan.spines:
            total += self._load_nodes(tables, block, self._cut_beliefs(block), linear)
        if linear and np.isnan(total):
            return None
        if linear:
            scale, ok = forest.absorb_roots(plan.subtree_roots, first, self._forest, scratch.belief, scratch.message)
            total += scale if ok else np.nan
        else:
            forest.log_absorb_roots(plan.subtree_roots, first, self._forest, scratch.belief, scratch.message)
        for block in plan.spines:
            edges, scale = self._load_edges(tables, block, 0, linear)
            total += scale
            if linear and np.isnan(total):
                return None
            total += self._upward_pass(block, plan.n, first, edges, scratch, linear)
        if linear and np.isnan(total):
            return None
        for block in reversed(plan.spines):
            pass_downward(block, 0)
        self._run_blocks(plan.subtrees, pass_downward)
        return total

    def map_states(self, tables: AbstractForestTables) -> tuple[float, np.ndarray]:
        """Return the maximum score and a joint state with this score, indexed by position, shape (n,), int32."""
        plan, cut_scratch, first = self._plan, self._cut_scratch, self._first_cut
        self._shared_tables = _SharedTableState(tables.shared_tables(), len(self._lane_scratch))
        states = np.empty(plan.n, dtype=np.int32)

        def max_upward(block: Block, stop: int, first: int, scratch: _ForestScratch, lane: int) -> None:
            edges, _ = self._load_edges(tables, block, lane, linear=False)
            forest.max_up(
                *self._kernel_arguments(block, stop, first), edges, scratch.belief, scratch.message, scratch.choice
            )

        def max_downward(block: Block, first: int, scratch: _ForestScratch) -> float:
            return float(
                forest.max_down(*self._kernel_arguments(block, block[1], first), scratch.belief, scratch.choice, states)
            )

        def run_whole_trees(block: Block, lane: int) -> float:
            scratch = self._lane_scratch[lane]
            tables.node_potentials(block, scratch.belief[: self._n_states(block)])
            max_upward(block, block[1], block[0], scratch, lane)
            return max_downward(block, block[0], scratch)

        def run_subtree(block: Block, lane: int) -> float:
            tables.node_potentials(block, self._cut_beliefs(block))
            max_upward(block, block[1], first, cut_scratch, lane)
            return 0.0

        score = self._run_blocks(plan.whole_trees, run_whole_trees)
        self._run_blocks(plan.subtrees, run_subtree)
        for block in plan.spines:
            tables.node_potentials(block, self._cut_beliefs(block))
        forest.log_absorb_roots(plan.subtree_roots, first, self._forest, cut_scratch.belief, cut_scratch.message)
        for block in plan.spines:
            max_upward(block, plan.n, first, cut_scratch, 0)
        for block in reversed(plan.spines):
            score += max_downward(block, first, cut_scratch)
        self._run_blocks(plan.subtrees, lambda block, lane: max_downward(block, first, cut_scratch))
        return score, states

    def _run_blocks(self, blocks: tuple[Block, ...], work: Callable[[Block, int], float]) -> float:
        """Process all blocks on as many threads as Numba uses; return the sum of the blocks' results, added in block order."""
        if len(blocks) < LANES:
            return float(sum(work(block, 0) for block in blocks))
        bounds = [len(blocks) * lane // LANES for lane in range(LANES + 1)]
        lanes = {first: lane for lane, first in enumerate(bounds)}

        def run_lane(first: int, last: int) -> list[float]:
            return [work(block, lanes[first]) for block in blocks[first:last]]

        return float(sum(value for values in map_ranges(bounds, run_lane) for value in values))

    def _n_states(self, block: Block) -> int:
        return int(self._forest.state_start[block[1]] - self._forest.state_start[block[0]])

    def _cut_beliefs(self, block: Block) -> np.ndarray:
        """Return a view of a block's beliefs in the buffer of all cut trees."""
        start = self._forest.state_start
        return self._cut_scratch.belief[
            start[block[0]] - start[self._first_cut] : start[block[1]] - start[self._first_cut]
        ]

    def _load_nodes(self, tables: AbstractForestTables, block: Block, out: np.ndarray, linear: bool) -> float:
        """Write a block's scaled initial beliefs to `out`; return the log of the scale, nan if it is out of linear range."""
        tables.node_potentials(block, out)
        if not linear or exp_in_place(out) <= forest.MAX_LOG_RANGE:
            return 0.0
        tables.node_potentials(block, out)
        return _exponentiate_shifted(self._forest.state_start[block[0] : block[1] + 1], out)

    def _load_edges(
        self, tables: AbstractForestTables, block: Block, lane: int, linear: bool
    ) -> tuple[np.ndarray, float]:
        """Return the scaled edge tables in the lane's buffer, and the log of the scale as in `_load_nodes`."""
        if self._shared_tables.tables is not None:
            return (
                (self._shared_tables.exponentials, self._shared_tables.scale)
                if linear
                else (self._shared_tables.tables.potentials, 0.0)
            )
        cell = self._forest.cell[block[0] : block[1] + 1]
        out = self._lane_scratch[lane].edges[: int(cell[-1] - cell[0])]
        tables.edge_potentials(block, out)
        if not linear or exp_in_place(out) <= forest.MAX_LOG_RANGE:
            return out, 0.0
        tables.edge_potentials(block, out)
        return out, _exponentiate_shifted(cell, out)

    def _kernel_arguments(self, block: Block, stop: int, first: int) -> tuple[PositionRange, Forest]:
        """Return the kernel arguments of a block: the position range, and the forest with the offsets of edge tables."""
        shared = self._shared_tables.tables
        if shared is None:
            return PositionRange(*block, stop, first, int(self._forest.cell[block[0]])), self._forest
        return PositionRange(*block, stop, first, 0), self._forest._replace(cell=shared.table_start)

    def _upward_pass(
        self, block: Block, stop: int, first: int, edges: np.ndarray, scratch: _ForestScratch, linear: bool
    ) -> float:
        """Pass messages upward in a block; return the log of the total scale, including roots (nan if out of linear range)."""
        arguments = (*self._kernel_arguments(block, stop, first), edges, scratch.belief, scratch.message)
        if not linear:
            return float(forest.log_up(*arguments))
        value, ok = self._kernels.up(*arguments)
        return float(value) if ok else np.nan

    def _downward_pass(
        self, block: Block, first: int, edges: np.ndarray, scratch: _ForestScratch, linear: bool, lane: int
    ) -> None:
        """Pass messages downward in a block and compute marginals in place; edge marginals of shared tables are summed."""
        is_shared = self._shared_tables.tables is not None
        out = self._shared_tables.sums[lane] if is_shared else edges
        arguments = (*self._kernel_arguments(block, block[1], first), edges, scratch.belief, scratch.message, out)
        if not linear:
            forest.log_down(*arguments, is_shared)
        elif is_shared:
            self._kernels.down_shared(*arguments)
        else:
            self._kernels.down(*arguments)


class _SharedTableState:
    """The shared tables of one call: exponentials, log scale (nan if out of linear range), and sums of marginals by lane."""

    def __init__(self, tables: SharedTables | None, n_lanes: int) -> None:
        self.tables = tables
        if tables is not None:
            self.exponentials = tables.potentials.copy()
            self.scale = 0.0 if exp_in_place(self.exponentials) <= forest.MAX_LOG_RANGE else np.nan
            self.sums = np.zeros((n_lanes, len(tables.potentials)))


def _exponentiate_shifted(start: np.ndarray, values: np.ndarray) -> float:
    """Subtract the maximum of each table and exponentiate; return the sum of the maxima, nan if out of linear range."""
    total, ok = forest.subtract_maxima(start - start[0], values)
    exp_in_place(values)
    return float(total) if ok else np.nan


@dataclass(frozen=True)
class _FlatTables(AbstractForestTables):
    """Log potentials and marginals in flat arrays in the order of the scopes.

    Args:
        plan: Layout of the forest.
        state_start, table_start: Offset of the table of each node and of each factor.
        potentials: Log potentials.
        nodes, factors: Output arrays of the marginals.
    """

    plan: ForestPlan
    state_start: np.ndarray
    table_start: np.ndarray
    potentials: Potentials
    nodes: np.ndarray
    factors: np.ndarray

    def node_potentials(self, block: Block, out: np.ndarray) -> None:
        runs.gather(*block, self.plan.order, self.plan.forest.state_start, self.state_start, self.potentials.nodes, out)

    def edge_potentials(self, block: Block, out: np.ndarray) -> None:
        runs.gather(*block, self.plan.edge, self.plan.forest.cell, self.table_start, self.potentials.factors, out)

    def store_marginals(self, block: Block, nodes: np.ndarray, edges: np.ndarray, lane: int) -> None:
        runs.scatter(*block, self.plan.order, self.plan.forest.state_start, self.state_start, nodes, self.nodes)
        runs.scatter(*block, self.plan.edge, self.plan.forest.cell, self.table_start, edges, self.factors)


@dataclass(frozen=True)
class ForestInference(AbstractInference):
    """Sum-product and max-product on a forest; the `ForestPlan` is built once and reused for any potentials.

    Args:
        block_size: Maximum number of table cells and states per block; larger trees are cut.

    Raises:
        UnsupportedGraphError: A ValueError, at the first call, if a factor has more than two nodes or the pairs have a cycle.
    """

    scopes: Scopes
    block_size: int = BLOCK_SIZE

    @cached_property
    def plan(self) -> ForestPlan:
        return ForestPlan.from_scopes(self.scopes, self.block_size)

    @cached_property
    def _sweep(self) -> ForestSweep:
        return ForestSweep(self.plan)

    def _tables(self, potentials: Potentials) -> _FlatTables:
        full, expanded = self.scopes.expand_agreements(potentials)
        nodes, factors = np.empty_like(expanded.nodes), np.empty_like(expanded.factors)
        return _FlatTables(self.plan, self.scopes.state_start, full.table_start, expanded, nodes, factors)

    def marginals(self, potentials: Potentials) -> Marginals:
        tables = self._tables(potentials)
        log_partition = self._sweep.marginals(tables)
        if log_partition == -np.inf:  # one impossible tree makes all joint states impossible
            tables.nodes[:], tables.factors[:] = np.nan, np.nan
        return Marginals(log_partition, tables.nodes, self.scopes.collapse_agreements(tables.factors), Verdict("exact"))

    def map_states(self, potentials: Potentials) -> MapStates:
        score, states_by_position = self._sweep.map_states(self._tables(potentials))
        states = np.empty(self.scopes.n_nodes, dtype=np.int32)
        states[self.plan.order] = states_by_position
        return MapStates(score, states, score, Verdict("exact"))
