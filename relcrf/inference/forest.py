"""Exact inference where the factors are pairs that form a forest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numba
import numpy as np

from relcrf.graph.scopes import Potentials, Scopes
from relcrf.inference.result import AbstractInference, MapStates, Marginals, Verdict
from relcrf.kernels import forest
from relcrf.kernels.vector_math import exp_in_place, exp_into, largest_magnitude

BLOCK = 1 << 16
"""Cells and states that are worked on at a time: half a megabyte, which stays in a core's cache on the way up and down."""

LANES = 8
"""Runs of blocks that threads share out. Their sums are added in order, so that no bit depends on the number of threads."""

Source = Callable[[int, int, np.ndarray], None]
"""Writes the log potentials of the edges above positions lo..hi-1, flat, into an array."""

Sink = Callable[[int, int, np.ndarray, int], None]
"""Takes the marginals of these edges, flat, and the lane that they come from: two lanes may call it at the same time."""


@dataclass(frozen=True, eq=False)
class ForestPlan:
    """A forest laid out for sweeps; see `kernels/forest.py`. All arrays go by position, children before parents.

    Args:
        order: the node at each position, shape (n,), int32.
        parent: position of the parent, -1 at roots.
        edge: the factor between the two, -1 at roots.
        parent_first: whether the parent stands first in it.
        cardinality: shape (n,), int32.
        whole, hanging, spine: blocks of whole trees, of subtrees that hang on a spine, and of spines.
        roots: positions of the hanging subtrees' roots.
    """

    order: np.ndarray
    parent: np.ndarray
    edge: np.ndarray
    parent_first: np.ndarray
    cardinality: np.ndarray
    whole: tuple[tuple[int, int], ...]
    hanging: tuple[tuple[int, int], ...]
    spine: tuple[tuple[int, int], ...]
    roots: np.ndarray

    @classmethod
    def of(cls, scopes: Scopes, block: int = BLOCK) -> ForestPlan:
        """The plan of a forest.

        Raises:
            ValueError: where a factor has more than two nodes, or the pairs have a cycle.
        """
        if (scopes.arity != 2).any():
            raise ValueError("a factor has more than two nodes; forest inference needs pairs")
        edges = scopes.node.reshape(-1, 2)
        found, parent_of, edge_of, is_forest = forest.topological_order(scopes.n_nodes, edges)
        if not is_forest:
            raise ValueError("the edges have a cycle; forest inference needs a forest")
        order, runs, n_whole, _ = forest.layout(found, parent_of, scopes.cardinality, block)
        position = np.empty(scopes.n_nodes, dtype=np.int32)
        position[order] = np.arange(scopes.n_nodes, dtype=np.int32)
        edge = edge_of[order]
        parent = np.where(edge >= 0, position[parent_of[order]], np.int32(-1))
        cardinality = scopes.cardinality[order]
        above = np.where(edge >= 0, cardinality[parent], np.int32(0))
        cost = np.concatenate(([0], np.cumsum(cardinality * (1 + above.astype(np.int64)))))
        spine = np.arange(runs[-1], scopes.n_nodes + 1)
        whole, hanging, cut = (
            tuple(pairwise(forest.group_runs(starts, cost, block).tolist()))
            for starts in (runs[: n_whole + 1], runs[n_whole:], spine)
        )
        parent_first = np.zeros(scopes.n_nodes, dtype=np.bool_)
        joined = np.flatnonzero(edge >= 0)
        parent_first[joined] = edges[edge[joined], 1] == order[joined]
        roots = runs[n_whole + 1 :] - 1  # the last position of a run
        return cls(order, parent, edge, parent_first, cardinality, whole, hanging, cut, roots)

    @property
    def n(self) -> int:
        return len(self.order)

    @cached_property
    def state_start(self) -> np.ndarray:
        """Where each position's states begin in flat node tables, shape (n + 1,)."""
        return np.concatenate(([0], np.cumsum(self.cardinality, dtype=np.int64)))

    @cached_property
    def _above(self) -> np.ndarray:
        return np.where(self.parent >= 0, self.cardinality[self.parent], np.int32(0)).astype(np.int64)

    @cached_property
    def message_start(self) -> np.ndarray:
        """Where the message to each position's parent begins, shape (n + 1,)."""
        return np.concatenate(([0], np.cumsum(self._above)))

    @cached_property
    def cell(self) -> np.ndarray:
        """Where each position's table would begin if all stood one after the other, shape (n + 1,)."""
        return np.concatenate(([0], np.cumsum(self._above * self.cardinality)))

    @cached_property
    def geometry(self) -> tuple[np.ndarray, ...]:
        """What the kernels ask for."""
        parts = (self.parent, self.parent_first, self.cardinality, self.state_start, self.message_start, self.cell)
        return tuple(np.ascontiguousarray(part) for part in parts)

    def states_of(self, start: np.ndarray) -> np.ndarray:
        """Indices that bring flat node tables, whose nodes begin at `start`, into the order of positions."""
        return np.repeat(start[self.order] - self.state_start[:-1], self.cardinality) + np.arange(
            int(self.state_start[-1])
        )


class ForestSweep:
    """Up and down a forest, for tables that are made when they are needed and handed on as soon as they are done.

    Its buffers serve one call after another: what they cost in page faults, new ones would cost each time. So one sweep
    is not for two threads, and what it returns is gone with the next call.
    """

    def __init__(self, plan: ForestPlan) -> None:
        self._plan = plan
        self._nodes = np.empty(0)
        self._source: Source = lambda lo, hi, out: None
        self._belief = np.empty(int(plan.state_start[-1]))
        self._message = np.empty(int(plan.message_start[-1]))
        blocks = (*plan.whole, *plan.hanging, *plan.spine)
        largest = max((int(plan.cell[hi] - plan.cell[lo]) for lo, hi in blocks), default=0)
        self._scratch = [np.empty(largest) for _ in range(LANES if len(blocks) >= LANES else 1)]

    def marginals(self, nodes: np.ndarray, source: Source, sink: Sink) -> tuple[float, np.ndarray]:
        """The log partition, and the marginals of all nodes by position, flat.

        Args:
            nodes: log potentials by position, flat.
        """
        plan = self._plan
        self._nodes, self._source = nodes, source
        total = self._each(plan.whole, lambda block, lane: self._tree(block, sink, lane))
        if plan.spine:
            total += self._cut_trees(sink)
        return total, self._belief

    def map_states(self, nodes: np.ndarray, source: Source) -> tuple[float, np.ndarray]:
        """The best score, and its states by position, shape (n,), int32."""
        plan, geometry = self._plan, self._plan.geometry
        self._nodes, self._source = nodes, source
        choice = np.empty(int(plan.message_start[-1]), dtype=np.int32)
        states = np.empty(plan.n, dtype=np.int32)

        def climb(block: tuple[int, int], stop: int, lane: int) -> None:
            lo, hi = block
            tables = self._log_tables(block, lane)
            forest.max_up(lo, hi, stop, *geometry, tables, self._belief, self._message, choice)

        def descend(block: tuple[int, int]) -> float:
            lo, hi = block
            starts = plan.parent, plan.state_start, plan.message_start
            return float(forest.max_down(lo, hi, *starts, self._belief, choice, states))

        def tree(block: tuple[int, int], lane: int) -> float:
            self._open(block, linear=False)
            climb(block, block[1], lane)
            return descend(block)

        def branch(block: tuple[int, int], lane: int) -> float:
            self._open(block, linear=False)
            climb(block, block[1], lane)
            return 0.0

        score = self._each(plan.whole, tree)
        if plan.spine:
            self._each(plan.hanging, branch)
            for block in plan.spine:
                self._open(block, linear=False)
            starts = plan.parent, plan.state_start, plan.message_start
            forest.log_absorb_roots(plan.roots, *starts, self._belief, self._message)
            for block in plan.spine:
                climb(block, plan.n, 0)
            score += sum(descend(block) for block in reversed(plan.spine))
            self._each(plan.hanging, lambda block, lane: descend(block))
        return score, states

    def _tree(self, block: tuple[int, int], sink: Sink, lane: int) -> float:
        """Whole trees, up and down while their tables are in the cache."""
        lo, hi = block
        for linear in (True, False):
            scale, ok = self._open(block, linear)
            if ok:
                tables, shifted, ok = self._tables(block, linear, lane)
            if not ok:
                continue
            value, ok = self._up(block, hi, tables, linear)
            if ok:
                self._down(block, tables, linear)
                sink(lo, hi, tables, lane)
                return scale + shifted + value
        raise AssertionError("the log domain refuses nothing")

    def _cut_trees(self, sink: Sink) -> float:
        """Trees with a spine: up the hanging subtrees, up and down the spine, and down the subtrees."""
        linear = True
        total = self._climb_cut_trees(linear)
        if total is None:
            linear = False
            total = self._climb_cut_trees(linear)
        assert total is not None

        def descend(block: tuple[int, int], lane: int) -> float:
            tables, _, _ = self._tables(block, linear, lane)
            self._down(block, tables, linear)
            sink(*block, tables, lane)
            return 0.0

        for block in reversed(self._plan.spine):
            descend(block, 0)
        self._each(self._plan.hanging, descend)
        return total

    def _climb_cut_trees(self, linear: bool) -> float | None:
        """The log partition; None where the linear range does not hold."""
        plan = self._plan

        def climb(block: tuple[int, int], stop: int, lane: int) -> float:
            tables, shifted, ok = self._tables(block, linear, lane)
            value, good = self._up(block, stop, tables, linear) if ok else (0.0, False)
            return shifted + value if good else np.nan

        def branch(block: tuple[int, int], lane: int) -> float:
            scale, ok = self._open(block, linear)
            return scale + climb(block, block[1], lane) if ok else np.nan

        total = self._each(plan.hanging, branch)
        for block in plan.spine:
            scale, ok = self._open(block, linear)
            total += scale if ok else np.nan
        if linear and np.isnan(total):
            return None
        starts = plan.parent, plan.state_start, plan.message_start
        if linear:
            scale, ok = forest.absorb_roots(plan.roots, *starts, self._belief, self._message)
            total += scale if ok else np.nan
        else:
            forest.log_absorb_roots(plan.roots, *starts, self._belief, self._message)
        for block in plan.spine:
            if linear and np.isnan(total):
                return None
            total += climb(block, plan.n, 0)
        return None if linear and np.isnan(total) else total

    def _each(self, blocks: tuple[tuple[int, int], ...], work: Callable[[tuple[int, int], int], float]) -> float:
        """Does all blocks, on as many threads as Numba may use; the sum of what they give, added in their order."""
        if not blocks:
            return 0.0
        bounds = np.linspace(0, len(blocks), LANES + 1).astype(int)
        lanes = [(lane, blocks[a:b]) for lane, (a, b) in enumerate(pairwise(bounds.tolist())) if a < b]

        def run(lane: tuple[int, Iterable[tuple[int, int]]]) -> list[float]:
            return [work(block, lane[0]) for block in lane[1]]

        n_threads = min(numba.config.NUMBA_NUM_THREADS, len(lanes))
        if n_threads == 1 or len(blocks) < LANES:
            return float(sum(work(block, 0) for block in blocks))
        with ThreadPoolExecutor(n_threads) as pool:
            return float(sum(value for found in pool.map(run, lanes) for value in found))

    def _open(self, block: tuple[int, int], linear: bool) -> tuple[float, bool]:
        """Beliefs of a block before any message. Returns the log of what was taken out; whether the linear range holds."""
        start = self._plan.state_start[block[0] : block[1] + 1]
        nodes, belief = self._nodes[start[0] : start[-1]], self._belief[start[0] : start[-1]]
        if not linear:
            belief[:] = nodes
            return 0.0, True
        if largest_magnitude(nodes) <= forest.WIDE:
            exp_into(nodes, belief)
            return 0.0, True
        belief[:] = nodes
        scale, ok = forest.shift(start - start[0], belief)
        exp_in_place(belief)
        return scale, ok

    def _log_tables(self, block: tuple[int, int], lane: int) -> np.ndarray:
        tables = self._scratch[lane][: int(self._plan.cell[block[1]] - self._plan.cell[block[0]])]
        self._source(*block, tables)
        return tables

    def _tables(self, block: tuple[int, int], linear: bool, lane: int) -> tuple[np.ndarray, float, bool]:
        """A block's tables; linear ones with the log of what was taken out, and whether their range holds."""
        tables = self._log_tables(block, lane)
        if not linear:
            return tables, 0.0, True
        scale, ok = 0.0, True
        if largest_magnitude(tables) > forest.WIDE:
            start = self._plan.cell[block[0] : block[1] + 1]
            scale, ok = forest.shift(start - start[0], tables)
        exp_in_place(tables)
        return tables, scale, ok

    def _up(self, block: tuple[int, int], stop: int, tables: np.ndarray, linear: bool) -> tuple[float, bool]:
        arguments = (*block, stop, *self._plan.geometry, tables, self._belief, self._message)
        if linear:
            value, ok = forest.up(*arguments)
            return float(value), bool(ok)
        return float(forest.log_up(*arguments)), True

    def _down(self, block: tuple[int, int], tables: np.ndarray, linear: bool) -> None:
        sweep = forest.down if linear else forest.log_down
        sweep(*block, *self._plan.geometry, tables, self._belief, self._message)


@dataclass(frozen=True)
class ForestInference(AbstractInference):
    """Sum-product and max-product on one forest; the plan is made once and serves any potentials.

    Args:
        block: cells and states that are worked on at a time; trees that are larger are cut.

    Raises:
        ValueError: at the first call, where a factor has more than two nodes, or the pairs have a cycle.
    """

    scopes: Scopes
    block: int = BLOCK

    @cached_property
    def plan(self) -> ForestPlan:
        return ForestPlan.of(self.scopes, self.block)

    @cached_property
    def _states(self) -> np.ndarray:
        return self.plan.states_of(self.scopes.state_start)

    @cached_property
    def _sweep(self) -> ForestSweep:
        return ForestSweep(self.plan)

    def _source(self, table_start: np.ndarray, factors: np.ndarray) -> Source:
        plan = self.plan
        return lambda lo, hi, out: forest.gather(lo, hi, plan.edge, plan.cell, table_start, factors, out)

    def marginals(self, potentials: Potentials) -> Marginals:
        plan = self.plan
        full, whole = self.scopes.full(potentials)
        nodes, factors = np.empty(len(whole.nodes)), np.empty(len(whole.factors))

        def sink(lo: int, hi: int, tables: np.ndarray, lane: int) -> None:
            forest.scatter(lo, hi, plan.edge, plan.cell, full.table_start, tables, factors)

        source = self._source(full.table_start, whole.factors)
        log_partition, found = self._sweep.marginals(whole.nodes[self._states], source, sink)
        nodes[self._states] = found
        return Marginals(log_partition, nodes, self.scopes.of_full(factors), Verdict("exact"))

    def map_states(self, potentials: Potentials) -> MapStates:
        full, whole = self.scopes.full(potentials)
        source = self._source(full.table_start, whole.factors)
        score, found = self._sweep.map_states(whole.nodes[self._states], source)
        states = np.empty(self.scopes.n_nodes, dtype=np.int32)
        states[self.plan.order] = found
        return MapStates(score, states, score, Verdict("exact"))
