"""Structure learning: candidates join a model a few at a time while their penalty keeps most of their weights at 0.

Source: Perkins, Lacker & Theiler, Grafting (2003); Lee, Ganapathi & Koller, Efficient structure learning of Markov networks using
L1-regularization (2006); Lao & Zhu, Contrastive Feature Induction for Efficient Structure Learning of Conditional Random Fields
(2014), section 3; Chaabene & Huang: edge grafting, best choice, first hit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Self

import numpy as np

from relcrf.graph.candidates import CandidateSet, PairSpace
from relcrf.graph.triples import PairOrTripleSpace
from relcrf.graph.weights import WeightLayout
from relcrf.learning.candidate_objective import AbstractCandidateObjective
from relcrf.learning.early_stopping import EarlyStoppingState, update_early_stopping
from relcrf.learning.group_lasso import GroupLasso, WeightGroups
from relcrf.learning.lbfgs import AbstractGrowingMinimiser, Objective
from relcrf.learning.likelihood import add_l2_penalty
from relcrf.learning.owlqn import Owlqn
from relcrf.learning.proximal import ProximalAdaGrad
from relcrf.structure.activation import AbstractActivation
from relcrf.structure.edge_queue import EdgeQueue
from relcrf.structure.pair_index import PairIndex
from relcrf.structure.scores import CandidateScorer

DEFAULT_STOPPING_SCALE = 1e-3
"""Scale of the stopping rule of group L1 where there are no candidates; else it is the smallest l1 of theirs."""

MinimiserFactory = Callable[[WeightGroups, np.ndarray], AbstractGrowingMinimiser]
"""Returns an optimiser for the penalty of some groups of weights and an estimate of the Hessian's diagonal."""


@dataclass(frozen=True)
class PenaltyStrengths:
    """Strengths of the penalties: of each weight of the base, shape (n_base,), and of the candidates of each space.

    Args:
        learnable: weights of the base that learning may move, bool.
    """

    base_l1: np.ndarray
    base_l2: np.ndarray
    learnable: np.ndarray
    l1: Sequence[float]
    l2: Sequence[float]

    @classmethod
    def from_layout(
        cls, layout: WeightLayout, spaces: Sequence[PairOrTripleSpace], l1: Sequence[float], l2: float
    ) -> PenaltyStrengths:
        """Return the strengths of a model's declarations.

        Args:
            layout: of the base.
            l1, l2: strengths where a space, and for `l2` a template, does not set its own; `l1` has one for each space.
        """
        return cls(
            np.where(layout.learnable_mask(), layout.l1(0.0), 0.0),
            layout.l2(l2),
            layout.learnable_mask(),
            [default if space.l1 is None else space.l1 for space, default in zip(spaces, l1, strict=True)],
            [l2 if space.l2 is None else space.l2 for space in spaces],
        )


def group_lasso_factory(strengths: PenaltyStrengths, tolerance: float, max_iterations: int) -> MinimiserFactory:
    """Return the minimiser for groups of weights; its `tolerance` is relative to the smallest l1 of a space."""
    scale = min(strengths.l1, default=DEFAULT_STOPPING_SCALE)
    return lambda groups, diagonal: GroupLasso(
        tolerance, max_iterations=max_iterations, groups=groups, diagonal=diagonal, scale=scale
    )


def lasso_factory(tolerance: float, max_iterations: int, *, exact_gradient: bool) -> MinimiserFactory:
    """Return the minimiser for groups of one weight each: OWL-QN, or where gradients are not exact, proximal descent."""
    if exact_gradient:
        return lambda groups, diagonal: Owlqn(
            tolerance, max_iterations=max_iterations, inverse_diagonal=1.0 / diagonal, l1=groups.strength
        )
    return lambda groups, diagonal: ProximalAdaGrad(tolerance, max_iterations, l1=groups.strength)


@dataclass(frozen=True, kw_only=True)
class SearchState(EarlyStoppingState):
    """The state of a search.

    Args:
        chosen: candidates of the last weights. best_chosen: those of `best_point`.
        active_weights: which weights of the chosen have joined, shape (n_weights of the chosen,), bool; the others stay 0.
        diagonal: an estimate of the Hessian's diagonal without penalties, of the shape of `point`.
        queue: candidates that wait for a test.
        is_exhausted: whether nothing was left when candidates were last activated.
        n_tests: how many candidates have been tested. seconds: how long it has taken.
    """

    chosen: CandidateSet
    best_chosen: CandidateSet
    active_weights: np.ndarray
    diagonal: np.ndarray
    queue: EdgeQueue
    is_exhausted: bool
    n_tests: int
    seconds: float

    def with_best(self, loss: float) -> Self:
        return replace(super().with_best(loss), best_chosen=self.chosen)

    def at_best(self) -> Self:
        return replace(super().at_best(), chosen=self.best_chosen)


@dataclass(frozen=True, eq=False)
class StructureSearch:
    """Rounds of activating candidates and of moving the weights.

    It minimises the objective `+ sum over groups of strength |weights| + l2 / 2 |weights|^2`, where a candidate's weights are a
    group of strength `l1 sqrt(size)`. It has converged when the optimiser has for the weights that have joined, and when no
    other candidate passes the test at this minimum.

    Args:
        model: the objective, with nothing chosen.
        strengths: of the penalties.
        make_minimiser: makes the optimiser.
        activation: chooses what joins; None lets nothing join.
        final_activation: chooses what joins once the optimiser has converged; None is `activation`.
        grouped: False makes each weight a group of its own.
        score_by_counts: how `activation` tests edges, see `CandidateScorer`; `final_activation` tests them by gradients.
        hub_fraction: the degree centrality beyond which an end's candidates go first, as a fraction of its possible edges; None is never.
        iterations_per_round: iterations of the optimiser in a round, at the most.
        max_seconds: after which it stops with what there is; None is never.
        patience: rounds without progress of held-out labels, see `update_early_stopping`.
        seed: of the order of candidates.
    """

    model: AbstractCandidateObjective
    strengths: PenaltyStrengths
    make_minimiser: MinimiserFactory
    activation: AbstractActivation | None
    final_activation: AbstractActivation | None = None
    grouped: bool = True
    score_by_counts: bool = False
    hub_fraction: float | None = None
    iterations_per_round: int = 3
    max_seconds: float | None = None
    patience: int = 5
    seed: int = 0
    clock: Callable[[], float] = field(default=time.perf_counter)

    @cached_property
    def pair_index(self) -> PairIndex:
        """Return the numbers of all candidates that are pairs."""
        return PairIndex(tuple(s for s in self.model.spaces if isinstance(s, PairSpace)), self.seed)

    def initial_state(self, point: np.ndarray, chosen: CandidateSet, seconds: float = 0.0) -> SearchState:
        """Return the state before the first round, at weights of the base and of what is chosen already.

        Args:
            seconds: that previous stages took.
        """
        diagonal = np.concatenate((self.model.base_curvature(), self.model.candidate_curvature(chosen)))
        opened = np.ones(len(diagonal) - self.model.n_base, dtype=bool)
        optimiser, objective = self._build_problem(chosen, opened, diagonal)
        return SearchState.from_state(
            optimiser.start(objective, point),
            chosen=chosen,
            best_chosen=CandidateSet.empty(),
            active_weights=opened,
            diagonal=diagonal,
            queue=EdgeQueue.untested(),
            is_exhausted=self.activation is None,
            n_tests=0,
            seconds=seconds,
        )

    def run(self, state: SearchState, observe: Callable[[SearchState], None] = lambda state: None) -> SearchState:
        """Continue to the end; `observe` receives the state after each round."""
        held_out = self.model.held_out()
        while state.status == "running":
            before = self.clock() - state.seconds
            state = self._run_round(state, partial(self._is_out_of_time, before))
            if held_out is not None:
                loss = held_out.with_candidates(state.chosen)(state.point)[0]
                state = update_early_stopping(state, loss, self.patience)
            seconds = self.clock() - before
            over = self.max_seconds is not None and seconds >= self.max_seconds
            status = "out of time" if over and state.status == "running" else state.status
            state = replace(state, status=status, seconds=seconds)
            observe(state)
        return state

    def nonzero_mask(self, chosen: CandidateSet, point: np.ndarray) -> np.ndarray:
        """Return which chosen candidates have weights other than 0, bool."""
        groups = WeightGroups(self.model.weight_start(chosen), np.zeros(len(chosen)))
        return np.asarray(groups.norms(point[self.model.n_base :]) > 0.0)

    def learned_pairs(self, state: SearchState) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Return the candidates with weights other than 0, for `Problem.having`.

        Returns:
            the pairs of each space by its name, ascending; and the indices of their weights in `point`, after those of the base.
        """
        chosen, n_base = state.chosen, self.model.n_base
        strong, start = self.nonzero_mask(chosen, state.point), n_base + self.model.weight_start(chosen)
        kept, pairs = [np.arange(n_base)], {}
        for number, space in enumerate(self.model.spaces):
            places = chosen.indices_in_space(number)
            places = places[strong[places]]
            places = places[np.lexsort((chosen.second[places], chosen.first[places]))]
            if len(places):
                pairs[space.name] = chosen.pairs(places)
                kept.append((start[places, None] + np.arange(space.n_weights)).ravel())
        return pairs, np.concatenate(kept)

    def _is_out_of_time(self, began: float) -> bool:
        """Return whether the time is over; it began with nothing done at some reading of the clock."""
        return self.max_seconds is not None and self.clock() - began >= self.max_seconds

    def _run_round(self, state: SearchState, is_out_of_time: Callable[[], bool]) -> SearchState:
        """Activate candidates, unless none was left, and move the weights; at the minimum test all candidates once more."""
        if not state.is_exhausted and self.activation is not None:
            state = self._activate(state, self.activation, self.score_by_counts, is_out_of_time)
        optimiser, objective = self._build_problem(state.chosen, state.active_weights, state.diagonal)
        for _ in range(self.iterations_per_round):
            if state.status == "running":
                state = optimiser.step(objective, state)
        if state.status != "converged" or self.activation is None:
            return state
        if state.is_exhausted:
            # At this minimum others may have become worth their penalty.
            state = self._activate(state, self.final_activation or self.activation, False, is_out_of_time)
        return replace(state, status="converged" if state.is_exhausted else "running")

    def _activate(
        self,
        state: SearchState,
        activation: AbstractActivation,
        score_by_counts: bool,
        is_out_of_time: Callable[[], bool],
    ) -> SearchState:
        """Return the state with the candidates that an activation chooses, at weights of 0."""
        model = self.model.with_candidates(state.chosen)
        tests = CandidateScorer(
            model,
            self.pair_index,
            state.point,
            tuple(self.strengths.l1),
            score_by_counts,
            is_out_of_time,
            state.gradient,
            state.active_weights,
        )
        found = activation.choose(tests, state.queue)
        queue = (
            found.queue if self.hub_fraction is None else self._prioritise_hubs(found.queue, state, found.candidates)
        )
        size = len(found.gradient)
        opened = (
            np.concatenate((state.active_weights, np.ones(size, dtype=bool)))
            if found.active_weights is None
            else found.active_weights
        )
        state = replace(
            state,
            n_tests=state.n_tests + found.n_tests,
            is_exhausted=found.is_exhausted,
            queue=queue,
            active_weights=opened,
        )
        if not size:
            return state
        chosen = state.chosen.concat(found.candidates)
        diagonal = np.concatenate((state.diagonal, self.model.candidate_curvature(found.candidates)))
        optimiser, _ = self._build_problem(chosen, opened, diagonal)
        return replace(optimiser.extend_state(state, found.gradient), chosen=chosen, diagonal=diagonal)

    def _prioritise_hubs(self, queue: EdgeQueue, state: SearchState, joining: CandidateSet) -> EdgeQueue:
        """Return the queue with the candidates at hubs moved ahead; edges with weights and those that join make degrees."""
        assert self.hub_fraction is not None
        edges = state.chosen.select(self.nonzero_mask(state.chosen, state.point)).concat(joining)
        ends = self.pair_index.ends(self.pair_index.encode(edges))
        degree = np.bincount(ends.ravel(), minlength=self.pair_index.n_ends)
        return queue.with_hubs(np.flatnonzero(degree > self.hub_fraction * self.pair_index.n_partners), self.pair_index)

    def _build_problem(
        self, chosen: CandidateSet, opened: np.ndarray, diagonal: np.ndarray
    ) -> tuple[AbstractGrowingMinimiser, Objective]:
        """Return the optimiser of the weights of the base and of the chosen, and the smooth part of what it minimises."""
        strengths, sizes = self.strengths, np.diff(self.model.weight_start(chosen))
        l1, l2 = (np.asarray(of, dtype=np.float64)[chosen.space] for of in (strengths.l1, strengths.l2))
        l2 = np.concatenate((strengths.base_l2, np.repeat(l2, sizes)))
        learned = np.concatenate((strengths.learnable, np.ones(len(l2) - len(strengths.learnable), dtype=bool)))
        # As in `maximise_likelihood`, the square root of the curvature goes faster than the curvature.
        root = np.sqrt(diagonal + l2)
        root = np.maximum(root, 1e-6 * root.max(initial=1e-300))
        if self.grouped:
            strength = l1 * np.sqrt(sizes)
        else:
            sizes, strength = np.ones(len(opened), dtype=np.int64), np.where(opened, np.repeat(l1, sizes), np.inf)
        groups = WeightGroups.from_sizes(
            np.concatenate((np.ones(self.model.n_base, dtype=np.int64), sizes)),
            np.concatenate((strengths.base_l1, strength)),
        )
        return self.make_minimiser(groups, root), add_l2_penalty(self.model.with_candidates(chosen), l2, learned)
