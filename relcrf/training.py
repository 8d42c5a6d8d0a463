"""Trainings, from the request to the learned model: the command line, Python and `relcrf reproduce` run the same one."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from relcrf.backends.base import AbstractBackend, Monitor, Problem
from relcrf.backends.learned import LearnedModel, Meaning, vocabulary_of
from relcrf.backends.pieces import in_pieces
from relcrf.backends.problems import training_problem
from relcrf.backends.provenance import TrainingProtocol, fingerprint
from relcrf.backends.registry import make
from relcrf.data.binding import bind
from relcrf.data.bound import Bound
from relcrf.data.dataset import Dataset
from relcrf.data.splits import read_split
from relcrf.evaluation import selection
from relcrf.evaluation.calibration import calibrated
from relcrf.evaluation.selection import Selection
from relcrf.evaluation.splits import split_by
from relcrf.execution import memory
from relcrf.execution.base import AbstractExecutor
from relcrf.execution.one_thread import SameSums
from relcrf.execution.pool import PoolExecutor
from relcrf.execution.spark import SparkExecutor
from relcrf.execution.spark_session import spark_session
from relcrf.grounding.derive import Progress
from relcrf.grounding.engines.choice import OpenEngine, duckdb, engine_named, spark
from relcrf.grounding.ground import ground
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.saved import SavedBlocks
from relcrf.language.render import model_text
from relcrf.model.spec import ModelSpec
from relcrf.watching import watching


@dataclass(frozen=True, eq=False)
class TrainRequest:
    """A training as it is requested. The run folder of one describes it, so that it can be run again.

    Args:
        settings: of the backend, as values or as texts.
        protocol: how labels are held out, and the limits and the workers of the training.
        max_factors: maximum number of factors of the ground graph; None is any number.
    """

    spec: ModelSpec
    backend: str
    settings: Mapping[str, Any]
    data: Dataset
    protocol: TrainingProtocol = field(default_factory=TrainingProtocol)
    max_factors: int | None = None

    def ground(self, progress: Progress = lambda name: None, keep: SavedBlocks | None = None) -> Training:
        """Ground the model on the data, and hold labels out.

        Args:
            keep: ground blocks, to take from and to add to.
        """
        system, protocol = make(self.backend, **self.settings), self.protocol
        grounding = ground_on(
            bind(self.spec, self.data),
            duckdb() if protocol.master is None else spark(protocol.master),
            keep,
            budget=protocol.budget,
            progress=progress,
            most_factors=self.max_factors,
        )
        hidden = None
        if protocol.split is not None:
            plan = read_split(protocol.split)
            hidden = split_by(grounding, plan).held_out(list(protocol.hold or plan.hold))
        return Training(self.spec, self.backend, system, grounding, hidden, calibrate=protocol.calibrate)

    @contextmanager
    def executor(self) -> Iterator[AbstractExecutor | None]:
        """Start the workers of the training: Spark, or a pool of processes; None is this process."""
        if self.protocol.master is None and not self.protocol.workers:
            yield None
            return
        master = self.protocol.master
        with PoolExecutor(self.protocol.workers) if master is None else SparkExecutor(spark_session(master)) as workers:
            yield workers

    def run(self, monitor: Monitor | None = None, progress: Progress = lambda name: None) -> LearnedModel:
        """Ground, and learn from all labels that are not held out."""
        training = self.ground(progress)
        with self.executor() as executor:
            return training.run(monitor, executor)


@dataclass(frozen=True, eq=False)
class Training:
    """A training on a ground graph.

    Args:
        system: the backend with its settings.
        hidden: variables whose labels must not be used, shape (n_variables,), bool.
        given: variables whose labels are evidence, and not learned from, shape (n_variables,), bool.
        calibrate: number of folds for temperature calibration, see `evaluation/calibration.py`; 0 disables it.
    """

    spec: ModelSpec
    backend: str
    system: AbstractBackend
    grounding: Grounding
    hidden: np.ndarray | None = None
    given: np.ndarray | None = None
    calibrate: int = 0

    @classmethod
    def of(
        cls,
        spec: ModelSpec,
        grounding: Grounding,
        backend: str,
        *,
        hidden: np.ndarray | None = None,
        given: np.ndarray | None = None,
        calibrate: int = 0,
        **settings: Any,
    ) -> Training:
        """Return the training of a backend that is named, with some of its settings changed."""
        return cls(spec, backend, make(backend, **settings), grounding, hidden, given, calibrate)

    @cached_property
    def problem(self) -> Problem:
        """The problem of learning from the labels that are not hidden.

        Raises:
            DataError: where nothing is labelled.
        """
        return training_problem(self.grounding, self.hidden, self.given, with_candidates=self.system.chooses)

    @cached_property
    def identity(self) -> str:
        """The fingerprint of model, settings and data, which a checkpoint must have to be resumed."""
        return fingerprint(model_text(self.spec), self.backend, asdict(self.system), self.problem, self.grounding)

    @SameSums()
    def select(self, grid: Mapping[str, Sequence[Any]], **options: Any) -> Selection:
        """Find the best settings of a grid; for the options see `evaluation.selection.select`."""
        return selection.select(self.problem, self.backend, grid, **options, **asdict(self.system))

    def with_settings(self, settings: Mapping[str, Any]) -> Training:
        """Return the same training with other settings of the backend."""
        return replace(self, system=replace(self.system, **settings))

    @SameSums()
    def run(self, monitor: Monitor | None = None, executor: AbstractExecutor | None = None) -> LearnedModel:
        """Learn.

        Args:
            executor: distributes the graph's components to workers; without one, a graph that is larger than the dataset's
                memory is learned from in shards in this process, and a smaller one whole.
        """
        problem, system, grounding = self.problem, self.system, self.grounding
        started = time.perf_counter()
        with (
            watching() as watch,
            in_pieces(grounding.bound.dataset.store, problem, executor, memory.LEARNING) as pieces,
        ):
            monitor = monitor or watch
            learned = system.fit(pieces or problem, monitor)
            if self.calibrate:
                learned = calibrated(problem, system, learned, folds=self.calibrate)
        if learned.chosen:
            spaces = {space.pairs.name: space for space in grounding.candidates}
            texts = {name: spaces[name].texts(pairs) for name, pairs in learned.chosen.items()}
            grounding = grounding.with_chosen(texts)
        return LearnedModel(
            spec=self.spec,
            backend=self.backend,
            settings=asdict(system),
            vectors=learned.vectors,
            layout=grounding.graph.layout,
            templates=grounding.templates,
            vocabulary=vocabulary_of(grounding),
            summary={
                **learned.summary,
                **{f"{stage}_iterations": state.iteration for stage, state in learned.stages},
                **{f"{stage}_status": state.status for stage, state in learned.stages},
            },
            converged=learned.converged,
            log=tuple(monitor.log),
            histograms=learned.histograms,
            gates=Meaning.of_gates(grounding) if "gates" in learned.vectors else None,
            moments=learned.moments,
            seconds=time.perf_counter() - started,
        )


def ground_on(
    bound: Bound,
    engine: str | OpenEngine,
    keep: str | os.PathLike[str] | SavedBlocks | None,
    **options: Any,
) -> Grounding:
    """Ground a model on its bound tables by an engine that is opened for it.

    Args:
        keep: ground blocks, or their folder, to take from and to add to.
        options: see `grounding.ground.ground`.
    """
    open_engine = engine_named(engine) if isinstance(engine, str) else engine
    saved = SavedBlocks(Path(keep)) if isinstance(keep, str | os.PathLike) else keep
    with closing(open_engine(bound)) as opened:
        return ground(bound, engine=opened, saved=saved, **options)
