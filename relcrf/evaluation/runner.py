"""The evaluation runner: trains systems on training labels and predicts test labels, in one or several processes."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from relcrf.backends.automatic_sharding import fit_with_sharding, infer_with_sharding
from relcrf.backends.base import AbstractBackend, FitResult, Monitor, Problem
from relcrf.backends.inference_result import InferenceResult
from relcrf.backends.learned_model import LearnedModel
from relcrf.backends.problems import query_problem, training_problem
from relcrf.backends.registry import make_backend
from relcrf.data.store import Store
from relcrf.errors import Diagnostic, RelcrfError
from relcrf.evaluation.exactness import Exactness, measure_exactness, sample_subgraphs
from relcrf.evaluation.number_measures import NumberPredictions
from relcrf.evaluation.prediction_files import PredictionFolder
from relcrf.evaluation.predictions import FoldPrediction, predicted_blocks
from relcrf.evaluation.splits import Fold, labelled_in_grounding
from relcrf.execution.blas_threads import SingleThreadedBlas
from relcrf.execution.isolated import memory_usage as process_memory
from relcrf.execution.isolated import run_isolated
from relcrf.execution.mapped_value import MappedValue
from relcrf.graph.reduction import Role
from relcrf.grounding.grounding import Grounding
from relcrf.inference.gaussian import NumberMarginals
from relcrf.inference.result import Observer, ignore_progress
from relcrf.learning.number_fit import mean_and_deviation


def fit_fold(
    problem: Problem,
    fold: Fold,
    system: AbstractBackend,
    monitor: Monitor | None = None,
    store: Store | None = None,
    numbers: AbstractBackend | None = None,
) -> FitResult:
    """Train on the training labels of a fold; for the arguments and errors see `predict_fold`."""
    return fit_with_sharding(store, fold.learning_problem(problem), system, monitor or Monitor(), numbers=numbers)


@SingleThreadedBlas()
def predict_fold(
    problem: Problem,
    fold: Fold,
    system: AbstractBackend,
    monitor: Monitor | None = None,
    store: Store | None = None,
    numbers: AbstractBackend | None = None,
) -> tuple[FoldPrediction, FitResult]:
    """Train on the training labels of a fold, and predict its test labels.

    Args:
        problem: The training problem with all labels.
        store: The store that defines the memory limit; a larger problem is split into shards. Default: no sharding.
        numbers: The backend that learns the numbers. Default: `system`.

    Raises:
        UsageError, DataError: The system rejects the model or the data.
    """
    started = time.process_time()
    learned = fit_fold(problem, fold, system, monitor, store, numbers)
    seconds, started = time.process_time() - started, time.process_time()
    query = fold.query_problem(problem).with_candidates(learned.chosen_candidates)
    inferred = infer_with_sharding(store, query, learned.configure(system), learned.vectors)
    cpu_seconds = (seconds, time.process_time() - started)
    predicted = FoldPrediction.from_inferred(
        fold, inferred, problem.states, cpu_seconds, converged=learned.converged, targets=problem.numbers
    )
    return replace(predicted, chosen="" if learned.system is None else learned.system.name), learned


@SingleThreadedBlas()
def predict_fold_with_model(
    learned: LearnedModel, grounding: Grounding, fold: Fold, observe: Observer = ignore_progress
) -> tuple[FoldPrediction, InferenceResult]:
    """Predict the test labels of a fold with a trained model; the training labels of the fold are evidence."""
    started = time.process_time()
    system = learned.configure_backend()
    grounding, vectors, problem = query_problem(learned, grounding, fold.test | fold.hidden)
    problem = replace(problem, roles=np.where(fold.excluded, Role.ABSENT, problem.roles).astype(np.int8))
    inferred = infer_with_sharding(grounding.bound.dataset.store, problem, system, vectors, observe=observe)
    cpu_seconds = (0.0, time.process_time() - started)
    predicted = FoldPrediction.from_inferred(fold, inferred, grounding.states, cpu_seconds, targets=problem.numbers)
    return predicted, inferred


def predict_frequencies(grounding: Grounding, fold: Fold) -> FoldPrediction:
    """Predict the test labels by the frequencies of the states among the training labels, with add-one smoothing.

    Numbers are predicted by the mean and the standard deviation of the training labels.
    """
    started = time.process_time()
    train, tables = fold.train_mask(labelled_in_grounding(grounding)), []
    for block in predicted_blocks(grounding):
        if block.is_numeric:
            continue
        block_slice = slice(block.start, block.start + block.count)
        counts = np.bincount(grounding.states[block_slice][train[block_slice]], minlength=len(block.values)) + 1.0
        tables.append(np.tile(counts / counts.sum(), int(fold.test[block_slice].sum())))
    predicted = FoldPrediction.from_tables(fold, grounding, tables)
    numbers = _predict_moments(grounding, fold, train)
    return replace(predicted, numbers=numbers, seconds_learn=time.process_time() - started)


def _predict_moments(grounding: Grounding, fold: Fold, train: np.ndarray) -> NumberPredictions | None:
    """Predict the numbers by the moments of the training labels; without two different labels, by a deviation of 1."""
    values = grounding.numbers
    test = np.flatnonzero(fold.test & ~np.isnan(values))
    if not grounding.graph.numeric:
        return None
    means, deviations = np.zeros(len(test)), np.ones(len(test))
    for start, stop in grounding.graph.numeric:
        known = values[start:stop][train[start:stop]]
        of_block = (test >= start) & (test < stop)
        if len(known):
            means[of_block], deviations[of_block] = mean_and_deviation(known)
    return NumberPredictions(NumberMarginals(test, means, deviations), values[test])


@dataclass(frozen=True, eq=False)
class SystemResult:
    """The result of one system (a configured backend) on all folds.

    Args:
        predictions: One prediction per fold; empty if the system failed.
        error: The error if the system failed.
        exactness: The error of marginals under the model of the first fold; None if it was not computed.
        bytes_before, bytes_peak: The bytes used by the system's process at the start and at the peak; 0 if unknown.
        n_loaded: The number of folds that were loaded from files.
        interrupted: Whether Ctrl-C stopped the system, or prevented its start.
    """

    predictions: tuple[FoldPrediction, ...] = ()
    error: Diagnostic | None = None
    exactness: Exactness | None = None
    bytes_before: int = 0
    bytes_peak: int = 0
    n_loaded: int = 0
    interrupted: bool = False

    @property
    def status(self) -> str:
        """`converged`, `not converged`, or the error in one line."""
        if self.error is not None:
            return f"{self.error.code}: {self.error.message}"
        return "converged" if all(one.converged for one in self.predictions) else "not converged"


ProgressCallback = Callable[[str], Monitor]
"""A function that receives the description of a step and returns the monitor of its training."""


def run_systems(
    grounding: Grounding,
    folds: Sequence[Fold],
    systems: Mapping[str, AbstractBackend],
    progress: ProgressCallback,
    folder: Path | None = None,
) -> dict[str, SystemResult]:
    """Train and predict with each system on every fold in this process.

    Args:
        folder: The folder of the prediction files; existing folds are loaded and not recomputed. All existing folds are
            read before the first system is trained. If a system raises an error, the new folds are removed, because
            the next evaluation will have another model, other settings or other data.

    Raises:
        UsageError, DataError: A system rejects the model or the data; the folder contains other predictions (E353).
    """
    problems = {
        name: training_problem(
            grounding,
            with_candidates=system.uses_candidates,
            learn=False,
            without_labels=system.learns_without_labels,
        )
        for name, system in systems.items()
    }
    files: dict[str, PredictionFolder] = {}
    if folder is not None:
        files = {
            name: PredictionFolder.from_problem(folder / name, grounding, problems[name], system)
            for name, system in systems.items()
        }
    loaded = {
        name: [files[name].load(number, fold) if files else None for number, fold in enumerate(folds)]
        for name in systems
    }
    results = {}
    new_folds: list[tuple[PredictionFolder, int]] = []
    for name, system in systems.items():
        predictions = []
        for number, (fold, predicted) in enumerate(zip(folds, loaded[name], strict=True)):
            if predicted is None:
                monitor = progress(f"{name}: {fold.name} held out")
                try:
                    predicted, _ = predict_fold(problems[name], fold, system, monitor, grounding.bound.dataset.store)
                except RelcrfError:
                    for files_of_system, new_number in new_folds:
                        files_of_system.remove(new_number)
                    raise
                if files:
                    files[name].save(number, fold, predicted)
                    new_folds.append((files[name], number))
            predictions.append(predicted)
        n_loaded = sum(one is not None for one in loaded[name])
        results[name] = SystemResult(tuple(predictions), n_loaded=n_loaded)
    return results


@dataclass(frozen=True)
class SystemTask:
    """A picklable task: train one system on every fold, and predict the test labels.

    Args:
        inputs: The training problem and the folds, in a file that all processes map into memory.
        compared, n_subgraphs: See `measure_exactness`, which is not called if `n_subgraphs` is 0.
    """

    backend: str
    settings: Mapping[str, Any]
    inputs: MappedValue[tuple[Problem, tuple[Fold, ...]]]
    compared: np.ndarray
    n_subgraphs: int

    def __call__(self) -> SystemResult:
        problem, folds = self.inputs.load()
        before, _ = process_memory()
        try:
            system = make_backend(self.backend, **self.settings)
            predictions, exact = [], None
            for number, fold in enumerate(folds):
                predicted, learned = predict_fold(problem, fold, system)
                predictions.append(predicted)
                if not number and self.n_subgraphs:
                    exact = measure_exactness(
                        system, learned, fold.with_graph(problem), self.compared, self.n_subgraphs
                    )
        except RelcrfError as error:
            return SystemResult(error=error.diagnostics[0])
        return SystemResult(tuple(predictions), None, exact, before, process_memory()[1])


def run_in_processes(
    grounding: Grounding,
    folds: Sequence[Fold],
    systems: Mapping[str, AbstractBackend],
    progress: ProgressCallback,
    *,
    jobs: int,
    time_limit: float,
    n_subgraphs: int,
    seed: int,
) -> dict[str, SystemResult]:
    """Run each system in a separate single-threaded process; the result of a failed system contains the error.

    If Ctrl-C interrupts the systems, those that are not finished count as failed.

    Args:
        jobs: The number of concurrent processes.
        time_limit: The maximum seconds per system, for all folds together.
        n_subgraphs: The number of small subgraphs on which marginals are compared with exact marginals; 0 disables the
            comparison.
        seed: The seed of the random subgraphs.

    Raises:
        KeyboardInterrupt: Ctrl-C, before any system has predictions.
    """
    results: dict[str, SystemResult] = {}
    n_wanted = 0 if grounding.graph.numeric else n_subgraphs
    chosen, n_sampled = sample_subgraphs(training_problem(grounding, learn=False), n_wanted, seed)
    folder = grounding.bound.dataset.store.new_folder()
    inputs: dict[tuple[bool, bool], MappedValue[tuple[Problem, tuple[Fold, ...]]]] = {}
    tasks: list[SystemTask] = []
    for name, system in systems.items():
        needs = (system.uses_candidates, system.learns_without_labels)
        try:
            if needs not in inputs:
                problem = training_problem(grounding, with_candidates=needs[0], learn=False, without_labels=needs[1])
                inputs[needs] = MappedValue.save((problem, tuple(folds)), folder / f"inputs{len(inputs)}")
        except RelcrfError as error:
            results[name] = SystemResult(error=error.diagnostics[0])
        else:
            tasks.append(SystemTask(name, asdict(system), inputs[needs], chosen, n_sampled))
    n_left = len(tasks)
    progress(f"{n_left} of {len(systems)} backends left")
    try:
        for finished in run_isolated(tasks, jobs, time_limit):
            name, n_left = tasks[finished.number].backend, n_left - 1
            results[name] = finished.value or SystemResult(error=_process_failure(name, finished.failure, time_limit))
            progress(f"{name} finished, {n_left} of {len(systems)} backends left")
    except KeyboardInterrupt:
        if not any(result.predictions for result in results.values()):
            raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {name: results.get(name) or _interrupted_result(name) for name in systems}


def _interrupted_result(name: str) -> SystemResult:
    """Return the result of a backend that Ctrl-C stopped."""
    message = f"backend '{name}' was interrupted"
    return SystemResult(
        error=Diagnostic("E355", message, hint="repeat the command for the unfinished backends"), interrupted=True
    )


def _process_failure(name: str, why: str, limit: float) -> Diagnostic:
    """Return the error of a backend whose process returned no result."""
    if why == "stopped":
        return Diagnostic("E355", f"backend '{name}' was stopped after {limit:g} seconds", hint="raise --timeout")
    return Diagnostic(
        "E355", f"the process of backend '{name}' died", hint="the usual cause is too little memory: reduce --jobs"
    )
