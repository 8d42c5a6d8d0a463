"""Structure search: candidate factors are added to a model, a few at a time; a penalty keeps most weights at 0.

Sources: Perkins, Lacker & Theiler, Grafting (2003); Lee, Ganapathi & Koller, Efficient structure learning of Markov
networks using L1-regularization (2006); Lao & Zhu, Contrastive Feature Induction for Efficient Structure Learning of
Conditional Random Fields (2014), section 3; Chaabene & Huang, Best-choice edge grafting for efficient structure
learning of Markov random fields (2018).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Self

import numpy as np

from relcrf.columns.offsets import offsets
from relcrf.graph.candidates import CandidateSet, PairSpace
from relcrf.graph.factor_graph import FactorGraph
from relcrf.graph.feature_scales import weight_scales
from relcrf.graph.triples import PairOrTripleSpace
from relcrf.graph.weights import WeightLayout
from relcrf.learning.candidate_objective import AbstractCandidateObjective
from relcrf.learning.early_stopping import EarlyStoppingState, update_early_stopping
from relcrf.learning.feature_units import in_feature_units, unit_scales
from relcrf.learning.group_lasso import GroupLasso, WeightGroups
from relcrf.learning.lbfgs import AbstractGrowingMinimiser, Objective
from relcrf.learning.likelihood import add_l2_penalty
from relcrf.learning.owlqn import GradientOwlqn, Owlqn
from relcrf.learning.proximal import ProximalAdaGrad
from relcrf.structure.activation import AbstractActivation
from relcrf.structure.edge_queue import EdgeQueue
from relcrf.structure.pair_index import PairIndex
from relcrf.structure.scores import CandidateScorer

DEFAULT_STOPPING_SCALE = 1e-3
"""Scale of the group lasso's stopping rule without candidate spaces; with spaces, the smallest l1 is the scale."""

MinimiserFactory = Callable[[WeightGroups, np.ndarray], AbstractGrowingMinimiser]
"""A function that creates an optimiser from groups of weights with penalty strengths, and a scale for each weight."""


@dataclass(frozen=True)
class PenaltyStrengths:
    """Penalty strengths of the base weights (of the model without candidates) and of the candidates of each space.

    Args:
        base_l1: Strength of the norm of each group of base weights; a group may be a single weight.
        base_l2: L2 strength of each base weight, shape (n_base,).
        base_centre: The base weights without L2 penalty, shape (n_base,).
        learnable: Mask of the base weights that learning may change, bool, shape (n_base,).
        l1, l2: L1 and L2 strength for the candidates of each space.
        base_sizes: Number of weights of each group of base weights; None if each weight is a group.
    """

    base_l1: np.ndarray
    base_l2: np.ndarray
    base_centre: np.ndarray
    learnable: np.ndarray
    l1: Sequence[float]
    l2: Sequence[float]
    base_sizes: np.ndarray | None = None

    @classmethod
    def from_layout(
        cls,
        layout: WeightLayout,
        spaces: Sequence[PairOrTripleSpace],
        l1: Sequence[float],
        l2: float,
        base_l1: float = 0.0,
    ) -> PenaltyStrengths:
        """Return the strengths that a model declares; the arguments contain defaults for undeclared strengths.

        Args:
            layout: Layout of the base weights.
            spaces: Candidate spaces.
            l1: Default L1 strength of each space.
            l2: Default L2 strength of all spaces and templates.
            base_l1: Default L1 strength of all templates.
        """
        return cls(
            np.where(layout.learnable_mask(), layout.l1(base_l1), 0.0),
            layout.l2(l2),
            layout.initial(),
            layout.learnable_mask(),
            [default if space.l1 is None else space.l1 for space, default in zip(spaces, l1, strict=True)],
            [l2 if space.l2 is None else space.l2 for space in spaces],
        )

    def with_node_groups(self, graph: FactorGraph, strength: float) -> PenaltyStrengths:
        """Return the strengths with a group penalty `strength * sqrt(size)` on the weights of nodes.

        The weights of a template over one variable form one group per key, or a single group if the template has no
        keys. Templates that declare an L1 penalty keep it, without groups.

        Source: Chaabene & Huang (2018), equation (9), in which the weights of a node or of an edge form a group.
        """
        l1, sizes = [np.empty(0)], [np.empty(0, dtype=np.int64)]
        for number, block in enumerate(graph.layout.blocks):
            groups = [group for group in graph.groups if group.block == number]
            if groups and all(len(g.scope) == 1 for g in groups) and block.l1 is None and not block.fixed:
                n_keys = groups[0].features.n_blocks
                sizes.append(np.full(n_keys, block.size // max(n_keys, 1)))
                l1.append(strength * np.sqrt(sizes[-1]))
            else:
                sizes.append(np.ones(block.size, dtype=np.int64))
                l1.append(self.base_l1[graph.layout.starts[number] : graph.layout.starts[number + 1]])
        return replace(self, base_l1=np.concatenate(l1), base_sizes=np.concatenate(sizes))


def group_lasso_factory(strengths: PenaltyStrengths, tolerance: float, max_iterations: int) -> MinimiserFactory:
    """Return a factory of group lasso optimisers; `tolerance` is relative to the smallest l1 of the spaces."""
    scale = min(strengths.l1, default=DEFAULT_STOPPING_SCALE)
    return lambda groups, diagonal: GroupLasso(
        tolerance, max_iterations=max_iterations, groups=groups, diagonal=diagonal, scale=scale
    )


def lasso_factory(
    tolerance: float, max_iterations: int, *, exact_gradient: bool, quasi_newton: bool = True
) -> MinimiserFactory:
    """Return a factory of optimisers with an L1 penalty: OWL-QN, or proximal AdaGrad without `quasi_newton`.

    If gradients are inexact, i.e. not the derivatives of the values, OWL-QN uses only gradients.
    """
    if not quasi_newton:
        return lambda groups, diagonal: ProximalAdaGrad(tolerance, max_iterations, l1=groups.strength)
    method = Owlqn if exact_gradient else GradientOwlqn
    return lambda groups, diagonal: method(
        tolerance, max_iterations=max_iterations, inverse_diagonal=1.0 / diagonal, l1=groups.strength
    )


@dataclass(frozen=True, kw_only=True)
class SearchState(EarlyStoppingState):
    """The state of a search.

    Args:
        chosen: Selected candidates; `point` contains their weights after the base weights.
        best_chosen: Selected candidates with weights in `best_point`.
        active_weights: Mask of the active weights of the selected candidates, bool; inactive weights stay 0.
        diagonal: Estimate of the Hessian's diagonal without penalties, shape of `point`.
        queue: Candidates to be tested.
        is_exhausted: True if the last activation added no candidate and none can pass before the weights change.
        n_tests: Number of tested candidates.
        seconds: Elapsed time, including previous stages.
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
    """A search that alternates between the activation of candidates and the optimisation of weights.

    The search minimises `objective + sum over groups of (strength * |weights|) + l2 / 2 * |all weights - centre|^2`;
    the centre contains the initial weights of the base, and 0 for candidates. The weights of a candidate form a group of
    strength `l1 * sqrt(size)`. A *round* is one activation and a few optimiser iterations. The search has converged when
    the optimiser has converged for the active weights and no other candidate passes the test of the activation rule at
    this minimum.

    Args:
        model: Objective without candidates.
        strengths: Penalty strengths.
        make_minimiser: Function that creates the optimiser.
        activation: Activation rule; with None, no candidates are added.
        final_activation: Activation rule after the optimiser has converged; None uses `activation`.
        grouped: Whether the weights of a candidate form a group; otherwise each weight is a separate group.
        score_by_counts: Whether `activation` tests edges by counts (see `CandidateScorer`). The final activation always
            uses gradients.
        hub_fraction: A key is a *hub* if the model has more than this fraction of the key's possible edges. Candidates
            at hubs are tested first. None disables hubs.
        iterations_per_round: Maximum number of optimiser iterations per round.
        max_seconds: Time limit, after which the search stops with its current state; None is unlimited.
        patience: Number of rounds without improvement on held-out labels, see `update_early_stopping`; None disables
            early stopping.
        seed: Seed of the search order.
        clock: Function that returns the current time in seconds.
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
    patience: int | None = 5
    seed: int = 0
    clock: Callable[[], float] = field(default=time.perf_counter)

    @cached_property
    def pair_index(self) -> PairIndex:
        """Return the numbering of all candidate pairs."""
        return PairIndex(tuple(s for s in self.model.spaces if isinstance(s, PairSpace)), self.seed)

    @cached_property
    def _group_scales(self) -> np.ndarray:
        """Return the unit of the weights in each group of base weights, shape (n_groups,), see `unit_scales`."""
        strengths, start = self.strengths, offsets(self._base_sizes)[:-1]
        if not len(start):
            return np.ones(0)
        scales, l2 = (
            np.maximum.reduceat(each, start) for each in (weight_scales(self.model.base.graph), strengths.base_l2)
        )
        return unit_scales(scales, l2, np.where(np.isfinite(strengths.base_l1), strengths.base_l1, 0.0))

    @property
    def _base_sizes(self) -> np.ndarray:
        """Return the number of weights in each group of base weights, shape (n_groups,)."""
        sizes = self.strengths.base_sizes
        return np.ones(self.model.n_base, dtype=np.int64) if sizes is None else sizes

    def initial_state(self, point: np.ndarray, chosen: CandidateSet, seconds: float = 0.0) -> SearchState:
        """Return the state before the first round.

        Args:
            point: Initial weights of the base and of `chosen`.
            chosen: Candidates that are selected initially.
            seconds: Elapsed time of previous stages.
        """
        diagonal = np.concatenate((self.model.base_curvature(), self.model.candidate_curvature(chosen)))
        active_weights = np.ones(len(diagonal) - self.model.n_base, dtype=bool)
        optimiser, objective = self._build_problem(chosen, active_weights, diagonal)
        return SearchState.from_state(
            optimiser.start(objective, point),
            chosen=chosen,
            best_chosen=CandidateSet.empty(),
            active_weights=active_weights,
            diagonal=diagonal,
            queue=EdgeQueue.untested(),
            is_exhausted=self.activation is None,
            n_tests=0,
            seconds=seconds,
        )

    def run(self, state: SearchState, observe: Callable[[SearchState], None] = lambda state: None) -> SearchState:
        """Run the search to the end; `observe` receives the state after each round."""
        held_out = self.model.held_out()
        while state.status == "running":
            start_time = self.clock() - state.seconds
            state = self._run_round(state, partial(self._is_out_of_time, start_time))
            if held_out is not None and self.patience is not None:
                loss = held_out.with_candidates(state.chosen)(state.point)[0]
                state = update_early_stopping(state, loss, self.patience)
            seconds = self.clock() - start_time
            is_over = self.max_seconds is not None and seconds >= self.max_seconds
            status = "out of time" if is_over and state.status == "running" else state.status
            state = replace(state, status=status, seconds=seconds)
            observe(state)
        return state

    def nonzero_mask(self, chosen: CandidateSet, point: np.ndarray) -> np.ndarray:
        """Return a mask of the selected candidates with nonzero weights, bool."""
        groups = WeightGroups(self.model.weight_start(chosen), np.zeros(len(chosen)))
        return np.asarray(groups.norms(point[self.model.n_base :]) > 0.0)

    def learned_pairs(self, state: SearchState) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Return the candidates with nonzero weights, in the form that `Problem.with_candidates` accepts.

        Returns:
            The pairs of each space, ascending, by the name of the space; and the indices in `point` of the base
            weights, followed by the indices of the pairs' weights.
        """
        chosen, n_base = state.chosen, self.model.n_base
        nonzero, start = self.nonzero_mask(chosen, state.point), n_base + self.model.weight_start(chosen)
        weight_indices, pairs = [np.arange(n_base)], {}
        for number, space in enumerate(self.model.spaces):
            indices = chosen.indices_in_space(number)
            indices = indices[nonzero[indices]]
            indices = indices[np.lexsort((chosen.second[indices], chosen.first[indices]))]
            if len(indices):
                pairs[space.name] = chosen.pairs(indices)
                weight_indices.append((start[indices, None] + np.arange(space.n_weights)).ravel())
        return pairs, np.concatenate(weight_indices)

    def _is_out_of_time(self, start_time: float) -> bool:
        """Return True if the time limit is exceeded; `start_time` is the time at which the search started."""
        return self.max_seconds is not None and self.clock() - start_time >= self.max_seconds

    def _run_round(self, state: SearchState, is_out_of_time: Callable[[], bool]) -> SearchState:
        """Activate candidates and optimise the weights; if the search is exhausted, activate only at the minimum."""
        if not state.is_exhausted and self.activation is not None:
            state = self._activate(state, self.activation, self.score_by_counts, is_out_of_time)
        optimiser, objective = self._build_problem(state.chosen, state.active_weights, state.diagonal)
        for _ in range(self.iterations_per_round):
            if state.status == "running":
                state = optimiser.step(objective, state)
        if state.status != "converged" or self.activation is None:
            return state
        if state.is_exhausted:
            # Other candidates may pass the test at the new minimum.
            state = self._activate(state, self.final_activation or self.activation, False, is_out_of_time)
        return replace(state, status="converged" if state.is_exhausted else "running")

    def _activate(
        self,
        state: SearchState,
        activation: AbstractActivation,
        score_by_counts: bool,
        is_out_of_time: Callable[[], bool],
    ) -> SearchState:
        """Return the state with additional candidates, selected by an activation rule; the new weights are 0."""
        model = self.model.with_candidates(state.chosen)
        scorer = CandidateScorer(
            model,
            self.pair_index,
            state.point,
            tuple(self.strengths.l1),
            score_by_counts,
            is_out_of_time,
            state.gradient,
            state.active_weights,
        )
        result = activation.choose(scorer, state.queue)
        queue = (
            result.queue if self.hub_fraction is None else self._prioritise_hubs(result.queue, state, result.candidates)
        )
        size = len(result.gradient)
        active_weights = (
            np.concatenate((state.active_weights, np.ones(size, dtype=bool)))
            if result.active_weights is None
            else result.active_weights
        )
        state = replace(
            state,
            n_tests=state.n_tests + result.n_tests,
            is_exhausted=result.is_exhausted,
            queue=queue,
            active_weights=active_weights,
        )
        if not size:
            return state
        chosen = state.chosen.concat(result.candidates)
        diagonal = np.concatenate((state.diagonal, self.model.candidate_curvature(result.candidates)))
        optimiser, objective = self._build_problem(chosen, active_weights, diagonal)
        state = replace(optimiser.extend_state(state, result.gradient), chosen=chosen, diagonal=diagonal)
        return optimiser.reevaluate(objective, state) if self.model.depends_on_zero_candidates else state

    def _prioritise_hubs(self, queue: EdgeQueue, state: SearchState, added: CandidateSet) -> EdgeQueue:
        """Return the queue with candidates at hubs moved to the front; degrees count nonzero edges and added edges."""
        assert self.hub_fraction is not None
        edges = state.chosen.select(self.nonzero_mask(state.chosen, state.point)).concat(added)
        ends = self.pair_index.ends(self.pair_index.encode(edges))
        degree = np.bincount(ends.ravel(), minlength=self.pair_index.n_ends)
        return queue.with_hubs(np.flatnonzero(degree > self.hub_fraction * self.pair_index.n_partners), self.pair_index)

    def _build_problem(
        self, chosen: CandidateSet, active_weights: np.ndarray, diagonal: np.ndarray
    ) -> tuple[AbstractGrowingMinimiser, Objective]:
        """Return the optimiser and the smooth objective for the base weights and the selected candidates' weights."""
        strengths, sizes = self.strengths, np.diff(self.model.weight_start(chosen))
        l1, l2 = (
            np.asarray(strength_list, dtype=np.float64)[chosen.space] for strength_list in (strengths.l1, strengths.l2)
        )
        l2 = np.concatenate((strengths.base_l2, np.repeat(l2, sizes)))
        centre = np.concatenate((strengths.base_centre, np.zeros(sizes.sum())))
        learned = np.concatenate((strengths.learnable, np.ones(len(l2) - len(strengths.learnable), dtype=bool)))
        # As in `maximise_likelihood`, the square root of the curvature is a better scale than the curvature.
        base_scales = np.repeat(self._group_scales, self._base_sizes)
        scale = np.concatenate((base_scales, np.ones(len(l2) - self.model.n_base)))
        root = np.sqrt(diagonal + l2) / scale
        root = np.maximum(root, 1e-6 * root.max(initial=1e-300))
        if self.grouped:
            strength = l1 * np.sqrt(sizes)
        else:
            sizes, strength = (
                np.ones(len(active_weights), dtype=np.int64),
                np.where(active_weights, np.repeat(l1, sizes), np.inf),
            )
        groups = WeightGroups.from_sizes(
            np.concatenate((self._base_sizes, sizes)),
            np.concatenate((strengths.base_l1 / self._group_scales, strength)),
        )
        objective = add_l2_penalty(self.model.with_candidates(chosen), l2, learned, centre)
        return in_feature_units(self.make_minimiser(groups, root), scale), objective
