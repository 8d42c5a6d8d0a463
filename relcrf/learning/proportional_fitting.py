"""Iterative proportional fitting: multiply each table by the ratio of observed to expected counts.

A table consists of the weights of one feature of a template (for one key); it has one weight for each outcome p of a
factor. The counts of a table are sums over all factors that share the table. The step is

    weight[p] += 1 / F * log(observed[p] / expected[p])

where F is the largest number of factors of the table in one component of the graph. If each independent sample has one
factor of the table, then F = 1 gives the classical step; in a network without evidence, this step matches the table's
moments exactly. If factors of a component share the table, or several tables change simultaneously, it is the step of
generalised iterative scaling. The negative log-likelihood never increases: by the inequality of weighted means `prod
r_c^(1/F) <= 1 + sum (r_c - 1) / F` in each component, and `log y <= y - 1`, it decreases by at least `sum observed
log(observed / expected) / F`. As this bound is conservative, step factors grow up to 1 while the value decreases, and
are reset to 1 / F when it does not.

Sources: Deming & Stephan (1940); Darroch & Ratcliff (1972); the growing steps are those of Salakhutdinov & Roweis
(2003).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from relcrf.graph.factor_graph import FactorGroup
from relcrf.graph.reduction import ReducedGraph
from relcrf.graph.scope_components import label_scope_components
from relcrf.learning.lbfgs import (
    ROUNDING_TOLERANCE,
    AbstractMinimiser,
    AnyState,
    Objective,
    OptimiserState,
    initial_state,
)

STEP_GROWTH = 1.5
"""Multiplier of the step factors after each step that decreases the value."""


def has_disjoint_patterns(group: FactorGroup) -> bool:
    """Return True if each joint state of a factor has at most one pattern, whose value is 1."""
    if group.patterns is None:
        return True
    return bool(np.isin(group.patterns, (0.0, 1.0)).all() and (group.patterns.sum(axis=1) <= 1.0).all())


def has_count_features(group: FactorGroup) -> bool:
    """Return True if all features are non-negative integers, that is, counts of bindings."""
    for values in group.features.arrays():
        if values.dtype.kind == "f" and not ((values >= 0.0) & (values == np.floor(values))).all():
            return False
    return True


@dataclass(frozen=True, eq=False)
class WeightTables:
    """The tables of a graph, and a schedule of tables that may change simultaneously.

    Args:
        start: Start of each table among the weights, shape (n_tables,).
        size: Number of weights of each table, shape (n_tables,).
        n_factors: Number of factors that use each table, shape (n_tables,).
        complete: Whether every joint state of the factors has one of the patterns, shape (n_tables,), bool. If not, the
            states without a pattern are an additional outcome of weight 0.
        rounds: For each round, the tables that change simultaneously and, for each table, the largest number of factors
            of the round's tables in a component with this table.
    """

    start: np.ndarray
    size: np.ndarray
    n_factors: np.ndarray
    complete: np.ndarray
    rounds: tuple[tuple[np.ndarray, np.ndarray], ...]

    @classmethod
    def build(cls, graph: ReducedGraph, *, simultaneous: bool) -> WeightTables:
        """Return the tables that learning may change.

        Args:
            simultaneous: Whether all tables change simultaneously. Otherwise, tables that change together have no
                component in common.
        """
        layout = graph.graph.layout
        rows, start, size, complete = [], [], [], []
        for number, (block, counts) in enumerate(zip(layout.blocks, _count_factors(graph), strict=True)):
            used = np.flatnonzero(counts.sum(axis=0)) if not block.fixed else np.empty(0, dtype=np.int64)
            rows.append(counts[:, used])
            start.append(layout.starts[number] + used * block.n_patterns)
            size.append(np.full(len(used), block.n_patterns))
            groups = [group for group in graph.graph.groups if group.block == number]
            complete.append(np.full(len(used), all(_is_complete(group) for group in groups)))
        counts = sparse.hstack(rows, format="csc") if rows else sparse.csc_array((0, 0))
        members = [np.arange(counts.shape[1])] if simultaneous else _schedule_rounds(counts)
        rounds = tuple((tables, _max_factors(counts[:, tables])) for tables in members if len(tables))
        return cls(
            np.concatenate([np.empty(0, dtype=np.int64), *start]),
            np.concatenate([np.empty(0, dtype=np.int64), *size]),
            np.asarray(counts.sum(axis=0)).ravel(),
            np.concatenate([np.empty(0, dtype=bool), *complete]),
            rounds,
        )

    def weight_offsets(self, tables: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the offsets of the weights of some tables and the index of each weight's table, both of shape (n,)."""
        sizes = self.size[tables]
        owner = np.repeat(np.arange(len(tables)), sizes)
        first = np.repeat(self.start[tables] - np.cumsum(sizes) + sizes, sizes)
        return first + np.arange(len(owner)), owner

    def outcomes(self, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the count and the table of each outcome, shape (n,) each; outcomes without a pattern are last.

        Args:
            counts: One per weight of the layout.
        """
        weights, owner = self.weight_offsets(np.arange(len(self.start)))
        rest = self.n_factors - np.bincount(owner, counts[weights], len(self.start))
        return np.concatenate((counts[weights], rest[~self.complete])), np.append(owner, np.flatnonzero(~self.complete))

    def steps(self, tables: np.ndarray, target: np.ndarray, expected: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the weights of some tables and `log(target / expected)` of each weight, or 0 if a count is 0.

        Args:
            target, expected: Counts, one per weight of the layout.
        """
        weights, owner = self.weight_offsets(tables)
        step = _log_ratio(target[weights], expected[weights])
        none = [
            self.n_factors[tables] - np.bincount(owner, counts[weights], len(tables)) for counts in (target, expected)
        ]
        rest = np.where(self.complete[tables], 0.0, _log_ratio(*none))
        return weights, np.where(target[weights] > 0.0, step - rest[owner], 0.0)


@dataclass(frozen=True, eq=False)
class ProportionalFitting(AbstractMinimiser[Objective]):
    """A minimiser of `log Z(w) - target . w`; one iteration updates all tables once.

    In the optimiser states, `steps` contains one array: the step factor of each round.

    Args:
        target: The counts to match, one per weight; arbitrary for weights that do not change.
        tolerance, max_iterations: See `AbstractMinimiser`. The run also converges when the counts differ only by
            rounding.
    """

    tables: WeightTables
    target: np.ndarray
    tolerance: float = 1e-5
    max_iterations: int = 200

    def start(self, objective: Objective, point: np.ndarray) -> OptimiserState:
        return replace(initial_state(self, objective, point), steps=(np.ones(len(self.tables.rounds)),))

    def step(self, objective: Objective, state: AnyState) -> AnyState:
        state = self.update_status(state)
        if state.status != "running":
            return state
        if state.gradient_norm <= ROUNDING_TOLERANCE * self.tables.n_factors.max(initial=0.0):
            return replace(state, status="converged")
        factors = state.steps[0].copy()
        for number, (tables, max_factors) in enumerate(self.tables.rounds):
            weights, step = self.tables.steps(tables, self.target, state.gradient + self.target)
            exponent = np.repeat(max_factors, self.tables.size[tables])
            candidate = self._apply_step(objective, state, weights, step * np.minimum(factors[number] / exponent, 1.0))
            if factors[number] > 1.0 and not self._is_better(candidate, state):
                factors[number] = 1.0
                candidate = replace(
                    self._apply_step(objective, state, weights, step / exponent), evaluations=candidate.evaluations + 1
                )
            factors[number] = min(STEP_GROWTH * factors[number], max_factors.max())
            state = candidate
        return replace(
            state,
            gradient_norm=self.norm(state.point, state.gradient),
            iteration=state.iteration + 1,
            steps=(factors,),
        )

    def _apply_step(self, objective: Objective, state: AnyState, positions: np.ndarray, step: np.ndarray) -> AnyState:
        point = state.point.copy()
        point[positions] += step
        value, gradient = objective(point)
        return replace(state, point=point, value=value, gradient=gradient, evaluations=state.evaluations + 1)

    def _is_better(self, candidate: OptimiserState, state: OptimiserState) -> bool:
        """Return True if the value, or the gradient norm if rounding hides changes of the value, has not increased."""
        if abs(candidate.value - state.value) > ROUNDING_TOLERANCE * abs(state.value):
            return candidate.value < state.value
        return self.norm(candidate.point, candidate.gradient) <= self.norm(state.point, state.gradient)


def _is_complete(group: FactorGroup) -> bool:
    return group.patterns is None or bool((group.patterns.sum(axis=1) == 1.0).all())


def _log_ratio(target: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Return `log(target / expected)`, or 0 where either is not positive."""
    both = (target > 0.0) & (expected > 0.0)
    ratio = np.divide(target, expected, where=both, out=np.ones(len(target)))
    return np.asarray(np.log(ratio))


def _count_factors(graph: ReducedGraph) -> list[sparse.csr_array]:
    """Return the number of factors of each feature in each component, shape (n_components, n_features), by block."""
    label = np.unique(label_scope_components(graph.scopes), return_inverse=True)[1]
    n_components = int(label.max(initial=-1)) + 1
    entries_by_block: list[list[tuple[np.ndarray, np.ndarray, np.ndarray]]] = [[] for _ in graph.graph.layout.blocks]
    all_terms = [(terms.group, terms.factor, terms.target) for terms in graph.node_terms]
    all_terms += [(terms.group, terms.factor, graph.edges[terms.target, 0]) for terms in graph.edge_terms]
    all_terms += [(terms.group, terms.factor, terms.node[:, 0]) for terms in graph.clique_terms]
    for number, factor, node in all_terms:
        group = graph.graph.groups[number]
        rows = np.arange(len(node)) if factor is None else factor
        entries = group.features.entries(rows)
        entries_by_block[group.block].append((entries.value, label[node[entries.row]], entries.feature))
    return [
        _sum_entries(parts, (n_components, block.n_features))
        for parts, block in zip(entries_by_block, graph.graph.layout.blocks, strict=True)
    ]


def _sum_entries(parts: Sequence[tuple[np.ndarray, ...]], shape: tuple[int, int]) -> sparse.csr_array:
    if not parts:
        return sparse.csr_array(shape)
    value, row, column = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return sparse.csr_array(sparse.coo_array((value.astype(np.float64), (row, column)), shape=shape))


def _schedule_rounds(counts: sparse.csc_array) -> list[np.ndarray]:
    """Assign tables greedily to rounds such that no component contains two tables of the same round."""
    used_components: list[np.ndarray] = []
    rounds: list[list[int]] = []
    for table in range(counts.shape[1]):
        components = counts.indices[counts.indptr[table] : counts.indptr[table + 1]]
        first_free = next((k for k, used in enumerate(used_components) if not used[components].any()), len(rounds))
        if first_free == len(rounds):
            used_components.append(np.zeros(counts.shape[0], dtype=bool))
            rounds.append([])
        used_components[first_free][components] = True
        rounds[first_free].append(table)
    return [np.array(tables) for tables in rounds]


def _max_factors(counts: sparse.csc_array) -> np.ndarray:
    """Return, for each table, the largest row sum among the rows that contain it, shape (n_tables,)."""
    total = np.asarray(counts.sum(axis=1)).ravel()
    result = np.zeros(counts.shape[1])
    entries = counts.tocoo()
    np.maximum.at(result, entries.col, total[entries.row])
    return result
