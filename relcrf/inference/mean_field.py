"""Mean field: approximation by a product of independent nodes, or of independent blocks of nodes (generalised mean field).

Source: Jordan, Ghahramani, Jaakkola & Saul (1999); Xing, Jordan & Russell (2003), and Lao & Zhu, equation 3, for blocks.
The log probability of a block's joint state is, up to a constant, the expected log potential of the block's factors under the
distributions of the other blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from relcrf.columns.offsets import entries_of_runs, offsets
from relcrf.graph.scopes import Potentials, Scopes
from relcrf.inference.clique_tree import CliqueTooLargeError
from relcrf.inference.coordinate_ascent import find_feasible_states, independent_states
from relcrf.inference.iteration import iterate
from relcrf.inference.junction_tree import JunctionTree
from relcrf.inference.result import (
    AbstractInference,
    MapStates,
    Marginals,
    Observer,
    UnsupportedGraphError,
    Verdict,
    ignore_progress,
)
from relcrf.kernels import mean_field as kernel
from relcrf.kernels.factors import max_arity
from relcrf.kernels.mean_field import FactorParts

MAX_ENUMERATED_STATES = 1 << 12
"""Maximum number of joint states of an enumerated block; for larger blocks a junction tree is faster."""

MAX_BLOCK_CELLS = 1 << 27
"""Maximum number of cells of a block's cliques; 2**27 cells take about two seconds per update of the block."""


@dataclass(frozen=True, eq=False)
class MeanField(AbstractInference):
    """Generalised mean field: a product distribution over blocks, by coordinate ascent on the evidence lower bound (ELBO).

    `log_partition` is the ELBO. The ELBO is never larger than the exact value, and does not decrease in sequential sweeps. The
    residual is the largest change of a probability in the last sweep. The `sequential` schedule converges to a local optimum.

    The ELBO is -inf if any rule (a cell with log potential -inf) has probability mass. The ascent therefore first minimises the
    mass of these cells, i.e. the expected number of violated rules, and uses the other log potentials to break ties. If mass
    remains, the ascent searches for a possible joint state and restarts from this state. If the search fails, the ELBO is -inf
    and the verdict is `not converged`, with the expected number of violations as residual.

    Args:
        blocks: Block of each node, integers, shape (n_nodes,); None makes each node a block. Blocks are updated in ascending
            order. Inference within a block is exact: by enumeration for up to `MAX_ENUMERATED_STATES` joint states, and by a
            junction tree for more.
        schedule: `sequential` updates each block given the latest distributions of the other blocks; `parallel` updates all
            blocks given the distributions of the previous sweep.
        tolerance: Change of a probability at which the ascent has converged.
        max_iterations: Maximum number of sweeps per start, at least 1.
        restarts: Number of additional random starts; the result with the highest ELBO is returned.
        seed: Seed of the random starts.
        observe: Callback that receives the current verdict after each sweep.

    Raises:
        ValueError: At the first call, if the cliques of a block are too large or the schedule is unknown.
    """

    scopes: Scopes
    blocks: np.ndarray | None = None
    schedule: str = "sequential"
    tolerance: float = 1e-6
    max_iterations: int = 1000
    restarts: int = 0
    seed: int = 0
    observe: Observer = field(default=ignore_progress)

    def marginals(self, potentials: Potentials) -> Marginals:
        best = self._best_ascent(potentials)
        tables = np.empty(int(self.scopes.table_start[-1]))
        kernel.compute_marginals(self.scopes.kernel_factors, self._parts, potentials.factors, best.q, tables)
        bound = best.bound if best.violations == 0.0 else -np.inf
        return Marginals(bound, best.q[: int(self.scopes.state_start[-1])].copy(), tables, best.verdict)

    def map_states(self, potentials: Potentials) -> MapStates:
        """Maximise the score by coordinate ascent over the states of whole blocks, starting from the marginals."""
        best = self._best_ascent(potentials)
        best.ascend(hard=True)
        nodes = best.q[: int(self.scopes.state_start[-1])]
        offset = np.arange(len(nodes)) - np.repeat(self.scopes.state_start[:-1], self.scopes.cardinality)
        states = offset[nodes > 0.5].astype(np.int32)
        return MapStates(self.scopes.score(potentials, states), states, np.inf, best.verdict)

    def _best_ascent(self, potentials: Potentials) -> _MeanFieldAscent:
        """Return the ascent with the fewest expected violations among all starts; ties are broken by the highest ELBO."""
        if self.schedule not in ("sequential", "parallel"):
            raise ValueError(f"unknown schedule '{self.schedule}'; use sequential or parallel")
        rng = np.random.default_rng(self.seed)
        best = _MeanFieldAscent(self, potentials, _softmax(self.scopes, potentials.nodes))
        best.ascend()
        for start in range(self.restarts + 1):
            if best.verdict.status == "interrupted":
                break
            if start < self.restarts:
                nodes = _softmax(self.scopes, potentials.nodes + rng.gumbel(size=len(potentials.nodes)))
            elif best.violations > 0.0:
                states, _ = find_feasible_states(
                    self.scopes.kernel_factors, potentials, independent_states(self.scopes, potentials), rng
                )
                nodes = np.zeros(len(potentials.nodes))
                nodes[self.scopes.state_start[:-1] + states] = 1.0
            else:
                break
            other = _MeanFieldAscent(self, potentials, nodes)
            other.ascend()
            if (other.violations, -other.bound) < (best.violations, -best.bound):
                best = other
            elif other.verdict.status == "interrupted":
                best.verdict = other.verdict
        return best

    @cached_property
    def _block_index(self) -> np.ndarray:
        """Return the block of each node, renumbered from 0, shape (n_nodes,)."""
        if self.blocks is None:
            return np.arange(self.scopes.n_nodes)
        return np.unique(self.blocks, return_inverse=True)[1]

    @cached_property
    def _parts(self) -> FactorParts:
        scopes, block_of = self.scopes, self._block_index
        n_blocks = int(block_of.max(initial=-1)) + 1
        key = self.scopes.kernel_factors.factor * max(1, n_blocks) + block_of[scopes.node]
        distinct, part_of = np.unique(key, return_inverse=True)
        factor, block = distinct // max(1, n_blocks), distinct % max(1, n_blocks)
        slot = np.argsort(part_of, kind="stable")
        slot_start = _group_offsets(part_of, len(factor))
        # The tables of parts have the same layout as factor tables.
        tables = Scopes(scopes.cardinality, slot_start, scopes.node[slot])
        first_node = scopes.node[slot[slot_start[:-1]]]
        larger = np.where(tables.arity > 1, np.diff(tables.table_start), 0)
        table_offset = int(scopes.state_start[-1]) + np.cumsum(larger) - larger
        stride_of = np.empty_like(tables.stride)
        stride_of[slot] = tables.stride
        return FactorParts(
            block_start=_group_offsets(block_of, n_blocks),
            block_node=np.argsort(block_of, kind="stable"),
            block_part_start=_group_offsets(block, n_blocks),
            block_part=np.argsort(block, kind="stable"),
            factor_start=_group_offsets(factor, scopes.n_factors),
            factor=factor,
            slot_start=slot_start,
            slot=slot,
            stride=tables.stride,
            diagonal=np.add.reduceat(tables.stride, slot_start[:-1]),
            table_start=np.where(tables.arity > 1, table_offset, scopes.state_start[first_node]),
            part_of_slot=part_of,
            stride_of_slot=stride_of,
        )

    @cached_property
    def _q_size(self) -> int:
        """Return the length of `q`, which has an entry for each state of a node and each cell of a part with several nodes.

        A part is the set of nodes of one factor that are in one block; see `FactorParts`.
        """
        parts = self._parts
        cardinality = self.scopes.cardinality[self.scopes.node[parts.slot]].astype(np.int64)
        sizes = np.multiply.reduceat(cardinality, parts.slot_start[:-1])
        return int(self.scopes.state_start[-1] + sizes[np.diff(parts.slot_start) > 1].sum())

    @cached_property
    def _update_steps(self) -> list[_JunctionTreeBlock | tuple[int, int]]:
        """Return the updates of a sweep in order: ranges of blocks to enumerate, and single large blocks."""
        parts = self._parts
        n_blocks = len(parts.block_start) - 1
        logs = np.log(self.scopes.cardinality[parts.block_node].astype(np.float64))
        totals = np.concatenate(([0.0], np.cumsum(logs)))
        size = np.exp(np.minimum(totals[parts.block_start[1:]] - totals[parts.block_start[:-1]], 100.0))
        steps: list[_JunctionTreeBlock | tuple[int, int]] = []
        first = 0
        for block in np.flatnonzero(size > MAX_ENUMERATED_STATES + 0.5):
            steps += [(first, int(block)), _JunctionTreeBlock.from_method(self, int(block))]
            first = int(block) + 1
        return [
            step for step in (*steps, (first, n_blocks)) if isinstance(step, _JunctionTreeBlock) or step[0] < step[1]
        ]


class _MeanFieldAscent:
    """The state of the ascent from one start."""

    def __init__(self, method: MeanField, potentials: Potentials, nodes: np.ndarray) -> None:
        """Initialise the ascent; `nodes` contains the initial distributions of the nodes, concatenated."""
        self.method, self.potentials = method, potentials
        self.q = np.concatenate((nodes, np.empty(method._q_size - len(nodes))))
        kernel.initialise_parts(method.scopes.kernel_factors, method._parts, self.q)
        self.scratch = np.empty_like(self.q), np.empty_like(self.q), np.zeros(method.scopes.n_nodes, dtype=np.int64)
        self.entropy = np.zeros(len(method._parts.block_start) - 1)
        self.verdict = Verdict("converged")
        self.bound, self.violations = -np.inf, np.inf

    def ascend(self, hard: bool = False) -> None:
        """Sweep until convergence.

        Args:
            hard: Whether to set each block to its best joint state, which is coordinate ascent on the score.
        """
        method, parallel = self.method, self.method.schedule == "parallel" and not hard

        def sweep(rounds: int) -> float:
            change = 0.0
            for _ in range(rounds):
                new = self.q.copy()
                for step in method._update_steps:
                    source = self.q if parallel else new
                    if isinstance(step, _JunctionTreeBlock):
                        step.update(self, source, hard, new)
                    else:
                        arrays = (
                            method.scopes.kernel_factors,
                            method._parts,
                            self.potentials.nodes,
                            self.potentials.factors,
                        )
                        kernel.update_blocks(*arrays, *step, hard, source, *self.scratch, new, self.entropy)
                change = float(np.abs(new - self.q).max(initial=0.0))
                self.q = new
            return change

        verdict = iterate(sweep, method.tolerance, max(1, method.max_iterations), method.observe)
        if hard:
            return
        self.bound, self.violations = self._bound()
        if self.violations > 0.0 and verdict.status == "converged":
            verdict = Verdict("not converged", verdict.iterations, self.violations)
        self.verdict = verdict

    def _bound(self) -> tuple[float, float]:
        """Return the ELBO without the terms of impossible cells, and the expected number of violated rules."""
        method, potentials = self.method, self.potentials
        tables = np.empty(int(method.scopes.table_start[-1]))
        energy, broken = kernel.compute_marginals(
            method.scopes.kernel_factors, method._parts, potentials.factors, self.q, tables
        )
        nodes = self.q[: len(potentials.nodes)]
        possible = potentials.nodes > -np.inf
        energy += float(nodes[possible] @ potentials.nodes[possible])
        return energy + float(self.entropy.sum()), broken + float(nodes[~possible].sum())


@dataclass(frozen=True, eq=False)
class _JunctionTreeBlock:
    """A block whose joint distribution is inferred by a junction tree.

    Args:
        block: Index of the block.
        inference: Junction tree of the block.
        states: Indices in `q` of the states of the block's nodes.
        cells: Indices in `q` of the cells of the block's parts with several nodes; see `FactorParts`.
    """

    block: int
    inference: JunctionTree
    states: np.ndarray
    cells: np.ndarray

    @classmethod
    def from_method(cls, method: MeanField, block: int) -> _JunctionTreeBlock:
        """Build a block of the method with its junction tree.

        Raises:
            UnsupportedGraphError: A ValueError, if the block's cliques are too large.
        """
        parts, scopes = method._parts, method.scopes
        nodes = parts.block_node[parts.block_start[block] : parts.block_start[block + 1]]
        own_parts = parts.block_part[parts.block_part_start[block] : parts.block_part_start[block + 1]]
        arity = np.diff(parts.slot_start)[own_parts]
        own_parts, arity = own_parts[arity > 1], arity[arity > 1]
        slots = parts.slot[entries_of_runs(parts.slot_start, own_parts)]
        block_scopes = Scopes(scopes.cardinality[nodes], offsets(arity), np.searchsorted(nodes, scopes.node[slots]))
        inference = JunctionTree(block_scopes, max_cells=MAX_BLOCK_CELLS)
        try:
            inference.clique_tree.check_limits()
        except CliqueTooLargeError as error:
            name = block if method.blocks is None else np.unique(method.blocks)[block]
            raise UnsupportedGraphError(f"block {name} of {len(nodes)} nodes is too large: {error}") from None
        sizes = np.diff(block_scopes.table_start)
        cells = np.repeat(parts.table_start[own_parts] - block_scopes.table_start[:-1], sizes) + np.arange(sizes.sum())
        return cls(block, inference, entries_of_runs(scopes.state_start, nodes), cells)

    def update(self, ascent: _MeanFieldAscent, source: np.ndarray, hard: bool, out: np.ndarray) -> None:
        """Write the block's new distribution to `out`.

        The distribution is concentrated on a best joint state if `hard` is True or if every joint state violates a rule.
        """
        method, potentials = ascent.method, ascent.potentials
        field, violation_field, _ = ascent.scratch
        arrays = (method.scopes.kernel_factors, method._parts, potentials.nodes, potentials.factors)
        index_scratch = np.empty((2, max_arity(method.scopes.kernel_factors)), dtype=np.int64)
        kernel.compute_fields(*arrays, self.block, source, *index_scratch, field, violation_field)
        violations, block_potentials = (
            Potentials(flat[self.states], flat[self.cells]) for flat in (violation_field, field)
        )
        block_potentials.nodes[violations.nodes > 0.0] = -np.inf
        block_potentials.factors[violations.factors > 0.0] = -np.inf
        best = self.inference.map_states(block_potentials)
        if hard or best.score == -np.inf:
            if best.score == -np.inf:
                best = self.inference.map_states(Potentials(-violations.nodes, -violations.factors))
            scopes = self.inference.scopes
            nodes, tables = np.zeros(len(block_potentials.nodes)), np.zeros(len(block_potentials.factors))
            nodes[scopes.state_start[:-1] + best.states] = 1.0
            tables[scopes.cells(best.states)] = 1.0
            entropy = 0.0
        else:
            marginals = self.inference.marginals(block_potentials)
            nodes, tables = marginals.nodes, marginals.factors
            energy = sum(float(p[p > 0.0] @ t[p > 0.0]) for p, t in zip((nodes, tables), block_potentials, strict=True))
            entropy = marginals.log_partition - energy
        out[self.states], out[self.cells] = nodes, tables
        ascent.entropy[self.block] = entropy


def _group_offsets(group: np.ndarray, n_groups: int) -> np.ndarray:
    """Return the offset of each group in an array of members sorted by group, shape (n_groups + 1,)."""
    return offsets(np.bincount(group, minlength=n_groups))


def _softmax(scopes: Scopes, values: np.ndarray) -> np.ndarray:
    """Return each node's distribution from flat log potentials; a node without possible states has a uniform distribution."""
    top = np.maximum.reduceat(values, scopes.state_start[:-1])
    with np.errstate(invalid="ignore"):
        p = np.exp(values - np.repeat(top, scopes.cardinality))
    p[np.isnan(p)] = 1.0
    return np.asarray(p / np.repeat(np.add.reduceat(p, scopes.state_start[:-1]), scopes.cardinality))
