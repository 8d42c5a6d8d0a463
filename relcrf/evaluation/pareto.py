"""Sweeps over the price of messages: gates and weights are learned at several prices, and scored on held-out labels.

Source: Stoyanov & Eisner, Fast and accurate prediction via evidence-specific MRF structure (2012), whose figures are such sweeps.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from relcrf.backends.base import FitResult, Monitor, Problem
from relcrf.backends.gated import GatedBackend
from relcrf.backends.problems import training_problem
from relcrf.backends.registry import backend_class, make_backend
from relcrf.errors import Diagnostic, UsageError
from relcrf.evaluation.predictions import FoldPrediction
from relcrf.evaluation.runner import ProgressCallback
from relcrf.evaluation.splits import Fold
from relcrf.graph.reduction import Role
from relcrf.grounding.grounding import Grounding

TIMING_REPEATS = 3
"""Number of inferences, the quickest of which counts."""

MEAN_FIGURES = ("loss", "accuracy", "log_likelihood")
"""Figures of a point that are means over labels."""

SUM_FIGURES = ("n", "n_queries", "messages", "factors", "open_factors", "iterations", "seconds_learn", "seconds_infer")
"""Figures that add up over folds."""


@dataclass(frozen=True)
class ParetoPoint:
    """The figures of one price, over all folds.

    Args:
        gates: The setting. price: Of a message; for gates that are `none` it changes nothing.
        loss: The mean over held-out labels, of the kind that was learned for.
        accuracy, log_likelihood: See `Score`.
        n: The number of held-out labels. asked: The number of queries, with a label or without.
        messages: That inference sent. factors: That have a gate. open_factors: Those of them that were used.
        iterations: Of the optimisers, from the previous point on.
        seconds_learn: CPU seconds.
        seconds_infer: CPU seconds of scoring, opening gates, laying out the open factors, and propagation: of what depends on
            the price. The evidence has been reduced before. The quickest of `TIMING_REPEATS`.
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
        """Messages per query variable."""
        return self.messages / self.n_queries

    @property
    def open_fraction(self) -> float:
        """The fraction of the factors with a gate that were used."""
        return self.open_factors / max(self.factors, 1)

    def as_dict(self) -> dict[str, Any]:
        """Return all figures for JSON."""
        return {**asdict(self), "messages_per_query": self.messages_per_query, "open_fraction": self.open_fraction}


@dataclass(frozen=True)
class ParetoFront:
    """A sweep.

    Args:
        points: from the lowest price to the highest.
        interrupted: whether Ctrl-C left prices out.
    """

    points: tuple[ParetoPoint, ...]
    interrupted: bool = False


def pareto_optimal(points: Sequence[ParetoPoint]) -> list[bool]:
    """For each point, whether no other has both no more loss and no more messages, and less of one."""

    def beats(one: ParetoPoint, other: ParetoPoint) -> bool:
        no_worse = one.loss <= other.loss and one.messages_per_query <= other.messages_per_query
        return no_worse and (one.loss, one.messages_per_query) != (other.loss, other.messages_per_query)

    return [not any(beats(one, other) for one in points) for other in points]


def make_systems(backend: str, costs: Sequence[Any], settings: Mapping[str, Any]) -> list[GatedBackend]:
    """A backend at each price, ascending; with gates that are `none`, which no price closes, at the lowest alone.

    Args:
        costs: numbers, or texts of numbers.

    Raises:
        UsageError: where there are no prices, or one that is no number from 0, or one among the settings; for a backend without
            gates; and as `make` says.
    """
    if not issubclass(backend_class(backend), GatedBackend):
        message = f"backend '{backend}' has no gates, and its messages have no price"
        raise UsageError(Diagnostic("E319", message, hint="use --backend gated"))
    if not costs:
        raise UsageError(Diagnostic("E319", "there are no prices to sweep", hint="give some, such as 0,1e-5,1e-4"))
    if "message_cost" in settings:
        message = "the price of messages is swept, and stands among the settings as well"
        raise UsageError(Diagnostic("E319", message, hint="leave it out of the settings"))
    made = [make_backend(backend, **settings, message_cost=price) for price in costs]
    by_price = {one.message_cost: one for one in made if isinstance(one, GatedBackend)}
    ascending = [by_price[price] for price in sorted(by_price)]
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
    """Learn at each price, in each fold from where the previous price ended, and score. Ctrl-C ends it with what there is.

    Args:
        folds: The labels that are held out, see `make_folds`.
        settings: Of the backend; with `gates="static"` or `gates="none"` it is a sweep to compare with.

    Raises:
        UsageError: See `systems`; a fold has no label (E319).
        DataError: A fold leaves no label to learn from.
    """
    if not all(fold.n_test for fold in folds):
        message = "nothing of what is held out has a label to judge by"
        raise UsageError(Diagnostic("E319", message, hint="hold out some of what is labelled"))
    made = make_systems(backend, costs, settings)
    problem = training_problem(grounding)
    points: list[ParetoPoint] = []
    starts: list[Mapping[str, np.ndarray] | None] = [None] * len(folds)
    try:
        for system in made:
            parts = []
            for number, fold in enumerate(folds):
                of = f", fold {number + 1} of {len(folds)}" if len(folds) > 1 else ""
                monitor = progress(f"gates {system.gates}, price {system.message_cost:g}{of}")
                started = time.process_time()
                learned = system.fit(fold.learning_problem(problem), monitor, starts[number])
                parts.append(_evaluate_fold(system, problem, fold, learned, time.process_time() - started))
                starts[number] = learned.vectors
            points.append(_pool_folds(parts))
    except KeyboardInterrupt:
        return ParetoFront(tuple(points), interrupted=True)
    return ParetoFront(tuple(points))


def _evaluate_fold(
    system: GatedBackend, problem: Problem, fold: Fold, learned: FitResult, seconds: float
) -> ParetoPoint:
    """Return the figures of one fold."""
    querying = fold.query_problem(problem)
    risk = system.joint_likelihood(querying, learned.vectors).risk(querying)
    at = np.concatenate((learned.vectors["weights"], learned.vectors["gates"]))
    took = []
    for _ in range(TIMING_REPEATS):
        anew = replace(risk)  # without the cached results of the repetition before
        started = time.process_time()
        found = anew.infer_with_hard_gates(at, system.gate_threshold)
        took.append(time.process_time() - started)
    score = FoldPrediction.from_inferred(fold, system.infer(querying, learned.vectors), problem.states).score()
    assert querying.queries is not None, "queries of a fold are marked"
    return ParetoPoint(
        gates=system.gates,
        cost=system.message_cost,
        loss=risk.evaluate(found)[0],
        accuracy=score.accuracy,
        log_likelihood=score.log_likelihood,
        n=score.n,
        n_queries=int((querying.queries & (querying.roles == Role.FREE)).sum()),
        messages=found.n_messages,
        factors=len(found.open_factors),
        open_factors=int(found.open_factors.sum()),
        iterations=sum(state.iteration for _, state in learned.stages),
        seconds_learn=seconds,
        seconds_infer=min(took),
    )


def _pool_folds(parts: Sequence[ParetoPoint]) -> ParetoPoint:
    """Return the means over labels and the sums of all folds."""
    n = np.array([part.n for part in parts])
    figures: dict[str, Any] = {name: sum(getattr(part, name) for part in parts) for name in SUM_FIGURES}
    figures |= {name: float(n @ [getattr(part, name) for part in parts] / n.sum()) for name in MEAN_FIGURES}
    return replace(parts[0], **figures)
