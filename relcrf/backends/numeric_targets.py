"""Learning and inference of predicted numbers, beside those of a backend for the discrete variables.

The joint distribution is p(x | evidence) p(y | x, evidence), with the discrete variables x and the numbers y (a chain graph with
conditional Gaussian distributions: Lauritzen & Wermuth 1989). With the states of x known in training, its likelihood separates:
the backend learns the first distribution, and this module the second, by exact maximum likelihood.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from relcrf.backends.base import AbstractBackend, FitResult, InferenceResult, Monitor, Problem
from relcrf.backends.registry import DEFAULT_BACKEND, make_backend
from relcrf.errors import DataError, Diagnostic, UsageError
from relcrf.graph.numeric_graph import NumericGraph, indicator_weights, numeric_graph, numeric_slots
from relcrf.graph.reduction import Role
from relcrf.inference.gaussian import NumberMarginals
from relcrf.inference.result import Verdict
from relcrf.learning.gaussian_likelihood import MAX_LOG_WEIGHT, GaussianLikelihood, NumberWeights
from relcrf.learning.lbfgs import Lbfgs, OptimiserState
from relcrf.learning.number_fit import NumberProblem, minimise
from relcrf.model.spec import ModelSpec

NUMERIC_BACKENDS = ("auto", "dense", "local")
"""Backends that learn models with predicted numbers."""

L2_GRID = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
"""Strengths of the penalty among which `auto` chooses by cross-validation."""

L2_FOLDS = 5
"""Number of folds of this cross-validation; whole components of linked numbers are held out together."""

DEFAULT_L2 = 1.0
"""Strength of the penalty of a backend without a setting `l2`."""


def require_numeric_backend(name: str) -> None:
    """Raise UsageError if a backend does not learn numbers (E378)."""
    if name not in NUMERIC_BACKENDS:
        message = f"backend '{name}' cannot learn a model that predicts numbers"
        raise UsageError(Diagnostic("E378", message, hint="use --backend auto, dense or local"))


def require_no_numbers(spec: ModelSpec, action: str) -> None:
    """Raise UsageError if a model predicts numbers, which an action such as `explain` does not support (E379)."""
    names = [f"{entity.name}.{a.name}" for entity in spec.entities for a in entity.attributes if a.is_number]
    if names:
        message = f"{action} does not support models that predict numbers, such as {names[0]}"
        hint = "use predict or evaluate, or a model without 'predict' before this attribute"
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
    """
    require_numeric_backend(backend.name)
    discrete = without_numbers(problem)
    if (discrete.roles == Role.FREE).any():
        learned = fit(discrete)
    else:
        chosen = make_backend("dense") if backend.name == DEFAULT_BACKEND else None
        learned = FitResult({"weights": problem.graph.layout.initial()}, system=chosen)
    numbers = _learn(problem, backend, monitor)
    if numbers is None:
        return learned
    weights = learned.vectors["weights"].copy()
    assert problem.numbers is not None
    layout = problem.graph.layout
    for block in {group.block for group in problem.numbers.groups}:
        layout.matrix(weights, block)[:] = layout.matrix(numbers.weights.weights, block)
    vectors = {**learned.vectors, "weights": weights, "numbers": numbers.weights.offset.ravel()}
    summary = {**learned.summary, "numbers": numbers.n_known, "numeric_l2": numbers.l2}
    return replace(learned, vectors=vectors, stages=(*learned.stages, *numbers.stages), summary=summary, moments=None)


NOTHING_INFERRED = InferenceResult(
    np.empty(0, dtype=np.int64),
    np.zeros(1, dtype=np.int64),
    np.empty(0),
    np.empty((0, 2), dtype=np.int64),
    0.0,
    Verdict("exact"),
)
"""The result of inference without free discrete variables."""


@dataclass(frozen=True, eq=False)
class _LearnedNumbers:
    weights: NumberWeights
    stages: tuple[tuple[str, OptimiserState], ...]
    n_known: int
    l2: float


def _learn(problem: Problem, backend: AbstractBackend, monitor: Monitor) -> _LearnedNumbers | None:
    """Return the weights of the numbers; None if no number is known."""
    graph, targets = problem.graph, problem.numbers
    assert targets is not None
    is_target = np.isin(problem.roles, (Role.FREE, Role.CLAMPED))
    whole = numeric_graph(targets, np.where(is_target, problem.states, -1))
    values = np.where(is_target, targets.values, np.nan)[whole.variables]
    if np.isnan(values).all():
        return None
    has_known = np.bincount(whole.component, ~np.isnan(values)) > 0
    used = has_known[whole.component]
    if problem.excluded is not None:
        used &= ~problem.excluded[whole.variables]
    numeric, values = whole.select(used), values[used]
    learnable = graph.layout.learnable_mask() & _is_learned(numeric, indicator_weights(targets))
    known, n_attributes = numeric.select(~np.isnan(values)), len(targets.graph.numeric)
    independent = NumberProblem(_without_pairs(known), values[~np.isnan(values)], graph.layout, learnable, n_attributes)
    tolerance, max_iterations = getattr(backend, "tolerance", 1e-5), getattr(backend, "max_iterations", 200)
    optimiser = Lbfgs(tolerance, value_tolerance=1e-10, max_iterations=max_iterations)
    l2 = (
        getattr(backend, "l2", DEFAULT_L2)
        if backend.name != DEFAULT_BACKEND
        else _choose_l2(independent, known.component, optimiser)
    )

    def learn(
        stage: str, which: NumberProblem, start: np.ndarray, precisions: np.ndarray | None = None
    ) -> OptimiserState:
        def observe(state: OptimiserState) -> None:
            monitor.step(stage, state, max_iterations)

        likelihood = GaussianLikelihood(which.graph, which.values)
        return minimise(
            which, likelihood, l2, start, optimiser, observe, precisions, monitor.restore(stage, OptimiserState)
        )

    alone = learn("numbers alone", independent, independent.start())
    stages = (("numbers alone", alone),)
    if backend.name == "local" or not numeric.n_pairs:
        weights = independent.weights_at(alone.point)
        for group in targets.groups:
            if len(numeric_slots(targets.graph, group)) == 2:
                graph.layout.matrix(weights.weights, group.block)[:] = -MAX_LOG_WEIGHT  # weights of 1e-26
        return _LearnedNumbers(weights, stages, len(independent.values), l2)
    coupled = NumberProblem(numeric, values, graph.layout, learnable, n_attributes)
    start = coupled.start()
    common = {index: k for k, index in enumerate(independent.indices.tolist())}
    for k, index in enumerate(coupled.indices.tolist()):
        if index in common:
            start[k] = alone.point[common[index]] * independent.units[common[index]] / coupled.units[k]
    start[len(coupled.indices) :] = alone.point[len(independent.indices) :]
    joint = learn("numbers", coupled, start, independent.precisions(alone.point))
    return _LearnedNumbers(coupled.weights_at(joint.point), (*stages, ("numbers", joint)), len(independent.values), l2)


def _is_learned(numeric: NumericGraph, indicators: np.ndarray) -> np.ndarray:
    """Return the mask of the weights that are learned: of log precisions, only those of features that are 0 or 1."""
    of_precision = np.zeros(len(indicators), dtype=bool)
    of_precision[numeric.log_precision.indices] = True
    return indicators | ~of_precision


def _without_pairs(numeric: NumericGraph) -> NumericGraph:
    return replace(
        numeric,
        first=numeric.first[:0],
        second=numeric.second[:0],
        difference=numeric.difference[:0],
        sum=numeric.sum[:0],
    )


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


def infer_with_numbers(
    problem: Problem, vectors: dict[str, np.ndarray], infer: Callable[[Problem], InferenceResult]
) -> InferenceResult:
    """Return the marginals of the free discrete variables and of the free numbers, given the clamped ones.

    Args:
        infer: Function that infers the marginals of a problem without numbers.
    """
    targets, discrete = problem.numbers, without_numbers(problem)
    assert targets is not None
    inferred = infer(discrete) if (discrete.roles == Role.FREE).any() else NOTHING_INFERRED
    states = np.where(problem.roles == Role.CLAMPED, problem.states, -1)
    whole = numeric_graph(targets, states)
    role = problem.roles[whole.variables]
    has_free = np.bincount(whole.component, role == Role.FREE) > 0
    numeric = whole.select((role != Role.ABSENT) & has_free[whole.component])
    is_known = problem.roles[numeric.variables] == Role.CLAMPED
    values = np.where(is_known, targets.values[numeric.variables], np.nan)
    if "numbers" not in vectors:
        raise DataError(_no_numbers_error())
    weights = NumberWeights(vectors["weights"], vectors["numbers"].reshape(-1, 2))
    return replace(inferred, numbers=conditional_marginals(numeric, weights, values))


def conditional_marginals(numeric: NumericGraph, weights: NumberWeights, values: np.ndarray) -> NumberMarginals:
    """Return the marginals of the unknown numbers given the known ones.

    Args:
        values: Value of each number, shape (n,); nan if unknown.
    """
    mean, scale = weights.mean(numeric), np.exp(-0.5 * weights.log_precision(numeric))
    pattern = GaussianLikelihood(numeric, values).pattern
    u = np.where(pattern.is_known, (np.where(pattern.is_known, values, 0.0) - mean) / scale, 0.0)
    u, factor = pattern.condition(weights.pairs(numeric), u)
    unknown = pattern.unknown
    return NumberMarginals(
        numeric.variables[unknown], (mean + scale * u)[unknown], scale[unknown] * np.sqrt(factor.variances)
    )


def _no_numbers_error() -> Diagnostic:
    message = "the training data contained no value of the predicted numbers, so that nothing was learned about them"
    return Diagnostic("E225", message, hint="train again with some values")
