"""The nearest change of evidence that gives a variable another answer.

What may change, one at a time: the known state of a variable that shares a factor with it, and the evidence of its own: a
value of a bag that is there or is not, a categorical value, a boolean one, or that a template without keys speaks of it at all.
Changes are ordered by what they would do if only the factors of the variable changed; the first of these are made and the
answer is inferred anew, so that what is told of them is no estimate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from relcrf.backends.base import Problem
from relcrf.evaluation.explanation import ExplanationCase, select_states
from relcrf.graph.factor_graph import FactorGroup
from relcrf.graph.features import Dense, Sparse
from relcrf.graph.reduction import Role
from relcrf.grounding.bindings import find_factors
from relcrf.grounding.blocks import TemplateInfo
from relcrf.inference.attribution import MIN_PROBABILITY, log_odds_direction
from relcrf.kernels.distinct import distinct
from relcrf.model.expressions import Attribute

MAX_ADDED_VALUES = 10
"""Values of one template that are not there, those that would do the most."""

MAX_INFERENCES = 20
"""Changes that are made at each step."""

MAX_CHANGES = 5
"""Changes that are made together."""


@dataclass(frozen=True)
class EvidenceChange:
    """A change of evidence.

    Args:
        subject: a neighbour's name; or the template, and its key.
        before, after: states, keys, or values.
    """

    subject: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.before} -> {self.after}"


@dataclass(frozen=True)
class Flip:
    """What some changes together lead to.

    Args:
        log_odds: of the old answer against the state that it was compared with, in nats.
        probability: of the new answer.
    """

    changes: tuple[EvidenceChange, ...]
    answer: str
    probability: float
    log_odds: float


@dataclass(frozen=True)
class FlipSearch:
    """
    Args:
        single: changes that were made alone, those of the least log odds first.
        nearest: as few changes as were found that give another answer, at most `MAX_CHANGES`; None where none were.
        n_candidates: changes that there are.
        n_inferences: how often the answer was inferred anew.
    """

    answer: str
    single: tuple[Flip, ...]
    nearest: Flip | None
    n_candidates: int
    n_inferences: int
    seconds: float


@dataclass(frozen=True, eq=False)
class _CandidateChange:
    """A change, what it would add to the log odds, in nats, and the function that returns a problem with it."""

    change: EvidenceChange
    estimate: float
    apply: Callable[[Problem], Problem]


def _with_state(variable: int, state: int, problem: Problem) -> Problem:
    states = problem.states.copy()
    states[variable] = state
    return replace(problem, states=states)


def _with_factor(factor: FactorGroup, problem: Problem) -> Problem:
    return replace(problem, graph=replace(problem.graph, groups=(*problem.graph.groups, factor)))


def find_flips(case: ExplanationCase, against: str | None = None) -> FlipSearch:
    """Single changes, and if none of them does, more one after the other, each the best of its step.

    Args:
        against: towards which state; None is the second most probable one. Any other answer counts.

    Raises:
        UsageError: for an unknown state, the answer itself, or a variable with a single state.
    """
    started = time.perf_counter()
    before, _ = case.infer()
    state, other = select_states(case, before, against)
    direction = log_odds_direction(len(before), state, other)
    problem, done = case.problem, set[str]()
    made: tuple[EvidenceChange, ...] = ()
    single: tuple[Flip, ...] = ()
    nearest, considered, inferred = None, 0, 0
    for step in range(MAX_CHANGES):
        candidates = [one for one in _candidates(case, problem, direction) if one.change.subject not in done]
        if not step:
            considered = len(candidates)
        chosen = sorted(candidates, key=lambda one: one.estimate)[:MAX_INFERENCES]
        tried = [(_infer_flip(case, one.apply(problem), (*made, one.change), direction), one) for one in chosen]
        inferred += len(tried)
        tried.sort(key=lambda pair: pair[0].log_odds)
        if not step:
            single = tuple(flip for flip, _ in tried)
        flipped = [flip for flip, _ in tried if flip.answer != case.block.values[state]]
        if flipped or not tried:
            nearest = flipped[0] if flipped else None
            break
        best, one = tried[0]
        problem, made = one.apply(problem), best.changes
        done.add(one.change.subject)
    return FlipSearch(case.block.values[state], single, nearest, considered, inferred, time.perf_counter() - started)


def _infer_flip(
    case: ExplanationCase, problem: Problem, changes: tuple[EvidenceChange, ...], direction: np.ndarray
) -> Flip:
    found, _ = case.infer(problem)
    best = int(found.argmax())
    log_odds = float(direction @ np.log(np.maximum(found, MIN_PROBABILITY)))
    return Flip(changes, case.block.values[best], float(found[best]), log_odds)


def _candidates(case: ExplanationCase, problem: Problem, direction: np.ndarray) -> Iterator[_CandidateChange]:
    """All changes, of which of those that add values only the best."""
    known: dict[tuple[int, int], float] = {}
    for number, group in enumerate(problem.graph.groups):
        if number >= len(case.grounding.group_names):
            continue  # a change that was made before
        touched = distinct(
            np.concatenate([find_factors(group.scope, place, case.variable) for place in range(len(group.scope))])
        )
        if len(group.scope) == 1:
            yield from _local_changes(case, problem, number, touched, direction)
            continue
        for factor in touched:
            for place, amount in _neighbour_changes(case, problem, group, int(factor), direction):
                known[place] = known.get(place, 0.0) + amount
    for (variable, state), estimate in sorted(known.items()):
        values = case.grounding.find_block(variable).values
        change = EvidenceChange(case.grounding.variable_name(variable), values[problem.states[variable]], values[state])
        yield _CandidateChange(change, estimate, partial(_with_state, variable, state))


def _neighbour_changes(
    case: ExplanationCase, problem: Problem, group: FactorGroup, factor: int, direction: np.ndarray
) -> Iterator[tuple[tuple[int, int], float]]:
    """What other states of the known variables of a factor would change, as far as it joins them to the variable alone."""
    scope = [int(place[factor]) for place in group.scope]
    matrix = problem.graph.layout.matrix(case.vectors["weights"], group.block)
    (scores,) = group.features.scores(matrix, np.array([factor]))
    table = scores if group.patterns is None else group.patterns @ scores
    own = sum(stride for one, stride in zip(scope, group.strides, strict=True) if one == case.variable)
    states = np.maximum(problem.states[scope], 0)
    rest = sum(
        int(state) * stride
        for one, state, stride in zip(scope, states, group.strides, strict=True)
        if one != case.variable
    )
    cells = rest + own * np.arange(len(direction))
    for variable in {one for one in scope if problem.roles[one] == Role.CLAMPED}:
        stride = sum(step for one, step in zip(scope, group.strides, strict=True) if one == variable)
        for state in range(int(problem.graph.cardinality[variable])):
            moved = cells + stride * (state - int(problem.states[variable]))
            if state != problem.states[variable]:
                yield (variable, state), float(direction @ (table[moved] - table[cells]))


def _local_changes(
    case: ExplanationCase, problem: Problem, number: int, factors: np.ndarray, direction: np.ndarray
) -> Iterator[_CandidateChange]:
    """Other values of the evidence that one template looks at, of the variable alone."""
    group, name = problem.graph.groups[number], case.grounding.group_names[number]
    some = np.asarray(group.scope[0][:1])
    if not len(some) or not case.block.start <= some[0] < case.block.start + case.block.count:
        return
    patterns = np.eye(len(direction)) if group.patterns is None else group.patterns
    matrix = problem.graph.layout.matrix(case.vectors["weights"], group.block)
    there = tuple(entry for factor in factors for entry in group.features.row(int(factor)))
    own = _TemplateEvidence(
        case, group, name, case.grounding.templates[group.block], there, matrix @ (direction @ patterns)
    )
    if own.info.keys is None:
        yield from own.unkeyed_changes()
    elif _is_categorical(case, name):
        yield from own.category_changes(own.info.keys.values)
    elif len(own.info.features) == 1:
        yield from own.bag_changes()


@dataclass(frozen=True, eq=False)
class _TemplateEvidence:
    """What one template looks at of a variable.

    Args:
        entries: features and their values.
        coefficients: of a feature's value, for the log odds, in nats; shape (n_features,).
    """

    case: ExplanationCase
    group: FactorGroup
    name: str
    info: TemplateInfo
    entries: tuple[tuple[int, float], ...]
    coefficients: np.ndarray

    def bag_changes(self) -> Iterator[_CandidateChange]:
        """Each key without its value, and with one where it has none."""
        for feature, value in self.entries:
            yield self._build_candidate(self._key_text(feature), f"{value:g}", "0", [(feature, -value)])
        absent = np.setdiff1d(np.arange(len(self.coefficients)), [feature for feature, _ in self.entries])
        for feature in absent[np.argsort(self.coefficients[absent], kind="stable")[:MAX_ADDED_VALUES]].tolist():
            yield self._build_candidate(self._key_text(feature), "0", "1", [(feature, 1.0)])

    def unkeyed_changes(self) -> Iterator[_CandidateChange]:
        """Features that are 0 or 1 and nothing else; and whether the template speaks of the variable, where not of all."""
        features = self.group.features
        if features.rows_are_equal and self.group.n_factors < self.case.block.count:
            before, after = ("true", "false") if self.entries else ("false", "true")
            entries = [(feature, -value) for feature, value in self.entries] or [(0, 1.0)]
            yield self._build_candidate("", before, after, entries)
        if isinstance(features, Dense):
            values, now = features.values, dict(self.entries)
            switches = np.isin(values, (0.0, 1.0)).all(axis=0) & (np.ptp(values, axis=0) > 0)
            for feature in np.flatnonzero(switches).tolist():
                value = now.get(feature, 0.0)
                entries = [(feature, 1.0 - 2.0 * value)]
                yield self._build_candidate(self.info.features[feature], f"{value:g}", f"{1.0 - value:g}", entries)

    def category_changes(self, keys: Sequence[tuple[str, ...]]) -> Iterator[_CandidateChange]:
        """Another key in place of the only one."""
        width = len(self.info.features)
        found = {feature // width for feature, _ in self.entries}
        if len(found) != 1:
            return
        (old,) = found
        for new in range(len(keys)):
            if new != old:
                entries = [(feature, -value) for feature, value in self.entries]
                entries += [(feature + (new - old) * width, value) for feature, value in self.entries]
                yield self._build_candidate("", ", ".join(keys[old]), ", ".join(keys[new]), entries)

    def _build_candidate(
        self, subject: str, before: str, after: str, entries: Sequence[tuple[int, float]]
    ) -> _CandidateChange:
        """Entries that are added to the variable's features, by a factor of its own."""
        columns = np.array([feature for feature, _ in entries], dtype=np.int32)
        values = np.array([value for _, value in entries], dtype=np.float64)
        features = Sparse(np.array([0, len(entries)], dtype=np.int64), columns, values, self.group.features.n_features)
        scope = (np.array([self.case.variable], dtype=np.int32),)
        change = EvidenceChange(f"{self.name} {subject}".strip(), before, after)
        factor = replace(self.group, scope=scope, features=features)
        return _CandidateChange(change, float(values @ self.coefficients[columns]), partial(_with_factor, factor))

    def _key_text(self, feature: int) -> str:
        return ", ".join(self.info.feature_name(feature)[0])


def _is_categorical(case: ExplanationCase, template: str) -> bool:
    """Whether its keys are attributes, of which a thing has one value each."""
    keys = next((t.per for t in case.grounding.spec.flatten().templates if t.name == template), ())
    return bool(keys) and all(isinstance(key, Attribute) for key in keys)
