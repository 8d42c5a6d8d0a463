"""The evaluation of a run on held-out labels, compared with the local model and the label frequencies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from relcrf import api
from relcrf.backends.base import AbstractBackend
from relcrf.backends.calibration_labels import CalibrationLabels
from relcrf.backends.learned_model import LearnedModel
from relcrf.backends.numeric_targets import NUMERIC_BACKENDS
from relcrf.backends.problems import training_problem
from relcrf.backends.registry import backend_class, make_backend
from relcrf.data.frame import Frame
from relcrf.data.store import report_read_errors
from relcrf.errors import DataError, UsageError
from relcrf.evaluation.drift import ColumnDrift, column_drift
from relcrf.evaluation.explanation import Explanation, ExplanationCase
from relcrf.evaluation.leakage import measure_leakage
from relcrf.evaluation.named_weights import standard_errors_from_data
from relcrf.evaluation.number_explanation import explain_prediction
from relcrf.evaluation.predictions import LOCAL, MAJORITY, FoldPrediction, Predictions, predicted_blocks
from relcrf.evaluation.runner import predict_fold, predict_fold_with_model, predict_frequencies
from relcrf.evaluation.splits import Fold, labelled_in_grounding
from relcrf.evaluation.standard_errors import StandardErrors
from relcrf.graph.labelled_factors import labelled_neighbours
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.variables import VariableBlock
from relcrf.inference.result import Observer, Verdict, ignore_progress
from relcrf.report.weights import shown_weights
from relcrf.settings import setting_names

CURVE_FRACTIONS = (0.125, 0.25, 0.5)
"""Fractions of the training labels on which the backend is trained for the learning curve, besides all labels."""

TOO_FEW_LABELS = ("E225", "E226")
"""Codes of the errors of training on no or too few labels, and on fewer labels than the folds of the backend."""

MAX_VALUES = 20
"""Maximum number of values of an attribute for which labels are counted separately; the rest is counted together."""

CURVE_COLUMNS = {"labels": int, "log_loss": float}
"""Columns of a learning curve with their types."""

NUMBER_CURVE_COLUMNS = {"labels": int, "crps": float}
"""Columns of the learning curve of a number with their types."""


@dataclass(frozen=True)
class LabelCounts:
    """The label counts of one predicted attribute or relation.

    Args:
        n_variables: The number of variables.
        n_labelled: The number of labels, including held-out and ignored labels.
        n_held_out: The number of labels that are scored.
        values: The number of labels with each value, in the order of the states; statistics of a number.
        is_numeric: Whether the attribute is a number.
        n_ignored: The number of labels that are neither training labels nor scored.
    """

    name: str
    n_variables: int
    n_labelled: int
    n_held_out: int
    values: Mapping[str, float]
    n_ignored: int = 0
    is_numeric: bool = False

    @property
    def most_frequent(self) -> dict[str, float]:
        """The counts of the most frequent values, and the total count of the other values."""
        if len(self.values) <= MAX_VALUES:
            return dict(self.values)
        order = sorted(self.values.items(), key=lambda value: -value[1])
        others = order[MAX_VALUES:]
        return {**dict(order[:MAX_VALUES]), f"({len(others):,} others)": sum(count for _, count in others)}


@dataclass(frozen=True, eq=False)
class HoldoutEvaluation:
    """The results of a run on data: the part of a report that needs data.

    Args:
        options: The command-line options that name the data and the held-out labels.
        tables: The number of rows of each table.
        errors: The standard errors of the displayed weights, or why they are unavailable; None without `with_errors`.
        system: The name of the run's backend.
        verdict: The convergence status of inference; None if no labels are held out.
        predictions: The predictions of the baselines and of `system`; None if no labels are held out.
        names: The names of the test variables by attribute.
        n_neighbours: The numbers of neighbours of the test variables with a training label, by attribute; a neighbour
            counts once for each factor that it shares with the variable.
        no_local_reason: The reason why the local model is unavailable; empty if the local model is available.
        explanations: The explanations of a random sample of the held-out variables.
        no_explanations_reason: The reason why the backend cannot explain predictions; empty if it can.
        leakage_notes: The interpretation of the leakage from training to test labels.
        curve: The learning curve of each attribute, empty without `with_curve`. A row contains a number of training
            labels (`labels`) and the resulting mean log-loss of the held-out labels, in nats (`log_loss`), or the mean CRPS of
            held-out numbers (`crps`).
        calibration: The held-out labels of the training run, by attribute.
        drift: The differences from the columns of the training data; empty for a run of an earlier version.
    """

    options: tuple[str, ...]
    tables: Mapping[str, int]
    labels: tuple[LabelCounts, ...]
    errors: StandardErrors | str | None
    system: str
    unseen_keys: Mapping[str, int]
    verdict: Verdict | None = None
    predictions: Predictions | None = None
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    n_neighbours: Mapping[str, np.ndarray] = field(default_factory=dict)
    no_local_reason: str = ""
    leakage_notes: tuple[str, ...] = ()
    explanations: tuple[Explanation, ...] = ()
    no_explanations_reason: str = ""
    curve: Mapping[str, Frame] = field(default_factory=dict)
    drift: tuple[ColumnDrift, ...] = ()
    calibration: Mapping[str, CalibrationLabels] = field(default_factory=dict)

    @property
    def n_training_labels(self) -> int:
        """The number of labels that are neither held out nor ignored."""
        return sum(one.n_labelled - one.n_held_out - one.n_ignored for one in self.labels)


def evaluate_holdout(
    fit: api.Fit,
    grounding: Grounding,
    hidden: np.ndarray | None = None,
    *,
    scored: np.ndarray | None = None,
    options: tuple[str, ...] = (),
    with_curve: bool = False,
    with_errors: bool = False,
    n_explained: int = 0,
    observe: Observer = ignore_progress,
) -> HoldoutEvaluation:
    """Predict the held-out labels with a run, and train baselines on the other labels.

    Args:
        grounding: The grounding of the run's model, see `Fit.ground`.
        hidden: Mask of the variables whose labels are held out, shape (n_variables,). Default: none.
        scored: Mask of the held-out variables whose labels are scored, shape (n_variables,). Default: all.
        options: See `HoldoutEvaluation`.
        with_curve: Whether to compute a learning curve by training on `CURVE_FRACTIONS` of the training labels.
        n_explained: The number of held-out variables whose predictions are explained, a random sample.
        with_errors: Whether to compute the standard errors of the displayed weights, which may take longer than learning.

    Raises:
        UsageError, DataError: The data do not match the model of the run.
    """
    learned = fit.learned
    labelled = labelled_in_grounding(grounding)
    held_out = np.zeros_like(labelled) if hidden is None else labelled & hidden
    test = held_out if scored is None else held_out & scored
    fold = Fold.from_test("held out", test, hidden=held_out & ~test)
    dataset = grounding.bound.dataset
    counts = {}
    for table in dataset.tables.values():
        with report_read_errors(table.location):
            counts[table.name] = dataset.connection.execute(f"SELECT count(*) FROM {table.scan}").fetchone()
    evaluation = HoldoutEvaluation(
        options,
        {name: int(row[0]) for name, row in counts.items() if row},
        _count_labels(grounding, fold),
        _standard_errors(learned, grounding, hidden) if with_errors else None,
        learned.backend,
        learned.count_unseen_keys(learned.extend_grounding(grounding)),
        drift=column_drift(learned, grounding),
        calibration=learned.calibration_labels,
    )
    if not fold.n_test:
        return evaluation
    evaluation = _with_predictions(evaluation, fit, grounding, fold, with_curve=with_curve, observe=observe)
    return _with_explanations(evaluation, learned, grounding, fold, n_explained)


def _count_labels(grounding: Grounding, fold: Fold) -> tuple[LabelCounts, ...]:
    label_counts, labelled = [], labelled_in_grounding(grounding)
    for block in predicted_blocks(grounding):
        block_slice = slice(block.start, block.start + block.count)
        n_held_out, n_ignored = int(fold.test[block_slice].sum()), int(fold.hidden[block_slice].sum())
        if block.is_numeric:
            known = grounding.numbers[block_slice][labelled[block_slice]]
            statistics = _describe_numbers(known) if len(known) else {}
            label_counts.append(
                LabelCounts(block.name, block.count, len(known), n_held_out, statistics, n_ignored, is_numeric=True)
            )
            continue
        counts = np.bincount(grounding.states[block_slice][labelled[block_slice]], minlength=len(block.values))
        values = dict(zip(block.values, counts.tolist(), strict=True))
        label_counts.append(LabelCounts(block.name, block.count, int(counts.sum()), n_held_out, values, n_ignored))
    return tuple(label_counts)


def _describe_numbers(values: np.ndarray) -> dict[str, float]:
    """Return quantiles, the mean and the standard deviation of numbers by name."""
    names = ("minimum", "lower quartile", "median", "upper quartile", "maximum")
    quantiles = np.quantile(values, np.linspace(0.0, 1.0, len(names))).tolist()
    return {**dict(zip(names, quantiles, strict=True)), "mean": values.mean().item(), "deviation": values.std().item()}


def _standard_errors(learned: LearnedModel, grounding: Grounding, hidden: np.ndarray | None) -> StandardErrors | str:
    try:
        return standard_errors_from_data(learned, grounding, hidden, shown_weights(learned))
    except (UsageError, DataError) as error:
        return error.diagnostics[0].message


def _with_predictions(
    evaluation: HoldoutEvaluation,
    fit: api.Fit,
    grounding: Grounding,
    fold: Fold,
    *,
    with_curve: bool,
    observe: Observer,
) -> HoldoutEvaluation:
    """Return the evaluation with the predictions of the run and of the baselines."""
    learned, labelled = fit.learned, labelled_in_grounding(grounding)
    run_prediction, inferred = predict_fold_with_model(learned, grounding, fold, observe)
    by_system, no_local_reason = (
        {learned.backend: [run_prediction]},
        "all labels are held out, so that the local model cannot be trained",
    )
    curve: list[tuple[int, FoldPrediction]] = []
    if fold.train_mask(labelled).any():
        baselines, no_local_reason = {MAJORITY: [predict_frequencies(grounding, fold)]}, ""
        if learned.backend != LOCAL:
            try:
                learned_fold = fold.with_learned_features(grounding)
                local = make_backend(LOCAL, **_shared_settings(learned))
                problem = training_problem(grounding, learn=False)
                numbers = _number_backend(learned, local)
                baselines[LOCAL] = [predict_fold(problem, learned_fold, local, numbers=numbers)[0]]
            except (UsageError, DataError) as error:
                no_local_reason = error.diagnostics[0].message
        by_system = {**baselines, **by_system}
        curve = (
            [*_learning_curve(learned, grounding, fold), (evaluation.n_training_labels, run_prediction)]
            if with_curve
            else []
        )
    predictions = Predictions.from_folds(grounding, [fold], by_system, {})
    blocks = [block for block in predictions.blocks if block.name in predictions.attributes]
    variables = {block.name: run_prediction.block_variables(block) for block in blocks}
    n_neighbours, _ = labelled_neighbours(grounding.graph, fold.train_mask(labelled))
    return replace(
        evaluation,
        verdict=inferred.verdict,
        predictions=predictions,
        names={name: tuple(grounding.variable_names(tested).tolist()) for name, tested in variables.items()},
        n_neighbours={name: n_neighbours[tested] for name, tested in variables.items()},
        no_local_reason=no_local_reason,
        leakage_notes=measure_leakage(grounding, [fold]).interpretation,
        curve={block.name: _curve_of(block, curve) for block in blocks if curve},
    )


def _curve_of(block: VariableBlock, curve: Sequence[tuple[int, FoldPrediction]]) -> Frame:
    """Return the learning curve of an attribute."""
    columns = NUMBER_CURVE_COLUMNS if block.is_numeric else CURVE_COLUMNS
    (measure,) = set(columns) - {"labels"}
    scored = [(n, one.block_labels(block).measures(names=(measure,))[measure]) for n, one in curve]
    return Frame.from_rows(columns, scored)


def _with_explanations(
    evaluation: HoldoutEvaluation, learned: LearnedModel, grounding: Grounding, fold: Fold, n_explained: int
) -> HoldoutEvaluation:
    """Return the evaluation with the explanations of a random sample of held-out variables."""
    tested = np.flatnonzero(fold.test)
    sample = np.random.default_rng(0).choice(tested, min(n_explained, len(tested)), replace=False)
    try:
        cases = (
            ExplanationCase.from_model(learned, grounding, int(variable), fold.test | fold.hidden)
            for variable in sample
        )
        return replace(evaluation, explanations=tuple(explain_prediction(case) for case in cases))
    except UsageError as error:
        return replace(evaluation, no_explanations_reason=error.diagnostics[0].message)


def _shared_settings(learned: LearnedModel) -> dict[str, object]:
    """Return the settings of the run that the local model also has, so that the models differ only in the relations."""
    return {name: value for name, value in learned.settings.items() if name in setting_names(backend_class(LOCAL))}


def _number_backend(learned: LearnedModel, system: AbstractBackend) -> AbstractBackend | None:
    """Return a backend that learns numbers with the penalty of the run; None for a run without numbers.

    Args:
        system: The backend; one that learns no numbers is replaced with `dense`, as in training by `auto`.
    """
    l2 = learned.summary.get("numeric_l2")
    if l2 is None:
        return None
    settings = dict(vars(system)) if system.name in NUMERIC_BACKENDS else {}
    return make_backend(system.name if settings else "dense", **{**settings, "l2": l2})


def _learning_curve(learned: LearnedModel, grounding: Grounding, fold: Fold) -> Iterator[tuple[int, FoldPrediction]]:
    """Train the run's backend on fractions of the labels; for each, yield the number of labels and the predictions.

    Fractions with too few labels are omitted.
    """
    system = learned.configure_backend()
    problem = training_problem(
        grounding,
        with_candidates=system.uses_candidates,
        learn=False,
        without_labels=system.learns_without_labels,
    )
    train = np.flatnonzero(fold.train_mask(labelled_in_grounding(grounding)))
    order = np.random.default_rng(0).permutation(train)
    for fraction in CURVE_FRACTIONS:
        n = round(fraction * len(order))
        excluded = np.zeros_like(fold.test)
        excluded[order[n:]] = True
        if n:
            smaller = replace(fold, excluded=excluded).with_learned_features(grounding)
            try:
                predicted, _ = predict_fold(problem, smaller, system, numbers=_number_backend(learned, system))
            except DataError as error:
                if error.diagnostics[0].code not in TOO_FEW_LABELS:
                    raise
            else:
                yield n, predicted
