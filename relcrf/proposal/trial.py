"""Trials of proposed models: training without a part of the labels, and the scores of the predictions of that part.

Models with and without aggregates are cross-validated on the same folds, first without relations, which takes little time,
and with relations if the aggregates help without them. In each fold, the aggregates are selected by the training labels of
the fold. `auto` chooses a backend and its settings for each model by the training labels of the first fold; the other folds use
them too, because a choice for each fold would take minutes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from relcrf.backends.base import AbstractBackend, Monitor
from relcrf.backends.local import LocalBackend
from relcrf.backends.problems import numeric_targets, training_problem
from relcrf.backends.registry import make_backend
from relcrf.data.split_plan import parse_split
from relcrf.errors import RelcrfError
from relcrf.evaluation.evaluations import Evaluation
from relcrf.evaluation.measures import Score, ScoredLabels
from relcrf.evaluation.number_measures import ScoredNumbers
from relcrf.evaluation.predictions import LOCAL, MAJORITY
from relcrf.evaluation.runner import predict_fold, run_systems
from relcrf.evaluation.splits import Fold, labelled_in_grounding, make_folds
from relcrf.graph.numeric_graph import numeric_graph
from relcrf.grounding.derive import Progress
from relcrf.grounding.grounding import Grounding
from relcrf.inference.gaussian import PrecisionPattern
from relcrf.proposal.aggregate_models import FORMS, AggregateValues, compute_aggregates, templates_with
from relcrf.proposal.aggregates import ProposedAggregate
from relcrf.proposal.draft import ModelDraft, ground_templates, replace_templates
from relcrf.proposal.event_tables import find_dates
from relcrf.unaries.estimators import candidate_estimators

MAX_VARIABLES = 20_000
"""Maximum number of variables of a model that is tried; larger models take minutes to train."""

HELD_OUT = "hide=0.2"
"""The held-out labels of models without aggregates: a random fifth."""

COMPARED_FOLDS = "folds=5"
"""The folds on which models with and without aggregates are compared; a hash of an entity's key selects its fold."""

MAX_SECONDS = 10.0
"""Limit of the CPU time of each comparison, in seconds: a fold is not started if it would exceed the limit, judging by the
previous fold. In the first fold, the limit is checked between the models, so that the training of one model may exceed it."""

MAX_SEARCH_LABELS = 500
"""Maximum number of labels with which the trial of a classifier chooses between estimators; with more labels, it trains one
estimator, the smallest boosted trees. Its gain is then a lower estimate, because the model chooses between all estimators."""

MAX_CLASSIFIER_STATES = 30
"""Maximum number of values of the target for which a classifier is tried: its training takes time in proportion to them, and
minutes on 1,000 labels with 88 values."""

MAX_OPERATIONS = 1e8
"""Maximum number of operations for the Cholesky factor of linked numbers; they take 0.1 seconds in each of about 60 evaluations
in a training, and a trial trains up to 15 models."""

MAX_COMPUTE_SECONDS = 10.0
"""Time limit for the values of the aggregates."""

MIN_STANDARD_ERRORS = 2.0
"""Minimum gain of a model with aggregates over the model without, in standard errors of the paired difference. The better of
two models without a real gain exceeds one standard error in up to 30 % of the cases. Without relations, one standard error is
required, because the result is not the choice."""

BACKEND = "auto"
"""Name of the backend of the proposed model."""

AUTO = make_backend(BACKEND, effort="quick")

NO_AGGREGATES = "none"
"""The form of the model without aggregates."""


ScoredItems: TypeAlias = ScoredLabels | ScoredNumbers
"""The predictions of held-out labels."""

Predictions: TypeAlias = dict[str, ScoredItems]
"""The predictions of each system."""


@dataclass(frozen=True)
class FormTrial:
    """The score of a model with aggregates in one form, or without aggregates.

    Args:
        form: One of `FORMS`, or `NO_AGGREGATES`.
        score: None if the model failed.
        gain, standard_error: The mean gain in log-likelihood over the model without aggregates.
        reason: Why the model failed.
    """

    form: str
    score: Score | None
    gain: float = 0.0
    standard_error: float = 0.0
    reason: str = ""


@dataclass(frozen=True)
class AggregateTrial:
    """The comparison of models with and without aggregates.

    Args:
        chosen: The form in the model. It is better than `NO_AGGREGATES` by `MIN_STANDARD_ERRORS`, and a classifier is also
            better than weights by as much.
        system: The system whose predictions are compared: `local` if no form helps without relations, otherwise the model.
        n_folds: The number of folds that were compared within the time limit.
        n_proposed: The number of enumerated aggregates.
        aggregates: Each aggregate whose values differ between entities, with its association with all labels and whether
            the model contains it; in descending order of the association.
        warnings: The tables with dates, whose later rows are aggregated too.
    """

    forms: tuple[FormTrial, ...]
    chosen: str
    system: str
    n_folds: int
    n_proposed: int
    aggregates: tuple[tuple[ProposedAggregate, float, bool], ...]
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the choice and its reason as a sentence."""
        n_kept = sum(is_kept for _, _, is_kept in self.aggregates)
        scored = [each for each in self.forms if each.score is not None]
        chosen = [each for each in scored if each.form == self.chosen != NO_AGGREGATES]
        best = max(chosen or scored, key=lambda each: each.gain)
        gain = f"{best.gain:+.4f} ± {best.standard_error:.4f} nats per label"
        if self.chosen != NO_AGGREGATES:
            return (
                f"the model contains {n_kept} of {self.n_proposed} proposed aggregates, as {FORMS[self.chosen]}: {gain}"
            )
        reason = (
            "none improves the predictions" if best.form == NO_AGGREGATES else f"the best gain is uncertain: {gain}"
        )
        return f"the model contains none of {self.n_proposed} proposed aggregates: {reason}"


@dataclass(frozen=True)
class ModelTrial:
    """The scores of a proposed model on held-out labels, or the reason why they are missing.

    Args:
        scores: The score of each system: the majority value, `local` (without relations) and the model.
        aggregates: The comparison of models with and without aggregates; None if there are no aggregates.
    """

    scores: dict[str, Score]
    reason: str = ""
    aggregates: AggregateTrial | None = None


def choose_model(
    draft: ModelDraft, progress: Progress = lambda name: None, *, with_aggregates: bool = True
) -> tuple[ModelDraft, ModelTrial]:
    """Return the draft or, if this improves the predictions of held-out labels, the draft with aggregates; and its scores.

    Args:
        with_aggregates: Whether aggregates are tried.
    """
    if draft.n_variables > MAX_VARIABLES:
        return draft, ModelTrial({}, f"it has more than {MAX_VARIABLES:,} variables")
    if not _is_affordable(draft.grounding):
        return draft, ModelTrial({}, "its numbers have so many links that learning in all folds takes minutes")
    progress("aggregates")
    found = AggregateValues((), np.zeros((0, 0)), 0)
    if with_aggregates and len(draft.analysis.target.attributes) == 1:
        found = compute_aggregates(draft, MAX_COMPUTE_SECONDS)
    progress("trial")
    try:
        if not found.aggregates:
            return draft, ModelTrial({k: each.score() for k, each in _predict_part(draft.grounding).items()})
        return _Comparison(draft, found, progress).run()
    except RelcrfError as error:
        return draft, ModelTrial({}, error.diagnostics[0].message)


def _is_affordable(grounding: Grounding) -> bool:
    """Return False if the numbers have too many links for a trial."""
    targets = numeric_targets(grounding)
    if targets is None:
        return True
    linked = numeric_graph(targets, grounding.states)
    return PrecisionPattern(len(linked.variables), linked.first, linked.second).is_affordable(MAX_OPERATIONS)


def _predict(grounding: Grounding, folds: Sequence[Fold], system: AbstractBackend = AUTO) -> Predictions:
    """Return the predictions of the held-out labels by the majority value, `local` and, as `BACKEND`, the given backend."""
    systems = {LOCAL: LocalBackend(), system.name: system}
    results = run_systems(grounding, folds, systems, lambda what: Monitor())
    found = Evaluation.from_results(grounding, parse_split(COMPARED_FOLDS), tuple(folds), results, {}).predictions
    names = {MAJORITY: MAJORITY, LOCAL: LOCAL, BACKEND: system.name}
    return {name: found.pooled(each, found.attributes[0]) for name, each in names.items()}


def _predict_part(grounding: Grounding) -> Predictions:
    """Return the predictions of the labels that `HELD_OUT` names."""
    return _predict(grounding, make_folds(grounding, HELD_OUT))


def _choose_backend(grounding: Grounding, fold: Fold) -> AbstractBackend:
    """Return the backend that `auto` chooses by the training labels of a fold, with the chosen settings."""
    problem = training_problem(grounding, with_candidates=AUTO.uses_candidates, learn=False)
    _, learned = predict_fold(problem, fold, AUTO)
    return learned.configure(AUTO)


class _Comparison:
    """The cross-validation of the models with and without aggregates."""

    def __init__(self, draft: ModelDraft, found: AggregateValues, progress: Progress) -> None:
        self.draft, self.found, self.progress = draft, found, progress
        (self.block,) = (each for each in draft.grounding.blocks if not each.is_latent)
        self.is_labelled = self._of_entities(draft.grounding.states >= 0)
        values = draft.grounding.numbers if self.block.is_numeric else draft.grounding.states
        self.labels = self._of_entities(values)
        self.folds = make_folds(draft.grounding, COMPARED_FOLDS, for_training=False)
        is_small = np.count_nonzero(self.is_labelled) <= MAX_SEARCH_LABELS
        learner = draft.analysis.target.learner
        self.estimator = "" if is_small else str(candidate_estimators("boosting", learner)[0])
        self.groundings: dict[tuple[str, tuple[int, ...]], Grounding] = {}
        self.systems: dict[str, AbstractBackend] = dict.fromkeys((NO_AGGREGATES, *FORMS), LocalBackend())
        self.prepared: dict[tuple[str, str], tuple[Grounding, Fold]] = {}
        self.predictions: dict[str, list[Predictions]] = {}
        self.reasons: dict[str, str] = {}
        if len(self.block.values) > MAX_CLASSIFIER_STATES:
            self.reasons["learned"] = f"it takes too long with more than {MAX_CLASSIFIER_STATES} values of the target"

    def run(self) -> tuple[ModelDraft, ModelTrial]:
        """Return the chosen draft and its scores.

        Raises:
            RelcrfError: The model without aggregates cannot be evaluated.
        """
        n_folds = self._cross_validate()
        for each in self._form_trials(LOCAL):
            if each.form not in (NO_AGGREGATES, *self.reasons) and each.gain <= each.standard_error:
                self.reasons[each.form] = f"without relations, its gain is {each.gain:+.4f} ± {each.standard_error:.4f}"
        if all(form in self.reasons for form in FORMS):
            scores = {name: each.score() for name, each in _predict_part(self.draft.grounding).items()}
            return self.draft, ModelTrial(scores, aggregates=self._aggregate_trial(NO_AGGREGATES, LOCAL, n_folds))
        for form in self._remaining_forms:
            self.progress("choice of a backend")
            with self._recorded_failure(form):
                self.systems[form] = _choose_backend(*self._prepare(form, self.folds[0]))
        n_folds = self._cross_validate()
        chosen = self._choose_form(BACKEND)
        scores = {name: _pool(self.predictions[chosen], name).score() for name in (MAJORITY, LOCAL, BACKEND)}
        selected = self.found.select(self.labels, self.is_labelled)
        trial = ModelTrial(scores, aggregates=self._aggregate_trial(chosen, BACKEND, n_folds))
        if chosen == NO_AGGREGATES:
            return self.draft, trial
        return replace_templates(self.draft, templates_with(self.draft, self.found, selected, chosen)), trial

    @property
    def _remaining_forms(self) -> list[str]:
        """The forms that are still compared."""
        return [form for form in (NO_AGGREGATES, *FORMS) if form not in self.reasons]

    @contextmanager
    def _recorded_failure(self, form: str) -> Iterator[None]:
        """Exclude a form whose model cannot be trained or predicted."""
        try:
            yield
        except RelcrfError as error:
            if form == NO_AGGREGATES:
                raise
            self.reasons[form] = error.diagnostics[0].message

    def _cross_validate(self) -> int:
        """Predict the held-out labels of the folds with the remaining forms; return the number of folds."""
        started = time.process_time()
        self.predictions = {form: [] for form in self._remaining_forms}
        for number, fold in enumerate(self.folds):
            fold_started = time.process_time()
            self.progress(f"trial {number + 1} of {len(self.folds)}")
            for form in self.predictions:
                if form not in self.reasons:
                    with self._recorded_failure(form):
                        grounding, prepared = self._prepare(form, fold)
                        self.predictions[form].append(_predict(grounding, [prepared], self.systems[form]))
                if time.process_time() - started > MAX_SECONDS and not number:
                    self._omit_missing_forms()
            now = time.process_time()
            if now - started + (now - fold_started) > MAX_SECONDS:
                break
        return number + 1

    def _prepare(self, form: str, fold: Fold) -> tuple[Grounding, Fold]:
        """Return the ground graph of a form, and the fold with the values of the classifier, if the form has one."""
        if (form, fold.name) not in self.prepared:
            labelled = labelled_in_grounding(self.draft.grounding)
            selected = self.found.select(self.labels, self._of_entities(fold.train_mask(labelled)))
            grounding = self._ground(form, selected)
            self.prepared[form, fold.name] = grounding, fold.with_learned_features(grounding)
        return self.prepared[form, fold.name]

    def _omit_missing_forms(self) -> None:
        for form, predictions in self.predictions.items():
            if not predictions:
                self.reasons.setdefault(form, f"it was not tried within {MAX_SECONDS:g} seconds of CPU time")

    def _ground(self, form: str, selected: tuple[int, ...]) -> Grounding:
        """Return the ground graph of a form with the selected aggregates."""
        if form == NO_AGGREGATES:
            return self.draft.grounding
        if (form, selected) not in self.groundings:
            templates = templates_with(self.draft, self.found, selected, form, self.estimator)
            _, self.groundings[form, selected] = ground_templates(self.draft, templates)
        return self.groundings[form, selected]

    def _choose_form(self, system: str) -> str:
        """Return the last form that is better than the form chosen before it; later forms are harder to explain."""
        chosen = NO_AGGREGATES
        for form in FORMS:
            if form not in self.reasons:
                gain, error = self._gain(form, chosen, system)
                chosen = form if gain > MIN_STANDARD_ERRORS * error else chosen
        return chosen

    def _form_trials(self, system: str) -> list[FormTrial]:
        """Return the score of each form, and its gain over the model without aggregates."""
        trials = []
        for form in (NO_AGGREGATES, *FORMS):
            predictions = self.predictions.get(form, [])
            if len(predictions) < len(self.predictions[NO_AGGREGATES]):
                trials.append(FormTrial(form, None, -np.inf, reason=self.reasons[form]))
                continue
            score = _pool(predictions, system).score()
            trials.append(FormTrial(form, score, *self._gain(form, NO_AGGREGATES, system), self.reasons.get(form, "")))
        return trials

    def _gain(self, form: str, base: str, system: str) -> tuple[float, float]:
        """Return the mean gain in log-likelihood of a form over another one, and the standard error."""
        loss, base_loss = (_pool(self.predictions[each], system).item_measures["log_loss"] for each in (form, base))
        gains = base_loss - loss
        return float(gains.mean()), float(gains.std(ddof=1) / np.sqrt(len(gains))) if len(gains) > 1 else np.inf

    def _aggregate_trial(self, chosen: str, system: str, n_folds: int) -> AggregateTrial:
        """Return the comparison, with the association of each aggregate with all labels."""
        labelled = self.labels, self.is_labelled
        kept = set() if chosen == NO_AGGREGATES else set(self.found.select(*labelled))
        strength = self.found.associations(*labelled)
        order = np.argsort(-strength, kind="stable")
        shown = tuple((self.found.aggregates[k], float(strength[k]), k in kept) for k in order)
        trials, warnings = tuple(self._form_trials(system)), _date_warnings(self.draft)
        return AggregateTrial(trials, chosen, system, n_folds, self.found.n_proposed, shown, warnings)

    def _of_entities(self, values: np.ndarray) -> np.ndarray:
        return values[self.block.start : self.block.start + self.block.count]


def _date_warnings(draft: ModelDraft) -> tuple[str, ...]:
    """Return a warning for each table with a column of dates."""
    return tuple(
        f"aggregates read all rows of {table.name}, also rows that are later than a prediction: see column '{column}'"
        for table in draft.analysis.tables
        if (column := find_dates(table)) is not None
    )


def _pool(predictions: Sequence[Predictions], system: str) -> ScoredItems:
    parts: list[Any] = [each[system] for each in predictions]
    pooled: ScoredItems = type(parts[0]).concatenate(parts)
    return pooled
