"""Evaluations of backends and baselines on the same folds of the labels, with the leakage to the test labels."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from relcrf.backends.base import AbstractBackend, Monitor
from relcrf.backends.calibration_labels import CalibrationLabels
from relcrf.backends.learned_model import LearnedModel
from relcrf.backends.nearby_labels import require_labels_in_data
from relcrf.backends.registry import DEFAULT_BACKEND, make_backend
from relcrf.data.split_plan import SplitPlan, parse_split
from relcrf.errors import Diagnostic, UsageError, listing
from relcrf.evaluation.leakage import Leakage, held_out_label_warnings, measure_leakage
from relcrf.evaluation.prediction_sets import SetMeasures, measure_sets
from relcrf.evaluation.predictions import LOCAL, MAJORITY, Predictions
from relcrf.evaluation.ranking import group_tuples
from relcrf.evaluation.runner import (
    ProgressCallback,
    SystemResult,
    predict_fold_with_model,
    predict_frequencies,
    run_in_processes,
    run_systems,
)
from relcrf.evaluation.splits import Fold, PartSizes, labelled_in_grounding, make_folds
from relcrf.graph.adjacency import adjacency_matrix
from relcrf.grounding.grounding import Grounding

DEFAULT_SUBGRAPHS = 20
"""Default number of small subgraphs on which marginals are compared with exact marginals."""


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """The evaluation of several systems (backends, or the baseline `MAJORITY`) on the same folds.

    Notebooks display the measures as a table.

    Args:
        plan: The split plan of the folds.
        part_sizes: The numbers of labels of each fold's parts.
        results: The result of each system except `MAJORITY`, by the name of the system.
        predictions: The predictions of `MAJORITY` and of the systems that did not fail.
        notes: What reading the tables assumed, and the rows that the policies of the manifest repaired.
        calibration_labels: Those of the evaluated run, by attribute; None if models were trained for the evaluation.
    """

    grounding: Grounding
    plan: SplitPlan
    folds: tuple[Fold, ...]
    part_sizes: tuple[PartSizes, ...]
    results: Mapping[str, SystemResult]
    predictions: Predictions
    leakage: Leakage
    notes: tuple[str, ...] = ()
    calibration_labels: Mapping[str, CalibrationLabels] | None = None

    def __repr__(self) -> str:
        held_out, systems = sum(sizes.test for sizes in self.part_sizes), listing(self.predictions.systems)
        return f"Evaluation({systems}: {held_out:,} held-out labels, split {self.split})"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(repr(self))}</p>{self.predictions.measure_table()._repr_html_()}"

    @classmethod
    def from_results(
        cls,
        grounding: Grounding,
        plan: SplitPlan,
        folds: tuple[Fold, ...],
        results: Mapping[str, SystemResult],
        groups: Mapping[str, np.ndarray],
    ) -> Evaluation:
        """Build an evaluation from results; add the baseline `MAJORITY` if every fold has training labels.

        Args:
            groups: See `group_tuples`.
        """
        labelled = labelled_in_grounding(grounding)
        by_system = {name: result.predictions for name, result in results.items() if result.predictions}
        if all(fold.train_mask(labelled).any() for fold in folds):
            by_system = {MAJORITY: tuple(predict_frequencies(grounding, fold) for fold in folds), **by_system}
        predictions = Predictions.from_folds(grounding, folds, by_system, groups)
        sizes = tuple(fold.part_sizes(labelled) for fold in folds)
        leakage, notes = measure_leakage(grounding, folds), tuple(grounding.bound.notes)
        return cls(grounding, plan, folds, sizes, results, predictions, leakage, notes)

    @property
    def split(self) -> str:
        """The split plan, as a string."""
        return str(self.plan)

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C interrupted the comparison, so that some systems have no predictions."""
        return any(result.interrupted for result in self.results.values())

    @property
    def n_loaded(self) -> int:
        """The number of folds that were read from prediction files, summed over the systems."""
        return sum(result.n_loaded for result in self.results.values())

    def as_dict(self) -> dict[str, Any]:
        """Return measures, timings, leakage and notes as a JSON object."""
        predictions = self.predictions
        seconds = {
            name: dict(zip(("learn", "infer"), predictions.seconds(name), strict=True)) for name in predictions.systems
        }
        return {
            "split": self.split,
            "fold_sizes": [
                {"name": fold.name, "held_out": fold.n_test, **asdict(sizes)}
                for fold, sizes in zip(self.folds, self.part_sizes, strict=True)
            ],
            "attributes": predictions.as_dict(),
            "seconds": seconds,
            "converged": {name: predictions.converged(name) for name in predictions.systems},
            "leaks": self.leakage.as_dict(),
            "folds_loaded": self.n_loaded,
            "notes": list(self.notes),
        }

    def measure_sets(
        self, coverage: float, *, each_value: bool = False, nearby: bool = False
    ) -> dict[str, dict[str, SetMeasures]]:
        """Measure prediction sets by attribute and system; see `prediction_sets.measure_sets`.

        Raises:
            UsageError: See `prediction_sets.measure_sets`; or the data do not contain the held-out labels (`nearby`, E375).
        """
        if nearby:
            for labels in (self.calibration_labels or {}).values():
                require_labels_in_data(labels, self.grounding.states)
        adjacency = adjacency_matrix(self.grounding.graph) if nearby else None
        return measure_sets(
            self.predictions, coverage, self.calibration_labels, each_value=each_value, adjacency=adjacency
        )

    def scores_as_dict(self) -> dict[str, Any]:
        """Return the scores of each system on each fold, and over all folds, as a JSON object."""
        predictions = self.predictions
        return {
            "backend": list(self.results)[-1],
            "backends": {
                name: {attribute: predictions.score(name, attribute).as_dict() for attribute in predictions.attributes}
                for name in self.results
            },
            "folds": [
                {**asdict(one), "scores": {attribute: score.as_dict() for attribute, score in one.scores.items()}}
                for name in self.results
                for one in predictions.fold_scores(name)
            ],
        }

    def resources_as_dict(self) -> dict[str, Any]:
        """Return a JSON object: the time and memory that each system used, or the error of a failed system."""
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
"""The settings of each backend, by the name of the backend."""


def evaluate(
    grounding: Grounding,
    backends: Sequence[str] = (DEFAULT_BACKEND,),
    split: SplitPlan | str = "random",
    *,
    settings: BackendSettings | None = None,
    folder: Path | None = None,
    progress: ProgressCallback = _ignore_progress,
    rank: Sequence[str] = (),
) -> Evaluation:
    """Cross-validate backends and the baselines `LOCAL` and `MAJORITY`: hold out and score each fold in turn.

    Args:
        split: A split plan or the text of one; see `relcrf.data.split_plan`.
        folder: The folder for prediction files; folds that it already contains are loaded and not recomputed.
        rank: Arguments of predicted Boolean relations by which true tuples are ranked; see `group_tuples`.

    Raises:
        UsageError: A backend, setting, split or argument is unknown; a backend rejects the model; `folder` contains
            predictions of another model or split (E353).
        DataError: The split is impossible, or leaves no training labels.
    """
    plan = parse_split(split) if isinstance(split, str) else split
    systems = _make_systems((LOCAL, *backends), settings)
    folds, groups = make_folds(grounding, plan), group_tuples(grounding, rank)
    results = run_systems(grounding, folds, systems, progress, folder)
    return Evaluation.from_results(grounding, plan, folds, results, groups)


def evaluate_run(
    learned: LearnedModel, grounding: Grounding, split: SplitPlan | str, *, rank: Sequence[str] = ()
) -> Evaluation:
    """Score the predictions of a trained model and of `MAJORITY`; for `split` and `rank` see `evaluate`."""
    plan = parse_split(split) if isinstance(split, str) else split
    folds, groups = make_folds(grounding, plan, for_training=False), group_tuples(grounding, rank)
    predictions = tuple(predict_fold_with_model(learned, grounding, fold)[0] for fold in folds)
    evaluation = Evaluation.from_results(grounding, plan, folds, {learned.backend: SystemResult(predictions)}, groups)
    n_labelled = int(labelled_in_grounding(grounding).sum())
    notes = (*evaluation.notes, *held_out_label_warnings(learned, n_labelled, "the run"))
    return replace(evaluation, notes=notes, calibration_labels=learned.calibration_labels)


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
    """Evaluate each backend in a separate single-threaded process.

    If a backend rejects the model, crashes or exceeds the time limit, the result of this backend contains the error. After
    Ctrl-C, the same holds for the backends that are not finished.
    Scripts must call this function under `if __name__ == "__main__":`, because processes are spawned.

    Args:
        grounding, split: See `evaluate`.
        jobs: The number of concurrent processes.
        time_limit: The maximum seconds per backend, for all folds together.
        n_subgraphs: The number of small subgraphs on which marginals are compared with exact marginals; 0 disables the
            comparison.
        progress: Called with a description of each step; the returned monitors are not used.

    Raises:
        UsageError: A backend, setting or split is unknown, or `backends` is empty (E354).
        DataError: The split is impossible, or leaves no training labels.
        KeyboardInterrupt: Ctrl-C, before any backend is finished.
    """
    if not backends or jobs < 1:
        message = "no backends to compare" if not backends else f"number of processes must be at least 1, not {jobs}"
        raise UsageError(Diagnostic("E354", message, hint="name backends, such as --backend local,ess --jobs 2"))
    plan = parse_split(split) if isinstance(split, str) else split
    systems = _make_systems(backends, settings)
    folds = make_folds(grounding, plan)
    results = run_in_processes(
        grounding,
        folds,
        systems,
        progress,
        jobs=jobs,
        time_limit=time_limit,
        n_subgraphs=n_subgraphs,
        seed=max(plan.seed, 0),
    )
    return Evaluation.from_results(grounding, plan, folds, results, {})


def _make_systems(backends: Sequence[str], settings: BackendSettings | None) -> dict[str, AbstractBackend]:
    if MAJORITY in backends:
        message = f"'{MAJORITY}' is not a backend but the baseline of every evaluation"
        raise UsageError(Diagnostic("E301", message, hint="leave it out: it is always included"))
    return {name: make_backend(name, **dict((settings or {}).get(name, {}))) for name in dict.fromkeys(backends)}
