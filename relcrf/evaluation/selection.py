"""Selection of a backend's settings by a grid search on held-out labels."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from relcrf.backends.base import AbstractBackend, Monitor, Problem
from relcrf.backends.joint_number_likelihood import joint_log_density
from relcrf.backends.registry import make_backend
from relcrf.backends.whole_graph import WholeGraphSpec
from relcrf.errors import Diagnostic, UsageError, listing
from relcrf.evaluation.runner import predict_fold
from relcrf.evaluation.splits import holdout_fold, random_fold, validation_fold
from relcrf.learning.lbfgs import AnyState, OptimiserState

SELECTION_MEASURES = ("log_likelihood", "accuracy")


@dataclass(frozen=True)
class SettingsSelection:
    """The scores of all combinations of settings, and the best combination.

    Args:
        settings: The best values of the varied settings; the first in case of ties.
        rows: The settings and scores of each combination. `log_likelihood` is the log-likelihood per held-out variable,
            in nats. It is the joint log-likelihood of components if whole components are held out; otherwise, each
            variable is conditioned on all labels that are not held out. Of numbers, it is the log density. `accuracy` is
            the fraction of labels that are the most probable state, and `mae` the mean absolute error of a numeric
            attribute, if it is the only one; `seconds` are CPU seconds.
        n: The number of held-out variables.
        whole_components: Whether whole components are held out.
        validation: Whether the held-out labels are the validation labels of the problem.
    """

    settings: dict[str, Any]
    rows: tuple[dict[str, Any], ...]
    n: int
    whole_components: bool
    validation: bool = False


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
) -> SettingsSelection:
    """Train a model with every combination of settings in a grid, and score each model on held-out labels.

    A training stage that does not depend on the varied settings runs once.

    Args:
        problem: The training problem. If it has validation labels, exactly these labels are held out and scored, one
            variable at a time; `holdout` and `seed` have no effect.
        grid: The values to try, for each varied setting.
        holdout: The fraction of the components or variables to hold out, between 0 and 1; see `random_fold`.
        held_out: Mask of variables, shape (n_variables,); their labels are held out instead of a random sample. Use it
            if the variables to predict differ from a random sample, e.g. if they belong to a later period.
        by: `log_likelihood` or `accuracy`.
        settings: Settings that all combinations share.

    Raises:
        UsageError: A setting is unknown (E304) or has no values, or `by` or `holdout` is invalid (E317).
        DataError: There are too few labels to hold out (E226).
    """
    if by not in SELECTION_MEASURES:
        hint = f"select by {listing(SELECTION_MEASURES)}"
        raise UsageError(Diagnostic("E317", f"unknown selection measure '{by}'", hint=hint))
    if not 0.0 < holdout < 1.0:
        hint = "hold out a fraction between 0 and 1, such as 0.2"
        raise UsageError(Diagnostic("E317", f"the held-out fraction {holdout} is not between 0 and 1", hint=hint))
    for name, values in grid.items():
        if not len(values):
            raise UsageError(
                Diagnostic("E317", f"setting '{name}' has no values to select from", hint="list at least one value")
            )
    choices = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    systems = [make_backend(backend, **{**settings, **choice}) for choice in choices]
    has_validation = held_out is None and problem.validation is not None
    if has_validation:
        problem, fold = validation_fold(problem)
    else:
        fold = random_fold(problem, holdout, seed) if held_out is None else holdout_fold(problem, held_out)
    rows: list[dict[str, Any]] = []
    finished: dict[tuple[Any, ...], OptimiserState] = {}
    for system in systems:
        predicted, learned = predict_fold(problem, fold, system, StageCache(system, finished))
        score = predicted.score()
        likelihood, seconds = score.log_likelihood, predicted.seconds_learn + predicted.seconds_infer
        if fold.whole_components:
            querying = fold.query_problem(problem).with_candidates(learned.chosen_candidates)
            configured = learned.configure(system)
            evaluate = partial(joint_label_likelihood, configured, allow_nan=by != "log_likelihood")
            if querying.numbers is None:
                joint = evaluate(querying, learned.vectors)
            else:
                joint = joint_log_density(querying, learned.vectors, configured.infer, evaluate)
            likelihood = joint / fold.n_test
        # A likelihood that is not finite counts as the worst.
        likelihood = likelihood if np.isfinite(likelihood) else -np.inf
        varied = {name: getattr(system, name) for name in grid}
        measures = {"accuracy": score.accuracy} if len(predicted.truth) else {}
        if predicted.numbers is not None and problem.numbers is not None and len(problem.numbers.names) == 1:
            measures["mae"] = score.mae
        if by not in ("log_likelihood", *measures):
            hint = "select by log_likelihood"
            raise UsageError(Diagnostic("E317", "the held-out numbers have no accuracy", hint=hint))
        rows.append({**varied, "log_likelihood": likelihood, **measures, "seconds": seconds})
    best = max(rows, key=lambda row: float(row[by]))
    settings_of_best = {name: best[name] for name in grid}
    return SettingsSelection(settings_of_best, tuple(rows), fold.n_test, fold.whole_components, has_validation)


def joint_label_likelihood(
    system: AbstractBackend, problem: Problem, vectors: dict[str, np.ndarray], *, allow_nan: bool = False
) -> float:
    """Return the log probability of the states of the free variables of a problem without numbers.

    Args:
        allow_nan: Whether the result may be nan because the inference method does not compute the log partition function.

    Raises:
        UsageError: The inference method does not compute it (E305).
    """
    spec = system.joint_likelihood(problem, vectors)
    if isinstance(spec, WholeGraphSpec) and not allow_nan:
        spec.require_log_partition()
    return -problem.total_likelihood(spec)(vectors["weights"])[0]


class StageCache(Monitor):
    """A cache of finished training stages, keyed by the settings that they depend on."""

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
