"""Learning a graph: edges join a model a few at a time while group L1 keeps most of their tables at 0.

Source: Chaabene & Huang: edge grafting, best choice, first hit; Lee, Ganapathi & Koller, Efficient structure learning of Markov
networks using L1-regularization (2006).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

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
        tolerance: see `GroupLasso`; its scale is the smallest l1 of a space.
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
    steps: int = 10
    tolerance: float = 1e-2
    max_iterations: int = 1000
    most_seconds: float | None = None
    patience: int = 5
    seed: int = 0
    clock: Callable[[], float] = field(default=time.perf_counter)

    @cached_property
    def numbers(self) -> PairNumbers:
        return PairNumbers(self.model.spaces)

    def begin(self, point: np.ndarray, chosen: Chosen) -> State:
        """Before the first round, at weights of the base and of what is chosen already."""
        diagonal = self.model.having(chosen).curvature()
        optimiser, objective = self._problem(chosen, diagonal)
        kept = {
            "chosen": chosen.rows,
            "diagonal": diagonal,
            "settled": np.array(self.activation is None),
            "tests": np.array(0),
            "seconds": np.array(0.0),
            **EdgeQueue.of(self.numbers, self.seed).kept,
        }
        return replace(optimiser.start(objective, point), kept=kept)

    def run(self, state: State, observe: Callable[[State], None] = lambda state: None) -> State:
        """Goes on to the end; `observe` sees the state after each round."""
        while state.status == "running":
            began = self.clock()
            state = judged_by_held_out(self._round(state), self._held_out, self.patience)
            seconds = float(state.kept["seconds"]) + self.clock() - began
            late = self.most_seconds is not None and seconds >= self.most_seconds
            status = "out of time" if late and state.status == "running" else state.status
            state = replace(state, status=status, kept={**state.kept, "seconds": np.array(seconds)})
            observe(state)
        return state

    @cached_property
    def _held_out(self) -> EdgeLikelihood | None:
        return self.model.held_out()

    def _round(self, state: State) -> State:
        """Activates edges, unless none was left, and moves the weights; at the minimum it tests all edges once more."""
        if not state.kept["settled"] and self.activation is not None:
            state = self._activated(state, self.activation, by_counts=self.by_counts)
        optimiser, objective = self._problem(Chosen.of(state.kept["chosen"]), state.kept["diagonal"])
        for _ in range(self.steps):
            if state.status == "running":
                state = optimiser.step(objective, state)
        if state.status != "converged" or self.activation is None:
            return state
        if state.kept["settled"]:
            # At this minimum others may have become worth their penalty.
            state = self._activated(state, EveryEdge(self.most, 1.0 + self.tolerance), by_counts=False)
        return replace(state, status="converged" if state.kept["settled"] else "running")

    def _activated(self, state: State, activation: AbstractActivation, *, by_counts: bool) -> State:
        """With the edges that an activation finds, at weights of 0."""
        chosen = Chosen.of(state.kept["chosen"])
        model, queue = self.model.having(chosen), EdgeQueue.of(self.numbers, self.seed).restored(state.kept)
        tests = EdgeTests(model, self.numbers, state.point, tuple(self.strengths.l1), by_counts)
        found = activation.choose(tests, queue)
        kept = {
            **state.kept,
            "tests": state.kept["tests"] + found.tests,
            "settled": np.array(found.done),
            **self._hubs_first(found, chosen, state.point).kept,
        }
        return self._grown(replace(state, kept=kept), chosen, self.numbers.chosen(found.pairs))

    def _hubs_first(self, found: Activated, chosen: Chosen, point: np.ndarray) -> EdgeQueue:
        """The queue, with the candidates at hubs moved ahead; edges with weights make degrees, and so do those that join."""
        if self.hubs is None:
            return found.queue
        there = self._groups(chosen).norms(point)[self.model.n_base :] > 0.0
        edges = np.concatenate((self.numbers.numbers(chosen)[there], found.pairs))
        degree = np.bincount(self.numbers.ends(edges).ravel(), minlength=self.numbers.n_ends)
        return found.queue.preferring(np.flatnonzero(degree > self.hubs * self.numbers.n_partners))

    def _grown(self, state: State, chosen: Chosen, more: Chosen) -> State:
        """With more edges, at weights of 0."""
        if not len(more):
            return state
        curvature = self.model.having(more).curvature()[self.model.n_base :]
        diagonal, together = np.concatenate((state.kept["diagonal"], curvature)), chosen.joined(more)
        optimiser, objective = self._problem(together, diagonal)
        grown = optimiser.grown(state, objective, np.concatenate((state.point, np.zeros(len(curvature)))))
        return replace(
            grown,
            iteration=state.iteration,
            evaluations=state.evaluations + 1,
            kept={**state.kept, "chosen": together.rows, "diagonal": diagonal},
        )

    def _sizes(self, chosen: Chosen) -> np.ndarray:
        """How many weights each edge has, shape (n_chosen,)."""
        return np.array([space.patterns.shape[1] for space in self.model.spaces], dtype=np.int64)[chosen.space]

    def _groups(self, chosen: Chosen) -> Groups:
        """The weights of the base, each by itself, and those of each edge."""
        sizes, strengths = self._sizes(chosen), self.strengths
        base = np.where(strengths.learned, strengths.base_l1, 0.0)
        of_edges = np.asarray(strengths.l1)[chosen.space] * np.sqrt(sizes)
        ends = np.cumsum(np.concatenate(([0], np.ones(len(base), dtype=np.int64), sizes)))
        return Groups(ends, np.concatenate((base, of_edges)))

    def _problem(self, chosen: Chosen, diagonal: np.ndarray) -> tuple[GroupLasso, Objective]:
        strengths = self.strengths
        l2 = np.concatenate(
            (strengths.base_l2, np.repeat(np.asarray(strengths.l2)[chosen.space], self._sizes(chosen)))
        )
        learned = np.concatenate((strengths.learned, np.ones(len(l2) - len(strengths.learned), dtype=bool)))
        # As in `maximise_likelihood`, the square root of the curvature goes faster than the curvature.
        root = np.sqrt(diagonal + l2)
        root = np.maximum(root, 1e-6 * root.max(initial=1e-300))
        scale = min(self.strengths.l1)
        optimiser = GroupLasso(self._groups(chosen), root, scale, self.tolerance, self.max_iterations)
        return optimiser, penalised(self.model.having(chosen), l2, learned)
