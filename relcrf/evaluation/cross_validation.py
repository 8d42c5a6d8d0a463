"""Cross-validation: each part of the labels is held out in turn, and what systems say of it is judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from relcrf.backends.base import Monitor
from relcrf.backends.registry import make
from relcrf.data.frame import Frame
from relcrf.data.splits import Protocol, read_protocol
from relcrf.errors import Diagnostic, UsageError
from relcrf.evaluation.answer_files import AnswerFolder
from relcrf.evaluation.intervals import Clusters, Interval, debiased, over_folds, percentiles
from relcrf.evaluation.leaks import Leaks, leaks_of
from relcrf.evaluation.measures import MEASURES, RANKED, Judged
from relcrf.evaluation.splits import Round, rounds_of
from relcrf.evaluation.trials import Answers, Exam, answer, by_frequency
from relcrf.grounding.grounding import Grounding

MAJORITY = "majority"
LOCAL = "local"

COMPARED = ("accuracy", "log_loss", "brier")
"""Measures by which systems are compared: means over labels, whose differences are those of each label."""


@dataclass(frozen=True)
class Figure:
    """One measure of one system.

    Args:
        value: of all that was held out, together; of `RANKED` the mean of the rounds, by their sizes.
        interval: of 95 %, by drawing components again, or labels.
        spread: standard deviation over rounds; nan of one.
    """

    value: float
    interval: Interval
    spread: float

    def as_dict(self) -> dict[str, float]:
        """For machines."""
        return {"value": self.value, "low": self.interval[0], "high": self.interval[1], "spread": self.spread}


@dataclass(frozen=True)
class Difference:
    """How much one system is above another in one measure, label by label.

    Args:
        interval: of 95 %, by drawing components again, or labels. over_folds: that of the mean of the rounds.
    """

    value: float
    interval: Interval
    over_folds: Interval

    def as_dict(self) -> dict[str, Any]:
        """For machines."""
        return {
            "value": self.value,
            "low": self.interval[0],
            "high": self.interval[1],
            "over_folds": list(self.over_folds),
        }


@dataclass(frozen=True)
class Results:
    """What systems say of the same rounds.

    Args:
        answers: by the system's name, one for each round.
        component: of each variable in the ground graph, shape (n_variables,).
    """

    answers: Mapping[str, Sequence[Answers]]
    component: np.ndarray

    @cached_property
    def attributes(self) -> tuple[str, ...]:
        """What was held out of."""
        every = (name for rounds in self.answers.values() for one in rounds for name in one.judged)
        return tuple(dict.fromkeys(every))

    def _judged(self, system: str, attribute: str) -> list[Judged]:
        return [one.judged[attribute] for one in self.answers[system] if attribute in one.judged]

    def pooled(self, system: str, attribute: str) -> Judged:
        """All rounds as one."""
        parts = self._judged(system, attribute)
        return Judged(np.concatenate([p.probabilities for p in parts]), np.concatenate([p.truth for p in parts]))

    def clusters(self, attribute: str) -> Clusters:
        """What is drawn again for the intervals."""
        first = next(iter(self.answers.values()))
        variables = [one.variables[attribute] for one in first if attribute in one.variables]
        return Clusters.of_items(np.concatenate(variables), self.component)

    def figures(self, system: str, attribute: str) -> dict[str, Figure]:
        """All measures of a system."""
        parts, whole = self._judged(system, attribute), self.pooled(system, attribute)
        values = _together(whole, parts, np.ones(len(whole.truth)))
        drawn = [_together(whole, parts, weights) for weights in self.clusters(attribute).resampled()]
        rounds = [one.measures() for one in parts]
        out = {}
        for name in MEASURES:
            again = [one[name] for one in drawn]
            interval = debiased(again, values[name]) if name == "calibration_error" else percentiles(again)
            out[name] = Figure(values[name], interval, _spread([r[name] for r in rounds]))
        return out

    def differences(self, system: str, other: str, attribute: str) -> dict[str, Difference]:
        """How much a system is above another in each of `COMPARED`."""
        mine, theirs = (self.pooled(name, attribute).of_items for name in (system, other))
        rounds = [
            (one.of_items, two.of_items)
            for one, two in zip(self._judged(system, attribute), self._judged(other, attribute), strict=True)
        ]
        held = np.mean([len(one.truth) for one in self._judged(system, attribute)])
        learned = float(np.mean([one.labels[attribute] for one in self.answers[system]]))
        out = {}
        for name in COMPARED:
            gaps = mine[name] - theirs[name]
            drawn = [float(w @ gaps / w.sum()) for w in self.clusters(attribute).resampled()]
            of_rounds = [float((one[name] - two[name]).mean()) for one, two in rounds]
            interval = over_folds(of_rounds, float(held / max(learned, 1.0)))
            out[name] = Difference(float(gaps.mean()), percentiles(drawn), interval)
        return out

    def seconds(self, system: str) -> tuple[float, float]:
        """Of learning and of inference, of all rounds together."""
        rounds = self.answers[system]
        return sum(one.seconds_learn for one in rounds), sum(one.seconds_infer for one in rounds)

    def converged(self, system: str) -> bool:
        """Whether learning and inference did in every round."""
        return all(one.converged for one in self.answers[system])

    def table(self) -> Frame:
        """One row a system, an attribute and a measure."""
        rows = [
            (attribute, system, name, figure.value, *figure.interval, figure.spread)
            for attribute in self.attributes
            for system in self.answers
            for name, figure in self.figures(system, attribute).items()
        ]
        names = ("attribute", "system", "measure", "value", "low", "high", "spread")
        return Frame({name: np.asarray(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)})


def _together(whole: Judged, parts: Sequence[Judged], weights: np.ndarray) -> dict[str, float]:
    """The measures of all rounds, whose items have weights."""
    found = whole.measures(weights, [name for name in MEASURES if name not in RANKED])
    ends = np.cumsum([len(part.truth) for part in parts])
    of_parts = np.split(weights, ends[:-1])
    ranked = [part.measures(own, RANKED) for part, own in zip(parts, of_parts, strict=True)]
    for name in RANKED:
        known = [(own.sum(), one[name]) for own, one in zip(of_parts, ranked, strict=True) if one[name] == one[name]]
        total = sum(size for size, _ in known)
        found[name] = float(sum(size * value for size, value in known) / total) if total else float("nan")
    return {name: found[name] for name in MEASURES}


def _spread(values: Sequence[float]) -> float:
    known = [value for value in values if value == value]
    return float(np.std(known, ddof=1)) if len(known) > 1 else float("nan")


@dataclass(frozen=True)
class CrossValidation:
    """The outcome.

    Args:
        protocol: how labels were held out, in words.
        results: of `majority`, `local` and the systems that were asked for, in this order.
        found: rounds that were there already in the folder.
    """

    protocol: str
    rounds: tuple[Round, ...]
    results: Results
    leaks: Leaks
    found: int = 0

    def as_dict(self) -> dict[str, Any]:
        """For machines."""
        results = self.results
        attributes = {}
        for attribute in results.attributes:
            figures = {
                system: {name: figure.as_dict() for name, figure in results.figures(system, attribute).items()}
                for system in results.answers
            }
            gains = {
                system: {name: gap.as_dict() for name, gap in results.differences(system, LOCAL, attribute).items()}
                for system in results.answers
                if system not in (MAJORITY, LOCAL)
            }
            n = len(results.pooled(MAJORITY, attribute).truth)
            resampled = results.clusters(attribute).what
            attributes[attribute] = {"n": n, "resampled": resampled, "systems": figures, "relational_gain": gains}
        rounds = [{"name": one.name, "held_out": int(one.held.sum())} for one in self.rounds]
        seconds = {name: dict(zip(("learn", "infer"), results.seconds(name), strict=True)) for name in results.answers}
        return {
            "split": self.protocol,
            "rounds": rounds,
            "attributes": attributes,
            "seconds": seconds,
            "converged": {name: results.converged(name) for name in results.answers},
            "leaks": {**asdict(self.leaks), "transductive": self.leaks.transductive, "in_words": self.leaks.sentences},
            "rounds_found": self.found,
        }


def cross_validate(
    grounding: Grounding,
    backends: Sequence[str] = ("ess",),
    split: Protocol | str = "random",
    *,
    repeats: int = 1,
    folder: Path | None = None,
    watch: Callable[[str], Monitor] = lambda what: Monitor(),
    settings: Mapping[str, Mapping[str, Any]] | None = None,
) -> CrossValidation:
    """Holds out each part of the labels in turn, and judges backends beside the majority and the local model.

    Args:
        split: how labels are held out, or its text: see `read_protocol`.
        repeats: of the whole, with consecutive seeds.
        folder: where answers are written, a folder for each round; those that are there already are not asked for again.
        watch: gives, by what is done next, who sees it.
        settings: of the backends, by their names.

    Raises:
        UsageError: for a backend, a setting or a split that is not; where a backend refuses the model; where the folder holds
            answers of something else.
        DataError: where the split cannot be made, or leaves nothing to learn from.
    """
    names = list(dict.fromkeys((LOCAL, *backends)))
    if MAJORITY in names:
        message = f"'{MAJORITY}' is what every backend is measured by, and no backend"
        raise UsageError(Diagnostic("E301", message, hint="leave it out: it is always there"))
    systems = {name: make(name, **dict((settings or {}).get(name, {}))) for name in names}
    plan = read_protocol(split) if isinstance(split, str) else split
    rounds = rounds_of(grounding, plan, repeats)
    answers: dict[str, list[Answers]] = {MAJORITY: [by_frequency(Exam.of(grounding, rounds), one) for one in rounds]}
    found = 0
    for name, system in systems.items():
        exam = Exam.of(grounding, rounds, with_candidates=system.chooses)
        kept = None if folder is None else AnswerFolder(folder, grounding, exam, name, system)
        answers[name] = []
        for number, one in enumerate(rounds):
            known = kept.load(number) if kept else None
            if known is None:
                known, _ = answer(exam, one, system, watch(f"{name}: {one.name} held out"))
                if kept:
                    kept.save(number, known)
            else:
                found += 1
            answers[name].append(known)
    return CrossValidation(str(plan), rounds, Results(answers, grounding.component), leaks_of(grounding, rounds), found)
