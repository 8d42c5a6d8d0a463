"""One system in one round: it learns from what is not held out, and is asked for the rest."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from relcrf.backends.base import AbstractBackend, Inferred, Learned, Monitor, Problem
from relcrf.backends.problems import training_problem
from relcrf.evaluation.held_out import HeldOut
from relcrf.evaluation.measures import Judged
from relcrf.evaluation.splits import Round
from relcrf.graph.reduction import Role
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.variables import VariableBlock


@dataclass(frozen=True)
class Exam:
    """What every system of a protocol is given. It can be pickled, and knows no tables.

    Args:
        problem: of learning from all labels.
        blocks: what is predicted; latent attributes are not.
    """

    problem: Problem
    rounds: tuple[Round, ...]
    blocks: tuple[VariableBlock, ...]

    @classmethod
    def of(cls, grounding: Grounding, rounds: Sequence[Round], *, with_candidates: bool = False) -> Exam:
        """Of a ground graph.

        Raises:
            DataError: where nothing is labelled. UsageError: for candidates that cannot be.
        """
        problem = training_problem(grounding, with_candidates=with_candidates)
        blocks = tuple(block for block in grounding.blocks if not block.is_latent)
        return cls(problem, tuple(rounds), blocks)

    def learning(self, one: Round) -> Problem:
        """What is left to learn from."""
        return _held(one).learning(self.problem)

    def asking(self, one: Round) -> Problem:
        """What is asked, all other labels being evidence: as `relcrf predict` asks for what is missing."""
        latent = (self.problem.roles == Role.FREE) & (self.problem.states < 0)
        return replace(_held(one).asking(self.problem), asked=~latent)


def _held(one: Round) -> HeldOut:
    return HeldOut(one.held, whole=False, unused=one.unused)


@dataclass(frozen=True, eq=False)
class Answers:
    """What one system says of one round.

    Args:
        variables: for each predicted attribute that has something held out, which, ascending, shape (n,).
        judged: their probabilities and their labels, by attribute.
        labels: how many it had to learn from, by attribute.
        seconds_learn, seconds_infer: of the processor, all threads together: the clock of a shared machine says little.
        converged: whether learning did, and inference.
    """

    round: str
    variables: Mapping[str, np.ndarray]
    judged: Mapping[str, Judged]
    labels: Mapping[str, int]
    seconds_learn: float
    seconds_infer: float
    converged: bool

    @property
    def learned_from(self) -> int:
        """Labels of all attributes."""
        return sum(self.labels.values())


def answer(exam: Exam, one: Round, system: AbstractBackend, monitor: Monitor | None = None) -> tuple[Answers, Learned]:
    """Learns, and asks.

    Raises:
        UsageError, DataError: where the system refuses the model or the data.
    """
    learning, asking = exam.learning(one), exam.asking(one)
    started = time.process_time()
    learned = system.fit(learning, monitor or Monitor())
    seconds_learn = time.process_time() - started
    started = time.process_time()
    found = system.infer(asking.having(learned.chosen), learned.vectors)
    seconds_infer = time.process_time() - started
    probabilities = {block.name: _probabilities(found, one, block) for block in exam.blocks}
    answers = _answers(exam, one, probabilities)
    converged = learned.converged and found.verdict.is_good
    return replace(answers, seconds_learn=seconds_learn, seconds_infer=seconds_infer, converged=converged), learned


def by_frequency(exam: Exam, one: Round) -> Answers:
    """The baseline of all: how often each state stands among the labels that are learned from, each counted once more."""
    started = time.process_time()
    problem = exam.learning(one)
    known = (problem.roles == Role.FREE) & (problem.states >= 0)
    probabilities = {}
    for block in exam.blocks:
        own = slice(block.start, block.start + block.count)
        counts = np.bincount(problem.states[own][known[own]], minlength=len(block.values)) + 1.0
        probabilities[block.name] = np.tile(counts / counts.sum(), (int(one.held[own].sum()), 1))
    return replace(_answers(exam, one, probabilities), seconds_learn=time.process_time() - started)


def _answers(exam: Exam, one: Round, probabilities: Mapping[str, np.ndarray]) -> Answers:
    variables, judged = {}, {}
    for block in exam.blocks:
        found = asked(one, block)
        if len(found):
            variables[block.name] = found
            judged[block.name] = Judged(probabilities[block.name], exam.problem.states[found])
    problem = exam.learning(one)
    known = (problem.roles == Role.FREE) & (problem.states >= 0)
    labels = {b.name: int(known[b.start : b.start + b.count].sum()) for b in exam.blocks}
    return Answers(one.name, variables, judged, labels, 0.0, 0.0, converged=True)


def asked(one: Round, block: VariableBlock) -> np.ndarray:
    """The variables of a block that a round asks for, ascending, shape (n,)."""
    return block.start + np.flatnonzero(one.held[block.start : block.start + block.count])


def _probabilities(found: Inferred, one: Round, block: VariableBlock) -> np.ndarray:
    """Marginals of what is held out of a block, shape (n, n_values)."""
    start = found.state_start[np.searchsorted(found.variables, asked(one, block))]
    return np.asarray(found.marginals[start[:, None] + np.arange(len(block.values))])
