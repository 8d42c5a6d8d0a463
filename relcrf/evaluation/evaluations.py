"""Evaluations: backends on the same folds of the labels, with the baselines and what leaks from training to test labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from relcrf.backends.base import AbstractBackend, Monitor
from relcrf.backends.learned_model import LearnedModel
from relcrf.backends.registry import make_backend
from relcrf.data.split_plan import SplitPlan, parse_split
from relcrf.errors import Diagnostic, UsageError
from relcrf.evaluation.leakage import Leakage, measure_leakage
from relcrf.evaluation.predictions import LOCAL, MAJORITY, Predictions
from relcrf.evaluation.runner import (
    ProgressCallback,
    SystemResult,
    predict_fold_with_model,
    predict_frequencies,
    run_in_processes,
    run_systems,
)
from relcrf.evaluation.splits import Fold, labelled_in_grounding, make_folds
from relcrf.grounding.grounding import Grounding

DEFAULT_SUBGRAPHS = 20
"""Default number of small parts of the graph in which marginals are compared with exact ones."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """An evaluation of systems on the same folds.

    Args:
        split: The split in words.
        results: By the name of each system that was run, without the baseline `MAJORITY`.
        predictions: Of `MAJORITY` and of the systems that did not fail.
    """

    split: str
    folds: tuple[Fold, ...]
    results: Mapping[str, SystemResult]
    predictions: Predictions
    leakage: Leakage

    @classmethod
    def from_results(
        cls, grounding: Grounding, plan: SplitPlan, folds: tuple[Fold, ...], results: Mapping[str, SystemResult]
    ) -> Evaluation:
        """Return the evaluation of some results, with the baseline where there are labels to learn from."""
        labelled = labelled_in_grounding(grounding)
        by_system = {name: found.predictions for name, found in results.items() if found.predictions}
        if all(fold.train_mask(labelled).any() for fold in folds):
            by_system = {MAJORITY: tuple(predict_frequencies(grounding, fold) for fold in folds), **by_system}
        predictions = Predictions.from_folds(grounding, folds, by_system)
        return cls(str(plan), folds, results, predictions, measure_leakage(grounding, folds))

    @property
    def n_loaded(self) -> int:
        """The number of predictions that were read from files."""
        return sum(one.n_loaded for one in self.results.values())

    def as_dict(self) -> dict[str, Any]:
        """Return the figures for JSON."""
        found = self.predictions
        seconds = {name: dict(zip(("learn", "infer"), found.seconds(name), strict=True)) for name in found.systems}
        return {
            "split": self.split,
            "rounds": [{"name": fold.name, "held_out": fold.n_test} for fold in self.folds],
            "attributes": found.as_dict(),
            "seconds": seconds,
            "converged": {name: found.converged(name) for name in found.systems},
            "leaks": self.leakage.as_dict(),
            "rounds_found": self.n_loaded,
        }

    def scores_as_dict(self) -> dict[str, Any]:
        """Return for JSON the scores of each system on each fold, and over all folds."""
        found = self.predictions
        return {
            "backend": list(self.results)[-1],
            "backends": {
                name: {attribute: asdict(found.score(name, attribute)) for attribute in found.attributes}
                for name in self.results
            },
            "folds": [asdict(one) for name in self.results for one in found.fold_scores(name)],
        }

    def resources_as_dict(self) -> dict[str, Any]:
        """Return for JSON what each system took, or why it failed."""
        return {"backends": {name: self._resources(name) for name in self.results}}

    def _resources(self, name: str) -> dict[str, Any]:
        result = self.results[name]
        seconds = self.predictions.seconds(name) if result.predictions else (None, None)
        return {
            "status": result.status,
            "error": None if result.error is None else result.error.as_dict(),
            "seconds_learn": seconds[0],
            "seconds_infer": seconds[1],
            "bytes_before": result.bytes_before,
            "bytes_peak": result.bytes_peak,
            "exactness": None if result.exactness is None else asdict(result.exactness),
        }


def _ignore_progress(what: str) -> Monitor:
    return Monitor()


BackendSettings = Mapping[str, Mapping[str, Any]]
"""Settings of backends, by the backend's name."""


def evaluate(
    grounding: Grounding,
    backends: Sequence[str] = ("ess",),
    split: SplitPlan | str = "random",
    *,
    settings: BackendSettings | None = None,
    folder: Path | None = None,
    progress: ProgressCallback = _ignore_progress,
) -> Evaluation:
    """Hold out each fold of the labels in turn, and score the predictions of backends, of `LOCAL` and of `MAJORITY`.

    Args:
        split: The plan, or its text: see `relcrf.data.split_plan`.
        folder: For files of predictions, a folder for each fold; folds whose files exist are not computed again.

    Raises:
        UsageError: Unknown backend, setting or split; a backend rejects the model; the folder has other predictions (E353).
        DataError: The split is impossible, or leaves nothing to learn from.
    """
    plan = parse_split(split) if isinstance(split, str) else split
    systems = _make_systems((LOCAL, *backends), settings)
    folds = make_folds(grounding, plan)
    return Evaluation.from_results(grounding, plan, folds, run_systems(grounding, folds, systems, progress, folder))


def evaluate_run(learned: LearnedModel, grounding: Grounding, split: SplitPlan | str) -> Evaluation:
    """Score the predictions of a trained model, and of `MAJORITY`; for the split see `evaluate`."""
    plan = parse_split(split) if isinstance(split, str) else split
    folds = make_folds(grounding, plan, for_training=False)
    found = tuple(predict_fold_with_model(learned, grounding, fold)[0] for fold in folds)
    return Evaluation.from_results(grounding, plan, folds, {learned.backend: SystemResult(found)})


def compare(
    grounding: Grounding,
    backends: Sequence[str],
    split: SplitPlan | str = "random",
    *,
    settings: BackendSettings | None = None,
    jobs: int = 1,
    time_limit: float = float("inf"),
    n_subgraphs: int = DEFAULT_SUBGRAPHS,
    progress: ProgressCallback = _ignore_progress,
) -> Evaluation:
    """Evaluate backends, each in a fresh process of one thread.

    A backend that rejects the model, dies or takes too long has a result that says so. A script calls this below
    `if __name__ == "__main__":`.

    Args:
        grounding, split: See `evaluate`.
        jobs: Processes at a time. limit: Seconds that one may take, for all folds.
        n_subgraphs: Small parts of the graph in which marginals are compared with exact ones; 0 for none.
        progress: Receives what is done; its monitors are not used.

    Raises:
        UsageError: Unknown backend, setting or split, or no backends (E354).
        DataError: The split is impossible, or leaves nothing to learn from.
    """
    if not backends or jobs < 1:
        message = "there are no backends to compare" if not backends else f"there cannot be {jobs} processes at a time"
        raise UsageError(Diagnostic("E354", message, hint="name some, such as --backends local,ess; and --jobs 2"))
    plan = parse_split(split) if isinstance(split, str) else split
    systems = _make_systems(backends, settings)
    folds = make_folds(grounding, plan)
    found = run_in_processes(
        grounding,
        folds,
        systems,
        progress,
        jobs=jobs,
        time_limit=time_limit,
        n_subgraphs=n_subgraphs,
        seed=max(plan.seed, 0),
    )
    return Evaluation.from_results(grounding, plan, folds, found)


def _make_systems(backends: Sequence[str], settings: BackendSettings | None) -> dict[str, AbstractBackend]:
    if MAJORITY in backends:
        message = f"'{MAJORITY}' is the baseline of every evaluation, and not a backend"
        raise UsageError(Diagnostic("E301", message, hint="leave it out: it is always there"))
    return {name: make_backend(name, **dict((settings or {}).get(name, {}))) for name in dict.fromkeys(backends)}
