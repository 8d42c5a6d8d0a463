"""Exact inference where the factors are pairs that form a forest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numba
import numpy as np

from relcrf.columns.offsets import entries_of_runs, offsets
from relcrf.graph.scopes import Potentials, Scopes
from relcrf.inference.result import AbstractInference, MapStates, Marginals, UnsupportedGraphError, Verdict
from relcrf.kernels import forest, forest_layout
from relcrf.kernels.forest import SWEEP_KERNELS, Forest, PositionRange
from relcrf.kernels.vector_math import exp_in_place

BLOCK_SIZE = 1 << 16
"""Cells and states that are worked on at a time: half a megabyte, which stays in a core's cache on the way up and down."""

MAX_BLOCK_SIZE = 1 << 60
"""What kernels count in 64 bits; no forest is as large."""

LANES = 8
"""Runs of blocks that threads share out. Their sums are added in order, so that no bit depends on the number of threads."""

Block = tuple[int, int]
"""Positions lo..hi-1."""


class SharedTables(NamedTuple):
    """Tables of log potentials, flat, and where the table of the edge above each position begins, shape (n + 1,)."""

    potentials: np.ndarray
    table_start: np.ndarray


class AbstractForestTables(ABC):
    """Where the log potentials of a sweep come from and where its marginals go: some nodes and the edges above them at a time.

    Arrays are flat, in the order of positions; calls for different blocks may come from different threads.
    """

    @abstractmethod
    def node_potentials(self, block: Block, out: np.ndarray) -> None:
        """Writes log potentials of a block's nodes."""

    @abstractmethod
    def edge_potentials(self, block: Block, out: np.ndarray) -> None:
        """Writes log potentials of the edges above them."""

    def shared_tables(self) -> SharedTables | None:
        """Log potentials of all edges where many of them have the same table; `edge_potentials` is then not asked."""
        return None

    def store_shared(self, sums: np.ndarray) -> None:
        """Receives the sum of the marginals of the edges that share each table; `take` then gets no edges."""
        raise NotImplementedError("these tables are not shared")

    @abstractmethod
    def store_marginals(self, block: Block, nodes: np.ndarray, edges: np.ndarray, lane: int) -> None:
        """Receives their marginals. Two threads are never in the same lane."""


@dataclass(frozen=True, eq=False)
class ForestPlan:
    """A forest laid out for sweeps; see `kernels/forest.py`. All arrays go by position, children before parents.

    Args:
        order: the node at each position, shape (n,), int32.
        edge: the factor between each position and its parent, -1 at roots.
        forest: positions as kernels take them; its `cell` is as if the tables of all edges stood one after the other.
        whole_trees, subtrees, spines: blocks of whole trees, of subtrees that hang on a spine, and of spines.
        subtree_roots: positions of the hanging subtrees' roots.
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
        """The plan of a forest.

        Raises:
            Unanswerable: a ValueError, where a factor has more than two nodes, or the pairs have a cycle.
        """
        if (scopes.arity != 2).any():
            raise UnsupportedGraphError("a factor has more than two nodes; forest inference needs pairs")
        edges = scopes.node.reshape(-1, 2)
        found, parent_of, edge_of, is_forest = forest_layout.topological_order(scopes.n_nodes, edges)
        if not is_forest:
            raise UnsupportedGraphError("the edges have a cycle; forest inference needs a forest")
        block_size = min(block_size, MAX_BLOCK_SIZE)
        order, runs, n_whole, _ = forest_layout.lay_out_nodes(found, parent_of, scopes.cardinality, block_size)
        position = np.empty(scopes.n_nodes, dtype=np.int32)
        position[order] = np.arange(scopes.n_nodes, dtype=np.int32)
        edge = edge_of[order]
        parent = np.where(edge >= 0, position[parent_of[order]], np.int32(-1))
        cardinality = scopes.cardinality[order]
        above = np.where(edge >= 0, cardinality[parent], np.int32(0)).astype(np.int64)
        cost = offsets(cardinality * (1 + above))
        spine = np.arange(runs[-1], scopes.n_nodes + 1)
        whole, hanging, cut = (
            tuple(pairwise(forest_layout.group_runs(starts, cost, block_size).tolist()))
            for starts in (runs[: n_whole + 1], runs[n_whole:], spine)
        )
        parent_first = np.zeros(scopes.n_nodes, dtype=np.bool_)
        joined = np.flatnonzero(edge >= 0)
        parent_first[joined] = edges[edge[joined], 1] == order[joined]
        roots = runs[n_whole + 1 :] - 1  # the last position of a run
        starts = offsets(cardinality), offsets(above), offsets(above * cardinality)
        return cls(order, edge, Forest(parent, parent_first, cardinality, *starts), whole, hanging, cut, roots)

    @property
    def n(self) -> int:
        return len(self.order)

    def state_indices(self, start: np.ndarray) -> np.ndarray:
        """Indices that bring flat node tables, whose nodes begin at `start`, into the order of positions."""
        return entries_of_runs(start, self.order)


class _ForestScratch:
    """Buffers in which blocks are worked out."""

    def __init__(self, states: int, messages: int, cells: int) -> None:
        self.belief = np.empty(states)
        self.message = np.empty(messages)
        self.choice = np.empty(messages, dtype=np.int32)
        self.edges = np.empty(cells)


class ForestSweep:
    """Up and down a forest.

    A block of whole trees is done at once, in buffers of its lane. Trees that are larger than a block are done in three turns:
    up the subtrees that hang on their spine, up and down the spine, and down the subtrees; their beliefs and
    messages wait in buffers of the whole. Buffers serve one call after another: so a sweep is not for two threads.
    """

    def __init__(self, plan: ForestPlan) -> None:
        self._plan = plan
        sizes = np.unique(plan.forest.cardinality).tolist()
        self._kernels = SWEEP_KERNELS[sizes[0] if len(sizes) == 1 and sizes[0] in SWEEP_KERNELS else 0]
        self._forest = plan.forest
        cut = (*plan.subtrees, *plan.spines)
        self._first_cut = cut[0][0] if cut else plan.n
        sized = plan.forest.state_start, plan.forest.message_start, plan.forest.cell
        most = [max((int(start[hi] - start[lo]) for lo, hi in (*plan.whole_trees, *cut)), default=0) for start in sized]
        self._lane_scratch = [
            _ForestScratch(*most) for _ in range(LANES if len(plan.whole_trees) + len(cut) >= LANES else 1)
        ]
        n_states, n_messages = (int(start[-1] - start[self._first_cut]) for start in sized[:2])
        self._cut_scratch = _ForestScratch(n_states, n_messages, 0)
        self._shared_tables = _SharedTableState(None, LANES)

    def marginals(self, tables: AbstractForestTables) -> float:
        """The log partition; the marginals go to the tables."""
        self._shared_tables = _SharedTableState(tables.shared_tables(), len(self._lane_scratch))
        total = self._run_blocks(
            self._plan.whole_trees, lambda block, lane: self._sweep_whole_trees(tables, block, lane)
        )
        if self._plan.spines:
            found = self._sweep_cut_trees(tables, linear=True)
            if found is None:
                found = self._sweep_cut_trees(tables, linear=False)
            assert found is not None
            total += found
        if self._shared_tables.tables is not None:
            tables.store_shared(self._shared_tables.sums.sum(axis=0))
        return total

    def _sweep_whole_trees(self, tables: AbstractForestTables, block: Block, lane: int) -> float:
        """Whole trees, up and down while their tables are in the cache."""
        (lo, hi), desk = block, self._lane_scratch[lane]
        belief = desk.belief[: self._n_states(block)]
        for linear in (True, False):
            value = self._load_nodes(tables, block, belief, linear)
            edges, scale = self._load_edges(tables, block, lane, linear)
            value += scale
            if not np.isnan(value):
                value += self._upward_pass(block, hi, lo, edges, desk, linear)
            if not (linear and np.isnan(value)):
                break
        self._downward_pass(block, lo, edges, desk, linear, lane)
        tables.store_marginals(block, belief, edges, lane)
        return value

    def _sweep_cut_trees(self, tables: AbstractForestTables, linear: bool) -> float | None:
        """Trees with a spine. None where the linear range does not hold; nothing has been given out then."""
        plan, shared, first = self._plan, self._cut_scratch, self._first_cut

        def branch(block: Block, lane: int) -> float:
            value = self._load_nodes(tables, block, self._cut_beliefs(block), linear)
            edges, scale = self._load_edges(tables, block, lane, linear)
            value += scale
            return (
                value if np.isnan(value) else value + self._upward_pass(block, block[1], first, edges, shared, linear)
            )

        def spread(block: Block, lane: int) -> float:
            edges, _ = self._load_edges(tables, block, lane, linear)
            self._downward_pass(block, first, edges, shared, linear, lane)
            tables.store_marginals(block, self._cut_beliefs(block), edges, lane)
            return 0.0

        total = self._run_blocks(plan.subtrees, branch)
        for block in plan.spines:
            total += self._load_nodes(tables, block, self._cut_beliefs(block), linear)
        if linear and np.isnan(total):
            return None
        if linear:
            scale, ok = forest.absorb_roots(plan.subtree_roots, first, self._forest, shared.belief, shared.message)
            total += scale if ok else np.nan
        else:
            forest.log_absorb_roots(plan.subtree_roots, first, self._forest, shared.belief, shared.message)
        for block in plan.spines:
            edges, scale = self._load_edges(tables, block, 0, linear)
            total += scale
            if linear and np.isnan(total):
                return None
            total += self._upward_pass(block, plan.n, first, edges, shared, linear)
        if linear and np.isnan(total):
            return None
        for block in reversed(plan.spines):
            spread(block, 0)
        self._run_blocks(plan.subtrees, spread)
        return total

    def map_states(self, tables: AbstractForestTables) -> tuple[float, np.ndarray]:
        """The best score, and its states by position, shape (n,), int32."""
        plan, shared, first = self._plan, self._cut_scratch, self._first_cut
        self._shared_tables = _SharedTableState(tables.shared_tables(), len(self._lane_scratch))
        states = np.empty(plan.n, dtype=np.int32)

        def climb(block: Block, stop: int, first: int, desk: _ForestScratch, lane: int) -> None:
            edges, _ = self._load_edges(tables, block, lane, linear=False)
            forest.max_up(*self._kernel_arguments(block, stop, first), edges, desk.belief, desk.message, desk.choice)

        def descend(block: Block, first: int, desk: _ForestScratch) -> float:
            return float(
                forest.max_down(*self._kernel_arguments(block, block[1], first), desk.belief, desk.choice, states)
            )

        def trees(block: Block, lane: int) -> float:
            desk = self._lane_scratch[lane]
            tables.node_potentials(block, desk.belief[: self._n_states(block)])
            climb(block, block[1], block[0], desk, lane)
            return descend(block, block[0], desk)

        def branch(block: Block, lane: int) -> float:
            tables.node_potentials(block, self._cut_beliefs(block))
            climb(block, block[1], first, shared, lane)
            return 0.0

        score = self._run_blocks(plan.whole_trees, trees)
        self._run_blocks(plan.subtrees, branch)
        for block in plan.spines:
            tables.node_potentials(block, self._cut_beliefs(block))
        forest.log_absorb_roots(plan.subtree_roots, first, self._forest, shared.belief, shared.message)
        for block in plan.spines:
            climb(block, plan.n, first, shared, 0)
        for block in reversed(plan.spines):
            score += descend(block, first, shared)
        self._run_blocks(plan.subtrees, lambda block, lane: descend(block, first, shared))
        return score, states

    def _run_blocks(self, blocks: tuple[Block, ...], work: Callable[[Block, int], float]) -> float:
        """Does all blocks, on as many threads as Numba may use; the sum of what they give, added in their order."""
        bounds = np.linspace(0, len(blocks), LANES + 1).astype(int).tolist()
        lanes = [(lane, blocks[a:b]) for lane, (a, b) in enumerate(pairwise(bounds)) if a < b]

        def run(lane: tuple[int, tuple[Block, ...]]) -> list[float]:
            return [work(block, lane[0]) for block in lane[1]]

        n_threads = min(numba.config.NUMBA_NUM_THREADS, len(lanes))
        if len(blocks) < LANES:
            return float(sum(work(block, 0) for block in blocks))
        if n_threads == 1:
            return float(sum(value for lane in lanes for value in run(lane)))
        with ThreadPoolExecutor(n_threads) as pool:
            return float(sum(value for found in pool.map(run, lanes) for value in found))

    def _n_states(self, block: Block) -> int:
        return int(self._forest.state_start[block[1]] - self._forest.state_start[block[0]])

    def _cut_beliefs(self, block: Block) -> np.ndarray:
        """A block's beliefs among those of all trees with a spine."""
        start = self._forest.state_start
        return self._cut_scratch.belief[
            start[block[0]] - start[self._first_cut] : start[block[1]] - start[self._first_cut]
        ]

    def _load_nodes(self, tables: AbstractForestTables, block: Block, out: np.ndarray, linear: bool) -> float:
        """Beliefs before any message. Returns the log of what was taken out of linear ones; nan where their range fails."""
        tables.node_potentials(block, out)
        if not linear or exp_in_place(out) <= forest.MAX_LOG_RANGE:
            return 0.0
        tables.node_potentials(block, out)
        return _exponentiate_shifted(self._forest.state_start[block[0] : block[1] + 1], out)

    def _load_edges(
        self, tables: AbstractForestTables, block: Block, lane: int, linear: bool
    ) -> tuple[np.ndarray, float]:
        """The edges' tables, in the lane's buffer, and as `_nodes`."""
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
        """The block as kernels take it, and the forest with the places of its tables."""
        given = self._shared_tables.tables
        if given is None:
            return PositionRange(*block, stop, first, int(self._forest.cell[block[0]])), self._forest
        return PositionRange(*block, stop, first, 0), self._forest._replace(cell=given.table_start)

    def _upward_pass(
        self, block: Block, stop: int, first: int, edges: np.ndarray, scratch: _ForestScratch, linear: bool
    ) -> float:
        """Up a block. Returns the log of what was taken out, roots and all; nan where the linear range does not hold."""
        arguments = (*self._kernel_arguments(block, stop, first), edges, scratch.belief, scratch.message)
        if not linear:
            return float(forest.log_up(*arguments))
        value, ok = self._kernels.up(*arguments)
        return float(value) if ok else np.nan

    def _downward_pass(
        self, block: Block, first: int, edges: np.ndarray, scratch: _ForestScratch, linear: bool, lane: int
    ) -> None:
        """Down a block: its beliefs and tables become marginals, or the sums of shared tables grow."""
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
    """Shared tables during one call: their exponentials, 0 or nan as these are in the linear range or not, and sums by lane."""

    def __init__(self, tables: SharedTables | None, n_lanes: int) -> None:
        self.tables = tables
        if tables is not None:
            self.exponentials = tables.potentials.copy()
            self.scale = 0.0 if exp_in_place(self.exponentials) <= forest.MAX_LOG_RANGE else np.nan
            self.sums = np.zeros((n_lanes, len(tables.potentials)))


def _exponentiate_shifted(start: np.ndarray, values: np.ndarray) -> float:
    """Takes the largest value off each table and makes exponentials; what was taken in all, nan where the rest is too wide."""
    taken, ok = forest.subtract_maxima(start - start[0], values)
    exp_in_place(values)
    return float(taken) if ok else np.nan


@dataclass(frozen=True)
class _FlatTables(AbstractForestTables):
    """Log potentials and marginals that stand in flat arrays, in the order of the scopes.

    Args:
        state_indices: from positions to the nodes' arrays; see `ForestPlan.states_of`.
        table_start: where each factor's table begins.
        nodes, factors: marginals, to be filled.
    """

    plan: ForestPlan
    state_indices: np.ndarray
    table_start: np.ndarray
    potentials: Potentials
    nodes: np.ndarray
    factors: np.ndarray

    def _states_of(self, block: Block) -> np.ndarray:
        return self.state_indices[self.plan.forest.state_start[block[0]] : self.plan.forest.state_start[block[1]]]

    def node_potentials(self, block: Block, out: np.ndarray) -> None:
        out[:] = self.potentials.nodes[self._states_of(block)]

    def edge_potentials(self, block: Block, out: np.ndarray) -> None:
        forest.gather(*block, self.plan.edge, self.plan.forest.cell, self.table_start, self.potentials.factors, out)

    def store_marginals(self, block: Block, nodes: np.ndarray, edges: np.ndarray, lane: int) -> None:
        self.nodes[self._states_of(block)] = nodes
        forest.scatter(*block, self.plan.edge, self.plan.forest.cell, self.table_start, edges, self.factors)


@dataclass(frozen=True)
class ForestInference(AbstractInference):
    """Sum-product and max-product on one forest; the plan is made once and serves any potentials.

    Args:
        block_size: cells and states that are worked on at a time; trees that are larger are cut.

    Raises:
        ValueError: at the first call, where a factor has more than two nodes, or the pairs have a cycle.
    """

    scopes: Scopes
    block_size: int = BLOCK_SIZE

    @cached_property
    def plan(self) -> ForestPlan:
        return ForestPlan.from_scopes(self.scopes, self.block_size)

    @cached_property
    def _state_indices(self) -> np.ndarray:
        return self.plan.state_indices(self.scopes.state_start)

    @cached_property
    def _sweep(self) -> ForestSweep:
        return ForestSweep(self.plan)

    def _tables(self, potentials: Potentials) -> _FlatTables:
        full, whole = self.scopes.expand_agreements(potentials)
        nodes, factors = np.empty_like(whole.nodes), np.empty_like(whole.factors)
        return _FlatTables(self.plan, self._state_indices, full.table_start, whole, nodes, factors)

    def marginals(self, potentials: Potentials) -> Marginals:
        tables = self._tables(potentials)
        log_partition = self._sweep.marginals(tables)
        if log_partition == -np.inf:  # of one tree; of the others, too, nothing is probable then
            tables.nodes[:], tables.factors[:] = np.nan, np.nan
        return Marginals(log_partition, tables.nodes, self.scopes.collapse_agreements(tables.factors), Verdict("exact"))

    def map_states(self, potentials: Potentials) -> MapStates:
        score, found = self._sweep.map_states(self._tables(potentials))
        states = np.empty(self.scopes.n_nodes, dtype=np.int32)
        states[self.plan.order] = found
        return MapStates(score, states, score, Verdict("exact"))
