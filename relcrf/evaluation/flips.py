"""Counterfactual explanations: the smallest change of evidence that flips the prediction of a variable.

A change replaces one item of evidence. The item is the observed state of a neighbour (a variable that shares a factor
with the explained variable), or an item of local evidence: whether a bag contains a value, a categorical or boolean
value, or whether a template without `per` applies. Possible changes are ranked by a first-order estimate, which uses
only the factors over the explained variable. If the backend propagates labels, an item is any label with an influence on
the variable, and the estimate is its effect on the scores. Inference is then repeated with each of the best changes. The
reported probabilities are therefore not estimates.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from relcrf.backends.base import Problem
from relcrf.errors import Diagnostic, UsageError
from relcrf.evaluation.contributions import discrete_group_names
from relcrf.evaluation.explanation import ExplanationCase, select_states
from relcrf.evaluation.propagation_contributions import PropagationContributions
from relcrf.graph.factor_graph import FactorGroup
from relcrf.graph.features import Dense, Sparse
from relcrf.graph.reduction import Role
from relcrf.grounding.bindings import find_factors
from relcrf.grounding.blocks import TemplateInfo
from relcrf.grounding.entity_values import find_computed_values
from relcrf.inference.attribution import MIN_PROBABILITY, log_odds_direction
from relcrf.kernels.distinct import distinct
from relcrf.model.expressions import Name
from relcrf.model.rules import all_templates

MAX_ADDED_VALUES = 10
"""Maximum number of absent values per template whose addition is considered: the values with the best estimates."""

MAX_INFERENCES = 20
"""Maximum number of changes per step for which inference is repeated."""

MAX_CHANGES = 5
"""Maximum number of combined changes."""


@dataclass(frozen=True)
class EvidenceChange:
    """A change of one item of evidence.

    Args:
        subject: The name of a neighbour, or the names of a template and of one of its keys.
        before, after: The state, key or value before and after the change.
    """

    subject: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.before} -> {self.after}"


@dataclass(frozen=True)
class Flip:
    """The prediction after a set of changes of the evidence.

    Args:
        probability: The probability of the new prediction.
        log_odds: The log odds of the original prediction against the state to compare with, in nats.
    """

    changes: tuple[EvidenceChange, ...]
    answer: str
    probability: float
    log_odds: float


@dataclass(frozen=True)
class FlipSearch:
    """The result of a search for evidence changes that flip a prediction.

    Args:
        single: The tested single changes, in ascending order of the log odds of the original prediction.
        nearest: The smallest set found, with at most `MAX_CHANGES` changes, that flips the prediction; None if no set
            was found.
        n_candidates: The number of possible single changes.
        n_inferences: The number of times that inference was repeated.
    """

    answer: str
    single: tuple[Flip, ...]
    nearest: Flip | None
    n_candidates: int
    n_inferences: int
    seconds: float


@dataclass(frozen=True, eq=False)
class _CandidateChange:
    """A change with its estimated effect on the log odds, in nats, and the function that applies it to a problem."""

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
    """Search for changes that flip the prediction: each step greedily adds the best change to those of earlier steps.

    Args:
        against: The state to compare with: changes are ranked by the log odds of the prediction against this state.
            Default: the second most probable state. A change of the prediction to any state counts as a flip.

    Raises:
        UsageError: The state is unknown or is the prediction itself, or the variable has a single state (E356); the variable
            is a number (E379).
    """
    if case.block.is_numeric:
        message = f"{case.block.name} is a number, whose prediction has no value to change to another one"
        raise UsageError(
            Diagnostic("E379", message, hint="read the contributions: they show the effect of each known number")
        )
    started = time.perf_counter()
    before, _ = case.infer()
    state, other = select_states(case, before, against)
    direction = log_odds_direction(len(before), state, other)
    problem, changed = case.problem, set[str]()
    applied: tuple[EvidenceChange, ...] = ()
    single: tuple[Flip, ...] = ()
    nearest, n_candidates, n_inferences = None, 0, 0
    for step in range(MAX_CHANGES):
        candidates = [
            candidate for candidate in _candidates(case, problem, direction) if candidate.change.subject not in changed
        ]
        if not step:
            n_candidates = len(candidates)
        chosen = sorted(candidates, key=lambda candidate: candidate.estimate)[:MAX_INFERENCES]
        tried = [
            (_infer_flip(case, candidate.apply(problem), (*applied, candidate.change), direction), candidate)
            for candidate in chosen
        ]
        n_inferences += len(tried)
        tried.sort(key=lambda pair: pair[0].log_odds)
        if not step:
            single = tuple(flip for flip, _ in tried)
        flipped = [flip for flip, _ in tried if flip.answer != case.block.values[state]]
        if flipped or not tried:
            nearest = flipped[0] if flipped else None
            break
        best, candidate = tried[0]
        problem, applied = candidate.apply(problem), best.changes
        changed.add(candidate.change.subject)
    return FlipSearch(
        case.block.values[state], single, nearest, n_candidates, n_inferences, time.perf_counter() - started
    )


def _infer_flip(
    case: ExplanationCase, problem: Problem, changes: tuple[EvidenceChange, ...], direction: np.ndarray
) -> Flip:
    probabilities, _ = case.infer(problem)
    best = int(probabilities.argmax())
    log_odds = float(direction @ np.log(np.maximum(probabilities, MIN_PROBABILITY)))
    return Flip(changes, case.block.values[best], float(probabilities[best]), log_odds)


def _candidates(case: ExplanationCase, problem: Problem, direction: np.ndarray) -> Iterator[_CandidateChange]:
    """Yield all possible changes, but only the best `MAX_ADDED_VALUES` additions of values per template."""
    if (propagated := case.propagated_contributions(problem)) is not None:
        yield from _label_changes(case, propagated, direction)
        return
    estimates: dict[tuple[int, int], float] = {}
    names = discrete_group_names(case.grounding)
    for number, group in enumerate(problem.graph.groups):
        if number >= len(names):
            continue  # the group was added by a change of an earlier step
        factors = distinct(
            np.concatenate([find_factors(group.scope, place, case.variable) for place in range(len(group.scope))])
        )
        if len(group.scope) == 1:
            yield from _local_changes(case, problem, group, names[number], factors, direction)
            continue
        for factor in factors:
            for target, amount in _neighbour_changes(case, problem, group, int(factor), direction):
                estimates[target] = estimates.get(target, 0.0) + amount
    for (variable, state), estimate in sorted(estimates.items()):
        yield _relabelling(case, variable, int(problem.states[variable]), state, estimate)


def _relabelling(case: ExplanationCase, variable: int, before: int, after: int, estimate: float) -> _CandidateChange:
    """Return the change of the observed state of a variable."""
    values = case.grounding.find_block(variable).values
    change = EvidenceChange(case.grounding.variable_name(variable), values[before], values[after])
    return _CandidateChange(change, estimate, partial(_with_state, variable, after))


def _label_changes(
    case: ExplanationCase, propagated: PropagationContributions, direction: np.ndarray
) -> Iterator[_CandidateChange]:
    """Yield the changes of the `MAX_INFERENCES` labels that can reduce the difference of scores most."""
    labels, influence = propagated.labels, propagated.influence()
    labelled = np.flatnonzero(labels >= 0)
    largest_loss = influence[labelled] * (direction[labels[labelled]] - direction.min())
    labelled = labelled[largest_loss > 0.0][np.argsort(-largest_loss[largest_loss > 0.0], kind="stable")]
    for row in labelled[:MAX_INFERENCES].tolist():
        variable, before = int(propagated.propagation.links.variables[row]), int(labels[row])
        for after in np.flatnonzero(np.arange(len(direction)) != before).tolist():
            yield _relabelling(case, variable, before, after, influence[row] * (direction[after] - direction[before]))


def _neighbour_changes(
    case: ExplanationCase, problem: Problem, group: FactorGroup, factor: int, direction: np.ndarray
) -> Iterator[tuple[tuple[int, int], float]]:
    """Yield ((variable, state), estimated effect) for each alternative state of each observed variable of a factor."""
    scope = [int(place[factor]) for place in group.scope]
    matrix = problem.graph.layout.matrix(case.vectors["weights"], group.block)
    (scores,) = group.features.scores(matrix, np.array([factor]))
    table = scores if group.patterns is None else group.patterns @ scores
    own_stride = sum(stride for one, stride in zip(scope, group.strides, strict=True) if one == case.variable)
    states = np.maximum(problem.states[scope], 0)
    rest = sum(
        int(state) * stride
        for one, state, stride in zip(scope, states, group.strides, strict=True)
        if one != case.variable
    )
    cells = rest + own_stride * np.arange(len(direction))
    for variable in {one for one in scope if problem.roles[one] == Role.CLAMPED}:
        stride = sum(step for one, step in zip(scope, group.strides, strict=True) if one == variable)
        for state in range(int(problem.graph.cardinality[variable])):
            changed_cells = cells + stride * (state - int(problem.states[variable]))
            if state != problem.states[variable]:
                yield (variable, state), float(direction @ (table[changed_cells] - table[cells]))


def _local_changes(
    case: ExplanationCase, problem: Problem, group: FactorGroup, name: str, factors: np.ndarray, direction: np.ndarray
) -> Iterator[_CandidateChange]:
    """Yield the changes of the variable's local evidence in one template, whose name is `name`."""
    first = np.asarray(group.scope[0][:1])
    if not len(first) or not case.block.start <= first[0] < case.block.start + case.block.count:
        return
    spec = case.grounding.spec
    template = next((each for each in all_templates(spec) if each.name == name), None)
    if template is not None and any(find_computed_values(spec, template, template.by)):
        return  # a computed value is not an item of evidence
    patterns = np.eye(len(direction)) if group.patterns is None else group.patterns
    matrix = problem.graph.layout.matrix(case.vectors["weights"], group.block)
    values: dict[int, float] = {}  # several bindings of a variable may have the same key
    for feature, value in (entry for factor in factors for entry in group.features.row(int(factor))):
        values[feature] = values.get(feature, 0.0) + value
    entries = tuple((feature, value) for feature, value in values.items() if value != 0.0)
    evidence = _TemplateEvidence(
        case, group, name, case.grounding.templates[group.block], entries, matrix @ (direction @ patterns)
    )
    if evidence.info.keys is None:
        yield from evidence.unkeyed_changes()
    elif _is_categorical(case, name):
        yield from evidence.category_changes(evidence.info.keys.values)
    elif len(evidence.info.features) == 1:
        yield from evidence.bag_changes()


@dataclass(frozen=True, eq=False)
class _TemplateEvidence:
    """The local evidence of a variable in one template.

    Args:
        entries: The nonzero features and their values.
        coefficients: The change of the log odds per unit of each feature, in nats, shape (n_features,).
    """

    case: ExplanationCase
    group: FactorGroup
    name: str
    info: TemplateInfo
    entries: tuple[tuple[int, float], ...]
    coefficients: np.ndarray

    def bag_changes(self) -> Iterator[_CandidateChange]:
        """Yield the removal of each present key and the addition of the best absent keys."""
        for feature, value in self.entries:
            yield self._build_candidate(self._key_text(feature), f"{value:g}", "0", [(feature, -value)])
        absent = np.setdiff1d(np.arange(len(self.coefficients)), [feature for feature, _ in self.entries])
        for feature in absent[np.argsort(self.coefficients[absent], kind="stable")[:MAX_ADDED_VALUES]].tolist():
            yield self._build_candidate(self._key_text(feature), "0", "1", [(feature, 1.0)])

    def unkeyed_changes(self) -> Iterator[_CandidateChange]:
        """Yield a switch of each binary feature, and of the template if it does not apply to all variables."""
        features = self.group.features
        if features.rows_are_equal and self.group.n_factors < self.case.block.count:
            before, after = ("true", "false") if self.entries else ("false", "true")
            entries = [(feature, -value) for feature, value in self.entries] or [(0, 1.0)]
            yield self._build_candidate("", before, after, entries)
        if isinstance(features, Dense):
            values, current = features.values, dict(self.entries)
            switches = np.isin(values, (0.0, 1.0)).all(axis=0) & (np.ptp(values, axis=0) > 0)
            for feature in np.flatnonzero(switches).tolist():
                value = current.get(feature, 0.0)
                entries = [(feature, 1.0 - 2.0 * value)]
                yield self._build_candidate(self.info.features[feature], f"{value:g}", f"{1.0 - value:g}", entries)

    def category_changes(self, keys: Sequence[tuple[str, ...]]) -> Iterator[_CandidateChange]:
        """Yield the replacement of the single key by every other key."""
        width = len(self.info.features)
        present_keys = {feature // width for feature, _ in self.entries}
        if len(present_keys) != 1:
            return
        (old,) = present_keys
        for new in range(len(keys)):
            if new != old:
                entries = [(feature, -value) for feature, value in self.entries]
                entries += [(feature + (new - old) * width, value) for feature, value in self.entries]
                yield self._build_candidate("", ", ".join(keys[old]), ", ".join(keys[new]), entries)

    def _build_candidate(
        self, subject: str, before: str, after: str, entries: Sequence[tuple[int, float]]
    ) -> _CandidateChange:
        """Build a change that adds a factor with the features `entries` to the variable."""
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
    """Return True if the keys of a template are expressions, which have a single value per binding, not binders."""
    keys = next((t.per for t in case.grounding.spec.flatten().templates if t.name == template), ())
    return bool(keys) and not any(isinstance(key, Name) for key in keys)
