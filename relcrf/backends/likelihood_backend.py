"""Backends that learn weights by penalised maximum likelihood or pseudo-likelihood."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import ClassVar, TypeVar

import numpy as np

from relcrf.backends.base import AbstractBackend, FitResult, Monitor, Problem, TotalLikelihood
from relcrf.backends.exact import UnaryLikelihoodSpec
from relcrf.backends.self_training import SelfTraining
from relcrf.backends.weight_priors import with_weight_priors
from relcrf.graph.factor_graph import FactorGraph
from relcrf.learning.conjugate_gradient import ConjugateGradient
from relcrf.learning.feature_units import in_feature_units, unit_scales
from relcrf.learning.lbfgs import AbstractWolfeSearch, Lbfgs, Objective, OptimiserState, memory_length
from relcrf.learning.likelihood import add_l2_penalty
from relcrf.learning.moments import Moments
from relcrf.learning.newton_cg import NewtonCg

AnyLikelihoodBackend = TypeVar("AnyLikelihoodBackend", bound="AbstractLikelihoodBackend")

LIKELIHOOD_OPTIMISERS: Mapping[str, type[AbstractWolfeSearch]] = {
    "lbfgs": Lbfgs,
    "cg": ConjugateGradient,
    "newton-cg": NewtonCg,
}
"""The values of setting `optimiser` of the backends that learn by maximum likelihood."""

MAX_COARSE_ERROR = 1e-4
"""Maximum relative error of the value at the end of a coarse stage for which learning continues from there."""

SIGNIFICANT_TOLERANCE = 1e-5
"""Tolerance from which an optimisation also ends if the weights move by a negligible part of their standard errors. At the
default tolerance, this part is 0.3 % per iteration, and on 1,000,000 web pages, 204 iterations suffice instead of 356."""


def maximise_likelihood(
    stage: str,
    objective: TotalLikelihood,
    optimiser: AbstractWolfeSearch,
    l2: float,
    start: Callable[[], np.ndarray],
    monitor: Monitor,
    previous: OptimiserState | None = None,
    coarse: OptimiserState | None = None,
    *,
    keep_memory: bool = False,
) -> OptimiserState:
    """Run one stage of penalised maximum likelihood from what the monitor restores or warm-starts, or else from `start()`.

    Args:
        l2: L2 penalty strength for templates that specify no `l2`.
        previous: Final state of a stage with a similar Hessian. Its memory is the initial memory of a quasi-Newton method
            if all learned weights have a penalty; conjugate gradients, whose memory is the last search direction,
            ignore it.
        coarse: Final state of a stage with a coarse objective. If its value is accurate, its weights and its memory replace
            those of `start` and `previous`; otherwise, the coarse objective was misleading.
        keep_memory: Return the final state with the memory of the optimiser, which may be larger than the graph.
    """
    layout = objective.layout
    strength = layout.l2(l2)
    scale = unit_scales(objective.feature_scales(), strength)
    information = objective.curvature()
    curvature = (information + strength) / scale**2
    # Dividing by the square root of the curvature halves the number of iterations on a graph of 100,000 web pages (from
    # 341 to 173). Dividing by the curvature itself nearly doubles the number on 20,000 pages, because a diagonal matrix
    # does not represent correlations of frequent words.
    diagonal = np.sqrt(curvature)
    optimiser = replace(
        optimiser,
        memory=memory_length(len(strength)),
        curvature=curvature,
        min_decrease=_insignificant_decrease(optimiser.tolerance, objective.sizes()[0], information, strength),
        inverse_diagonal=1.0 / np.maximum(diagonal, 1e-6 * diagonal.max(initial=1e-300)),
        # Near the minimum, the error of the value is quadratic in the gradient, so the tolerance for the value must be
        # smaller than the tolerance for the gradient.
        value_tolerance=min(optimiser.value_tolerance, 100.0 * optimiser.tolerance**2),
    )
    minimiser = in_feature_units(optimiser, scale)
    evaluate = add_l2_penalty(objective, strength, layout.learnable_mask(), layout.initial())
    state = monitor.restore(stage, OptimiserState)
    if state is None and (warm_start := monitor.start_point(stage)) is not None:
        state = minimiser.update_status(_start(minimiser, evaluate, warm_start, layout.initial()))
    if state is None:
        confirmed = None if coarse is None else _confirm(minimiser, evaluate, coarse)
        if confirmed is not None:
            state, previous = confirmed, coarse
        else:
            state = _start(minimiser, evaluate, start(), layout.initial())
            # Without a penalty, the earlier objective may have no minimum. Its curvature then vanishes on the way to infinity
            # and would cause steps of 10,000 units.
            if (strength[layout.learnable_mask()] == 0.0).any():
                previous = None
        if previous is not None and not isinstance(optimiser, ConjugateGradient):
            state = replace(state, steps=previous.steps, changes=previous.changes)

    def observe(state: OptimiserState) -> None:  # discards the return value of `step`
        monitor.step(stage, state, optimiser.max_iterations)

    final = minimiser.minimise(evaluate, state, observe)
    return final if keep_memory else replace(final, steps=(), changes=())


def _confirm(minimiser: AbstractWolfeSearch, objective: Objective, coarse: OptimiserState) -> OptimiserState | None:
    """Return the state of an accurate objective at the end of a coarse stage; None if the coarse value was misleading."""
    state = minimiser.start(objective, coarse.point)
    if not abs(state.value - coarse.value) <= MAX_COARSE_ERROR * abs(state.value):  # also if propagation has diverged
        return None
    return replace(state, initial_gradient_norm=coarse.initial_gradient_norm)


def _insignificant_decrease(tolerance: float, n_nodes: int, information: np.ndarray, strength: np.ndarray) -> float:
    """Return the decrease of a Newton step that moves the weights by a negligible part of their standard errors.

    If weight i moves by d_i standard errors, the loss decreases by half the sum of d_i^2. The tolerance is the mean of d_i^2
    over the effective number of weights (MacKay 1992), i.e. without those that the penalty determines. With a
    tolerance below `SIGNIFICANT_TOLERANCE`, the result is 0.

    Args:
        n_nodes: Number of nodes, which is an upper bound of the effective number of weights.
        information: An estimate of the Hessian's diagonal without the penalty, shape (n,).
        strength: Strength of the L2 penalty, shape (n,).
    """
    if tolerance < SIGNIFICANT_TOLERANCE:
        return 0.0
    share = information / np.maximum(information + strength, np.finfo(float).tiny)
    return 0.5 * tolerance * min(float(share.sum()), float(n_nodes))


def _start(
    minimiser: AbstractWolfeSearch, objective: Objective, point: np.ndarray, initial: np.ndarray
) -> OptimiserState:
    """Return the state at a point; the tolerance is relative to the gradient at the initial weights if this is larger.

    A start near the minimum would otherwise require a more accurate minimum than the initial weights do.
    """
    state = minimiser.start(objective, point)
    if np.array_equal(point, initial):
        return state
    norm = minimiser.start(objective, initial).initial_gradient_norm
    return replace(
        state, initial_gradient_norm=max(norm, state.initial_gradient_norm), evaluations=state.evaluations + 1
    )


def learn_unary(
    problem: Problem, backend: str, optimiser: AbstractWolfeSearch, l2: float, monitor: Monitor
) -> FitResult:
    """Learn the weights of factors over one variable by maximum likelihood, without the other factors."""
    objective = problem.total_likelihood(UnaryLikelihoodSpec(backend))
    unary = maximise_likelihood("unary", objective, optimiser, l2, problem.graph.layout.initial, monitor)
    return FitResult({"weights": unary.point}, (("unary", unary),))


@dataclass(frozen=True)
class AbstractLikelihoodBackend(AbstractBackend):
    """A backend that learns by penalised maximum likelihood or pseudo-likelihood.

    Args:
        l2: Strength of the penalty `l2 / 2 * (w - init)^2` on each weight w of the templates that specify no `l2`;
            `init` is the initial value that the template declares. The penalty is added to the sum of the variables'
            losses, not to their mean.
        max_iterations: Maximum number of iterations of each optimisation.
        tolerance: An optimisation has converged when the norm of the gradient is at most this fraction of the initial
            norm. If it is at least 1e-5, an optimisation also ends when an iteration moves the weights by a negligible part
            of their standard errors.
        optimiser: `lbfgs`, `cg` (nonlinear conjugate gradients) or `newton-cg` (truncated Newton method); see
            docs/explanation/classical.md.
        unary_l2: Strength of this penalty for templates over one variable, relative to the mean squared norm of the
            features of a variable, so that the units of features do not matter; 0 selects `l2`.
        agreement: Value of `init` for the weights of agreement, i.e. of the equality of two predicted values of one
            domain, in templates that declare no `init` and no features.
        unlabelled: Treatment of variables without a label in training. `ignore`: they are absent. `self`: confident
            predictions become labels, and learning is repeated. `em`: as `self`, but only the weights of templates over
            one variable are learned again, without the other templates. `marginal` (`dense` and `ess` only): their states
            are summed out.
        threshold: Minimum probability of a prediction that `self` and `em` use as a label.
        fraction: If positive, `self` and `em` use the most probable predictions of each state instead of `threshold`. Their
            number grows in each round, to this fraction of the unlabelled variables in the last round.
        rounds: Maximum number of repetitions of `self` and `em`.
    """

    can_sum_out: ClassVar[bool] = True
    """Whether the objective can sum out variables of unknown state, as `unlabelled=marginal` requires."""
    l2: float = 1.0
    unary_l2: float = 0.0
    agreement: float = 0.0
    unlabelled: str = "ignore"
    threshold: float = 0.9
    fraction: float = 0.0
    rounds: int = 3
    max_iterations: int = 1000
    tolerance: float = 1e-5
    optimiser: str = "lbfgs"

    def __post_init__(self) -> None:
        self._require_one_of("optimiser", tuple(LIKELIHOOD_OPTIMISERS))
        self._require_one_of("unlabelled", ("ignore", "self", "em", *(("marginal",) if self.can_sum_out else ())))
        self._require_below_1("threshold", "fraction")
        self._require_positive("rounds")

    @abstractmethod
    def fit_labels(self, problem: Problem, monitor: Monitor) -> FitResult:
        """Learn from the labels of the free variables; absent variables are ignored.

        Args:
            problem: The problem, with the priors that the settings choose.
        """

    def fit(self, problem: Problem, monitor: Monitor) -> FitResult:
        """Learn from the labels of the free variables and, depending on `unlabelled`, from absent variables."""
        problem = self.with_priors(problem)
        if self.unlabelled == "ignore":
            return self.fit_labels(problem, monitor)
        self._require_unsharded(problem)
        if self.unlabelled == "marginal":
            return self.fit_labels(problem.with_unlabelled(), monitor)
        learned = self.fit_labels(problem, monitor)
        # Predicted labels would confirm the predictions, so later rounds keep the settings that the labels chose.
        chosen = replace(self, **learned.settings)
        learn = chosen._learn_again if self.unlabelled == "self" else chosen._learn_unary
        rounds = SelfTraining(chosen, learn, self.threshold, self.fraction, self.rounds, self.unlabelled == "em")
        return rounds.run(problem, learned, monitor)

    def with_priors(self, problem: Problem) -> Problem:
        return replace(problem, graph=with_weight_priors(problem.graph, self.unary_l2, self.agreement))

    def prior_means(self, graph: FactorGraph) -> np.ndarray:
        return with_weight_priors(graph, 0.0, self.agreement).layout.initial()

    @property
    def uses_predicted_labels(self) -> bool:
        return self.unlabelled in ("self", "em")

    def _learn_again(self, problem: Problem, monitor: Monitor, factor: float) -> FitResult:
        return replace(self, l2=factor * self.l2).fit_labels(problem, monitor)

    def _learn_unary(self, problem: Problem, monitor: Monitor, factor: float) -> FitResult:
        return learn_unary(problem, self.name, self._likelihood_optimiser, factor * self.l2, monitor)

    def as_backend(self, backend: type[AnyLikelihoodBackend]) -> AnyLikelihoodBackend:
        """Return another backend with the settings of this class."""
        return backend(**{each.name: getattr(self, each.name) for each in fields(AbstractLikelihoodBackend)})

    def maximise(
        self,
        stage: str,
        objective: TotalLikelihood,
        start: Callable[[], np.ndarray],
        monitor: Monitor,
        previous: OptimiserState | None = None,
        coarse: OptimiserState | None = None,
        *,
        keep_memory: bool = False,
    ) -> OptimiserState:
        """Return the final state of one optimisation; see `maximise_likelihood`."""
        optimiser = self._likelihood_optimiser
        return maximise_likelihood(
            stage, objective, optimiser, self.l2, start, monitor, previous, coarse, keep_memory=keep_memory
        )

    @property
    def _likelihood_optimiser(self) -> AbstractWolfeSearch:
        return LIKELIHOOD_OPTIMISERS[self.optimiser](self.tolerance, max_iterations=self.max_iterations)

    def fit_weights(
        self,
        objective: TotalLikelihood,
        start: Callable[[], np.ndarray],
        monitor: Monitor,
        *size_names: str,
        previous: OptimiserState | None = None,
        coarse: OptimiserState | None = None,
    ) -> FitResult:
        """Learn weights in one stage.

        Args:
            previous, coarse: See `maximise_likelihood`.
            size_names: Summary name of the number of nodes and, optionally, summary name of the number of edges.
        """
        weights = self.maximise("weights", objective, start, monitor, previous, coarse)
        return FitResult(
            {"weights": weights.point},
            (("weights", weights),),
            dict(zip(size_names, objective.sizes(), strict=False)),
            moments=moments_at(objective, weights, self.l2),
        )


def moments_at(objective: TotalLikelihood, state: OptimiserState, l2: float) -> Moments:
    """Return the moments for the final state of `maximise_likelihood`; the expected moments follow from the gradient.

    Args:
        objective: The objective of the optimisation, a joint likelihood.
        l2: The penalty strength of the optimisation.
    """
    layout = objective.problem.graph.layout
    empirical, variance = objective.label_moments(state.point)
    penalty_gradient = layout.l2(l2) * (state.point - layout.initial())
    difference = np.where(layout.learnable_mask(), state.gradient - penalty_gradient, np.nan)
    return Moments(empirical, empirical + difference, variance)
