"""The Python interface: load a model, fit it to data, predict and evaluate.

import relcrf

model = relcrf.load("models/webkb.rcrf")
data = relcrf.Dataset("webkb/")
fit = model.fit(data)
print(fit.predict(data).table("Page.category").to_pandas())
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from relcrf.backends import packed_run, run_folder
from relcrf.backends.automatic_sharding import infer_with_sharding, shard_if_large
from relcrf.backends.base import Monitor
from relcrf.backends.joint_number_likelihood import joint_log_density
from relcrf.backends.latent_scores import latent_scores as latent_scores
from relcrf.backends.learned_model import LearnedModel
from relcrf.backends.problems import query_problem
from relcrf.backends.problems import training_problem as training_problem
from relcrf.backends.provenance import TrainingProtocol
from relcrf.backends.registry import DEFAULT_BACKEND, backend_class
from relcrf.backends.sharded import require_shardable
from relcrf.backends.template_statistics import TemplateStatistics
from relcrf.backends.weight_names import largest_indices
from relcrf.data.binding import bind
from relcrf.data.frame import Frame
from relcrf.data.given_data import GivenData, to_dataset
from relcrf.data.split_plan import DEFAULT_FOLDS, SplitPlan, parse_split
from relcrf.data.table_summary import TableSummary, describe_tables
from relcrf.errors import Diagnostic, listing
from relcrf.evaluation import number_active_learning, selection
from relcrf.evaluation.active_learning import LabelRequests
from relcrf.evaluation.audit import AuditSettings
from relcrf.evaluation.audit import audit_labels as audit_labels
from relcrf.evaluation.drift import column_drift, drift_table
from relcrf.evaluation.evaluations import Evaluation
from relcrf.evaluation.evaluations import compare as compare
from relcrf.evaluation.evaluations import evaluate as evaluate
from relcrf.evaluation.evaluations import evaluate_run as evaluate_run
from relcrf.evaluation.explanation import Explanation, ExplanationCase
from relcrf.evaluation.flips import FlipSearch, find_flips
from relcrf.evaluation.named_weights import named_moments, named_weights, standard_errors_from_data
from relcrf.evaluation.number_active_learning import NumberRequests
from relcrf.evaluation.number_audit import audit_numbers
from relcrf.evaluation.number_explanation import explain_prediction
from relcrf.evaluation.pareto import pareto as pareto
from relcrf.evaluation.selection import SettingsSelection, joint_label_likelihood
from relcrf.evaluation.variable_names import resolve_variable
from relcrf.execution.base import AbstractExecutor
from relcrf.execution.blas_threads import SingleThreadedBlas
from relcrf.grounding.block_cache import BlockCache
from relcrf.grounding.candidates import ground_candidates
from relcrf.grounding.data_warnings import add_data_warnings
from relcrf.grounding.derive import Progress
from relcrf.grounding.engines.choice import EngineFactory
from relcrf.grounding.estimate import DEFAULT_BUDGET
from relcrf.grounding.ground import create_relation_tables
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.preview import TemplatePlan, plan_templates
from relcrf.grounding.variables import build_variable_blocks
from relcrf.inference.result import Observer, ignore_progress
from relcrf.language.format import format_text
from relcrf.language.render import model_text, render
from relcrf.model.spec import ModelSpec
from relcrf.model_files import load_valid, parse_valid
from relcrf.prediction import Prediction as Prediction
from relcrf.prediction import find_variable_block
from relcrf.progress_reporting import progress_monitor
from relcrf.text.highlight import highlight_html
from relcrf.text.html_table import html_table
from relcrf.text.model_diagram import model_diagram
from relcrf.text.notebook import line_chart, picture
from relcrf.training import Training, TrainingRequest, ground_with_engine

SHOWN_WEIGHTS = 20
"""Maximum number of weights in the notebook display of a `Fit`."""


def load(path: str | os.PathLike[str]) -> Model:
    """Load a model from a `.rcrf` file.

    Raises:
        ModelError: The text has errors (all are reported), or the file cannot be read.
    """
    spec, warnings = load_valid(path)
    return Model(spec, tuple(warnings))


def parse(text: str, name: str = "<model>", folder: str | os.PathLike[str] | None = None) -> Model:
    """Parse and check a model. For errors see `load`.

    Args:
        name: Name of the text in messages.
        folder: Folder of the files that the model includes; if None, the model must not include files.
    """
    spec, warnings = parse_valid(text, name, None if folder is None else Path(folder))
    return Model(spec, tuple(warnings))


@dataclass(frozen=True)
class TableCheck:
    """The results of a check of tables: warnings, notes on assumptions, and a summary of each table."""

    warnings: list[Diagnostic]
    notes: list[str]
    tables: list[TableSummary]


@dataclass(frozen=True, repr=False)
class Model:
    """A checked model. Its string representation is the canonical text. Notebooks show a diagram of the types and
    relations, and highlight the syntax.

    Args:
        warnings: Warnings of the checker about valid but suspicious declarations.
    """

    spec: ModelSpec
    warnings: tuple[Diagnostic, ...] = ()

    def __str__(self) -> str:
        return self.to_rcrf()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return picture(model_diagram(self.spec)) + highlight_html(self.to_rcrf())

    def to_rcrf(self) -> str:
        """Return the canonical text of the model. Parsing this text returns an equal model."""
        return format_text(render(self.spec))

    @property
    def text(self) -> str:
        """The source text, with all included files inlined."""
        return model_text(self.spec)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the text of the model."""
        return parse, (self.text,)

    def check(self, data: GivenData, budget: int = DEFAULT_BUDGET) -> tuple[list[Diagnostic], list[str]]:
        """Check tables against the model. Return all warnings, and notes on the assumptions made about the data.

        Args:
            data: Here and in the other methods: a `Dataset` or its source (a folder, a path or tables by name), a NetworkX
                graph or, if the model reads one table, a data frame. A source is read anew in each call.

        Raises:
            DataError: The tables have errors; all are reported.
            BudgetError: A relation or the literals of `candidates` have more bindings than the budget.
            UsageError: A declaration of `candidates` cannot be grounded (E391, E393).
        """
        checked = self.check_tables(data, budget)
        return checked.warnings, checked.notes

    def check_tables(self, data: GivenData, budget: int = DEFAULT_BUDGET) -> TableCheck:
        """Check tables as `check` does, and return what each table contains and which declarations read it."""
        bound = bind(self.spec, to_dataset(data, self.spec))
        create_relation_tables(bound, budget)
        ground_candidates(bound, build_variable_blocks(bound), budget)
        return TableCheck(add_data_warnings(bound, self.warnings, budget), bound.notes, describe_tables(bound))

    def plan(self, data: GivenData, budget: int = DEFAULT_BUDGET, *, exact: bool = False) -> list[TemplatePlan]:
        """Count the bindings, factors and weights of each template without grounding, also beyond the budget.

        Args:
            exact: Whether every join that may be within the budget is counted exactly, even if this takes long.
        """
        bound = bind(self.spec, to_dataset(data, self.spec))
        create_relation_tables(bound, budget)
        return plan_templates(bound, budget, exact=exact)

    def ground(
        self,
        data: GivenData,
        budget: int = DEFAULT_BUDGET,
        *,
        engine: str | EngineFactory = "duckdb",
        cache: str | os.PathLike[str] | BlockCache | None = None,
        vocabulary: Mapping[str, tuple[str, ...]] | None = None,
        progress: Progress = lambda name: None,
        max_factors: int | None = None,
    ) -> Grounding:
        """Ground the model on the data; return the factor graph.

        Args:
            engine: The engine that runs the joins: a name, or a factory of `relcrf.grounding.engines.choice`
                (`postgres(url)` or `spark(master)`).
            cache: A folder that caches ground blocks, i.e. the factors of templates; see `grounding/block_cache.py`.
            max_factors: Maximum number of factors of the graph; None for no limit.

        Raises:
            BudgetError: A template has more bindings than the budget, or the graph has more than `max_factors` factors.
            DataError: The tables do not match the model.
        """
        limits = {"budget": budget, "max_factors": max_factors}
        bound = bind(self.spec, to_dataset(data, self.spec), vocabulary)
        return ground_with_engine(bound, engine, cache, progress=progress, **limits)

    def fit(
        self,
        data: GivenData,
        backend: str = DEFAULT_BACKEND,
        *,
        budget: int = DEFAULT_BUDGET,
        monitor: Monitor | None = None,
        progress: bool | None = None,
        calibrate: int = 0,
        split: SplitPlan | str | None = None,
        **settings: Any,
    ) -> Fit:
        """Learn the weights from the labelled variables of the data; unlabelled variables are omitted.

        Args:
            backend: Name of the backend. The default, `auto`, compares the other backends on held-out labels, and chooses
                a backend and its settings.
            progress: Whether to show progress. Default: only in notebooks (see `relcrf.progress`).
            calibrate: Number of folds for temperature calibration (see `evaluation/calibration.py`); 0 disables it.
            split: The labels to hold out: a split with the fields `holdout`, `train`, `valid` or `test` (see
                `relcrf.data.split_plan.SplitPlan`), or a text such as `hide=0.1`. Default: all labels are used.
            settings: Settings of the named backend, such as `l2=0.5`.
        """
        with progress_monitor(progress) as display:
            protocol = TrainingProtocol(calibrate=calibrate, budget=budget)
            if split is not None:
                protocol = protocol.with_split(parse_split(split) if isinstance(split, str) else split)
            request = TrainingRequest(self.spec, backend, settings, to_dataset(data, self.spec), protocol)
            return Fit(request.run(monitor, display.report_grounding))

    def evaluate(
        self,
        data: GivenData,
        split: SplitPlan | str | None = None,
        backend: str = DEFAULT_BACKEND,
        *,
        holdout: Sequence[str] = (),
        train: Sequence[str] = (),
        valid: Sequence[str] = (),
        test: Sequence[str] = (),
        budget: int = DEFAULT_BUDGET,
        **settings: Any,
    ) -> Evaluation:
        """Hold out each fold in turn, train on the other folds, and score the predictions of the held-out labels.

        Args:
            split: See `relcrf.data.split_plan`. Default: the split of the dataset's manifest, or `random`.
            holdout: Names of the folds to hold out. Default: the folds that the split specifies, or all folds in turn.
            train, valid, test: Names of the folds with training labels, with labels that are reserved for the choice
                of settings, and with labels to score (see `relcrf.data.split_plan.SplitPlan`).
            settings: Settings of the backend.
        """
        grounding = self.ground(data, budget)
        plan = _split_plan(split, grounding)
        plan = replace(plan, holdout=tuple(holdout) or plan.holdout).with_parts(train, valid, test)
        return evaluate(grounding, [backend], plan, settings={backend: settings})

    def compare(
        self,
        data: GivenData,
        backends: Sequence[str],
        split: SplitPlan | str | None = None,
        *,
        budget: int = DEFAULT_BUDGET,
        **options: Any,
    ) -> Evaluation:
        """Evaluate several backends on the same folds, each in a separate process.

        Args:
            split: See `evaluate`.
            options: `settings` by backend, `jobs` and `time_limit`; see `relcrf.evaluation.evaluations.compare`, also for
                the errors.
        """
        grounding = self.ground(data, budget)
        return compare(grounding, backends, _split_plan(split, grounding), **options)


def _split_plan(split: SplitPlan | str | None, grounding: Grounding) -> SplitPlan:
    """Return the plan of a split; by default, that of the dataset's manifest, or a random split."""
    plan = parse_split(split) if isinstance(split, str) else split
    return plan or grounding.bound.dataset.split or parse_split("random")


def fit(
    model: Model,
    grounding: Grounding,
    backend: str = DEFAULT_BACKEND,
    *,
    monitor: Monitor | None = None,
    executor: AbstractExecutor | None = None,
    **options: Any,
) -> Fit:
    """Learn the weights on a ground graph.

    Args:
        executor: See `relcrf.training.Training.run`.
        options: `hidden`, `observed`, `validation` and `calibrate` (see `relcrf.training.Training`), and settings of
            the backend.

    Raises:
        DataError: No variable has a label, or none is left for training or validation.
    """
    return Fit(Training.build(model.spec, grounding, backend, **options).run(monitor, executor))


@SingleThreadedBlas()
def select(
    grounding: Grounding,
    backend: str,
    grid: Mapping[str, Sequence[Any]],
    *,
    hidden: np.ndarray | None = None,
    validation: np.ndarray | None = None,
    **options: Any,
) -> SettingsSelection:
    """Select from a grid the settings with the best score on held-out labels; see `evaluation.selection.select_settings`.

    Args:
        hidden: Variables whose labels must not be used, as in `fit`.
        validation: Variables whose labels are held out and scored, as in `fit`. Default: see `options`.
        options: `holdout` or `held_out`, `seed` and `by` of `select_settings`, and settings that are not selected.
    """
    uses_candidates = backend_class(backend).uses_candidates
    problem = training_problem(grounding, hidden, validation=validation, with_candidates=uses_candidates)
    return selection.select_settings(problem, backend, grid, **options)


@dataclass(frozen=True, repr=False)
class Fit:
    """A trained model. Notebooks display the training summary, the curves of the optimiser and the largest weights."""

    learned: LearnedModel

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the files of the run folder, which are verified when they are loaded again."""
        return _unpack_fit, (packed_run.pack(self.learned), self.seconds)

    def __repr__(self) -> str:
        learned = self.learned
        state = "converged" if learned.converged else "not converged"
        names = listing(template.name for template in learned.templates)
        return f"Fit({learned.backend}: {learned.layout.size:,} weights of {names}; {state}, {learned.seconds:.1f} s)"

    def _repr_html_(self) -> str:
        weights = self.weights()
        shown = weights.take_rows(largest_indices(weights["weight"], SHOWN_WEIGHTS))
        summary = html_table(("", ""), [*self.learned.summary.items()], caption=repr(self))
        stages = dict.fromkeys(str(step["stage"]) for step in self.learned.log)
        curves = {name: [step["value"] for step in self.learned.log if step["stage"] == name] for name in stages}
        charts = "".join(line_chart(values, f"objective of {name} by iteration") for name, values in curves.items())
        largest = html_table([*weights.columns], shown.rows(), caption="largest weights", bars=("weight",))
        return summary + picture(charts) + largest

    @property
    def seconds(self) -> float:
        """The training time in seconds; 0 for a model loaded from a run folder."""
        return self.learned.seconds

    @property
    def template_statistics(self) -> tuple[TemplateStatistics, ...]:
        """The number of factors of each template, and how many of them training saw."""
        return self.learned.template_statistics

    @property
    def summary(self) -> Mapping[str, Any]:
        """The training summary: number of iterations, convergence status and other values by name."""
        return self.learned.summary

    def weights(self, data: GivenData | Grounding | None = None, *, hidden: np.ndarray | None = None) -> Frame:
        """Return all weights, one per row; for the columns and errors see `evaluation/named_weights.py`.

        Args:
            data: The training data; if given, standard errors are computed.
            hidden: Mask of the variables whose labels were hidden in training, shape (n_variables,); None for none.
        """
        if data is None:
            return named_weights(self.learned)
        return named_weights(self.learned, standard_errors_from_data(self.learned, self._ground_graph(data), hidden))

    def moments(self) -> Frame:
        """Return the empirical and the expected count of each weight's feature; see `evaluation/named_weights.py`."""
        return named_moments(self.learned)

    def ground(
        self,
        data: GivenData,
        budget: int = DEFAULT_BUDGET,
        progress: Progress = lambda name: None,
        *,
        engine: str | EngineFactory = "duckdb",
        cache: str | os.PathLike[str] | BlockCache | None = None,
    ) -> Grounding:
        """Ground the model on other data with the vocabulary of the training data. For the arguments see `Model.ground`.

        Tables by name, folders and databases are reshaped as those of the training data, unless they have a manifest.
        """
        dataset = to_dataset(data, self.learned.spec, self.learned.mapping, self.learned.formats)
        bound = bind(self.learned.spec, dataset, self.learned.vocabulary, self.learned.statistics)
        return ground_with_engine(bound, engine, cache, budget=budget, progress=progress)

    def evaluate(
        self, data: GivenData, split: SplitPlan | str | None = None, *, budget: int = DEFAULT_BUDGET
    ) -> Evaluation:
        """Score the predictions of held-out labels; the weights are not learned again. For the split see `Model.evaluate`."""
        grounding = self.ground(data, budget)
        return evaluate_run(self.learned, grounding, _split_plan(split, grounding))

    def drift(self, data: GivenData | Grounding) -> Frame:
        """Compare the columns of tables with those of the training data, one per row; the most different is first.

        The columns are those of `evaluation.drift.drift_table`. The distance is the smallest fraction of rows that must
        change for equal distributions. A run folder of an earlier version has no columns to compare.
        """
        return drift_table(column_drift(self.learned, self._ground_graph(data)))

    def predict(
        self, data: GivenData, *, budget: int = DEFAULT_BUDGET, progress: bool | None = None, **settings: Any
    ) -> Prediction:
        """Infer the marginal of every missing value; observed values are evidence. For the settings see `api.predict`."""
        with progress_monitor(progress) as display:
            grounding = self.ground(data, budget, display.report_grounding)
            return predict(self, grounding, **{"observe": display.report_inference, **settings})

    def explain(
        self, data: GivenData | Grounding, variable: str, *, against: str | None = None, depth: int = 1, **options: Any
    ) -> Explanation:
        """Explain the prediction of one variable. Its label is hidden; all other labels are evidence.

        Args:
            variable: Name of the variable: `Page/17`, `Page/17.topic`, `Page(17).topic`, or `linked(a, b)`.
            against, depth: See `evaluation.number_explanation.explain_prediction`, which also documents the errors.
            options: `hidden` and settings, see `evaluation.explanation.ExplanationCase.from_model`.
        """
        return explain_prediction(self._explanation_case(data, variable, options), against, depth)

    def flips(
        self, data: GivenData | Grounding, variable: str, *, against: str | None = None, **options: Any
    ) -> FlipSearch:
        """Find the smallest change of evidence that changes a prediction; for the arguments see `explain`."""
        return find_flips(self._explanation_case(data, variable, options), against)

    def ask(self, data: GivenData | Grounding, budget: float = 20, **options: Any) -> LabelRequests | NumberRequests:
        """Select the missing labels that would improve the predictions most; for the options and errors see `api.ask`."""
        return ask(self, self._ground_graph(data), budget, **options)

    def audit(
        self,
        data: GivenData | Grounding,
        attribute: str | None = None,
        *,
        observed: str | None = None,
        folds: int = DEFAULT_FOLDS,
        seed: int = 0,
    ) -> Frame:
        """Return the labels or numbers of an attribute or relation, one per row; the most improbable one is first.

        The probability of a label is its probability given all other labels. The columns and errors are those of
        `evaluation.audit.Audit.table` and `evaluation.audit.audit_labels`; for numbers, those of
        `evaluation.number_audit.NumberAudit.table` and `evaluation.number_audit.audit_numbers`.

        Args:
            attribute: The predicted attribute or relation; required if there are several.
            observed: The value of the labels to return, such as `true` for the tuples in a table. Default: all values.
            folds: Number of folds of cross-fitting; 0 uses the weights of this fit, which have seen the labels.
            seed: Seed of the assignment of labels to folds.
        """
        grounding = self._ground_graph(data)
        block = find_variable_block(grounding, attribute)
        chosen = AuditSettings(block.name, folds, seed)
        chosen.require_value(grounding, observed)
        if any(each.is_numeric for each in grounding.blocks):
            return audit_numbers(self.learned, grounding, chosen).table(block)
        return audit_labels(self.learned, grounding, chosen).table(block, observed)

    def _explanation_case(
        self, data: GivenData | Grounding, variable: str, options: Mapping[str, Any]
    ) -> ExplanationCase:
        grounding = self._ground_graph(data)
        return ExplanationCase.from_model(self.learned, grounding, resolve_variable(grounding, variable), **options)

    def _ground_graph(self, data: GivenData | Grounding) -> Grounding:
        return data if isinstance(data, Grounding) else self.ground(data)

    def save(self, folder: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write a run folder; see `backends/run_folder.py`."""
        run_folder.require_writable(Path(folder), resume=False, force=force)
        run_folder.save(self.learned, Path(folder), {"learn": self.seconds})


def _unpack_fit(packed: bytes, seconds: float) -> Fit:
    return Fit(replace(packed_run.unpack(packed), seconds=seconds))


def load_fit(folder: str | os.PathLike[str]) -> Fit:
    """Load a trained model from its run folder.

    Raises:
        DataError: The folder is not a run folder, or is damaged.
    """
    return Fit(run_folder.load(Path(folder)))


@SingleThreadedBlas()
def predict(
    trained: Fit,
    grounding: Grounding,
    *,
    hidden: np.ndarray | None = None,
    queried: np.ndarray | None = None,
    executor: AbstractExecutor | None = None,
    observe: Observer = ignore_progress,
    **settings: Any,
) -> Prediction:
    """Infer marginals on a ground graph.

    Args:
        hidden: Labelled variables to treat as unobserved, shape (n_variables,), bool.
        queried: Unobserved variables whose marginals are computed, shape (n_variables,), bool; gates may depend on this
            mask. Default: all except latent variables.
        executor: See `fit`.
        observe: Callback for the progress of iterative methods; not called if the graph is sharded.
        settings: Settings of the backend that replace those of the training run, such as `inference="bp"`.
    """
    started = time.perf_counter()
    learned = trained.learned
    system = learned.configure_backend(**settings)
    grounding, vectors, problem = query_problem(learned, grounding, hidden, queried)
    inferred = infer_with_sharding(grounding.bound.dataset.store, problem, system, vectors, executor, observe)
    seconds = time.perf_counter() - started
    return Prediction(grounding, inferred, learned.count_unseen_keys(grounding), seconds, learned.calibration_labels)


@SingleThreadedBlas()
def ask(
    trained: Fit,
    grounding: Grounding,
    budget: float = 20,
    *,
    attribute: str | None = None,
    hidden: np.ndarray | None = None,
    candidates: np.ndarray | None = None,
    cost: str | None = None,
    **settings: Any,
) -> LabelRequests | NumberRequests:
    """Select the missing labels that would improve the predictions most; see `evaluation.number_active_learning.ask`.

    Args:
        budget: Number of labels or, with `cost`, their total cost.
        attribute: Attribute or relation whose labels or numbers are requested; needed if several are predicted.
        hidden: Labelled variables to treat as unobserved, shape (n_variables,), bool.
        candidates: Variables that may be requested, shape (n_variables,), bool. Default: all without a label.
        cost: Numeric column of the entity's table with the cost of each label.
        settings: See `predict`.
    """
    block = find_variable_block(grounding, attribute)
    return number_active_learning.ask(
        trained.learned, grounding, budget, block, hidden=hidden, candidates=candidates, cost=cost, **settings
    )


@SingleThreadedBlas()
def joint_log_likelihood(
    trained: Fit,
    grounding: Grounding,
    *,
    hidden: np.ndarray | None = None,
    executor: AbstractExecutor | None = None,
    **settings: Any,
) -> float:
    """Compute the joint log-probability, in nats, of all hidden labels given the other labels; of numbers, the log density.

    The result is exact if the backend's inference is exact. For the backends `dense` and `pseudo`, it is as accurate as
    the log partition function of the inference method. Variables without a label are summed out.

    Args:
        hidden: Variables whose labels are scored, shape (n_variables,), bool; None for all.
        executor, settings: See `predict`.
    """
    learned = trained.learned
    system = learned.configure_backend(**settings)
    all_variables = np.ones(len(grounding.states), dtype=bool)
    grounding, vectors, problem = query_problem(learned, grounding, all_variables if hidden is None else hidden)
    if problem.numbers is not None:
        return joint_log_density(problem, vectors, system.infer, partial(joint_label_likelihood, system))
    with shard_if_large(grounding.bound.dataset.store, problem, system, executor) as shards:
        if shards:
            require_shardable(system)
        source = shards or problem
        return joint_label_likelihood(system, source, vectors)
