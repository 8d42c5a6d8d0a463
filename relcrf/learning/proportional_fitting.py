"""Iterative proportional fitting: the potentials of a table are multiplied by ratios of observed to expected counts.

A table contains the weights of one feature of a template (for one key): one weight for each *pattern* p, which is a set
of joint states of a factor's variables. The counts of a table are sums over all factors that use the table. The step is

    weight[p] += 1 / F * log(observed[p] / expected[p])

where F is the largest number of factors, in one component of the graph, of the tables that change in this step. F = 1
is the classical step, which matches the moments of a table exactly in a network without evidence. F > 1 is the step of
generalised iterative scaling. The negative log-likelihood decreases by at least `sum observed log(observed / expected)
/ F`. This bound follows from `log y <= y - 1` and from the inequality of means `prod r_c^(1/F) <= 1 + sum (r_c - 1) /
F`, where r_c is the ratio of counts for factor c of a component. Because the bound is conservative, each step is
multiplied by a *step factor*, which grows from 1 up to F while the value decreases and is reset to 1 when the value
does not decrease.

Sources: Deming & Stephan (1940); Darroch & Ratcliff (1972); for the step factors, Salakhutdinov & Roweis (2003).
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
    """Return True if each joint state of a factor is in at most one pattern, and all pattern values are 0 or 1."""
    if group.patterns is None:
        return True
    return bool(np.isin(group.patterns, (0.0, 1.0)).all() and (group.patterns.sum(axis=1) <= 1.0).all())


def has_count_features(group: FactorGroup) -> bool:
    """Return True if the values of all features are non-negative integers, for example counts of bindings."""
    for values in group.features.arrays():
        if values.dtype.kind == "f" and not ((values >= 0.0) & (values == np.floor(values))).all():
            return False
    return True


@dataclass(frozen=True, eq=False)
class WeightTables:
    """The weight tables of a graph, and a schedule of *rounds*: the tables of a round change simultaneously.

    Args:
        start: Start of each table among the weights, shape (n_tables,).
        size: Number of weights of each table, shape (n_tables,).
        n_factors: Number of factors that use each table, shape (n_tables,).
        complete: Whether every joint state of the table's factors is in a pattern, shape (n_tables,), bool. If not, the
            states without a pattern are an additional outcome with weight 0.
        rounds: Two arrays for each round: the tables of the round; and, for each of these tables, the largest number of
            factors of the round's tables in one component that uses this table.
    """

    start: np.ndarray
    size: np.ndarray
    n_factors: np.ndarray
    complete: np.ndarray
    rounds: tuple[tuple[np.ndarray, np.ndarray], ...]

    @classmethod
    def build(cls, graph: ReducedGraph, *, simultaneous: bool) -> WeightTables:
        """Return the tables that have factors and whose weights are not fixed.

        Args:
            simultaneous: Whether all tables are in one round. Otherwise, no component of the graph uses two tables of a
                round.
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
        """Return, for each weight of some tables, the weight's offset and the table's index in `tables`, shape (n,)."""
        sizes = self.size[tables]
        owner = np.repeat(np.arange(len(tables)), sizes)
        first = np.repeat(self.start[tables] - np.cumsum(sizes) + sizes, sizes)
        return first + np.arange(len(owner)), owner

    def outcomes(self, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the count and the table of each outcome, shape (n,) each; outcomes without a pattern are last.

        Args:
            counts: One count for each weight of the layout.
        """
        weights, owner = self.weight_offsets(np.arange(len(self.start)))
        rest = self.n_factors - np.bincount(owner, counts[weights], len(self.start))
        return np.concatenate((counts[weights], rest[~self.complete])), np.append(owner, np.flatnonzero(~self.complete))

    def steps(self, tables: np.ndarray, target: np.ndarray, expected: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return, for each weight of some tables, the offset and `log(target / expected)` (0 if a count is 0).

        If a table is not complete, the log ratio of the states without a pattern is subtracted.

        Args:
            target, expected: Counts to match and expected counts, one for each weight of the layout.
        """
        weights, owner = self.weight_offsets(tables)
        step = _log_ratio(target[weights], expected[weights])
        unmatched_counts = [
            self.n_factors[tables] - np.bincount(owner, counts[weights], len(tables)) for counts in (target, expected)
        ]
        rest = np.where(self.complete[tables], 0.0, _log_ratio(*unmatched_counts))
        return weights, np.where(target[weights] > 0.0, step - rest[owner], 0.0)


@dataclass(frozen=True, eq=False)
class ProportionalFitting(AbstractMinimiser[Objective]):
    """A minimiser of `log Z(w) - target . w`; one iteration updates all tables once.

    In the optimiser states, `steps` contains one array: the step factor of each round.

    Args:
        target: The counts to match, one per weight; arbitrary for weights that do not change.
        tolerance, max_iterations: See `AbstractMinimiser`. The run also converges when the expected counts differ from
            the target only by rounding errors.
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
        """Return True if the value is smaller; compare the gradient norms if the values differ only by rounding."""
        if abs(candidate.value - state.value) > ROUNDING_TOLERANCE * abs(state.value):
            return candidate.value < state.value
        return self.norm(candidate.point, candidate.gradient) <= self.norm(state.point, state.gradient)


def _is_complete(group: FactorGroup) -> bool:
    return group.patterns is None or bool((group.patterns.sum(axis=1) == 1.0).all())


def _log_ratio(target: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Return `log(target / expected)`, or 0 where one of the two counts is not positive."""
    positive = (target > 0.0) & (expected > 0.0)
    ratio = np.divide(target, expected, where=positive, out=np.ones(len(target)))
    return np.asarray(np.log(ratio))


def _count_factors(graph: ReducedGraph) -> list[sparse.csr_array]:
    """Return, for each weight block, the number of factors by component and feature (rows and columns)."""
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
    """Assign tables greedily to rounds such that no component (a row of `counts`) uses two tables of a round."""
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
    """Return, for each table, the largest number of factors in one component that uses the table, shape (n_tables,)."""
    total = np.asarray(counts.sum(axis=1)).ravel()
    result = np.zeros(counts.shape[1])
    entries = counts.tocoo()
    np.maximum.at(result, entries.col, total[entries.row])
    return result
