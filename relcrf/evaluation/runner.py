"""The runner: systems learn from the training labels of folds and predict the test labels, here or in separate processes."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from relcrf.backends.automatic_sharding import infer_with_sharding, shard_if_large
from relcrf.backends.base import AbstractBackend, FitResult, InferenceResult, Monitor, Problem
from relcrf.backends.learned_model import LearnedModel
from relcrf.backends.problems import query_problem, training_problem
from relcrf.backends.registry import make_backend
from relcrf.data.store import Store
from relcrf.errors import Diagnostic, RelcrfError
from relcrf.evaluation.exactness import Exactness, measure_exactness, sample_subgraphs
from relcrf.evaluation.prediction_files import PredictionFolder
from relcrf.evaluation.predictions import FoldPrediction, predicted_blocks
from relcrf.evaluation.splits import Fold, labelled_in_grounding
from relcrf.execution import memory
from relcrf.execution.blas_threads import SingleThreadedBlas
from relcrf.execution.isolated import memory_usage as process_memory
from relcrf.execution.isolated import run_isolated
from relcrf.execution.mapped_value import MappedValue
from relcrf.graph.reduction import Role
from relcrf.grounding.grounding import Grounding
from relcrf.inference.result import Observer, ignore_progress


@SingleThreadedBlas()
def predict_fold(
    problem: Problem,
    fold: Fold,
    system: AbstractBackend,
    monitor: Monitor | None = None,
    store: Store | None = None,
) -> tuple[FoldPrediction, FitResult]:
    """Learn from the training labels of a fold, and predict its test labels.

    Args:
        problem: Of learning from all labels.
        store: Limits the memory, so that larger problems are worked on in shards; None works in one piece.

    Raises:
        UsageError, DataError: The system rejects the model or the data.
    """
    learning, watch = fold.learning_problem(problem), monitor or Monitor()
    started = time.process_time()
    with shard_if_large(store, learning, n_vectors=memory.LEARNING_VECTORS) as pieces:
        learned = system.fit(pieces or learning, watch)
    seconds, started = time.process_time() - started, time.process_time()
    querying = fold.query_problem(problem).with_candidates(learned.chosen_candidates)
    inferred = infer_with_sharding(store, querying, system, learned.vectors)
    took = (seconds, time.process_time() - started)
    return FoldPrediction.from_inferred(fold, inferred, problem.states, took, converged=learned.converged), learned


@SingleThreadedBlas()
def predict_fold_with_model(
    learned: LearnedModel, grounding: Grounding, fold: Fold, observe: Observer = ignore_progress
) -> tuple[FoldPrediction, InferenceResult]:
    """Predict the test labels of a fold with a trained model, all other labels being evidence."""
    started = time.process_time()
    system = learned.configure_backend()
    grounding, vectors, problem = query_problem(learned, grounding, fold.test)
    problem = replace(problem, roles=np.where(fold.excluded, Role.ABSENT, problem.roles).astype(np.int8))
    inferred = infer_with_sharding(grounding.bound.dataset.store, problem, system, vectors, observe=observe)
    took = (0.0, time.process_time() - started)
    return FoldPrediction.from_inferred(fold, inferred, grounding.states, took, converged=True), inferred


def predict_frequencies(grounding: Grounding, fold: Fold) -> FoldPrediction:
    """Predict each test label by the frequencies of the states among the training labels, each counted once more."""
    started = time.process_time()
    train, tables = fold.train_mask(labelled_in_grounding(grounding)), []
    for block in predicted_blocks(grounding):
        own = slice(block.start, block.start + block.count)
        counts = np.bincount(grounding.states[own][train[own]], minlength=len(block.values)) + 1.0
        tables.append(np.tile(counts / counts.sum(), int(fold.test[own].sum())))
    return replace(FoldPrediction.from_tables(fold, grounding, tables), seconds_learn=time.process_time() - started)


@dataclass(frozen=True, eq=False)
class SystemResult:
    """The outcome of one system.

    Args:
        predictions: One per fold; empty where the system failed.
        error: Why it failed.
        exactness: Of the model of the first fold; None where it was not computed.
        bytes_before, bytes_peak: Memory of its own process before it began, and at most; 0 where unknown.
        n_loaded: The number of folds that were read from files.
    """

    predictions: tuple[FoldPrediction, ...] = ()
    error: Diagnostic | None = None
    exactness: Exactness | None = None
    bytes_before: int = 0
    bytes_peak: int = 0
    n_loaded: int = 0

    @property
    def status(self) -> str:
        """`converged`, `not converged`, or the error in a line."""
        if self.error is not None:
            return f"{self.error.code}: {self.error.message}"
        return "converged" if all(one.converged for one in self.predictions) else "not converged"


ProgressCallback = Callable[[str], Monitor]
"""Receives what is done next; returns the monitor of its learning."""


def run_systems(
    grounding: Grounding,
    folds: Sequence[Fold],
    systems: Mapping[str, AbstractBackend],
    progress: ProgressCallback,
    folder: Path | None = None,
) -> dict[str, SystemResult]:
    """Run systems on every fold in this process.

    Args:
        folder: For files of predictions; folds whose files exist are read and not computed again.

    Raises:
        UsageError, DataError: A system rejects the model or the data; the folder has predictions of something else (E353).
    """
    found = {}
    for name, system in systems.items():
        problem = training_problem(grounding, with_candidates=system.uses_candidates)
        files = None if folder is None else PredictionFolder.from_problem(folder / name, grounding, problem, system)
        predictions, n_loaded = [], 0
        for number, fold in enumerate(folds):
            known = files.load(number, fold) if files else None
            if known is None:
                monitor = progress(f"{name}: {fold.name} held out")
                known, _ = predict_fold(problem, fold, system, monitor, grounding.bound.dataset.store)
                if files:
                    files.save(number, fold, known)
            else:
                n_loaded += 1
            predictions.append(known)
        found[name] = SystemResult(tuple(predictions), n_loaded=n_loaded)
    return found


@dataclass(frozen=True)
class SystemTask:
    """The work of one system, which can be pickled.

    Args:
        inputs: The training problem and the folds, in a file that all processes map.
        compared, n_subgraphs: See `exactness`; with 0 parts it is not computed.
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
                    exact = measure_exactness(system, learned, problem, self.compared, self.n_subgraphs)
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
    """Run each system in a fresh process of one thread; one that fails, dies or exceeds its time has a result that says so.

    Args:
        jobs: Processes at a time. limit: Seconds that one may take for all folds.
        n_subgraphs: Small parts of the graph in which marginals are compared with exact ones; 0 for none.
        seed: By which these are drawn.
    """
    found: dict[str, SystemResult] = {}
    chosen, there = sample_subgraphs(training_problem(grounding), n_subgraphs, seed)
    folder = grounding.bound.dataset.store.new_folder()
    inputs: dict[bool, MappedValue[tuple[Problem, tuple[Fold, ...]]]] = {}
    tasks: list[SystemTask] = []
    for name, system in systems.items():
        kind = system.uses_candidates
        try:
            if kind not in inputs:
                problem = training_problem(grounding, with_candidates=system.uses_candidates)
                inputs[kind] = MappedValue.save((problem, tuple(folds)), folder / f"inputs{len(inputs)}")
        except RelcrfError as error:
            found[name] = SystemResult(error=error.diagnostics[0])
        else:
            tasks.append(SystemTask(name, asdict(system), inputs[kind], chosen, there))
    left = len(tasks)
    progress(f"{left} of {len(systems)} backends left")
    try:
        for done in run_isolated(tasks, jobs, time_limit):
            name, left = tasks[done.number].backend, left - 1
            found[name] = done.value or SystemResult(error=_process_failure(name, done.failure, time_limit))
            progress(f"{name} is done, {left} of {len(systems)} backends left")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {name: found[name] for name in systems}


def _process_failure(name: str, why: str, limit: float) -> Diagnostic:
    """Return the reason why a process has no result."""
    if why == "stopped":
        return Diagnostic("E355", f"backend '{name}' was stopped after {limit:g} seconds", hint="give a higher --timeout")
    return Diagnostic("E355", f"the process of backend '{name}' died", hint="most often the system is out of memory")
