"""What messages buy: gates and weights are learned at several prices of a message, and judged by held-out labels.

Source: Stoyanov & Eisner, Fast and accurate prediction via evidence-specific MRF structure (2012), whose figures are such sweeps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from relcrf.backends.base import Learned, Monitor, Problem
from relcrf.backends.gated import GatedBackend
from relcrf.backends.problems import asking_problem, training_problem
from relcrf.backends.registry import backend_class, make
from relcrf.errors import Diagnostic, UsageError
from relcrf.graph.reduction import Role
from relcrf.grounding.grounding import Grounding

REPEATS = 3
"""Inferences, the quickest of which counts."""

MEANS = ("loss", "accuracy", "log_likelihood")
"""Figures of a point that are means over labels."""

SUMS = ("n", "asked", "messages", "factors", "open_factors", "iterations", "seconds_learn", "seconds_infer")
"""Those that add up."""


@dataclass(frozen=True)
class Fold:
    """What is learned from, and what is asked then; the states that are asked for are known to who judges."""

    learning: Problem
    asking: Problem


@dataclass(frozen=True)
class Point:
    """What one price gives: all folds together.

    Args:
        gates: the setting. price: of a message; for gates that are `none` it changes nothing.
        loss: mean over held-out labels, of the kind that was learned for.
        accuracy: share of them whose most probable state is right. log_likelihood: mean of their log beliefs, in nats.
        n: held-out labels. asked: variables that were asked for, with a label or without.
        messages: that inference sent. factors: that have a gate. open_factors: those of them that took part.
        iterations: of the optimisers, from the point before on.
        seconds_infer: of scoring, opening gates, laying out the factors that are open, and propagation: of what depends on the
            price. The evidence has been taken in before. The quickest of `REPEATS`.
    """

    gates: str
    price: float
    loss: float
    accuracy: float
    log_likelihood: float
    n: int
    asked: int
    messages: int
    factors: int
    open_factors: int
    iterations: int
    seconds_learn: float
    seconds_infer: float

    @property
    def messages_each(self) -> float:
        """For each variable that was asked for."""
        return self.messages / self.asked

    @property
    def open_share(self) -> float:
        return self.open_factors / max(self.factors, 1)

    def as_dict(self) -> dict[str, Any]:
        """All figures, for machines."""
        return {**asdict(self), "messages_each": self.messages_each, "open_share": self.open_share}


@dataclass(frozen=True)
class Front:
    """A sweep.

    Args:
        points: from the lowest price to the highest.
        interrupted: whether Ctrl-C left prices out.
    """

    points: tuple[Point, ...]
    interrupted: bool = False


def unbeaten(points: Sequence[Point]) -> list[bool]:
    """For each point, whether no other has both no more loss and no more messages, and less of one."""

    def beats(one: Point, other: Point) -> bool:
        no_worse = one.loss <= other.loss and one.messages_each <= other.messages_each
        return no_worse and (one.loss, one.messages_each) != (other.loss, other.messages_each)

    return [not any(beats(one, other) for one in points) for other in points]


def systems(backend: str, prices: Sequence[Any], settings: Mapping[str, Any]) -> list[GatedBackend]:
    """A backend at each price, ascending; with gates that are `none`, which no price closes, at the lowest alone.

    Args:
        prices: numbers, or texts of numbers.

    Raises:
        UsageError: where there are no prices, or one that is no number from 0, or one among the settings; for a backend without
            gates; and as `make` says.
    """
    if not issubclass(backend_class(backend), GatedBackend):
        message = f"backend '{backend}' has no gates, and its messages have no price"
        raise UsageError(Diagnostic("E319", message, hint="use --backend gated"))
    if not prices:
        raise UsageError(Diagnostic("E319", "there are no prices to sweep", hint="give some, such as 0,1e-5,1e-4"))
    if "price" in settings:
        message = "the price of messages is swept, and stands among the settings as well"
        raise UsageError(Diagnostic("E319", message, hint="leave it out of the settings"))
    made = [make(backend, **settings, price=price) for price in prices]
    by_price = {one.price: one for one in made if isinstance(one, GatedBackend)}
    ascending = [by_price[price] for price in sorted(by_price)]
    return ascending[:1] if ascending[0].gates == "none" else ascending


def pareto(
    grounding: Grounding,
    prices: Sequence[Any],
    *,
    hidden: np.ndarray,
    backend: str = "gated",
    watch: Callable[[str], Monitor] = lambda what: Monitor(),
    **settings: Any,
) -> Front:
    """What each price of a message gives, in loss and in speed.

    Args:
        hidden: variables whose labels are not learned from but judged by, shape (n_variables,), bool; or of several folds, each
            held out for itself, shape (n_folds, n_variables).
        watch: gives, by what is learned next, who sees it.
        settings: of the backend; with `gates="static"` or `gates="none"` it is a sweep to compare with.

    Raises:
        UsageError: see `systems` and `sweep`.
        DataError: where a fold leaves no label to learn from.
    """
    made = systems(backend, prices, settings)
    folds = [Fold(training_problem(grounding, one), asking_problem(grounding, one)) for one in np.atleast_2d(hidden)]
    return sweep(folds, made, watch)


def sweep(folds: Sequence[Fold], systems: Sequence[GatedBackend], watch: Callable[[str], Monitor]) -> Front:
    """Learns at each price from where the one before has ended, in each fold for itself. Ctrl-C ends it with what there is.

    Args:
        systems: see there.
        watch: gives who sees what is learned next.

    Raises:
        UsageError: where a fold holds out no label.
    """
    if not all(_judged(fold.asking).any() for fold in folds):
        message = "nothing of what is held out has a label to judge by"
        raise UsageError(Diagnostic("E319", message, hint="hold out some of what is labelled"))
    points: list[Point] = []
    starts: list[Mapping[str, np.ndarray] | None] = [None] * len(folds)
    try:
        for system in systems:
            parts = []
            for number, fold in enumerate(folds):
                of = f", fold {number + 1} of {len(folds)}" if len(folds) > 1 else ""
                monitor = watch(f"gates {system.gates}, price {system.price:g}{of}")
                started = time.perf_counter()
                learned = system.fit(fold.learning, monitor, starts[number])
                parts.append(_point(system, fold, learned, time.perf_counter() - started))
                starts[number] = learned.vectors
            points.append(_pooled(parts))
    except KeyboardInterrupt:
        return Front(tuple(points), interrupted=True)
    return Front(tuple(points))


def _judged(asking: Problem) -> np.ndarray:
    """The variables that are asked for and have a label, shape (n_variables,), bool."""
    return np.asarray((asking.roles == Role.FREE) & (asking.states >= 0))


def _point(system: GatedBackend, fold: Fold, learned: Learned, seconds: float) -> Point:
    """One fold's."""
    risk = system.joint(fold.asking, learned.vectors).risk(fold.asking)
    at = np.concatenate((learned.vectors["weights"], learned.vectors["gates"]))
    took = []
    for _ in range(REPEATS):
        anew = replace(risk)  # that nothing is kept of the time before
        started = time.perf_counter()
        found = anew.hard(at, system.threshold)
        took.append(time.perf_counter() - started)
    nodes = np.flatnonzero(risk.asked)
    modes = system.infer(fold.asking, learned.vectors).map_states  # of states that are equally likely it is the first
    right = modes[nodes] == risk.states[nodes]
    wanted = fold.asking.asked
    assert wanted is not None, "a question says what is asked"
    return Point(
        gates=system.gates,
        price=system.price,
        loss=risk.judged(found)[0],
        accuracy=float(right.mean()),
        log_likelihood=-risk.with_settings(loss="cross-entropy").judged(found)[0],
        n=len(nodes),
        asked=int((wanted & (fold.asking.roles == Role.FREE)).sum()),
        messages=found.messages,
        factors=len(found.open),
        open_factors=int(found.open.sum()),
        iterations=sum(state.iteration for _, state in learned.stages),
        seconds_learn=seconds,
        seconds_infer=min(took),
    )


def _pooled(parts: Sequence[Point]) -> Point:
    """Folds as one: means over labels, and sums."""
    n = np.array([part.n for part in parts])
    figures: dict[str, Any] = {name: sum(getattr(part, name) for part in parts) for name in SUMS}
    figures |= {name: float(n @ [getattr(part, name) for part in parts] / n.sum()) for name in MEANS}
    return replace(parts[0], **figures)
