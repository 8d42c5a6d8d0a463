"""Gibbs sampling: marginals of graphs with cycles and factors of any size, by chains that visit joint states.

Source: Geman & Geman (1984). Marginals are averages of the conditionals and not of the states (Rao-Blackwell).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from relcrf.graph.blanket import nodes_alone
from relcrf.graph.factor_graph import FactorGraph
from relcrf.graph.reduction import ReducedGraph, Role, reduce_graph
from relcrf.inference.result import Verdict
from relcrf.kernels import gibbs

MAX_CELLS = 1 << 27
"""Cells of all factor tables together: a gigabyte."""


@dataclass(frozen=True)
class GibbsSampler:
    """Chains on the free variables of a graph, all others clamped or absent.

    Args:
        roles, states: as in `reduce_graph`.
        sweeps: of each chain that count; a fifth as many come before them and do not.
        chains: the first starts where each variable alone is best, the others at what each alone would draw.
        seed: of all random numbers.
    """

    graph: FactorGraph
    roles: np.ndarray
    states: np.ndarray
    sweeps: int = 200
    chains: int = 4
    seed: int = 0

    @cached_property
    def nodes(self) -> ReducedGraph:
        """The free variables; what the marginals are of."""
        return nodes_alone(self.graph, self.roles)

    def run(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, Verdict]:
        """Marginals, flat as node tables; the best joint state found, shape (n_nodes,); and how far chains disagree.

        The verdict is `converged` where no marginal of a chain is further than 0.1 from the mean of all chains.

        Raises:
            ValueError: where the tables of the factors have more than `MAX_CELLS` cells.
        """
        nodes, order = self.nodes, self.nodes.variables
        tables = self._tables(weights)
        rng = np.random.default_rng(self.seed)
        largest = int(nodes.cardinality.max(initial=1))
        means, best, best_score = [], np.zeros(len(order), dtype=np.int64), -np.inf
        for chain in range(self.chains):
            states = np.maximum(self.states, 0).astype(np.int64)
            states[order] = self._start(weights, rng if chain else None)
            gibbs.ascend(100, order, states, self.graph.cardinality, largest, *tables)
            mass = np.zeros(int(nodes.state_start[-1]))
            self._advance(max(1, self.sweeps // 5), rng, states, largest, tables, mass)
            mass[:] = 0.0
            self._advance(self.sweeps, rng, states, largest, tables, mass)
            means.append(mass / self.sweeps)
            gibbs.ascend(100, order, states, self.graph.cardinality, largest, *tables)
            score = _score(states, tables)
            if score > best_score:
                best, best_score = states[order].copy(), score
        marginals = np.mean(means, axis=0)
        residual = float(np.abs(np.array(means) - marginals).max(initial=0.0))
        status = "converged" if residual < 0.1 else "not converged"
        return marginals, best.astype(np.int32), Verdict(status, self.chains * self.sweeps, residual)

    def _start(self, weights: np.ndarray, rng: np.random.Generator | None) -> np.ndarray:
        """States by the factors over one variable alone: the best, or a draw. Far from all sense a chain may stay there."""
        unary = tuple(group for group in self.graph.groups if len(group.scope) == 1)
        alone = reduce_graph(FactorGraph(self.graph.cardinality, unary, self.graph.layout), self.roles, self.states)
        scores = alone.node_log_potentials(weights)
        if rng is not None:
            scores = scores + rng.gumbel(size=len(scores))  # the best of these is a draw (Gumbel 1954)
        states = np.empty(alone.n_nodes, dtype=np.int64)
        for size in np.unique(alone.cardinality):
            nodes = np.flatnonzero(alone.cardinality == size)
            states[nodes] = scores[alone.state_start[nodes, None] + np.arange(size)].argmax(axis=1)
        return states

    def _advance(
        self,
        n: int,
        rng: np.random.Generator,
        states: np.ndarray,
        largest: int,
        tables: tuple[np.ndarray, ...],
        mass: np.ndarray,
    ) -> None:
        nodes = self.nodes
        step = max(1, (1 << 22) // max(1, nodes.n_nodes))  # random numbers that are held at a time
        for start in range(0, n, step):
            uniform = rng.random((min(step, n - start), nodes.n_nodes))
            gibbs.sweeps(
                len(uniform),
                uniform,
                nodes.variables,
                states,
                self.graph.cardinality,
                largest,
                *tables,
                nodes.state_start[:-1],
                mass,
            )

    @cached_property
    def _present(self) -> list[np.ndarray]:
        """Of each group, the factors that touch a free variable and no absent one."""
        found = []
        for group in self.graph.groups:
            roles = np.stack([self.roles[variable] for variable in group.scope])
            found.append(np.flatnonzero((roles != Role.ABSENT).all(axis=0) & (roles == Role.FREE).any(axis=0)))
        return found

    @cached_property
    def _structure(self) -> tuple[np.ndarray, ...]:
        """The factors of each variable, and the variables and strides of each factor, as CSR."""
        scopes, strides, arity = [], [], []
        for group, present in zip(self.graph.groups, self._present, strict=True):
            scopes.append(np.stack([variable[present] for variable in group.scope], axis=1).ravel())
            strides.append(np.tile(np.asarray(group.strides, dtype=np.int64), len(present)))
            arity.append(np.full(len(present), len(group.scope)))
        scope = np.concatenate(scopes) if scopes else np.empty(0, dtype=np.int64)
        stride = np.concatenate(strides) if strides else np.empty(0, dtype=np.int64)
        sizes = np.concatenate(arity) if arity else np.empty(0, dtype=np.int64)
        factor_start = np.concatenate(([0], np.cumsum(sizes)))
        factor = np.repeat(np.arange(len(sizes)), sizes)
        touch = np.unique(np.stack([scope, factor], axis=1), axis=0) if len(scope) else np.empty((0, 2), dtype=np.int64)
        touch_start = np.searchsorted(touch[:, 0], np.arange(self.graph.n_variables + 1))
        return touch_start, touch[:, 1].copy(), factor_start, scope.astype(np.int64), stride

    def _tables(self, weights: np.ndarray) -> tuple[np.ndarray, ...]:
        """The structure, and each factor's table of log potentials; equal ones are held once."""
        starts, tables, size = [], [], 0
        for group, present in zip(self.graph.groups, self._present, strict=True):
            matrix = self.graph.layout.matrix(weights, group.block)
            n_rows = 1 if group.features.rows_are_equal else len(present)
            if size + n_rows * group.n_joint_states > MAX_CELLS:
                raise ValueError(f"the tables of the factors have more than {MAX_CELLS} cells")
            scores = group.features.scores(matrix, present)
            values = scores if group.patterns is None else scores @ group.patterns.T
            step = 0 if group.features.rows_are_equal else group.n_joint_states
            starts.append(size + step * np.arange(len(present), dtype=np.int64))
            tables.append(np.ascontiguousarray(values).ravel())
            size += values.size
        start = np.concatenate(starts) if starts else np.empty(0, dtype=np.int64)
        return *self._structure, start, np.concatenate(tables) if tables else np.empty(0)


def _score(states: np.ndarray, tables: tuple[np.ndarray, ...]) -> float:
    """Sum of the log potentials at a joint state of all variables."""
    _, _, factor_start, scope, stride, table_start, values = tables
    if not len(table_start):
        return 0.0
    cell = table_start + np.add.reduceat(states[scope] * stride, factor_start[:-1])
    return float(values[cell].sum())
