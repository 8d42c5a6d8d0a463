"""Learning and inference of predicted numbers, beside those of a backend for the discrete variables.

The joint distribution is p(x | evidence) p(y | x, evidence), with the discrete variables x and the numbers y (a chain graph with
conditional Gaussian distributions: Lauritzen & Wermuth 1989). With the states of x known in training, its likelihood separates:
the backend learns the first distribution, and this module the second, by maximum likelihood or pseudo-likelihood.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import partial

import numpy as np

from relcrf.backends.base import AbstractBackend, FitResult, Monitor, Problem
from relcrf.backends.ess import EssBackend
from relcrf.backends.forest_numbers import Summary, learn_forest
from relcrf.backends.number_model import NumberModel
from relcrf.backends.number_states import find_parents
from relcrf.backends.registry import DEFAULT_BACKEND, make_backend
from relcrf.backends.whole_graph import AbstractWholeGraphBackend
from relcrf.errors import DataError, Diagnostic, UsageError, listing
from relcrf.graph.numeric_graph import (
    NumericGraph,
    NumericTargets,
    indicator_weights,
    lacks_states,
    numeric_graph,
    numeric_slots,
)
from relcrf.graph.reduction import Role
from relcrf.learning.gaussian_likelihood import (
    MAX_LOG_WEIGHT,
    GaussianLikelihood,
    GaussianPseudoLikelihood,
    NumericLikelihood,
)
from relcrf.learning.lbfgs import Lbfgs, OptimiserState
from relcrf.learning.number_fit import NumberProblem, minimise
from relcrf.model.spec import ModelSpec

NUMERIC_BACKENDS = ("auto", "dense", "ess", "local", "pseudo")
"""Backends that learn models with predicted numbers."""

ESS_SETTINGS = ("edges", "l2", "max_iterations", "min_information", "tolerance", "weights")
"""Settings of `ess` that affect numbers."""

L2_GRID = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
"""Strengths of the penalty among which `auto` chooses by cross-validation."""

L2_FOLDS = 5
"""Number of folds of this cross-validation; whole components of linked numbers are held out together."""

MIN_NUMBERS = 2
"""Minimum number of known values of a numeric attribute; a single one has no deviation."""

MAX_MAGNITUDE = 1e150
"""Maximum magnitude of numbers and of the features of their templates; the square of a larger one overflows."""

MAX_ITERATIONS = 500
"""Maximum number of iterations of each stage for a backend without this setting."""

VALUE_TOLERANCE = 1e-6
"""Relative decrease of the objective below which a stage ends. Strong dependencies make the weights of pairs converge slowly: on
the temperatures of 52 sensors, the last 1,500 of 1,700 iterations change the error of the predictions by 1 %."""

DEFAULT_L2 = 1.0
"""Strength of the penalty of a backend without a setting `l2`."""


def require_numeric_backend(name: str) -> None:
    """Raise UsageError if a backend does not learn numbers (E378)."""
    if name not in NUMERIC_BACKENDS:
        message = f"backend '{name}' cannot learn a model that predicts numbers"
        raise UsageError(Diagnostic("E378", message, hint=f"use --backend {listing(NUMERIC_BACKENDS)}"))


def require_no_numbers(spec: ModelSpec, action: str) -> None:
    """Raise UsageError if a model predicts numbers, which an action such as `pareto` does not support (E379)."""
    names = [f"{entity.name}.{a.name}" for entity in spec.entities for a in entity.attributes if a.is_number]
    if names:
        message = f"{action} does not support models that predict numbers, such as {names[0]}"
        hint = "use predict, evaluate, explain, ask, report, audit or serve, or a model without 'predict' before it"
        raise UsageError(Diagnostic("E379", message, hint=hint))


def without_numbers(problem: Problem) -> Problem:
    """Return the problem of the discrete variables: all numbers are absent, and no part of training uses them."""
    assert problem.numbers is not None
    is_numeric = problem.numbers.mask
    roles = np.where(is_numeric, Role.ABSENT, problem.roles).astype(np.int8)
    excluded = is_numeric if problem.excluded is None else problem.excluded | is_numeric
    return replace(problem, roles=roles, excluded=excluded, numbers=None)


def fit_with_numbers(
    problem: Problem, backend: AbstractBackend, fit: Callable[[Problem], FitResult], monitor: Monitor
) -> FitResult:
    """Learn the weights of the discrete variables with a backend, and those of the numbers by maximum likelihood.

    Args:
        fit: Function that learns the weights of a problem without numbers with the backend.

    Raises:
        UsageError: If the backend does not learn numbers (E378).
        DataError: If fewer than `MIN_NUMBERS` values of a numeric attribute are known (E225).
    """
    require_numeric_backend(backend.name)
    _require_number_settings(problem, backend)
    numbers = learn_numbers(problem, backend, monitor)
    discrete = without_numbers(problem)
    if (discrete.roles == Role.FREE).any():
        learned = fit(discrete)
        chosen = learned.system
        if chosen is not None and not _uses_evidence(chosen, problem, discrete):
            dense = make_backend("dense")
            learned = replace(dense.fit(discrete, monitor), system=dense)
    else:
        chosen = make_backend("dense") if backend.name == DEFAULT_BACKEND else None
        learned = FitResult({"weights": problem.graph.layout.initial()}, system=chosen)
    assert problem.numbers is not None
    vectors = numbers.model.add_to(learned.vectors, problem.numbers, problem.graph.layout)
    summary = {**learned.summary, "numbers": numbers.n_known, "numeric_l2": numbers.l2, **numbers.summary}
    return replace(learned, vectors=vectors, stages=(*learned.stages, *numbers.stages), summary=summary, moments=None)


def _uses_evidence(backend: AbstractBackend, problem: Problem, discrete: Problem) -> bool:
    """Return True if a backend uses the evidence of numbers about discrete variables, which consists of factors.

    Only inference on the whole graph supports all factors over several variables.
    """
    assert problem.numbers is not None
    if not _has_mixed_templates(problem) or isinstance(backend, AbstractWholeGraphBackend):
        return True
    number, _ = find_parents(problem.numbers, np.full_like(problem.roles, Role.FREE))
    return bool((np.diff(number) != 0).all()) and backend.conditional_graph(discrete) is not None


def _require_number_settings(problem: Problem, backend: AbstractBackend) -> None:
    """Raise UsageError if a setting of `ess` has no effect in a model of numbers only, or is not supported (E305)."""
    if not isinstance(backend, EssBackend):
        return
    if backend.structure_unaries == "own" and _has_mixed_templates(problem):
        message = (
            "setting 'structure_unaries' of backend 'ess' cannot be own if a template is over a number and a category"
        )
        raise UsageError(Diagnostic("E305", message, hint="use --set structure_unaries=shared"))
    predicts_categories = bool((without_numbers(problem).roles == Role.FREE).any())
    for setting in () if predicts_categories else fields(backend):
        if setting.name not in ESS_SETTINGS and getattr(backend, setting.name) != setting.default:
            message = f"setting '{setting.name}' of backend 'ess' has no effect on numbers, and the model predicts nothing else"
            hint = f"omit it; the settings for numbers are {listing(ESS_SETTINGS)}"
            raise UsageError(Diagnostic("E305", message, hint=hint))


def _has_mixed_templates(problem: Problem) -> bool:
    """Return True if a template is over a number and discrete variables."""
    assert problem.numbers is not None
    return any(math.prod(group.cardinalities) > 1 for group in problem.numbers.groups)


@dataclass(frozen=True, eq=False)
class LearnedNumbers:
    """The learned distribution of numbers.

    Args:
        n_known: Number of numbers from which it was learned.
        summary: Other values for the summary of the run.
    """

    model: NumberModel
    stages: tuple[tuple[str, OptimiserState], ...]
    n_known: int
    l2: float
    summary: Summary = field(default_factory=dict)


def learn_numbers(problem: Problem, backend: AbstractBackend, monitor: Monitor) -> LearnedNumbers:
    """Learn the weights of the numbers.

    The weights of single numbers are learned first, without the pairs; then all weights together, unless the backend is `local`.
    `ess` selects a forest of pairs in between, see `forest_numbers.py`.

    Raises:
        DataError: If fewer than `MIN_NUMBERS` values of a numeric attribute are known (E225), or the square of a number or
            of a feature overflows (E222).
    """
    graph, targets = problem.graph, problem.numbers
    assert targets is not None
    complete = number_problem(problem)
    labelled = complete.labelled()
    alone = labelled.without_pairs()
    _require_numbers(targets, alone.graph.attribute)
    _require_magnitudes(targets, alone)
    optimiser = number_optimiser(backend)
    chooses = backend.name == DEFAULT_BACKEND
    l2 = _choose_l2(alone, labelled.graph.component, optimiser) if chooses else getattr(backend, "l2", DEFAULT_L2)

    def learn(
        stage: str,
        fit: NumberProblem,
        likelihood: NumericLikelihood,
        start: np.ndarray,
        precisions: np.ndarray | None = None,
    ) -> OptimiserState:
        def observe(state: OptimiserState) -> None:
            monitor.step(stage, state, optimiser.max_iterations)

        restored = monitor.restore(stage, OptimiserState)
        return minimise(fit, likelihood, l2, start, optimiser, observe, precisions, restored)

    first = learn("single numbers", alone, GaussianLikelihood(alone.graph, alone.values), alone.start())
    if backend.name == "local" or not complete.graph.n_pairs:
        weights = alone.weights_at(first.point)
        for group in targets.groups:
            if len(numeric_slots(targets.graph, group)) == 2:
                graph.layout.matrix(weights.weights, group.block)[:] = -MAX_LOG_WEIGHT  # weights of 1e-26
        return LearnedNumbers(
            NumberModel(weights, are_linked=False), (("single numbers", first),), len(alone.values), l2
        )
    precisions = alone.precisions(first.point)
    if isinstance(backend, EssBackend):
        single, learn_stage = alone.weights_at(first.point), partial(learn, precisions=precisions)
        model, stages, summary = learn_forest(labelled, single, backend, learn_stage)
        return LearnedNumbers(model, (("single numbers", first), *stages), len(alone.values), l2, summary)
    is_pseudo = backend.name == "pseudo"
    fit = labelled if is_pseudo else complete
    likelihood = (GaussianPseudoLikelihood if is_pseudo else GaussianLikelihood)(fit.graph, fit.values)
    joint = learn("all numbers", fit, likelihood, fit.start_at(alone.weights_at(first.point)), precisions)
    model, summary = NumberModel(fit.weights_at(joint.point), are_linked=True), {}
    if not likelihood.is_exact:
        summary["numeric_likelihood"] = "log determinants estimated with random vectors"
    return LearnedNumbers(model, (("single numbers", first), ("all numbers", joint)), len(alone.values), l2, summary)


def number_problem(problem: Problem) -> NumberProblem:
    """Return the known numbers of a training problem, with the unknown numbers that are linked to them."""
    targets = problem.numbers
    assert targets is not None
    is_target = np.isin(problem.roles, (Role.FREE, Role.CLAMPED))
    states = np.where(is_target, problem.states, -1)
    whole = numeric_graph(targets, states)
    values = np.where(is_target & ~lacks_states(targets, states), targets.values, np.nan)[whole.variables]
    used = (np.bincount(whole.component, ~np.isnan(values)) > 0)[whole.component]
    if problem.excluded is not None:
        used &= ~problem.excluded[whole.variables]
    numeric, layout = whole.select(used), problem.graph.layout
    learnable = layout.learnable_mask() & _is_learned(numeric, indicator_weights(targets))
    return NumberProblem(numeric, values[used], layout, learnable, len(targets.graph.numeric))


def number_optimiser(backend: AbstractBackend) -> Lbfgs:
    """Return the optimiser of the weights of numbers."""
    tolerance, max_iterations = getattr(backend, "tolerance", 1e-5), getattr(backend, "max_iterations", MAX_ITERATIONS)
    return Lbfgs(tolerance, value_tolerance=VALUE_TOLERANCE, max_iterations=max_iterations)


def _require_numbers(targets: NumericTargets, attribute: np.ndarray) -> None:
    """Raise DataError if a numeric attribute has fewer than `MIN_NUMBERS` known values (E225).

    Args:
        attribute: Index of the attribute of each known number.
    """
    for name, count in zip(targets.names, np.bincount(attribute, minlength=len(targets.names)).tolist(), strict=True):
        if count < MIN_NUMBERS:
            message = f"{'only one' if count else 'no'} value of {name} is known for training"
            hint = f"its mean and deviation are learned from at least {MIN_NUMBERS} values; label more entities"
            raise DataError(Diagnostic("E225", message, hint=hint))


def _require_magnitudes(targets: NumericTargets, known: NumberProblem) -> None:
    """Raise DataError if the square of a known number, or of a feature of a template over numbers, overflows or is 0 (E222)."""
    for k, name in enumerate(targets.names):
        values = known.values[known.graph.attribute == k]
        _require_magnitude(float(np.abs(values).max()), f"the values of {name}")
        _require_magnitude(float(np.ptp(values)), f"the differences of the values of {name}")
    for group in targets.groups:
        _, _, features = group.features.entries(np.arange(group.n_factors))
        name = targets.graph.layout.blocks[group.block].name
        _require_magnitude(float(np.abs(features).max(initial=0.0)), f"the features of '{name}'")


def _require_magnitude(largest: float, what: str) -> None:
    if largest > MAX_MAGNITUDE or 0.0 < largest < 1.0 / MAX_MAGNITUDE:
        size, limit = ("large", MAX_MAGNITUDE) if largest > 1.0 else ("small", 1.0 / MAX_MAGNITUDE)
        message = f"{what} are too {size}: the largest is {largest:g}, and the limit is {limit:g}"
        hint = "use another unit, or declare such a number as missing in dataset.toml"
        raise DataError(Diagnostic("E222", message, hint=hint))


def _is_learned(numeric: NumericGraph, indicators: np.ndarray) -> np.ndarray:
    """Return the mask of the weights that are learned: of log precisions, only those of features that are 0 or 1."""
    of_precision = np.zeros(len(indicators), dtype=bool)
    of_precision[numeric.log_precision.indices] = True
    return indicators | ~of_precision


def _choose_l2(problem: NumberProblem, component: np.ndarray, optimiser: Lbfgs) -> float:
    """Return the strength of the penalty with the largest likelihood of held-out numbers, without the pairs.

    Args:
        component: Component of each number with the pairs, shape (n,); components are held out as wholes unless one contains
            more than half of the numbers.
    """
    n = len(problem.values)
    if n < 2 * L2_FOLDS or not len(problem.kinds[0]):
        return DEFAULT_L2
    is_large = np.bincount(component).max() > n / 2
    unit = np.arange(n) if is_large else np.unique(component, return_inverse=True)[1]
    fold = (np.random.default_rng(0).permutation(unit.max() + 1) % L2_FOLDS)[unit]
    losses = np.zeros(len(L2_GRID))
    for held_out in range(L2_FOLDS):
        is_test = fold == held_out
        if not is_test.any() or is_test.all():
            continue
        train = replace(problem, graph=problem.graph.select(~is_test), values=problem.values[~is_test])
        test = GaussianLikelihood(problem.graph.select(is_test), problem.values[is_test])
        likelihood = GaussianLikelihood(train.graph, train.values)
        start = train.start()
        for k, l2 in sorted(enumerate(L2_GRID), key=lambda each: -each[1]):
            start = minimise(train, likelihood, l2, start, replace(optimiser, tolerance=1e-3), lambda state: None).point
            losses[k] += test(train.weights_at(start))[0]
    return L2_GRID[int(np.argmin(losses))]
