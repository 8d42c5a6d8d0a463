"""Backends beside each other: one grounding, one protocol, one table; each learns in a process of its own."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from relcrf.backends.registry import make
from relcrf.data.splits import Protocol, read_protocol
from relcrf.errors import Diagnostic, RelcrfError, UsageError
from relcrf.evaluation.cross_validation import MAJORITY, Results
from relcrf.evaluation.exact_judge import Exactness, draw, exactness
from relcrf.evaluation.leaks import Leaks, leaks_of
from relcrf.evaluation.splits import Round, rounds_of
from relcrf.evaluation.trials import Answers, Exam, answer, by_frequency
from relcrf.execution.apart import each_apart, memory
from relcrf.execution.mapped import Mapped
from relcrf.grounding.grounding import Grounding

PARTS = 20
"""Small parts of the graph on which answers are judged by the true ones."""


@dataclass(frozen=True)
class Outcome:
    """What came of one backend.

    Args:
        answers: one for each round; none where it refused, died or was stopped.
        problem: why there are none.
        exactness: of the model of the first round; None where the truth is not known.
        bytes_before: that its process had in memory before it began. bytes_peak: that it had at most; 0 where unknown.
    """

    answers: tuple[Answers, ...] = ()
    problem: Diagnostic | None = None
    exactness: Exactness | None = None
    bytes_before: int = 0
    bytes_peak: int = 0

    @property
    def status(self) -> str:
        """In a word, or the code and the sentence of what was wrong."""
        if self.problem is not None:
            return f"{self.problem.code}: {self.problem.message}"
        return "converged" if all(one.converged for one in self.answers) else "not converged"


@dataclass(frozen=True)
class Trial:
    """One backend's work, which can be done in another process.

    Args:
        given: what is learned from and asked, in a file: so a process has in memory what its backend looks at, and nothing twice.
        chosen, parts: see `exact_judge.draw`; no parts: nothing is judged.
    """

    backend: str
    settings: Mapping[str, Any]
    given: Mapped[Exam]
    chosen: np.ndarray
    parts: int

    def __call__(self) -> Outcome:
        exam = self.given.load()
        before, _ = memory()
        try:
            system = make(self.backend, **self.settings)
            answers, judged = [], None
            for number, one in enumerate(exam.rounds):
                found, learned = answer(exam, one, system)
                answers.append(found)
                if not number and self.parts:
                    judged = exactness(system, learned, exam.problem, self.chosen, self.parts)
        except RelcrfError as error:
            return Outcome(problem=error.diagnostics[0])
        return Outcome(tuple(answers), None, judged, before, memory()[1])


@dataclass(frozen=True)
class Comparison:
    """The outcome.

    Args:
        protocol: how labels were held out, in words.
        outcomes: by backend, as they were asked for.
        results: of `majority` and the backends that have answers.
    """

    protocol: str
    rounds: tuple[Round, ...]
    outcomes: Mapping[str, Outcome]
    results: Results
    leaks: Leaks

    def best(self, attribute: str) -> str:
        """The backend of the least log-loss; the majority where none has answers."""
        losses = {
            name: float(self.results.pooled(name, attribute).of_items["log_loss"].mean())
            for name, outcome in self.outcomes.items()
            if outcome.answers
        }
        return min(losses, key=losses.__getitem__, default=MAJORITY)

    def as_dict(self) -> dict[str, Any]:
        """For machines."""
        results = self.results
        attributes = {}
        for attribute in results.attributes:
            best = self.best(attribute)
            systems = {}
            for name in results.answers:
                figures = {measure: one.as_dict() for measure, one in results.figures(name, attribute).items()}
                gaps = {measure: gap.as_dict() for measure, gap in results.differences(name, best, attribute).items()}
                systems[name] = {**figures, "against_best": gaps}
            attributes[attribute] = {
                "n": len(results.pooled(MAJORITY, attribute).truth),
                "resampled": results.clusters(attribute).what,
                "best": best,
                "backends": systems,
            }
        return {
            "split": self.protocol,
            "rounds": [{"name": one.name, "held_out": int(one.held.sum())} for one in self.rounds],
            "attributes": attributes,
            "backends": {name: self._facts(name) for name in self.outcomes},
            "leaks": {**asdict(self.leaks), "transductive": self.leaks.transductive, "in_words": self.leaks.sentences},
        }

    def _facts(self, name: str) -> dict[str, Any]:
        outcome = self.outcomes[name]
        seconds = self.results.seconds(name) if outcome.answers else (None, None)
        return {
            "status": outcome.status,
            "error": None if outcome.problem is None else outcome.problem.as_dict(),
            "seconds_learn": seconds[0],
            "seconds_infer": seconds[1],
            "bytes_before": outcome.bytes_before,
            "bytes_peak": outcome.bytes_peak,
            "exactness": None if outcome.exactness is None else asdict(outcome.exactness),
        }


def compare(
    grounding: Grounding,
    backends: Sequence[str],
    split: Protocol | str = "random",
    *,
    repeats: int = 1,
    jobs: int = 1,
    limit: float = float("inf"),
    parts: int = PARTS,
    seed: int = 0,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    watch: Callable[[str, int], None] = lambda name, left: None,
) -> Comparison:
    """Judges backends by the same held-out labels, each in a fresh process of one thread.

    A backend that refuses the model, dies or takes too long has a row that says so. A script calls this below
    `if __name__ == "__main__":`.

    Args:
        split, repeats: see `cross_validate`.
        jobs: processes at a time. limit: seconds that one may take, for all its rounds.
        parts: of the graph, in which answers are judged by the true ones; 0: none are.
        seed: by which these are drawn.
        settings: of the backends, by their names.
        watch: is told which backend is done (at first none, ''), and how many are left.

    Raises:
        UsageError: for a backend, a setting or a split that is not, or no backends.
        DataError: where the split cannot be made, or leaves nothing to learn from.
    """
    names = list(dict.fromkeys(backends))
    if not names or jobs < 1:
        message = "there are no backends to compare" if not names else f"there cannot be {jobs} processes at a time"
        raise UsageError(Diagnostic("E354", message, hint="name some, such as --backends local,ess; and --jobs 2"))
    systems = {name: make(name, **dict((settings or {}).get(name, {}))) for name in names}
    plan = read_protocol(split) if isinstance(split, str) else split
    rounds = rounds_of(grounding, plan, repeats)
    plain = Exam.of(grounding, rounds)
    chosen, there = draw(plain.problem, parts, seed)
    outcomes: dict[str, Outcome] = {}
    folder = grounding.bound.dataset.store.folder()
    written: dict[bool, Mapped[Exam]] = {}
    trials: list[Trial] = []
    for name, system in systems.items():
        try:
            if system.chooses not in written:
                exam = Exam.of(grounding, rounds, with_candidates=system.chooses)
                written[system.chooses] = Mapped.written(exam, folder / f"exam{len(written)}")
        except RelcrfError as error:
            outcomes[name] = Outcome(problem=error.diagnostics[0])
        else:
            trials.append(Trial(name, asdict(system), written[system.chooses], chosen, there))
    left = len(trials)
    watch("", left)
    try:
        for done in each_apart(trials, jobs, limit):
            name, left = trials[done.number].backend, left - 1
            outcomes[name] = done.answer or Outcome(problem=_lost(name, done.why, limit))
            watch(name, left)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    answers = {MAJORITY: [by_frequency(plain, one) for one in rounds]}
    answers |= {name: list(outcomes[name].answers) for name in names if outcomes[name].answers}
    results = Results(answers, grounding.component)
    return Comparison(str(plan), rounds, {name: outcomes[name] for name in names}, results, leaks_of(grounding, rounds))


def _lost(name: str, why: str, limit: float) -> Diagnostic:
    """Why there is no answer from a process."""
    if why == "stopped":
        return Diagnostic("E355", f"backend '{name}' was stopped after {limit:g} seconds", hint="give a higher --limit")
    return Diagnostic("E355", f"the process of backend '{name}' died", hint="most often the system is out of memory")
