"""Training, from the request to the learned model, for the command line, the Python API and `relcrf reproduce`."""

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

from relcrf.backends.automatic_sharding import fit_with_sharding
from relcrf.backends.base import AbstractBackend, FitResult, Monitor, Problem
from relcrf.backends.calibration_labels import CalibrationLabels
from relcrf.backends.learned_model import BackendRequest, LearnedModel, open_domain_values, separate_schemas
from relcrf.backends.problems import train_features, training_labels, training_problem
from relcrf.backends.provenance import TrainingProtocol, fingerprint
from relcrf.backends.registry import make_backend
from relcrf.backends.template_statistics import TemplateStatistics, template_statistics
from relcrf.backends.training_log import LogMonitor
from relcrf.data.binding import bind
from relcrf.data.bound_model import BoundModel
from relcrf.data.dataset import Dataset
from relcrf.data.distributions import measure_distributions
from relcrf.evaluation import selection
from relcrf.evaluation.calibration import calibrate_numbers, calibrate_temperature
from relcrf.evaluation.selection import SettingsSelection
from relcrf.evaluation.splits import hold_out
from relcrf.execution.base import AbstractExecutor
from relcrf.execution.blas_threads import SingleThreadedBlas
from relcrf.execution.pool import PoolExecutor
from relcrf.execution.spark import SparkExecutor
from relcrf.execution.spark_session import spark_session
from relcrf.grounding.block_cache import BlockCache
from relcrf.grounding.derive import Progress
from relcrf.grounding.engines.choice import EngineFactory, duckdb, get_engine, spark
from relcrf.grounding.ground import ground
from relcrf.grounding.grounding import Grounding
from relcrf.language.render import model_text
from relcrf.model.spec import ModelSpec
from relcrf.progress_reporting import progress_monitor
from relcrf.unaries.fitting import FittedFeature
from relcrf.unaries.storage import require_storable


@dataclass(frozen=True, eq=False)
class TrainingRequest:
    """A request to train a model. A run folder stores the request, so that the training run can be repeated.

    Args:
        settings: Settings of the backend, as values or as strings.
        protocol: The split of the labels, and the limits and workers of the training run.
        max_factors: Maximum number of factors of the ground graph; None for no limit.
    """

    spec: ModelSpec
    backend: str
    settings: Mapping[str, Any]
    data: Dataset
    protocol: TrainingProtocol = field(default_factory=TrainingProtocol)
    max_factors: int | None = None

    def ground(self, progress: Progress = lambda name: None, cache: BlockCache | None = None) -> Training:
        """Ground the model on the data and hold out labels.

        Args:
            cache: Cache of ground blocks; matching blocks are reused, and new blocks are added.
        """
        system, protocol = make_backend(self.backend, **self.settings), self.protocol
        grounding = ground_with_engine(
            bind(self.spec, self.data),
            duckdb() if protocol.spark_master is None else spark(protocol.spark_master),
            cache,
            budget=protocol.budget,
            progress=progress,
            max_factors=self.max_factors,
        )
        hidden, validation = None, None
        if (plan := protocol.split_plan) is not None:
            held_out = hold_out(grounding, plan)
            hidden, validation = held_out.hidden, held_out.validation
        return Training(
            self.spec, self.backend, system, grounding, hidden, calibrate=protocol.calibrate, validation=validation
        )

    @contextmanager
    def executor(self) -> Iterator[AbstractExecutor | None]:
        """Start the workers of the training run: Spark or a pool of processes; yield None to train in this process."""
        if self.protocol.spark_master is None and not self.protocol.workers:
            yield None
            return
        master = self.protocol.spark_master
        with PoolExecutor(self.protocol.workers) if master is None else SparkExecutor(spark_session(master)) as workers:
            yield workers

    def run(self, monitor: Monitor | None = None, progress: Progress = lambda name: None) -> LearnedModel:
        """Ground the model and learn from all labels that are not held out."""
        training = self.ground(progress)
        with self.executor() as executor:
            return training.run(monitor, executor)


@dataclass(frozen=True, eq=False)
class Training:
    """A training run on a ground graph.

    Args:
        system: The backend with its settings.
        hidden: Mask of the variables whose labels must not be used, shape (n_variables,), bool.
        observed: Mask of the variables whose labels are evidence and not training targets, shape (n_variables,), bool.
        calibrate: Number of folds for temperature calibration (see `evaluation/calibration.py`); 0 disables it.
        validation: Mask of the variables whose labels are reserved for the choice of settings, shape (n_variables,),
            bool; None if no labels are reserved.
    """

    spec: ModelSpec
    backend: str
    system: AbstractBackend
    grounding: Grounding
    hidden: np.ndarray | None = None
    observed: np.ndarray | None = None
    calibrate: int = 0
    validation: np.ndarray | None = None

    @classmethod
    def build(
        cls,
        spec: ModelSpec,
        grounding: Grounding,
        backend: str,
        *,
        hidden: np.ndarray | None = None,
        observed: np.ndarray | None = None,
        calibrate: int = 0,
        validation: np.ndarray | None = None,
        **settings: Any,
    ) -> Training:
        """Build a training run from the name of a backend and the settings that differ from the defaults."""
        system = make_backend(backend, **settings)
        return cls(spec, backend, system, grounding, hidden, observed, calibrate, validation)

    @cached_property
    def problem(self) -> Problem:
        """The problem of learning from the labels that are neither hidden nor reserved for validation.

        Raises:
            DataError: If no variable has a label, or none is left for training or validation.
        """
        return training_problem(
            self.ground_graph,
            self.hidden,
            self.observed,
            validation=self.validation,
            with_candidates=self.system.uses_candidates,
            learn=False,
            without_labels=self.system.learns_without_labels,
        )

    @cached_property
    def _learned(self) -> tuple[Grounding, tuple[FittedFeature, ...]]:
        labels = training_labels(self.grounding, self.hidden, self.validation)
        if not labels.any():
            return self.grounding, ()
        grounding, features = train_features(self.grounding, labels)
        require_storable(features)
        return grounding, features

    @property
    def ground_graph(self) -> Grounding:
        """The ground graph with the values of learned features, which are trained on the training labels."""
        return self._learned[0]

    @cached_property
    def identity(self) -> str:
        """The fingerprint of model, settings and data; training resumes only checkpoints with the same fingerprint."""
        return fingerprint(model_text(self.spec), self.backend, asdict(self.system), self.problem, self.ground_graph)

    @SingleThreadedBlas()
    def select(self, grid: Mapping[str, Sequence[Any]], **options: Any) -> SettingsSelection:
        """Select the best settings of a grid; for the options see `evaluation.selection.select_settings`."""
        return selection.select_settings(self.problem, self.backend, grid, **options, **asdict(self.system))

    def with_settings(self, settings: Mapping[str, Any]) -> Training:
        """Return a copy with some settings of the backend replaced."""
        return replace(self, system=replace(self.system, **settings))

    def _template_statistics(self, chosen: AbstractBackend) -> tuple[TemplateStatistics, ...]:
        if self.system.learns_without_labels:
            return ()
        sums_out = getattr(chosen, "unlabelled", "") == "marginal"
        return template_statistics(self.ground_graph, self.problem.with_unlabelled() if sums_out else self.problem)

    def _calibrate(self, problem: Problem, learned: FitResult) -> FitResult:
        # The backend `auto` calibrates the weights itself, unless it trains without a comparison or the graph is large.
        if not self.calibrate or "calibration" in learned.summary:
            return learned
        return calibrate_temperature(problem, learned.system or self.system, learned, folds=self.calibrate)

    @SingleThreadedBlas()
    def run(self, monitor: Monitor | None = None, executor: AbstractExecutor | None = None) -> LearnedModel:
        """Learn the weights.

        Args:
            executor: Executor that distributes the connected components of the graph to workers. With None, this
                process learns from the whole graph, or from shards of a graph larger than the dataset's memory limit.
        """
        problem, system, grounding = self.problem, self.system, self.ground_graph
        started = time.perf_counter()
        with progress_monitor() as display:
            monitor = monitor or LogMonitor(display)
            store = grounding.bound.dataset.store
            learned = fit_with_sharding(store, problem, system, monitor, executor, self._calibrate)
            chosen = learned.system or system
            has_numbers = problem.numbers is not None and bool(self.calibrate)
            number_labels = calibrate_numbers(problem, system, chosen, self.calibrate) if has_numbers else None
        if learned.chosen_candidates:
            spaces = {space.pairs.name: space for space in grounding.candidates}
            texts = {name: spaces[name].pair_texts(pairs) for name, pairs in learned.chosen_candidates.items()}
            grounding = grounding.with_candidates(texts)
        return LearnedModel(
            spec=self.spec,
            backend=chosen.name,
            settings=asdict(chosen),
            request=BackendRequest(self.backend, asdict(system)),
            trials=learned.trials,
            chosen_settings=learned.settings,
            vectors=learned.vectors,
            layout=grounding.graph.layout,
            templates=grounding.templates,
            vocabulary=open_domain_values(grounding),
            statistics=dict(grounding.bound.statistics),
            summary={
                **learned.summary,
                **{f"{stage}_iterations": state.iteration for stage, state in learned.stages},
                **{f"{stage}_status": state.status for stage, state in learned.stages},
            },
            converged=learned.converged,
            log=tuple(monitor.log),
            histograms=learned.histograms,
            schemas=separate_schemas(learned.vectors, grounding),
            moments=learned.moments,
            template_statistics=self._template_statistics(chosen),
            mapping=grounding.bound.dataset.mapping,
            formats=grounding.bound.dataset.formats,
            learned_features=self._learned[1],
            columns=measure_distributions(grounding.bound),
            calibration_labels=_calibration_labels_by_attribute(learned.calibration_labels, self.ground_graph)
            | _calibration_labels_by_attribute(number_labels, self.ground_graph),
            seconds=time.perf_counter() - started,
        )


def _calibration_labels_by_attribute(
    labels: CalibrationLabels | None, grounding: Grounding
) -> dict[str, CalibrationLabels]:
    """Return the calibration labels of each attribute or relation that has any."""
    if labels is None:
        return {}
    variables = labels.variables
    by_attribute = {
        block.name: labels.select((variables >= block.start) & (variables < block.start + block.count))
        for block in grounding.blocks
    }
    return {name: labels for name, labels in by_attribute.items() if len(labels.variables)}


def ground_with_engine(
    bound: BoundModel,
    engine: str | EngineFactory,
    cache: str | os.PathLike[str] | BlockCache | None,
    **options: Any,
) -> Grounding:
    """Ground a model on its bound tables with an engine that is open only during this call.

    Args:
        cache: Cache of ground blocks, or its folder; matching blocks are reused, and new blocks are added.
        options: See `grounding.ground.ground`.
    """
    factory = get_engine(engine) if isinstance(engine, str) else engine
    block_cache = BlockCache(Path(cache)) if isinstance(cache, str | os.PathLike) else cache
    with closing(factory(bound)) as opened_engine:
        return ground(bound, engine=opened_engine, cache=block_cache, **options)
