"""Settings of a backend, chosen by labels that are held out of the training."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from relcrf.backends.base import AbstractBackend, Monitor, Problem
from relcrf.backends.registry import make
from relcrf.errors import Diagnostic, UsageError, listing
from relcrf.evaluation.held_out import HeldOut
from relcrf.learning.lbfgs import AnyState, State

MEASURES = ("log_likelihood", "accuracy")


@dataclass(frozen=True)
class Trial:
    """One combination of settings.

    Args:
        log_likelihood: of the held-out labels, a mean over variables, in nats: of all of a component's together where whole
            components are held out, else of each alone given all that is not held out.
        accuracy: share of them whose most probable state is right.
    """

    settings: Mapping[str, Any]
    log_likelihood: float
    accuracy: float
    seconds: float


@dataclass(frozen=True)
class Selection:
    """What was tried, and the best.

    Args:
        settings: of the best trial, all that were varied; of equals the first.
        n: how many variables were held out. whole: whether in whole components.
    """

    settings: dict[str, Any]
    trials: tuple[Trial, ...]
    n: int
    whole: bool

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Each trial: its settings and its figures."""
        figures = ("log_likelihood", "accuracy", "seconds")
        return [{**trial.settings, **{name: getattr(trial, name) for name in figures}} for trial in self.trials]


def select(
    problem: Problem,
    backend: str,
    grid: Mapping[str, Sequence[Any]],
    *,
    hold: float = 0.2,
    held: np.ndarray | None = None,
    seed: int = 0,
    by: str = "log_likelihood",
    watch: Callable[[Trial], None] = lambda trial: None,
    **settings: Any,
) -> Selection:
    """Tries every combination of a grid on a part of the labels, and judges it by the rest.

    What is held out, `HeldOut.at_random` says. A stage of learning that does not depend on what differs is not done anew.

    Args:
        problem: of training.
        grid: for settings of the backend the values to try.
        hold: share of the components or variables that is held out, above 0 and below 1.
        held: the variables whose labels are held out in its place, shape (n_variables,), bool: what is to be predicted may be of
            another kind than what a random share leaves between its neighbours, a later time for one.
        by: `log_likelihood` or `accuracy`.
        settings: the same for all.

    Raises:
        UsageError: for a setting that the backend does not have, or one without values.
        DataError: where there is too little to hold out.
    """
    if by not in MEASURES or not 0.0 < hold < 1.0:
        message = f"settings are not selected by '{by}' with a share of {hold} held out"
        raise UsageError(Diagnostic("E317", message, hint=f"by {listing(MEASURES)}, and a share between 0 and 1"))
    for name, values in grid.items():
        if not len(values):
            raise UsageError(Diagnostic("E317", f"setting '{name}' has no values to select from", hint="give some"))
    choices = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    systems = [make(backend, **{**settings, **choice}) for choice in choices]
    out = HeldOut.at_random(problem, hold, seed) if held is None else HeldOut.chosen(problem, held)
    learning, asking = out.learning(problem), out.asking(problem)
    trials = []
    known: dict[tuple[Any, ...], State] = {}
    for system in systems:
        started = time.perf_counter()
        learned = system.fit(learning, _Memory(system, known))
        vectors, asked = learned.vectors, asking.having(learned.chosen)
        likelihood, accuracy = out.scores(problem, system.infer(asked, vectors))
        if out.whole:
            likelihood = -asked.sum_of(system.joint(asked, vectors))(vectors["weights"])[0] / out.n
        # What cannot be told from the worst is the worst: a probability that is no number.
        likelihood = likelihood if np.isfinite(likelihood) else -np.inf
        varied = {name: getattr(system, name) for name in grid}
        trials.append(Trial(varied, likelihood, accuracy, time.perf_counter() - started))
        watch(trials[-1])
    best = max(trials, key=lambda trial: float(getattr(trial, by)))
    return Selection(dict(best.settings), tuple(trials), out.n, out.whole)


class _Memory(Monitor):
    """Restores a stage that was done with the same settings, as far as it depends on them."""

    def __init__(self, system: AbstractBackend, known: dict[tuple[Any, ...], State]) -> None:
        self._system, self._known = system, known

    def _key(self, stage: str) -> tuple[Any, ...] | None:
        if stage not in self._system.without:
            return None
        names = sorted(set(vars(self._system)) - set(self._system.without[stage]))
        return (stage, *(getattr(self._system, name) for name in names))

    def restore(self, stage: str, kind: type[AnyState]) -> AnyState | None:
        key = self._key(stage)
        known = None if key is None else self._known.get(key)
        return known if isinstance(known, kind) else None

    def step(self, stage: str, state: State, max_iterations: int) -> None:
        key = self._key(stage)
        if key is not None and state.status != "running":
            self._known[key] = state
