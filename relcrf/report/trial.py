"""A run on labels that are held out, beside what it is measured by: the local model and the mere frequencies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from relcrf import api
from relcrf.backends.learned import LearnedModel
from relcrf.backends.registry import backend_class, make
from relcrf.data.frame import Frame
from relcrf.data.store import reading
from relcrf.errors import DataError, UsageError
from relcrf.evaluation.cross_validation import LOCAL, MAJORITY, Results
from relcrf.evaluation.leaks import leaks_of
from relcrf.evaluation.measures import Judged
from relcrf.evaluation.named_weights import errors_on
from relcrf.evaluation.splits import Round
from relcrf.evaluation.standard_errors import StandardErrors
from relcrf.evaluation.trials import Answers, Exam, answer, by_frequency
from relcrf.grounding.grounding import Grounding
from relcrf.inference.result import Observer, Verdict, silent
from relcrf.report.weights import shown
from relcrf.settings import names_of

SHARES = (0.125, 0.25, 0.5)
"""Of the labels of the training, that a learning curve learns from beside all."""


MOST_VALUES = 20
"""Of an attribute, whose labels are counted."""


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


@dataclass(frozen=True)
class Point:
    """Of a learning curve: the labels that were learned from, and the mean log-loss of what is held out, in nats."""

    labels: int
    log_loss: float


@dataclass(frozen=True, eq=False)
class Trial:
    """What a report says with data.

    Args:
        options: the words of the command line that name the data and what is held out.
        tables: rows of each table of the data, by its name.
        errors: of the weights that are shown, or why there are none; None where nobody asked for them.
        verdict: of the inference; None where nothing is held out, and so nothing was asked.
        results: of the systems that were asked, the run among them as `system`; None likewise.
        names: the things that each answer of the run is about, as people name them, by attribute.
        no_local: why there is no local model beside the run; empty where there is.
        in_words: what goes from the training to what is held out.
        curve: by attribute; empty where nobody asked for one.
    """

    options: tuple[str, ...]
    tables: Mapping[str, int]
    labels: tuple[Labels, ...]
    errors: StandardErrors | str | None
    system: str
    unseen_keys: Mapping[str, int]
    verdict: Verdict | None = None
    results: Results | None = None
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    no_local: str = ""
    in_words: tuple[str, ...] = ()
    curve: Mapping[str, tuple[Point, ...]] = field(default_factory=dict)

    @property
    def learned_from(self) -> int:
        """The labels that are not held out."""
        return sum(one.known - one.held for one in self.labels)

    def table(self) -> Frame | None:
        """One row a system, an attribute and a measure; None where nothing is held out."""
        return None if self.results is None else self.results.table()


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
    """Asks a run for labels that it has not seen, and learns what it is measured by from the others.

    Args:
        grounding: of the run's model, see `Fit.ground`.
        hidden: variables whose labels are asked for, shape (n_variables,), bool; None asks for nothing.
        options: see `Trial`.
        with_curve: learn again from some `SHARES` of the labels.
        with_errors: find the standard errors of the weights that a report shows, which may take longer than learning.

    Raises:
        UsageError, DataError: where the run does not fit the data.
    """
    learned = fit.learned
    labelled = (grounding.states >= 0) & ~grounding.latent
    held = np.zeros_like(labelled) if hidden is None else labelled & hidden
    dataset = grounding.bound.dataset
    counts = {}
    for table in dataset.tables.values():
        with reading(table.place):
            counts[table.name] = dataset.connection.execute(f"SELECT count(*) FROM {table.scan}").fetchone()
    trial = Trial(
        options,
        {name: int(row[0]) for name, row in counts.items() if row},
        _labels(grounding, labelled, held),
        _errors(learned, grounding, hidden) if with_errors else None,
        learned.backend,
        learned.unseen_keys(learned.placed(grounding)),
    )
    return _asked(trial, fit, grounding, held, labelled, with_curve, observe) if held.any() else trial


def _labels(grounding: Grounding, labelled: np.ndarray, held: np.ndarray) -> tuple[Labels, ...]:
    found = []
    for block in grounding.blocks:
        if block.is_latent:
            continue
        own = slice(block.start, block.start + block.count)
        counts = np.bincount(grounding.states[own][labelled[own]], minlength=len(block.values))
        values = dict(zip(block.values, counts.tolist(), strict=True))
        found.append(Labels(block.name, block.count, int(counts.sum()), int(held[own].sum()), values))
    return tuple(found)


def _errors(learned: LearnedModel, grounding: Grounding, hidden: np.ndarray | None) -> StandardErrors | str:
    try:
        return errors_on(learned, grounding, hidden, shown(learned))
    except (UsageError, DataError) as error:
        return error.diagnostics[0].message


def _asked(
    trial: Trial,
    fit: api.Fit,
    grounding: Grounding,
    held: np.ndarray,
    labelled: np.ndarray,
    with_curve: bool,
    observe: Observer,
) -> Trial:
    """The trial with its answers."""
    one = Round("held out", held, np.zeros_like(held))
    found = api.predict(fit, grounding, hidden=held, observe=observe)
    own = _of_run(found, grounding, one, {each.name: each.known - each.held for each in trial.labels})
    answers = {fit.learned.backend: own}
    no_local = "no label is left to learn from: all are held out"
    if trial.learned_from:
        exam = Exam.of(grounding, [one])
        answers = {MAJORITY: by_frequency(exam, one), **answers}
        no_local = ""
        if fit.learned.backend != LOCAL:
            try:
                local, _ = answer(exam, one, make(LOCAL, **_shared(fit.learned)))
                answers = {MAJORITY: answers[MAJORITY], LOCAL: local, fit.learned.backend: own}
            except (UsageError, DataError) as error:
                no_local = error.diagnostics[0].message
    names = {name: tuple(grounding.labels(variables).tolist()) for name, variables in own.variables.items()}
    return replace(
        trial,
        verdict=found.verdict,
        results=Results({name: [said] for name, said in answers.items()}, grounding.component),
        names=names,
        no_local=no_local,
        in_words=leaks_of(grounding, [one]).sentences,
        curve=_curve(fit.learned, grounding, one, own, labelled) if with_curve and trial.learned_from else {},
    )


def _shared(learned: LearnedModel) -> dict[str, object]:
    """The settings of the run that the local model has, too: it is to differ by the relations alone."""
    return {name: value for name, value in learned.settings.items() if name in names_of(backend_class(LOCAL))}


def _of_run(found: api.Prediction, grounding: Grounding, one: Round, labels: Mapping[str, int]) -> Answers:
    variables, judged = {}, {}
    for name in found.attributes:
        queries = found.variables(name)
        asked = one.held[queries]
        if asked.any():
            variables[name] = queries[asked]
            judged[name] = Judged(found.probabilities(name)[asked], grounding.states[queries[asked]])
    return Answers(one.name, variables, judged, labels, 0.0, found.seconds, found.verdict.is_good)


def _curve(
    learned: LearnedModel, grounding: Grounding, one: Round, own: Answers, labelled: np.ndarray
) -> dict[str, tuple[Point, ...]]:
    """The run's backend on some of the labels; the last point is the run."""
    system = make(learned.backend, **learned.settings)
    training = np.flatnonzero(labelled & ~one.held)
    order = np.random.default_rng(0).permutation(training)
    said = []
    for share in SHARES:
        unused = np.zeros_like(one.held)
        unused[order[round(share * len(order)) :]] = True
        part = replace(one, unused=unused)
        if round(share * len(order)):
            exam = Exam.of(grounding, [part], with_candidates=system.chooses)
            said.append(answer(exam, part, system)[0])
    return {
        name: tuple(Point(each.learned_from, each.judged[name].measures()["log_loss"]) for each in (*said, own))
        for name in own.judged
    }
