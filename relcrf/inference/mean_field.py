"""Mean field: the best approximation by independent nodes, or by independent blocks of nodes (generalised mean field).

Source: Jordan, Ghahramani, Jaakkola & Saul (1999); for blocks Xing, Jordan & Russell (2003), and Lao & Zhu, equation 3.
Each block's distribution is made from the expected log potentials of its factors under the distributions of the others.
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
"""Joint states up to which a block is enumerated: that costs less than a junction tree."""


@dataclass(frozen=True, eq=False)
class MeanField(AbstractInference):
    """A distribution that is a product over blocks, by coordinate ascent on a lower bound of the log partition.

    `log_partition` is that bound (the ELBO): never more than the exact one, and in sequential sweeps it never falls. The
    residual is the largest change of a probability in the last sweep; `sequential` always converges, to a local optimum.

    An impossible cell leaves a product no choice: where it has any mass, the bound is -inf. So the mass of impossible cells
    comes first, and is made as small as can be; only among the states of a block that are equally good at that do the
    other log potentials count. Where some is left at the end, a joint state that can be is searched for and the ascent
    begins anew from there; where none is found, the bound is -inf and the verdict `not converged`, with the expected
    number of broken rules as its residual.

    Args:
        blocks: the block of each node, shape (n_nodes,), integers; None makes each node its own. They are updated in
            ascending order. A block is treated exactly: by enumeration up to `MAX_ENUMERATED_STATES` joint states, and else by a junction tree.
        schedule: `sequential`, each block from the newest distributions of the others, or `parallel`, all blocks from
            those of the sweep before.
        tolerance: change of a probability at which it stops.
        max_iterations: sweeps of one start, at least one.
        restarts: further starts, drawn at random; the one with the highest bound is taken.
        seed: of these.

    Raises:
        ValueError: at the first call, for a block whose cliques are too large, and for an unknown schedule.
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
        """The blocks' most probable states one after the other, until no block's change betters the score."""
        best = self._best_ascent(potentials)
        best.ascend(hard=True)
        nodes = best.q[: int(self.scopes.state_start[-1])]
        offset = np.arange(len(nodes)) - np.repeat(self.scopes.state_start[:-1], self.scopes.cardinality)
        states = offset[nodes > 0.5].astype(np.int32)
        return MapStates(self.scopes.score(potentials, states), states, np.inf, best.verdict)

    def _best_ascent(self, potentials: Potentials) -> _MeanFieldAscent:
        """Of all starts the one that breaks the fewest rules, and of these the one with the highest bound."""
        if self.schedule not in ("sequential", "parallel"):
            raise ValueError(f"no schedule '{self.schedule}'; there are sequential and parallel")
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
        """Blocks counted from 0, ascending. Shape (n_nodes,)."""
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
        place = np.argsort(part_of, kind="stable")
        place_start = _group_offsets(part_of, len(factor))
        tables = Scopes(scopes.cardinality, place_start, scopes.node[place])  # of the parts, were they factors
        first_node = scopes.node[place[place_start[:-1]]]
        larger = np.where(tables.arity > 1, np.diff(tables.table_start), 0)
        behind = int(scopes.state_start[-1]) + np.cumsum(larger) - larger
        stride_of = np.empty_like(tables.stride)
        stride_of[place] = tables.stride
        return FactorParts(
            block_start=_group_offsets(block_of, n_blocks),
            block_node=np.argsort(block_of, kind="stable"),
            block_part_start=_group_offsets(block, n_blocks),
            block_part=np.argsort(block, kind="stable"),
            factor_start=_group_offsets(factor, scopes.n_factors),
            factor=factor,
            slot_start=place_start,
            slot=place,
            stride=tables.stride,
            diagonal=np.add.reduceat(tables.stride, place_start[:-1]),
            table_start=np.where(tables.arity > 1, behind, scopes.state_start[first_node]),
            part_of_slot=part_of,
            stride_of_slot=stride_of,
        )

    @cached_property
    def _q_size(self) -> int:
        """Length of `q`: states of all nodes, and cells of all parts of more than one."""
        parts = self._parts
        cardinality = self.scopes.cardinality[self.scopes.node[parts.slot]].astype(np.int64)
        sizes = np.multiply.reduceat(cardinality, parts.slot_start[:-1])
        return int(self.scopes.state_start[-1] + sizes[np.diff(parts.slot_start) > 1].sum())

    @cached_property
    def _update_steps(self) -> list[_JunctionTreeBlock | tuple[int, int]]:
        """Return the blocks in order: ranges of blocks to enumerate, and large ones between them."""
        parts = self._parts
        n_blocks = len(parts.block_start) - 1
        logs = np.log(self.scopes.cardinality[parts.block_node].astype(np.float64))
        totals = np.concatenate(([0.0], np.cumsum(logs)))
        size = np.exp(np.minimum(totals[parts.block_start[1:]] - totals[parts.block_start[:-1]], 100.0))
        runs: list[_JunctionTreeBlock | tuple[int, int]] = []
        first = 0
        for block in np.flatnonzero(size > MAX_ENUMERATED_STATES + 0.5):
            runs += [(first, int(block)), _JunctionTreeBlock.from_method(self, int(block))]
            first = int(block) + 1
        return [run for run in (*runs, (first, n_blocks)) if isinstance(run, _JunctionTreeBlock) or run[0] < run[1]]


class _MeanFieldAscent:
    """One start of the ascent and where it has come to."""

    def __init__(self, method: MeanField, potentials: Potentials, nodes: np.ndarray) -> None:
        """`nodes` are the distributions to begin with, flat."""
        self.method, self.potentials = method, potentials
        self.q = np.concatenate((nodes, np.empty(method._q_size - len(nodes))))
        kernel.initialise_parts(method.scopes.kernel_factors, method._parts, self.q)
        self.scratch = np.empty_like(self.q), np.empty_like(self.q), np.zeros(method.scopes.n_nodes, dtype=np.int64)
        self.entropy = np.zeros(len(method._parts.block_start) - 1)
        self.verdict = Verdict("converged")
        self.bound, self.violations = -np.inf, np.inf

    def ascend(self, hard: bool = False) -> None:
        """Sweeps until nothing changes.

        Args:
            hard: each block goes to its best joint state: coordinate ascent on the score.
        """
        method, parallel = self.method, self.method.schedule == "parallel" and not hard

        def sweep(rounds: int) -> float:
            change = 0.0
            for _ in range(rounds):
                new = self.q.copy()
                for run in method._update_steps:
                    seen = self.q if parallel else new
                    if isinstance(run, _JunctionTreeBlock):
                        run.update(self, seen, hard, new)
                    else:
                        arrays = (
                            method.scopes.kernel_factors,
                            method._parts,
                            self.potentials.nodes,
                            self.potentials.factors,
                        )
                        kernel.update_blocks(*arrays, *run, hard, seen, *self.scratch, new, self.entropy)
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
        """Lower bound of the log partition without what cannot be; expected number of broken rules."""
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
        states: where the block's nodes have their states in `q`, flat. cells: where its parts of several nodes have their cells.
    """

    block: int
    inference: JunctionTree
    states: np.ndarray
    cells: np.ndarray

    @classmethod
    def from_method(cls, method: MeanField, block: int) -> _JunctionTreeBlock:
        """Return a block of the method with its junction tree.

        Raises:
            ValueError: where the block's cliques are too large.
        """
        parts, scopes = method._parts, method.scopes
        nodes = parts.block_node[parts.block_start[block] : parts.block_start[block + 1]]
        mine = parts.block_part[parts.block_part_start[block] : parts.block_part_start[block + 1]]
        arity = np.diff(parts.slot_start)[mine]
        mine, arity = mine[arity > 1], arity[arity > 1]
        places = parts.slot[entries_of_runs(parts.slot_start, mine)]
        inside = Scopes(scopes.cardinality[nodes], offsets(arity), np.searchsorted(nodes, scopes.node[places]))
        inference = JunctionTree(inside)
        try:
            inference.clique_tree.check_memory()
        except CliqueTooLargeError as error:
            name = block if method.blocks is None else np.unique(method.blocks)[block]
            raise UnsupportedGraphError(f"block {name} of {len(nodes)} nodes is too large: {error}") from None
        sizes = np.diff(inside.table_start)
        cells = np.repeat(parts.table_start[mine] - inside.table_start[:-1], sizes) + np.arange(sizes.sum())
        return cls(block, inference, entries_of_runs(scopes.state_start, nodes), cells)

    def update(self, ascent: _MeanFieldAscent, source: np.ndarray, hard: bool, out: np.ndarray) -> None:
        """The block's new distribution; a best state of it where `hard`, or where every one breaks a rule."""
        method, potentials = ascent.method, ascent.potentials
        field, broken, _ = ascent.scratch
        arrays = (method.scopes.kernel_factors, method._parts, potentials.nodes, potentials.factors)
        scratch = np.empty((2, max_arity(method.scopes.kernel_factors)), dtype=np.int64)
        kernel.compute_fields(*arrays, self.block, source, *scratch, field, broken)
        rules, given = (Potentials(flat[self.states], flat[self.cells]) for flat in (broken, field))
        given.nodes[rules.nodes > 0.0] = -np.inf
        given.factors[rules.factors > 0.0] = -np.inf
        best = self.inference.map_states(given)
        if hard or best.score == -np.inf:
            if best.score == -np.inf:
                best = self.inference.map_states(Potentials(-rules.nodes, -rules.factors))
            scopes = self.inference.scopes
            nodes, tables = np.zeros(len(given.nodes)), np.zeros(len(given.factors))
            nodes[scopes.state_start[:-1] + best.states] = 1.0
            tables[scopes.cells(best.states)] = 1.0
            entropy = 0.0
        else:
            found = self.inference.marginals(given)
            nodes, tables = found.nodes, found.factors
            energy = sum(float(p[p > 0.0] @ t[p > 0.0]) for p, t in ((nodes, given.nodes), (tables, given.factors)))
            entropy = found.log_partition - energy
        out[self.states], out[self.cells] = nodes, tables
        ascent.entropy[self.block] = entropy


def _group_offsets(group: np.ndarray, n_groups: int) -> np.ndarray:
    """Where each group begins once its members stand together, shape (n_groups + 1,)."""
    return offsets(np.bincount(group, minlength=n_groups))


def _softmax(scopes: Scopes, values: np.ndarray) -> np.ndarray:
    """Each node's distribution by flat log potentials; uniform where it has no possible state."""
    top = np.maximum.reduceat(values, scopes.state_start[:-1])
    with np.errstate(invalid="ignore"):
        p = np.exp(values - np.repeat(top, scopes.cardinality))
    p[np.isnan(p)] = 1.0
    return np.asarray(p / np.repeat(np.add.reduceat(p, scopes.state_start[:-1]), scopes.cardinality))
