"""Loopy belief propagation: sum-product and max-product for any arity and cardinality, exact on forests.

Messages are in the linear domain (not logarithms) if their range permits; otherwise they are in the log domain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from relcrf.columns.offsets import offsets
from relcrf.gpu.device import DEVICES
from relcrf.gpu.flooding import PairFlooding
from relcrf.graph.possible_states import is_impossible
from relcrf.graph.scope_components import label_scope_components
from relcrf.graph.scopes import Potentials, Scopes, SharedPotentials
from relcrf.inference.balance import Balance, ClassPotentials
from relcrf.inference.iteration import iterate
from relcrf.inference.linear_range import fits_linear_range, linear_potentials
from relcrf.inference.pair_lanes import InitialMessages, LaneMessages, PairLanes
from relcrf.inference.result import (
    AbstractInference,
    MapStates,
    Marginals,
    Observer,
    UnsupportedGraphError,
    Verdict,
    ignore_progress,
)
from relcrf.inference.spanning_trees import SpanningTrees, pair_information, reparametrise
from relcrf.inference.tournament import build_tournament
from relcrf.kernels import beliefs, schedules
from relcrf.kernels.messages import MessageNetwork, MessageState, MessageTables, allocate_scratch
from relcrf.kernels.pair_flooding import LANES

ROUNDING_ERROR = 1e-14
"""Rounding error of a log message, relative to the product of the largest potential and the number of summed terms."""
CELLS_PER_STEP = 1 << 20
"""Maximum number of table cells processed between two checks for Ctrl-C."""
MAX_ROUNDS_PER_STEP = 10
"""Maximum number of rounds between two convergence checks."""
COARSE_TOLERANCE = 1e-2
"""Tolerance of coarse propagation. The largest change of a message is much larger than the error of the gradient: on 20,000
pages without labelled neighbours, coarse learning converges to the same weights up to a factor of 1 +- 1e-5."""
PARALLEL_ROUNDS = 5
"""Number of rounds of `flooding` with which `blocks` starts. The first rounds select one of several fixed points: on 50 graphs
of 1,200 pages without labelled neighbours, one category prevailed in 29 graphs without these rounds, and in 21 with 5, 10 or 15
of them, the same 21 as with `flooding`."""
MAX_DECODING_SWEEPS = 100
"""Maximum number of sweeps over the nodes that improve a decoded joint state one node at a time."""

MAX_STEP, MIN_STEP = 0.5, 1e-3
"""Largest and smallest weight of a new forest in a step of the optimisation of appearance probabilities."""
SUFFICIENT_DECREASE = 0.1
"""Minimum ratio of the decrease of the bound in a step to the decrease that its derivative predicts (Armijo's rule)."""

Step = Callable[[int], float]


class Propagation(NamedTuple):
    """The result of propagation.

    Args:
        trees: Distribution over spanning forests; None for ordinary propagation.
        network: The network with the appearance probabilities of `trees`.
        tables: Log potentials; those of pairs are divided by the appearance probabilities.
        state: Log messages.
    """

    trees: SpanningTrees | None
    network: MessageNetwork
    tables: MessageTables
    state: MessageState
    verdict: Verdict


@dataclass(frozen=True)
class BeliefPropagation(AbstractInference):
    """Sum-product and max-product belief propagation; the log partition function is the Bethe approximation.

    If nodes and factors form a forest and messages are not damped, results are exact and `MapStates.bound` is the score. In
    other cases, the bound is inf, unless `appearance` is `trees`.

    The verdict's residual is the largest change of an entry of a normalised log message in the last round. If a message
    excludes all states, the verdict is `diverged` and the log partition function is nan or, if the zeros prove that no joint
    state is possible, -inf; marginals are then nan.

    Args:
        schedule: `flooding` updates all messages of a round in parallel. `blocks` updates blocks of pairs one after another,
            each with the latest messages, after a few rounds of `flooding`; it needs fewer rounds, and is `flooding` on
            graphs with larger factors, and for log messages. `sequential` visits the nodes in order, alternately forward
            and backward. `residual` always sends the message with the largest change next (Elidan, McGraw & Koller 2006);
            the number of messages per round is the number of messages in the graph.
        damping: Weight of the old log message in the update, in [0, 1).
        tolerance: Residual at which propagation has converged.
        max_iterations: Maximum number of rounds.
        appearance: None for ordinary propagation. `trees` for tree-reweighted propagation (Wainwright, Jaakkola & Willsky 2005)
            on pairwise graphs; the appearance probability of a pair is the fraction of random spanning forests that contain the
            pair. The log partition function and `MapStates.bound` are then upper bounds, even if the messages have not
            converged.
        appearance_steps: Maximum number of steps that optimise the appearance probabilities of tree-reweighted propagation
            for marginals: each step mixes in the maximum spanning forest for the mutual information of the pairs, so that
            the upper bound of the log partition function decreases. 0 keeps the probabilities of the random forests.
        start_spread: Standard deviation of random initial log messages on the CPU; 0 selects uniform messages.
        seed: Seed of the spanning forests and of the initial messages.
        device: `cpu` or `gpu`, a CUDA GPU for ordinary flooding on pairwise graphs. The GPU runs the rounds and computes the
            marginals and the log partition function; most probable states are decoded on the CPU.
        observe: Callback that receives the current verdict after some rounds.
        balance: Expected sizes of the classes, for marginals of ordinary propagation with schedule `flooding` on the CPU. The log
            partition function is then nan.

    Raises:
        ValueError: If a setting is invalid; at the first call, if messages are tree-reweighted, or the device is a GPU, and a
            factor has more than two nodes.
        UsageError: At the first call, if the device is a GPU, and no GPU is found (E382).
    """

    scopes: Scopes
    schedule: str = "flooding"
    damping: float = 0.0
    tolerance: float = 1e-6
    max_iterations: int = 1000
    appearance: str | None = None
    appearance_steps: int = 0
    start_spread: float = 0.0
    seed: int = 0
    device: str = "cpu"
    observe: Observer = ignore_progress
    balance: Balance | None = None

    def __post_init__(self) -> None:
        if self.schedule not in ("flooding", "blocks", "sequential", "residual"):
            raise ValueError(f"unknown schedule {self.schedule!r}; use flooding, blocks, sequential or residual")
        if not 0.0 <= self.damping < 1.0:
            raise ValueError(f"damping {self.damping} is not in [0, 1)")
        if self.appearance not in (None, "trees"):
            raise ValueError(f"unknown appearance {self.appearance!r}; use 'trees' or None")
        if self.appearance_steps < 0:
            raise ValueError(f"appearance_steps {self.appearance_steps} is negative")
        if self.start_spread < 0.0:
            raise ValueError(f"start_spread {self.start_spread} is negative")
        if self.device not in DEVICES:
            raise ValueError(f"unknown device {self.device!r}; use cpu or gpu")
        if self.device == "gpu" and (self.schedule != "flooding" or self.appearance is not None):
            raise ValueError(
                "device 'gpu' supports only ordinary propagation with schedule 'flooding'; use device 'cpu'"
            )
        if self.balance is not None and (self.schedule, self.device, self.appearance) != ("flooding", "cpu", None):
            raise ValueError("'balance' supports only ordinary propagation with schedule 'flooding' on the CPU")

    def marginals(self, potentials: Potentials) -> Marginals:
        return self.shared_marginals(SharedPotentials.from_potentials(self.scopes, potentials))

    def node_marginals(self, potentials: Potentials) -> Marginals:
        return self.shared_marginals(SharedPotentials.from_potentials(self.scopes, potentials), with_factors=False)

    def shared_marginals(self, potentials: SharedPotentials, with_factors: bool = True) -> Marginals:
        if self._propagates_pairs and fits_linear_range(self.scopes, potentials):
            found = self._pair_marginals(potentials, np.zeros(len(potentials.tables) if with_factors else 0))
        else:
            full = potentials.expand()
            found = self._marginals(full, np.empty(len(full.factors) if with_factors else 0))
            if with_factors:
                found = replace(found, factors=potentials.sum_tables(found.factors))
        if found.verdict.status != "diverged" and not np.isnan(found.nodes).any():
            return found
        return self._failed_marginals(potentials, found)

    def coarse(self, near: SharedPotentials | None = None) -> BeliefPropagation:
        method = replace(self, tolerance=max(self.tolerance, COARSE_TOLERANCE))
        if self._propagates_pairs:
            vars(method)["_lanes"] = self._lanes  # large arrays, which both methods share
            if near is not None and self.balance is None and fits_linear_range(self.scopes, near):
                vars(method)["_initial_messages"] = method._converged_messages(near)
        return method

    def _converged_messages(self, potentials: SharedPotentials) -> InitialMessages | None:
        """Return the messages of pairs for given potentials; None if they do not converge."""
        nodes = linear_potentials(self.scopes, potentials.nodes)
        groups, verdict, product = self._propagate_pairs(potentials, nodes)
        verdict.raise_if_interrupted()
        messages = [group.message.astype(np.float32) for group in groups]
        return InitialMessages(messages, product[: len(nodes)] / nodes) if verdict.status == "converged" else None

    @cached_property
    def _initial_messages(self) -> InitialMessages | None:
        """Messages with which `_propagate_pairs` starts; None for uniform ones."""
        return None

    def _pair_marginals(self, potentials: SharedPotentials, factors: np.ndarray) -> Marginals:
        """Return the marginals of ordinary propagation of linear messages, which remain in lanes.

        Args:
            factors: Flat tables to which the marginals of the factors are added, unless the array is empty.
        """
        scopes, start = self.scopes, self.scopes.state_start[:-1]
        nodes = linear_potentials(scopes, potentials.nodes)
        groups, verdict, product = self._propagate_pairs(potentials, nodes)
        value = 0.0 if self.balance is None else np.nan
        for group in groups:
            value += group.sum_beliefs(potentials, product, factors)
        product = product[: len(nodes)]
        total = np.add.reduceat(product, start)
        counting = 1 - np.bincount(scopes.node, minlength=scopes.n_nodes)
        value += float((counting * np.log(total)).sum() + np.maximum.reduceat(potentials.nodes, start).sum())
        return Marginals(value, product / np.repeat(total, scopes.cardinality), factors, verdict)

    def _propagate_pairs(
        self, potentials: SharedPotentials, nodes: np.ndarray
    ) -> tuple[list[LaneMessages], Verdict, np.ndarray]:
        """Run propagation for linear node potentials `nodes`; return the messages, and the results of `_run_flooding`."""
        groups, product = self._lane_groups(potentials, maximum=False), nodes
        if (initial := self._initial_messages) is not None:
            product = nodes * initial.product
            for group, message in zip(groups, initial.messages, strict=True):
                group.message[:] = message
        tolerance = self._stopping_residual(potentials.nodes, potentials.tables)
        return groups, *self._run_flooding(groups, nodes, product, tolerance, classes=self._class_potentials())

    def _marginals(self, potentials: Potentials, factors: np.ndarray) -> Marginals:
        """Return the marginals, those of factors in the flat array `factors` unless it is empty."""
        if self.device == "gpu":
            verdict = self._flood_on_gpu(potentials, maximum=False)
            value, nodes, factors = self._gpu.beliefs()
            return Marginals(value, nodes, factors, verdict)
        found = self._propagate(potentials, self._trees, maximum=False)
        bound = None
        if found.trees is not None and self._is_possible(found):
            found, bound = self._optimise_appearance(potentials, found)
        nodes, count = np.empty(int(self.scopes.state_start[-1])), np.empty(self.scopes.n_nodes)
        belief = np.empty(int(np.diff(self.scopes.table_start).max(initial=0)))
        value = float(
            beliefs.compute_beliefs(
                found.network, found.tables, found.state, self._scratch, count, belief, nodes, factors
            )
        )
        value = value if self.balance is None else np.nan
        return Marginals(value if bound is None else bound, nodes, factors, found.verdict)

    def _class_potentials(self) -> ClassPotentials | None:
        return None if self.balance is None else ClassPotentials(self.balance, self.scopes)

    def _failed_marginals(self, potentials: SharedPotentials, found: Marginals) -> Marginals:
        """Return marginals whose log partition is -inf if no joint state is possible, or nan if propagation has only failed."""
        impossible = is_impossible(self.scopes, potentials)
        if impossible:
            found.nodes[:], found.factors[:] = np.nan, np.nan
        verdict = found.verdict if impossible else replace(found.verdict, status="diverged")
        return Marginals(-np.inf if impossible else np.nan, found.nodes, found.factors, verdict)

    def map_states(self, potentials: Potentials) -> MapStates:
        trees, network, tables, state, verdict = self._propagate(potentials, self._trees, maximum=True)
        states = np.empty(self.scopes.n_nodes, dtype=np.int32)
        queue, queued = np.empty(len(states), dtype=np.int64), np.zeros(len(states), dtype=np.bool_)
        beliefs.decode(network, tables, state, self._scratch, MAX_DECODING_SWEEPS, queue, queued, states)
        score, bound = self.scopes.score(potentials, states), np.inf
        if trees is not None and verdict.status != "diverged":
            bound = trees.mean_best_score(reparametrise(self.scopes, potentials, network, state))
        elif self._is_forest and verdict.is_good and not self.damping:
            bound = score
        # Decoding may fail to find a possible state although one exists.
        if score == -np.inf < bound and verdict.status == "converged":
            verdict = Verdict("not converged", verdict.iterations, verdict.residual)
        return MapStates(score, states, bound, verdict)

    @cached_property
    def _trees(self) -> SpanningTrees | None:
        return None if self.appearance is None else SpanningTrees.sample(self.scopes, self.seed)

    @cached_property
    def _network(self) -> MessageNetwork:
        """The network of ordinary propagation, with appearance probabilities of 1."""
        sizes = self.scopes.cardinality[self.scopes.node]
        return MessageNetwork(self.scopes.kernel_factors, offsets(sizes), np.ones(self.scopes.n_factors))

    @cached_property
    def _scratch(self) -> tuple[np.ndarray, ...]:
        return allocate_scratch(self._network)

    @cached_property
    def _gpu(self) -> PairFlooding:
        """The arrays on the GPU.

        Raises:
            UnsupportedGraphError: If a factor has more than two nodes.
        """
        if (self.scopes.arity != 2).any():
            raise UnsupportedGraphError("device 'gpu' supports factors of two nodes only")
        return PairFlooding(self.scopes)

    @cached_property
    def _propagates_pairs(self) -> bool:
        """Return True if propagation is ordinary flooding on pairs, so that linear messages can remain in lanes."""
        is_ordinary = self.appearance is None and self.device == "cpu" and not self.start_spread
        return bool(is_ordinary and self.schedule in ("flooding", "blocks") and (self.scopes.arity == 2).all())

    @cached_property
    def _is_forest(self) -> bool:
        """Return True if the bipartite graph of nodes and factors is acyclic."""
        component = label_scope_components(self.scopes)
        n_components = np.count_nonzero(component == np.arange(len(component)))
        return bool(len(self.scopes.node) - np.count_nonzero(self.scopes.arity) == self.scopes.n_nodes - n_components)

    @cached_property
    def _lanes(self) -> list[PairLanes]:
        # Appearance probabilities make the tables of a class different.
        return PairLanes.from_scopes(self.scopes if self.appearance is None else replace(self.scopes, table_class=None))

    def _optimise_appearance(self, potentials: Potentials, found: Propagation) -> tuple[Propagation, float]:
        """Minimise the upper bound over the appearance probabilities by the Frank-Wolfe method, with a line search.

        Source: Wainwright, Jaakkola & Willsky (2005), section V.B. Each propagation starts from the messages of the last
        one.

        Args:
            found: Result of propagation with the initial appearance probabilities.

        Returns:
            The result of propagation with the best appearance probabilities, and its bound.
        """
        reparametrised = reparametrise(self.scopes, potentials, found.network, found.state)
        trees = found.trees
        assert trees is not None
        bound, step = trees.mean_log_partition(reparametrised), MAX_STEP
        for _ in range(self.appearance_steps if self.scopes.n_factors else 0):
            forest, gap = trees.descent_direction(pair_information(trees.scopes, reparametrised))
            step = min(2.0 * step, MAX_STEP)
            while gap > self.tolerance and step >= MIN_STEP and found.verdict.status != "interrupted":
                mixed = self._propagate(potentials, trees.mix(forest, step), maximum=False, start=found.state.message)
                if self._is_possible(mixed):
                    assert mixed.trees is not None
                    new = reparametrise(self.scopes, potentials, mixed.network, mixed.state)
                    new_bound = mixed.trees.mean_log_partition(new)
                    if new_bound <= bound - SUFFICIENT_DECREASE * step * gap:
                        found, trees, reparametrised, bound = mixed, mixed.trees, new, new_bound
                        break
                step *= 0.5
            else:
                break
        return found, bound

    def _propagate(
        self, potentials: Potentials, trees: SpanningTrees | None, maximum: bool, start: np.ndarray | None = None
    ) -> Propagation:
        """Propagate messages until the stopping criterion holds.

        Args:
            start: Log messages of an earlier tree-reweighted propagation from which this one starts; by default, messages are
                uniform.
        """
        net, logs = self._network, potentials.factors
        if self.device == "gpu":
            verdict = self._flood_on_gpu(potentials, maximum)
            return Propagation(None, net, *self._log_state(net, potentials, maximum, self._gpu.messages()), verdict)
        if trees is not None:
            net = net._replace(appearance=trees.appearance)
            logs = logs / np.repeat(net.appearance, np.diff(self.scopes.table_start))
        scaled = Potentials(potentials.nodes, logs)
        tolerance = self._stopping_residual(*potentials)
        linear = fits_linear_range(self.scopes, SharedPotentials.from_potentials(self.scopes, scaled))
        is_flooding = self.schedule in ("flooding", "blocks")
        in_lanes = linear and is_flooding  # the tables of pairs then have the layout of `PairLanes`
        with_linear_values = bool((self.scopes.arity > 2).any()) if in_lanes else linear or not maximum
        tables = self._message_tables(scaled, maximum, not linear, with_linear_values)
        state = self._initial_state(net, tables, start)
        if is_flooding:
            classes = None if maximum else self._class_potentials()
            verdict = self._flood_all(net, tables, state, scaled, tolerance, classes)
            scaled = scaled if classes is None else scaled._replace(nodes=scaled.nodes + classes.of_states())
        else:
            verdict = self._iterate(self._make_step(net, tables, state, tolerance), tolerance)
        message = np.log(state.message, out=state.message) if linear else state.message
        return Propagation(trees, net, *self._log_state(net, scaled, maximum, message), verdict)

    def _flood_on_gpu(self, potentials: Potentials, maximum: bool) -> Verdict:
        """Run the flooding schedule on the GPU; the messages remain in `_gpu`."""
        step = self._gpu.start(potentials, maximum, self.damping)
        tolerance = self._stopping_residual(*potentials)
        return iterate(step, tolerance, self.max_iterations, self.observe, MAX_ROUNDS_PER_STEP)

    def _log_state(
        self, net: MessageNetwork, potentials: Potentials, maximum: bool, message: np.ndarray
    ) -> tuple[MessageTables, MessageState]:
        """Return the tables and the state for log messages."""
        tables = self._message_tables(potentials, maximum, log=True, with_linear_values=False)
        n_states = len(potentials.nodes)
        state = MessageState(message, np.empty(n_states), np.empty(n_states, dtype=np.int64))
        schedules.compute_products(net, tables, state)
        return tables, state

    def _iterate(self, step: Step, tolerance: float) -> Verdict:
        n_cells = max(int(self.scopes.table_start[-1]), 1)
        rounds_per_step = min(max(CELLS_PER_STEP // n_cells, 1), MAX_ROUNDS_PER_STEP)
        return iterate(step, tolerance, self.max_iterations, self.observe, rounds_per_step)

    def _stopping_residual(self, *potentials: np.ndarray) -> float:
        """Return the residual at which propagation stops. On forests, this is the rounding error, so that results are exact."""
        if self.damping or not self._is_forest:
            return self.tolerance
        max_potential = max(np.abs(table[np.isfinite(table)]).max(initial=1.0) for table in potentials)
        return float(
            min(
                self.tolerance,
                ROUNDING_ERROR * max_potential * (1 + np.diff(self._network.factors.touch_start).max(initial=0)),
            )
        )

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
            potentials.nodes if log else linear_potentials(self.scopes, potentials.nodes),
            damping,
        )

    def _initial_state(self, net: MessageNetwork, tables: MessageTables, start: np.ndarray | None) -> MessageState:
        """Return the state with the initial messages: those of the settings, or the log messages `start`."""
        n_states = int(self.scopes.state_start[-1])
        barred = np.zeros(n_states if tables.log else 0, dtype=np.int64)
        n_messages = int(net.message_start[-1])
        if start is not None:
            message = start.copy()
        elif self.start_spread:
            message = np.random.default_rng(self.seed).normal(scale=self.start_spread, size=n_messages)
        else:
            message = np.zeros(n_messages)
        if not tables.log:
            np.exp(message, out=message)
        is_uniform = start is None and not self.start_spread
        if is_uniform and not tables.log:
            return MessageState(message, tables.nodes.copy(), barred)  # all messages are 1
        state = MessageState(message, np.empty(n_states), barred)
        schedules.compute_products(net, tables, state)
        return state

    def _make_step(self, net: MessageNetwork, tables: MessageTables, state: MessageState, tolerance: float) -> Step:
        if self.schedule == "sequential":
            n_sweeps = 0

            def sweep(rounds: int) -> float:
                nonlocal n_sweeps
                change = 0.0
                for _ in range(rounds):
                    change = schedules.sweep(net, tables, state, self._scratch, n_sweeps % 2 == 1)
                    n_sweeps += 1
                return float(change)

            return sweep
        n_slots = len(self.scopes.node)
        pending, change = np.empty_like(state.message), np.empty(n_slots)
        schedules.compute_pending(net, tables, state, self._scratch, pending, change)
        largest = build_tournament(change)

        def commit(rounds: int) -> float:
            if np.isnan(change).any():
                return np.nan
            max_messages = rounds * n_slots
            return float(
                schedules.send_by_residual(net, tables, state, self._scratch, pending, largest, tolerance, max_messages)
            )

        return commit

    def _lane_groups(
        self,
        potentials: SharedPotentials,
        initial: tuple[MessageNetwork, MessageState] | None = None,
        *,
        maximum: bool,
    ) -> list[LaneMessages]:
        """Return the tables and linear messages of all pairs, in lanes.

        Args:
            initial: The network, and a state with the initial messages; None for ordinary propagation from uniform messages,
                which does not need the arrays of a network.
        """
        groups = []
        for lanes in self._lanes:
            message, appearance = lanes.uniform_messages(), np.empty((0, LANES))
            if initial is not None:
                net, state = initial
                lanes.load_messages(message, state.message, net.message_start[self.scopes.start])
                appearance = lanes.appearance(net.appearance)
            settings = maximum, self.damping, appearance
            groups.append(LaneMessages(lanes, *lanes.tables(potentials), message, settings))
        return groups

    def _flood_all(
        self,
        net: MessageNetwork,
        tables: MessageTables,
        state: MessageState,
        potentials: Potentials,
        tolerance: float,
        classes: ClassPotentials | None,
    ) -> Verdict:
        """Run the flooding schedule; linear messages of pairs are updated in vectorised lanes, others factor by factor."""
        scopes, groups = self.scopes, []
        if not tables.log:
            shared = SharedPotentials.from_potentials(scopes, potentials)
            groups = self._lane_groups(shared, (net, state), maximum=tables.maximum)
        others = np.flatnonzero(scopes.arity > (0 if tables.log else 2))
        is_impossible = np.isneginf(tables.nodes)
        n_impossible = state.n_impossible.copy() if tables.log else np.zeros(len(is_impossible), dtype=np.int64)
        next_n_impossible = np.empty_like(n_impossible)

        def flood_others(product: np.ndarray, next_product: np.ndarray) -> float:
            nonlocal n_impossible, next_n_impossible
            next_n_impossible[:] = is_impossible
            current = MessageState(state.message, product, n_impossible)
            residual = schedules.flood(net, tables, current, self._scratch, others, next_product, next_n_impossible)
            n_impossible, next_n_impossible = next_n_impossible, n_impossible
            return float(residual)

        if classes is not None and tables.log:
            classes.log_weights = lambda product: np.where(n_impossible > 0, -np.inf, product)
        nodes = np.where(is_impossible, 0.0, tables.nodes)
        update_others = flood_others if len(others) else None
        verdict, _ = self._run_flooding(groups, nodes, state.product, tolerance, update_others, classes)
        for group in groups:
            group.lanes.store_messages(group.message, state.message, net.message_start[scopes.start])
        return verdict

    def _run_flooding(
        self,
        groups: list[LaneMessages],
        nodes: np.ndarray,
        product: np.ndarray,
        tolerance: float,
        flood_others: Callable[[np.ndarray, np.ndarray], float] | None = None,
        classes: ClassPotentials | None = None,
    ) -> tuple[Verdict, np.ndarray]:
        """Run the schedule, and return the products of the nodes, followed by those of the dummy nodes of `PairLanes`.

        Args:
            nodes, product: Node potentials, and products with the initial messages.
            flood_others: Function that updates other messages like `LaneMessages.flood`, and returns the residual.
            classes: Log potentials of classes, updated in each round, and added to `nodes` and `product`.
        """
        padding = np.ones(int(self.scopes.cardinality.max(initial=1)))
        nodes, product = np.concatenate((nodes, padding)), np.concatenate((product, padding))
        next_product, n_rounds, n_states = np.empty_like(product), 0, int(self.scopes.state_start[-1])
        n_first = PARALLEL_ROUNDS if self._initial_messages is None else 0
        n_parallel = n_first if self.schedule == "blocks" and flood_others is None else self.max_iterations

        def flood(rounds: int) -> float:
            nonlocal product, next_product, n_rounds
            change = 0.0
            for _ in range(rounds):
                n_rounds += 1
                next_product = product if n_rounds > n_parallel else next_product
                if next_product is not product:
                    next_product[:] = nodes
                change = float(np.log(max((group.flood(product, next_product) for group in groups), default=1.0)))
                if flood_others is not None:
                    change = float(np.maximum(change, flood_others(product, next_product)))
                product, next_product = next_product, product
                if classes is not None:
                    change = float(np.maximum(change, classes.update(nodes[:n_states], product[:n_states])))
            return change

        verdict = self._iterate(flood, tolerance)
        if verdict.status == "interrupted" and flood_others is None:
            product[:] = nodes  # the last round may have changed messages, but not all products
            for group in groups:
                group.multiply_messages(product)
        return verdict, product

    def _is_possible(self, found: Propagation) -> bool:
        """Return True if propagation has not diverged and every node has a possible state."""
        if found.verdict.status == "diverged":
            return False
        return not np.minimum.reduceat(found.state.n_impossible, self.scopes.state_start[:-1]).any()


@dataclass(frozen=True)
class TreeReweighted(BeliefPropagation):
    """Damped tree-reweighted propagation on pairwise graphs, with upper bounds of the log partition and of the best score."""

    appearance: str | None = "trees"
    appearance_steps: int = 5
    damping: float = 0.3
