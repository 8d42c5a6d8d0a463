"""Selection of a backend's settings by labels that are held out of the training."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from relcrf.backends.base import AbstractBackend, Monitor, Problem
from relcrf.backends.registry import make_backend
from relcrf.errors import Diagnostic, UsageError, listing
from relcrf.evaluation.runner import predict_fold
from relcrf.evaluation.splits import holdout_fold, random_fold
from relcrf.learning.lbfgs import AnyState, OptimiserState

SELECTION_MEASURES = ("log_likelihood", "accuracy")


@dataclass(frozen=True)
class Selection:
    """The scores of all combinations, and the best settings.

    Args:
        settings: The best of the settings that were varied; of equals the first.
        rows: For each combination its settings and its scores. `log_likelihood` is a mean over held-out variables, in nats:
            of all of a component's together where whole components are held out, else of each alone given all that is not
            held out. `accuracy` is the fraction of them whose most probable state is the label; `seconds` are CPU seconds.
        n: The number of held-out variables. whole: Whether they are whole components.
    """

    settings: dict[str, Any]
    rows: tuple[dict[str, Any], ...]
    n: int
    whole_components: bool


def select_settings(
    problem: Problem,
    backend: str,
    grid: Mapping[str, Sequence[Any]],
    *,
    holdout: float = 0.2,
    held_out: np.ndarray | None = None,
    seed: int = 0,
    by: str = "log_likelihood",
    **settings: Any,
) -> Selection:
    """Try every combination of a grid on a part of the labels, and score it on the rest.

    A stage of learning that does not depend on what differs is not repeated.

    Args:
        problem: Of training.
        grid: For settings of the backend the values to try.
        holdout: The fraction of the components or variables that is held out, above 0 and below 1; see `random_fold`.
        held_out: The variables whose labels are held out in its place, shape (n_variables,), bool: what is to be predicted may be of
            another kind than what a random fraction leaves between its neighbours, a later time for one.
        by: `log_likelihood` or `accuracy`.
        settings: The same for all.

    Raises:
        UsageError: A setting that the backend does not have, or one without values (E317).
        DataError: There is too little to hold out (E226).
    """
    if by not in SELECTION_MEASURES or not 0.0 < holdout < 1.0:
        message = f"settings are not selected by '{by}' with a share of {holdout} held out"
        raise UsageError(
            Diagnostic("E317", message, hint=f"by {listing(SELECTION_MEASURES)}, and a share between 0 and 1")
        )
    for name, values in grid.items():
        if not len(values):
            raise UsageError(Diagnostic("E317", f"setting '{name}' has no values to select from", hint="give some"))
    choices = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    systems = [make_backend(backend, **{**settings, **choice}) for choice in choices]
    fold = random_fold(problem, holdout, seed) if held_out is None else holdout_fold(problem, held_out)
    rows: list[dict[str, Any]] = []
    finished: dict[tuple[Any, ...], OptimiserState] = {}
    for system in systems:
        predicted, learned = predict_fold(problem, fold, system, _StageCache(system, finished))
        score = predicted.score()
        likelihood, seconds = score.log_likelihood, predicted.seconds_learn + predicted.seconds_infer
        if fold.whole_components:
            querying = fold.query_problem(problem).with_candidates(learned.chosen_candidates)
            joint = querying.total_likelihood(system.joint_likelihood(querying, learned.vectors))(
                learned.vectors["weights"]
            )[0]
            likelihood = -joint / fold.n_test
        # A likelihood that is not a number counts as the worst.
        likelihood = likelihood if np.isfinite(likelihood) else -np.inf
        varied = {name: getattr(system, name) for name in grid}
        rows.append({**varied, "log_likelihood": likelihood, "accuracy": score.accuracy, "seconds": seconds})
    best = max(rows, key=lambda row: float(row[by]))
    return Selection({name: best[name] for name in grid}, tuple(rows), fold.n_test, fold.whole_components)


class _StageCache(Monitor):
    """A cache of finished stages, by the settings on which they depend."""

    def __init__(self, system: AbstractBackend, finished: dict[tuple[Any, ...], OptimiserState]) -> None:
        self._system, self._finished = system, finished

    def _key(self, stage: str) -> tuple[Any, ...] | None:
        if stage not in self._system.unused_settings:
            return None
        names = sorted(set(vars(self._system)) - set(self._system.unused_settings[stage]))
        return (stage, *(getattr(self._system, name) for name in names))

    def restore(self, stage: str, state_class: type[AnyState]) -> AnyState | None:
        key = self._key(stage)
        known = None if key is None else self._finished.get(key)
        return known if isinstance(known, state_class) else None

    def step(self, stage: str, state: OptimiserState, max_iterations: int) -> None:
        key = self._key(stage)
        if key is not None and state.status != "running":
            self._finished[key] = state
