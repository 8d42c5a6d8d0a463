"""The evaluation of a run on held-out labels, with its baselines: the local model and the label frequencies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from relcrf import api
from relcrf.backends.learned import LearnedModel
from relcrf.backends.problems import training_problem
from relcrf.backends.registry import backend_class, make
from relcrf.data.frame import Frame
from relcrf.data.store import reading
from relcrf.errors import DataError, UsageError
from relcrf.evaluation.leaks import leaks_of
from relcrf.evaluation.named_weights import errors_on
from relcrf.evaluation.predictions import LOCAL, MAJORITY, FoldPrediction, Predictions, predicted_blocks
from relcrf.evaluation.runner import predict_fold, predict_fold_of_run, predict_frequencies
from relcrf.evaluation.splits import Fold, labels_in
from relcrf.evaluation.standard_errors import StandardErrors
from relcrf.grounding.grounding import Grounding
from relcrf.inference.result import Observer, Verdict, silent
from relcrf.report.weights import shown
from relcrf.settings import names_of

SHARES = (0.125, 0.25, 0.5)
"""Fractions of the training labels that a learning curve learns from, besides all."""

MOST_VALUES = 20
"""Maximum number of values of an attribute whose labels are counted separately."""

CURVE = {"labels": int, "log_loss": float}
"""Columns of a learning curve."""


@dataclass(frozen=True)
class Labels:
    """The labels of one predicted attribute or relation.

    Args:
        things: how many there are of it. known: with a label, those that are held out with them.
        values: how often each value is a label, in the order of the states.
    """

    name: str
    things: int
    known: int
    held: int
    values: Mapping[str, int]

    @property
    def most(self) -> dict[str, int]:
        """The values that are labels the most often, and all others together."""
        if len(self.values) <= MOST_VALUES:
            return dict(self.values)
        order = sorted(self.values.items(), key=lambda value: -value[1])
        others = order[MOST_VALUES:]
        return {**dict(order[:MOST_VALUES]), f"({len(others):,} others)": sum(count for _, count in others)}


@dataclass(frozen=True, eq=False)
class Trial:
    """The part of a report that needs data.

    Args:
        options: The words of the command line that name the data and what is held out.
        tables: The number of rows of each table, by its name.
        errors: Of the weights that are shown, or why there are none; None where they were not requested.
        verdict: Of the inference; None where nothing is held out.
        predictions: Of the baselines and of the run, whose name is `system`; None where nothing is held out.
        names: The names of the test variables, by attribute.
        no_local: Why there is no local model; empty where there is.
        in_words: The leaks from training to test labels.
        curve: The learning curve by attribute, empty where it was not requested: a row per number of training `labels`, with
            the mean `log_loss` of the held-out ones, in nats.
    """

    options: tuple[str, ...]
    tables: Mapping[str, int]
    labels: tuple[Labels, ...]
    errors: StandardErrors | str | None
    system: str
    unseen_keys: Mapping[str, int]
    verdict: Verdict | None = None
    predictions: Predictions | None = None
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    no_local: str = ""
    in_words: tuple[str, ...] = ()
    curve: Mapping[str, Frame] = field(default_factory=dict)

    @property
    def learned_from(self) -> int:
        """The number of labels that are not held out."""
        return sum(one.known - one.held for one in self.labels)


def hold_trial(
    fit: api.Fit,
    grounding: Grounding,
    hidden: np.ndarray | None = None,
    *,
    options: tuple[str, ...] = (),
    with_curve: bool = False,
    with_errors: bool = False,
    observe: Observer = silent,
) -> Trial:
    """Predict labels that a run has not seen, and train its baselines on the others.

    Args:
        grounding: Of the run's model, see `Fit.ground`.
        hidden: The variables whose labels are held out, shape (n_variables,), bool; None holds nothing out.
        options: See `Trial`.
        with_curve: Train again on some `SHARES` of the labels.
        with_errors: Compute the standard errors of the weights that a report shows, which may take longer than learning.

    Raises:
        UsageError, DataError: The run does not fit the data.
    """
    learned = fit.learned
    labelled = labels_in(grounding)
    fold = Fold.of("held out", np.zeros_like(labelled) if hidden is None else labelled & hidden)
    dataset = grounding.bound.dataset
    counts = {}
    for table in dataset.tables.values():
        with reading(table.place):
            counts[table.name] = dataset.connection.execute(f"SELECT count(*) FROM {table.scan}").fetchone()
    trial = Trial(
        options,
        {name: int(row[0]) for name, row in counts.items() if row},
        _labels(grounding, fold),
        _errors(learned, grounding, hidden) if with_errors else None,
        learned.backend,
        learned.unseen_keys(learned.placed(grounding)),
    )
    if not fold.n:
        return trial
    return _with_predictions(trial, fit, grounding, fold, with_curve=with_curve, observe=observe)


def _labels(grounding: Grounding, fold: Fold) -> tuple[Labels, ...]:
    found, labelled = [], labels_in(grounding)
    for block in predicted_blocks(grounding):
        own = slice(block.start, block.start + block.count)
        counts = np.bincount(grounding.states[own][labelled[own]], minlength=len(block.values))
        values = dict(zip(block.values, counts.tolist(), strict=True))
        found.append(Labels(block.name, block.count, int(counts.sum()), int(fold.test[own].sum()), values))
    return tuple(found)


def _errors(learned: LearnedModel, grounding: Grounding, hidden: np.ndarray | None) -> StandardErrors | str:
    try:
        return errors_on(learned, grounding, hidden, shown(learned))
    except (UsageError, DataError) as error:
        return error.diagnostics[0].message


def _with_predictions(
    trial: Trial, fit: api.Fit, grounding: Grounding, fold: Fold, *, with_curve: bool, observe: Observer
) -> Trial:
    """Return the trial with the predictions of the run and of the baselines."""
    learned, labelled = fit.learned, labels_in(grounding)
    own, inferred = predict_fold_of_run(learned, grounding, fold, observe)
    by_system, no_local = {learned.backend: [own]}, "no label is left to learn from: all are held out"
    curve: list[tuple[int, FoldPrediction]] = []
    if fold.train(labelled).any():
        baselines, no_local = {MAJORITY: [predict_frequencies(grounding, fold)]}, ""
        if learned.backend != LOCAL:
            try:
                local = make(LOCAL, **_shared(learned))
                baselines[LOCAL] = [predict_fold(training_problem(grounding), fold, local)[0]]
            except (UsageError, DataError) as error:
                no_local = error.diagnostics[0].message
        by_system = {**baselines, **by_system}
        curve = [*_curve(learned, grounding, fold), (trial.learned_from, own)] if with_curve else []
    predictions = Predictions.of(grounding, [fold], by_system)
    blocks = [block for block in predictions.blocks if block.name in predictions.attributes]
    return replace(
        trial,
        verdict=inferred.verdict,
        predictions=predictions,
        names={b.name: tuple(grounding.labels(own.variables[b.among(own.variables)]).tolist()) for b in blocks},
        no_local=no_local,
        in_words=leaks_of(grounding, [fold]).sentences,
        curve={
            b.name: Frame.of_rows(CURVE, [(n, -one.of_block(b).score().log_likelihood) for n, one in curve])
            for b in blocks
            if curve
        },
    )


def _shared(learned: LearnedModel) -> dict[str, object]:
    """Return the settings of the run that the local model has, too, so that it differs by the relations alone."""
    return {name: value for name, value in learned.settings.items() if name in names_of(backend_class(LOCAL))}


def _curve(learned: LearnedModel, grounding: Grounding, fold: Fold) -> Iterator[tuple[int, FoldPrediction]]:
    """Train the run's backend on some of the labels; yield their number and the predictions."""
    system = learned.system()
    problem = training_problem(grounding, with_candidates=system.chooses)
    train = np.flatnonzero(fold.train(labels_in(grounding)))
    order = np.random.default_rng(0).permutation(train)
    for share in SHARES:
        n = round(share * len(order))
        excluded = np.zeros_like(fold.test)
        excluded[order[n:]] = True
        if n:
            yield n, predict_fold(problem, replace(fold, excluded=excluded), system)[0]
