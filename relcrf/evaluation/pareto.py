"""Sweeps over the message cost: a model with gates is trained for each cost and scored on held-out labels.

Source: Stoyanov & Eisner, Fast and accurate prediction via evidence-specific MRF structure (2012), reports such sweeps.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from relcrf.backends.base import FitResult, Monitor, Problem
from relcrf.backends.gated import GatedBackend
from relcrf.backends.numeric_targets import require_no_numbers
from relcrf.backends.problems import training_problem
from relcrf.backends.registry import backend_class, make_backend
from relcrf.errors import Diagnostic, UsageError
from relcrf.evaluation.predictions import FoldPrediction
from relcrf.evaluation.runner import ProgressCallback
from relcrf.evaluation.splits import Fold
from relcrf.graph.reduction import Role
from relcrf.grounding.grounding import Grounding

TIMING_REPEATS = 3
"""Number of timed inferences; the minimum time is reported."""

MEAN_FIELDS = ("loss", "accuracy", "log_likelihood")
"""Fields of `ParetoPoint` that are means over labels."""

SUM_FIELDS = ("n", "n_queries", "messages", "factors", "open_factors", "iterations", "seconds_learn", "seconds_infer")
"""Fields of `ParetoPoint` that are summed over folds."""


@dataclass(frozen=True)
class ParetoPoint:
    """The results for one message cost, over all folds.

    Args:
        gates: The setting `gates`.
        cost: The cost of a message; it has no effect if `gates` is `none`.
        loss: The mean over held-out labels of the loss that was minimised in training.
        accuracy, log_likelihood: See `Score`.
        n: The number of held-out labels.
        n_queries: The number of query variables, labelled or not.
        messages: The number of messages that inference sent.
        factors: The number of factors with a gate.
        open_factors: The number of gated factors whose gate was open.
        iterations: The number of optimiser iterations; training starts at the weights of the previous point.
        seconds_learn: CPU seconds of training.
        seconds_infer: CPU seconds to compute gates, select open factors and propagate messages; the minimum of
            `TIMING_REPEATS` repetitions. Conditioning on the evidence is excluded, because it does not depend on the
            cost.
    """

    gates: str
    cost: float
    loss: float
    accuracy: float
    log_likelihood: float
    n: int
    n_queries: int
    messages: int
    factors: int
    open_factors: int
    iterations: int
    seconds_learn: float
    seconds_infer: float

    @property
    def messages_per_query(self) -> float:
        """The number of messages per query variable."""
        return self.messages / self.n_queries

    @property
    def open_fraction(self) -> float:
        """The fraction of gated factors whose gate was open."""
        return self.open_factors / max(self.factors, 1)

    def as_dict(self) -> dict[str, Any]:
        """Return all fields and ratios as a JSON object."""
        return {**asdict(self), "messages_per_query": self.messages_per_query, "open_fraction": self.open_fraction}


@dataclass(frozen=True)
class ParetoFront:
    """The results of a sweep.

    Args:
        points: The points by ascending cost.
        interrupted: Whether Ctrl-C ended the sweep early.
    """

    points: tuple[ParetoPoint, ...]
    interrupted: bool = False


def pareto_optimal(points: Sequence[ParetoPoint]) -> list[bool]:
    """Return, for each point, True if no other point dominates it in loss and messages per query."""

    def dominates(one: ParetoPoint, other: ParetoPoint) -> bool:
        not_worse = one.loss <= other.loss and one.messages_per_query <= other.messages_per_query
        return not_worse and (one.loss, one.messages_per_query) != (other.loss, other.messages_per_query)

    return [not any(dominates(one, other) for one in points) for other in points]


def make_systems(backend: str, costs: Sequence[Any], settings: Mapping[str, Any]) -> list[GatedBackend]:
    """Create a backend for each cost, in ascending order of cost; with `gates="none"`, only for the lowest cost.

    Args:
        costs: Numbers, or strings that contain numbers.

    Raises:
        UsageError: `costs` is empty, `settings` contains the message cost, or the backend has no gates (E319); a cost
            is not a nonnegative number (E305); a setting is invalid, see `make_backend`.
    """
    if not issubclass(backend_class(backend), GatedBackend):
        message = f"backend '{backend}' has no gates, so that its messages have no cost"
        raise UsageError(Diagnostic("E319", message, hint="use --backend gated"))
    if not costs:
        raise UsageError(
            Diagnostic("E319", "no message costs to sweep", hint="pass at least one cost, such as 0,1e-5,1e-4")
        )
    if "message_cost" in settings:
        message = "the message cost is swept, but is also among the settings"
        raise UsageError(Diagnostic("E319", message, hint="remove it from the settings"))
    systems = [make_backend(backend, **settings, message_cost=cost) for cost in costs]
    by_cost = {one.message_cost: one for one in systems if isinstance(one, GatedBackend)}
    ascending = [by_cost[cost] for cost in sorted(by_cost)]
    return ascending[:1] if ascending[0].gates == "none" else ascending


def pareto(
    grounding: Grounding,
    costs: Sequence[Any],
    folds: Sequence[Fold],
    *,
    backend: str = "gated",
    progress: ProgressCallback = lambda what: Monitor(),
    **settings: Any,
) -> ParetoFront:
    """Train with each message cost, starting from the weights of the previous cost, and score each fold.

    If Ctrl-C interrupts the sweep, the finished points are returned.

    Args:
        folds: The folds to hold out, see `make_folds`.
        progress: Called with a description of each training run; returns the monitor of the run.
        settings: The settings of the backend; sweeps with `gates="static"` or `gates="none"` are baselines.

    Raises:
        UsageError: See `make_systems`; or a fold has no labels (E319).
        DataError: A fold leaves no training labels.
    """
    if not all(fold.n_test for fold in folds):
        message = "none of the held-out variables has a label"
        raise UsageError(Diagnostic("E319", message, hint="hold out labelled variables"))
    require_no_numbers(grounding.spec, "a sweep of message costs")
    systems = make_systems(backend, costs, settings)
    problem = training_problem(grounding, learn=False)
    points: list[ParetoPoint] = []
    starts: list[Mapping[str, np.ndarray] | None] = [None] * len(folds)
    try:
        for system in systems:
            points_of_folds = []
            for number, fold in enumerate(folds):
                suffix = f", fold {number + 1} of {len(folds)}" if len(folds) > 1 else ""
                monitor = progress(f"gates {system.gates}, message cost {system.message_cost:g}{suffix}")
                started = time.process_time()
                learned = system.fit(fold.learning_problem(problem), monitor, starts[number])
                points_of_folds.append(_evaluate_fold(system, problem, fold, learned, time.process_time() - started))
                starts[number] = learned.vectors
            points.append(_pool_folds(points_of_folds))
    except KeyboardInterrupt:
        return ParetoFront(tuple(points), interrupted=True)
    return ParetoFront(tuple(points))


def _evaluate_fold(
    system: GatedBackend, problem: Problem, fold: Fold, learned: FitResult, seconds: float
) -> ParetoPoint:
    """Return the point of one fold."""
    query = fold.query_problem(problem)
    risk = system.joint_likelihood(query, learned.vectors).risk(query)
    parameters = np.concatenate((learned.vectors["weights"], learned.vectors["gates"]))
    seconds_taken = []
    for _ in range(TIMING_REPEATS):
        fresh_risk = replace(risk)  # without the cached results of the previous repetition
        started = time.process_time()
        inferred = fresh_risk.infer_with_hard_gates(parameters, system.gate_threshold)
        seconds_taken.append(time.process_time() - started)
    score = FoldPrediction.from_inferred(fold, system.infer(query, learned.vectors), problem.states).score()
    assert query.queries is not None, "a fold marks its query variables"
    return ParetoPoint(
        gates=system.gates,
        cost=system.message_cost,
        loss=risk.evaluate(inferred),
        accuracy=score.accuracy,
        log_likelihood=score.log_likelihood,
        n=score.n,
        n_queries=int((query.queries & (query.roles == Role.FREE)).sum()),
        messages=inferred.n_messages,
        factors=len(inferred.open_factors),
        open_factors=int(inferred.open_factors.sum()),
        iterations=sum(state.iteration for _, state in learned.stages),
        seconds_learn=seconds,
        seconds_infer=min(seconds_taken),
    )


def _pool_folds(points_of_folds: Sequence[ParetoPoint]) -> ParetoPoint:
    """Pool the points of all folds; fields are averaged over labels or summed."""
    n = np.array([part.n for part in points_of_folds])
    pooled_fields: dict[str, Any] = {name: sum(getattr(part, name) for part in points_of_folds) for name in SUM_FIELDS}
    pooled_fields |= {
        name: float(n @ [getattr(part, name) for part in points_of_folds] / n.sum()) for name in MEAN_FIELDS
    }
    return replace(points_of_folds[0], **pooled_fields)
