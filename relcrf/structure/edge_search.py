"""Learning a graph: edges join a model a few at a time while group L1 keeps most of their tables at 0.

Source: Chaabene & Huang: edge grafting, best choice, first hit; Lee, Ganapathi & Koller, Efficient structure learning of Markov
networks using L1-regularization (2006).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np

from relcrf.columns.offsets import offsets
from relcrf.learning.edge_likelihood import EdgeLikelihood
from relcrf.learning.group_lasso import GroupLasso, Groups
from relcrf.learning.induced import Chosen
from relcrf.learning.lbfgs import Objective, State
from relcrf.learning.likelihood import penalised
from relcrf.structure.activation import AbstractActivation, Activated, EveryEdge
from relcrf.structure.edge_queue import EdgeQueue
from relcrf.structure.edge_tests import EdgeTests
from relcrf.structure.held_out_labels import judged_by_held_out
from relcrf.structure.induction import Strengths
from relcrf.structure.pair_order import PairNumbers

NO_EDGES = 1e-3
"""The scale of the stopping rule where there are no candidates, whose l1 it else is."""


@dataclass(frozen=True, eq=False)
class EdgeSearch:
    """Rounds of activating edges and of moving the weights.

    The objective is `minus log pseudo-likelihood + sum over edges of l1 sqrt(size) |weights| + l2 / 2 |weights|^2`. It has
    converged when the optimiser has on the active edges, and when of all others, by exact gradients, none passes.

    The optimiser's state keeps what a run needs to go on: `chosen`, the edges of the last weights; the queue; `diagonal`, the
    curvature of the weights; `settled`, whether nothing was left when edges were last asked for; `tests`, how many there were;
    `seconds`, how long it has taken; and what `judged_by_held_out` keeps.

    Args:
        model: with nothing chosen.
        strengths: the spaces' l1 are above 0.
        activation: None lets nothing join.
        most: how many edges join at a time at the most, where all have been tested at the end.
        by_counts: how edges are tested, see `EdgeTests`; the last word have gradients.
        hubs: the degree centrality beyond which an end's candidates go first, a share of its possible edges; None is never.
        steps: iterations of the optimiser in a round, at the most.
        tolerance: see `GroupLasso`; its scale is the smallest l1 of a space, or `NO_EDGES`.
        most_seconds: after which it stops with what there is; None is never.
        patience: see `judged_by_held_out`.
        seed: of the queue's order.
    """

    model: EdgeLikelihood
    strengths: Strengths
    activation: AbstractActivation | None
    most: int = 100
    by_counts: bool = False
    hubs: float | None = None
    steps: int = 3
    tolerance: float = 1e-2
    max_iterations: int = 1000
    most_seconds: float | None = None
    patience: int = 5
    seed: int = 0
    clock: Callable[[], float] = field(default=time.perf_counter)

    @cached_property
    def numbers(self) -> PairNumbers:
        return PairNumbers(self.model.spaces)

    def begin(self, point: np.ndarray, chosen: Chosen, seconds: float = 0.0) -> State:
        """Before the first round, at weights of the base and of what is chosen already.

        Args:
            seconds: that have gone by before.
        """
        kept = {
            "chosen": chosen.rows,
            "diagonal": self.model.having(chosen).curvature(),
            "settled": np.array(self.activation is None),
            "tests": np.array(0),
            "seconds": np.array(seconds),
            **EdgeQueue.of(self.numbers, self.seed).kept,
        }
        optimiser, objective = self._problem(kept)
        return replace(optimiser.start(objective, point), kept=kept)

    def run(self, state: State, observe: Callable[[State], None] = lambda state: None) -> State:
        """Goes on to the end; `observe` sees the state after each round."""
        while state.status == "running":
            before = self.clock() - float(state.kept["seconds"])
            late = partial(self._late, before)
            state = judged_by_held_out(self._round(state, late), self._held_out, self.patience)
            seconds = self.clock() - before
            over = self.most_seconds is not None and seconds >= self.most_seconds
            status = "out of time" if over and state.status == "running" else state.status
            state = replace(state, status=status, kept={**state.kept, "seconds": np.array(seconds)})
            observe(state)
        return state

    def _late(self, began: float) -> bool:
        """Whether the time is over; it began with nothing done at some reading of the clock."""
        return self.most_seconds is not None and self.clock() - began >= self.most_seconds

    @cached_property
    def _held_out(self) -> EdgeLikelihood | None:
        return self.model.held_out()

    def _round(self, state: State, late: Callable[[], bool]) -> State:
        """Activates edges, unless none was left, and moves the weights; at the minimum it tests all edges once more."""
        if not state.kept["settled"]:
            state = self._activated(state, late, surely=False)
        optimiser, objective = self._problem(state.kept)
        for _ in range(self.steps):
            if state.status == "running":
                state = optimiser.step(objective, state)
        if state.status != "converged" or self.activation is None:
            return state
        if state.kept["settled"]:
            # At this minimum others may have become worth their penalty.
            state = self._activated(state, late, surely=True)
        return replace(state, status="converged" if state.kept["settled"] else "running")

    def _activated(self, state: State, late: Callable[[], bool], *, surely: bool) -> State:
        """With the edges that the activation finds, at weights of 0; or with those that pass when all are tested."""
        chosen, queue = Chosen.of(state.kept["chosen"]), EdgeQueue.of(self.numbers, self.seed).restored(state.kept)
        tests = self._tests(state, late, surely=surely)
        every = EveryEdge(self.most, 1.0 + self.tolerance)
        found = (every if surely or self.activation is None else self.activation).choose(tests, queue)
        kept = {
            **state.kept,
            "tests": state.kept["tests"] + found.tests,
            "settled": np.array(found.done),
            **self._hubs_first(found, chosen, state.point).kept,
        }
        return self._grown(replace(state, kept=kept), found.pairs, tests)

    def _tests(self, state: State, late: Callable[[], bool], *, surely: bool) -> EdgeTests:
        """Tests of edges at a state; `surely` by gradients."""
        model = self.model.having(Chosen.of(state.kept["chosen"]))
        by_counts = self.by_counts and not surely
        return EdgeTests(model, self.numbers, state.point, tuple(self.strengths.l1), by_counts, late)

    def _hubs_first(self, found: Activated, chosen: Chosen, point: np.ndarray) -> EdgeQueue:
        """The queue, with the candidates at hubs moved ahead; edges with weights make degrees, and so do those that join."""
        if self.hubs is None:
            return found.queue
        there = self.strong(chosen, point)
        edges = np.concatenate((self.numbers.numbers(chosen)[there], found.pairs))
        degree = np.bincount(self.numbers.ends(edges).ravel(), minlength=self.numbers.n_ends)
        return found.queue.preferring(np.flatnonzero(degree > self.hubs * self.numbers.n_partners))

    def strong(self, chosen: Chosen, point: np.ndarray) -> np.ndarray:
        """Which chosen edges have weights other than 0, bool."""
        groups = Groups(self.weight_start(chosen), np.zeros(len(chosen)))
        return np.asarray(groups.norms(point[self.model.n_base :]) > 0.0)

    def _grown(self, state: State, pairs: np.ndarray, tests: EdgeTests) -> State:
        """With more edges, by number, at weights of 0; the tests were made at this state."""
        if not len(pairs):
            return state
        more = self.numbers.chosen(pairs)
        curvature = self.model.having(more).curvature()[self.model.n_base :]
        kept = {
            **state.kept,
            "chosen": Chosen.of(state.kept["chosen"]).joined(more).rows,
            "diagonal": np.concatenate((state.kept["diagonal"], curvature)),
        }
        optimiser, _ = self._problem(kept)
        return replace(optimiser.grown(state, tests.gradient(pairs)), kept=kept)

    def weight_start(self, chosen: Chosen) -> np.ndarray:
        """Where the weights of each edge begin behind those of the base, shape (n_chosen + 1,)."""
        return offsets(self._sizes(chosen))

    def _sizes(self, chosen: Chosen) -> np.ndarray:
        """How many weights each edge has, shape (n_chosen,)."""
        of_spaces = [space.patterns.shape[1] for space in self.model.spaces]
        return np.asarray(np.array(of_spaces, dtype=np.int64)[chosen.space])

    def _l1(self, chosen: Chosen) -> np.ndarray:
        """Strengths of the spaces of edges, shape (n_chosen,)."""
        return np.asarray(np.array(self.strengths.l1, dtype=np.float64)[chosen.space])

    @property
    def _base_l1(self) -> np.ndarray:
        return np.where(self.strengths.learned, self.strengths.base_l1, 0.0)

    def _groups(self, kept: Mapping[str, np.ndarray]) -> Groups:
        """The weights of the base, each by itself, and those of each edge."""
        chosen, base = Chosen.of(kept["chosen"]), self._base_l1
        sizes = self._sizes(chosen)
        ends = np.cumsum(np.concatenate(([0], np.ones(len(base), dtype=np.int64), sizes)))
        return Groups(ends, np.concatenate((base, self._l1(chosen) * np.sqrt(sizes))))

    def _problem(self, kept: Mapping[str, np.ndarray]) -> tuple[GroupLasso, Objective]:
        chosen, strengths = Chosen.of(kept["chosen"]), self.strengths
        of_edges = np.asarray(strengths.l2, dtype=np.float64)[chosen.space]
        l2 = np.concatenate((strengths.base_l2, np.repeat(of_edges, self._sizes(chosen))))
        learned = np.concatenate((strengths.learned, np.ones(len(l2) - len(strengths.learned), dtype=bool)))
        # As in `maximise_likelihood`, the square root of the curvature goes faster than the curvature.
        root = np.sqrt(kept["diagonal"] + l2)
        root = np.maximum(root, 1e-6 * root.max(initial=1e-300))
        scale = min(strengths.l1, default=NO_EDGES)
        optimiser = GroupLasso(self._groups(kept), root, scale, self.tolerance, self.max_iterations)
        return optimiser, penalised(self.model.having(chosen), l2, learned)
