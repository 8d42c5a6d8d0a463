"""Loopy belief propagation: sums and maxima, any arity and cardinality, exact on forests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from relcrf.columns.offsets import offsets
from relcrf.graph.scopes import Potentials, Scopes
from relcrf.inference.iteration import iterate
from relcrf.inference.pair_lanes import PairLanes
from relcrf.inference.result import AbstractInference, MapStates, Marginals, Observer, Verdict, ignore_progress
from relcrf.inference.spanning_trees import SpanningTrees
from relcrf.kernels import beliefs, schedules
from relcrf.kernels.messages import MessageNetwork, MessageState, MessageTables, allocate_scratch

MAX_LINEAR_SPREAD = 600.0
"""Nats that potentials which meet in a node may differ by for messages to be numbers: float64 holds 708."""
ROUNDING_ERROR = 1e-14
"""What rounding changes a message by, for each message that a node has, beside the largest potential."""
CELLS_PER_STEP = 1 << 20
"""Table cells of as many rounds as run without a look at Ctrl-C."""
MAX_ROUNDS_PER_STEP = 10
"""Rounds that run at most without a look at how much they changed."""
MAX_DECODING_SWEEPS = 100
"""Rounds of bettering a decoded state one node at a time, at most."""

Step = Callable[[int], float]


@dataclass(frozen=True)
class BeliefPropagation(AbstractInference):
    """Sum-product and max-product belief propagation; the log partition is the Bethe approximation.

    Without damping all of it is exact where nodes and factors form a forest; then `MapStates.bound` is the score, else inf.

    The verdict's residual is the largest change of an entry of a normalised log message in the last round. Where messages
    find that nothing is possible, the log partition is -inf and marginals are nan; where that leaves nothing to send, the
    verdict is `diverged`.

    Args:
        schedule: `flooding`: each round sends all messages at once; `sequential`: each round visits the nodes in order,
            the next in the order reversed; `residual`: always the message that changes most, a round being as many of them
            as there are messages (Elidan, McGraw & Koller 2006).
        damping: the share of the old message's log in the new one, in [0, 1).
        appearance: None for ordinary propagation. `trees`: tree-reweighted (Wainwright, Jaakkola & Willsky 2005), for
            pairs: how often each pair appears in spanning forests, drawn with `seed` as evenly as can be. The log partition is
            then never too small and the best score never above `MapStates.bound`, converged or not.

    Raises:
        ValueError: of a setting that is none of these; at the first call, where a factor has more than two nodes and
            messages are tree-reweighted.
    """

    scopes: Scopes
    schedule: str = "flooding"
    damping: float = 0.0
    tolerance: float = 1e-6
    max_iterations: int = 1000
    appearance: str | None = None
    seed: int = 0
    observe: Observer = ignore_progress

    def __post_init__(self) -> None:
        if self.schedule not in ("flooding", "sequential", "residual"):
            raise ValueError(f"no schedule {self.schedule!r}; there are flooding, sequential and residual")
        if not 0.0 <= self.damping < 1.0:
            raise ValueError(f"damping {self.damping} is not in [0, 1)")
        if self.appearance not in (None, "trees"):
            raise ValueError(f"no appearance {self.appearance!r}; there is trees, or None")

    def marginals(self, potentials: Potentials) -> Marginals:
        tables, state, verdict = self._propagate(potentials, maximum=False)
        nodes, factors = np.empty(int(self.scopes.state_start[-1])), np.empty(int(self.scopes.table_start[-1]))
        count = np.empty(self.scopes.n_nodes)
        value = float(beliefs.compute_beliefs(self._network, tables, state, self._scratch, count, nodes, factors))
        if verdict.status == "diverged" or np.isnan(nodes).any():
            value = -np.inf
        elif self._trees is not None:
            value = self._trees.mean_log_partition(self._reparametrise(potentials, state))
        return Marginals(value, nodes, factors, verdict)

    def map_states(self, potentials: Potentials) -> MapStates:
        tables, state, verdict = self._propagate(potentials, maximum=True)
        states = np.empty(self.scopes.n_nodes, dtype=np.int32)
        queue, queued = np.empty(len(states), dtype=np.int64), np.zeros(len(states), dtype=np.bool_)
        beliefs.decode(self._network, tables, state, self._scratch, MAX_DECODING_SWEEPS, queue, queued, states)
        score, bound = self.scopes.score(potentials, states), np.inf
        if self._trees is not None and verdict.status != "diverged":
            bound = self._trees.mean_best_score(self._reparametrise(potentials, state))
        elif self._is_forest and verdict.is_good and not self.damping:
            bound = score
        if score == -np.inf < bound and verdict.status == "converged":  # nothing says that no joint state can be
            verdict = Verdict("not converged", verdict.iterations, verdict.residual)
        return MapStates(score, states, bound, verdict)

    @cached_property
    def _trees(self) -> SpanningTrees | None:
        return None if self.appearance is None else SpanningTrees.sample(self.scopes, self.seed)

    @cached_property
    def _network(self) -> MessageNetwork:
        sizes = self.scopes.cardinality[self.scopes.node]
        appearance = np.ones(self.scopes.n_factors) if self._trees is None else self._trees.appearance
        return MessageNetwork(self.scopes.kernel_factors, offsets(sizes), appearance)

    @cached_property
    def _scratch(self) -> tuple[np.ndarray, ...]:
        return allocate_scratch(self._network)

    @cached_property
    def _is_forest(self) -> bool:
        """Whether the graph of nodes and factors has no cycle."""
        factors, n = self._network.factors, self.scopes.n_nodes + self.scopes.n_factors
        ends = (factors.factor + self.scopes.n_nodes, factors.node)
        links = csr_array((np.ones(len(factors.node)), ends), shape=(n, n))
        return bool(n - connected_components(links, directed=False)[0] == len(factors.node)) if n else True

    @cached_property
    def _lanes(self) -> list[PairLanes]:
        return PairLanes.from_scopes(self.scopes)

    def _propagate(self, potentials: Potentials, maximum: bool) -> tuple[MessageTables, MessageState, Verdict]:
        """Messages as logs, and what they make of each node's states, when the rounds are over."""
        net, logs = self._network, potentials.factors
        if self._trees is not None:
            logs = logs / np.repeat(net.appearance, np.diff(self.scopes.table_start))
        enough = self._stopping_residual(potentials)
        linear = self._trees is None and self._fits_linear_range(potentials)
        in_lanes = linear and self.schedule == "flooding"  # pairs then have tables of their own
        numbers = bool((self.scopes.arity > 2).any()) if in_lanes else linear or not maximum
        tables = self._message_tables(Potentials(potentials.nodes, logs), maximum, not linear, numbers)
        state = self._uniform_messages(tables)
        if self.schedule == "flooding":
            verdict = self._run_flooding(tables, state, potentials, enough)
        else:
            verdict = self._iterate(self._make_step(tables, state, enough), enough)
        message = np.log(state.message) if linear else state.message
        tables = self._message_tables(Potentials(potentials.nodes, logs), maximum, log=True, with_linear_values=False)
        state = MessageState(message, np.empty(len(potentials.nodes)), np.empty(len(potentials.nodes), dtype=np.int64))
        schedules.compute_products(net, tables, state)
        return tables, state, verdict

    def _iterate(self, step: Step, tolerance: float) -> Verdict:
        work = max(int(self.scopes.table_start[-1]), 1)
        at_a_time = min(max(CELLS_PER_STEP // work, 1), MAX_ROUNDS_PER_STEP)
        return iterate(step, tolerance, self.max_iterations, self.observe, at_a_time)

    def _stopping_residual(self, potentials: Potentials) -> float:
        """The residual that ends it. On forests all changes but those of rounding cease after some rounds: those are exact."""
        if self.damping or not self._is_forest:
            return self.tolerance
        most = max(np.abs(part[np.isfinite(part)]).max(initial=1.0) for part in potentials)
        return float(
            min(self.tolerance, ROUNDING_ERROR * most * (1 + np.diff(self._network.factors.touch_start).max(initial=0)))
        )

    def _fits_linear_range(self, potentials: Potentials) -> bool:
        """Whether all that can meet in a node fits in the range of float64, so that messages can be numbers."""
        scopes = self.scopes
        top = np.maximum.reduceat(potentials.nodes, scopes.state_start[:-1])
        if np.isneginf(top).any() or np.isneginf(potentials.factors).any():
            return False
        low = np.where(np.isneginf(potentials.nodes), np.inf, potentials.nodes)
        spread = top - np.minimum.reduceat(low, scopes.state_start[:-1])
        begin = scopes.table_start[:-1]
        of_factor = np.maximum.reduceat(potentials.factors, begin) - np.minimum.reduceat(potentials.factors, begin)
        of_factor[scopes.is_agreement] = np.abs(potentials.factors[begin[scopes.is_agreement]])
        spread += np.bincount(scopes.node, np.repeat(of_factor, scopes.arity), scopes.n_nodes)
        return bool((spread <= MAX_LINEAR_SPREAD).all())

    def _message_tables(
        self, potentials: Potentials, maximum: bool, log: bool, with_linear_values: bool
    ) -> MessageTables:
        scopes, damping = self.scopes, float(self.damping)
        values = np.empty(0)
        if with_linear_values:
            top = np.maximum.reduceat(potentials.factors, scopes.table_start[:-1])
            values = np.exp(
                potentials.factors - np.repeat(np.where(top > -np.inf, top, 0.0), np.diff(scopes.table_start))
            )
        return MessageTables(
            log,
            maximum,
            values,
            potentials.factors,
            potentials.nodes if log else self._linear_potentials(potentials),
            damping,
        )

    def _linear_potentials(self, potentials: Potentials) -> np.ndarray:
        """Potentials of nodes as numbers, the largest of each node 1."""
        top = np.maximum.reduceat(potentials.nodes, self.scopes.state_start[:-1])
        return np.asarray(np.exp(potentials.nodes - np.repeat(top, self.scopes.cardinality)))

    def _uniform_messages(self, tables: MessageTables) -> MessageState:
        """Messages that say nothing."""
        n_states = int(self.scopes.state_start[-1])
        barred = np.zeros(n_states if tables.log else 0, dtype=np.int64)
        message = np.full(int(self._network.message_start[-1]), 0.0 if tables.log else 1.0)
        state = MessageState(message, np.empty(n_states), barred)
        schedules.compute_products(self._network, tables, state)
        return state

    def _make_step(self, tables: MessageTables, state: MessageState, tolerance: float) -> Step:
        net = self._network
        if self.schedule == "sequential":
            visited = 0

            def sweep(rounds: int) -> float:
                nonlocal visited
                change = 0.0
                for _ in range(rounds):
                    change = schedules.sweep(net, tables, state, self._scratch, visited % 2 == 1)
                    visited += 1
                return float(change)

            return sweep
        n_places = len(self.scopes.node)
        pending, change = np.empty_like(state.message), np.empty(n_places)
        schedules.compute_pending(net, tables, state, self._scratch, pending, change)
        largest = _build_tournament(change)

        def commit(rounds: int) -> float:
            if np.isnan(change).any():
                return np.nan
            most = rounds * n_places
            return float(
                schedules.send_by_residual(net, tables, state, self._scratch, pending, largest, tolerance, most)
            )

        return commit

    def _run_flooding(
        self, tables: MessageTables, state: MessageState, potentials: Potentials, tolerance: float
    ) -> Verdict:
        """Flood: with numbers pairs many at a time, all else one by one."""
        net, scopes = self._network, self.scopes
        shapes = (
            []
            if tables.log
            else [(lanes, lanes.tables(scopes, potentials), lanes.uniform_messages()) for lanes in self._lanes]
        )
        others = np.flatnonzero(scopes.arity > (0 if tables.log else 2))
        impossible, widest = np.isneginf(tables.nodes), np.ones(int(scopes.cardinality.max(initial=1)))
        nodes = np.concatenate((np.where(impossible, 0.0, tables.nodes), widest))
        product, following = nodes.copy(), np.empty_like(nodes)
        barred, barred_next = impossible.astype(np.int64), np.empty(len(impossible), dtype=np.int64)

        def flood(rounds: int) -> float:
            nonlocal product, following, barred, barred_next
            change = 0.0
            for _ in range(rounds):
                following[:], barred_next[:] = nodes, impossible
                most = 1.0
                for lanes, numbers, message in shapes:
                    most = max(most, lanes.flood(numbers, message, product, following, tables.maximum, tables.damping))
                change = float(np.log(most))
                if len(others):
                    now = MessageState(state.message, product, barred)
                    found = schedules.flood(net, tables, now, self._scratch, others, following, barred_next)
                    change = float(np.maximum(change, found))
                product, following, barred, barred_next = following, product, barred_next, barred
            return change

        verdict = self._iterate(flood, tolerance)
        for lanes, _, found in shapes:
            begin = net.message_start[scopes.start[lanes.factors], None]
            state.message[begin + np.arange(lanes.first + lanes.second)] = lanes.messages_by_pair(found)
        return verdict

    def _reparametrise(self, potentials: Potentials, state: MessageState) -> Potentials:
        """The same scores, as potentials that take part in each forest: nodes wholly, each pair as often as it appears."""
        net, scopes = self._network, self.scopes
        assert self._trees is not None
        full, whole = scopes.expand_agreements(potentials)
        nodes = np.where(state.n_impossible > 0, -np.inf, state.product)
        message = np.where(state.message == -np.inf, 0.0, state.message)
        factors = whole.factors / np.repeat(net.appearance, np.diff(full.table_start))
        factor = np.repeat(np.arange(full.n_factors), np.diff(full.table_start))
        cell = np.arange(len(factors)) - full.table_start[factor]
        second = scopes.cardinality[scopes.node[2 * factor + 1]]
        factors -= message[net.message_start[2 * factor] + cell // second]
        factors -= message[net.message_start[2 * factor + 1] + cell % second]
        return Potentials(nodes, factors)


def _build_tournament(keys: np.ndarray) -> np.ndarray:
    """Keys, none below 0, with the larger of each two above them, up to the largest at seat 1; see `send_by_residual`."""
    n = 1 << max(len(keys) - 1, 0).bit_length()
    largest = np.zeros(2 * n)
    largest[n : n + len(keys)] = keys
    while n > 1:
        largest[n // 2 : n] = largest[n : 2 * n].reshape(-1, 2).max(axis=1)
        n //= 2
    return largest


@dataclass(frozen=True)
class TreeReweighted(BeliefPropagation):
    """Tree-reweighted propagation of pairs, damped: an upper bound of the log partition, and of the best score."""

    appearance: str | None = "trees"
    damping: float = 0.3
