"""Why a variable's answer is what it is: signed contributions of named templates and neighbours that add up to its log odds.

For how the log odds are divided see `inference/attribution.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from relcrf.backends.base import AbstractBackend, InferenceResult, Problem
from relcrf.backends.inference_task import InferenceTask
from relcrf.backends.learned_model import LearnedModel
from relcrf.backends.problems import query_problem
from relcrf.backends.registry import make_backend
from relcrf.errors import Diagnostic, UsageError, listing, suggestion
from relcrf.graph.components import label_components
from relcrf.graph.local_factors import FactorBundle, LocalFactor, bundle_factors
from relcrf.graph.reduction import Role
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.variables import VariableBlock
from relcrf.inference.attribution import MIN_PROBABILITY, FactorMessage, log_odds_direction
from relcrf.inference.result import Verdict


@dataclass(frozen=True)
class FeatureContribution:
    """What one feature of a template contributes, for a key ('' where there is none), in nats.

    Args:
        value: of the feature; of a gated factor times how far its gate is open.
    """

    template: str
    key: str
    feature: str
    value: float
    amount: float


@dataclass(frozen=True)
class Neighbour:
    """Another variable.

    Args:
        state: what is known of it, or else the most probable state, without what the explained variable tells it.
        probability: of this state; 1 where it is known.
    """

    name: str
    state: str
    probability: float
    is_observed: bool

    def __str__(self) -> str:
        return f"{self.name} = {self.state}" + ("" if self.is_observed else f" ({self.probability:.2f})")


@dataclass(frozen=True)
class Contribution:
    """What some templates contribute, in nats; above 0 it speaks for the answer.

    Args:
        kind: `itself`, `evidence` (a neighbour that is known) or `neighbour` (one that is not); in the sources of a neighbour
            besides `start`, where nothing is known of it, and `interaction`, which its sources leave over.
        features: of the features, the largest first; they add up to the amount.
        sources: what a neighbour's belief is from, which adds up to the amount, too; empty where it was not opened.
    """

    kind: str
    templates: tuple[str, ...]
    neighbours: tuple[Neighbour, ...]
    amount: float
    features: tuple[FeatureContribution, ...] = ()
    sources: tuple[Contribution, ...] = ()


@dataclass(frozen=True)
class Explanation:
    """The answer for one variable: `log_odds` is the sum of the contributions and of the remainder.

    Args:
        answer, against: the state that is explained, and the one that it is compared with.
        probabilities: of all states.
        log_odds: of the answer against the other state, in nats.
        contributions: the largest first.
        remainder: what they leave over, in nats: the interaction of neighbours that depend on each other besides; 0 but for
            rounding where the factors form a forest and inference is exact.
        truth: the label in the data, which was hidden for this; None where there is none.
    """

    variable: str
    answer: str
    against: str
    probabilities: Mapping[str, float]
    log_odds: float
    contributions: tuple[Contribution, ...]
    remainder: float
    truth: str | None
    verdict: Verdict
    seconds: float

    def by_template(self) -> dict[str, float]:
        """The sum of each template's parts, in nats, the largest first; without the remainder."""
        found: dict[str, float] = {}
        for part in (part for one in self.contributions for part in one.features):
            found[part.template] = found.get(part.template, 0.0) + part.amount
        return dict(sorted(found.items(), key=lambda item: -abs(item[1])))


@dataclass(frozen=True, eq=False)
class ExplanationCase:
    """A variable that is asked for, with all that its answer depends on.

    Args:
        problem: of the variable's component alone, where the backend takes components apart.
        node: of the variable among the free ones.
    """

    system: AbstractBackend
    grounding: Grounding
    vectors: dict[str, np.ndarray]
    problem: Problem
    variable: int

    @classmethod
    def from_model(
        cls,
        learned: LearnedModel,
        grounding: Grounding,
        variable: int,
        hidden: np.ndarray | None = None,
        **settings: Any,
    ) -> ExplanationCase:
        """The question about a variable, whose label is hidden; the other known ones are evidence.

        Args:
            hidden: further variables whose labels are hidden, shape (n_variables,), bool.
            settings: of the backend, in place of those that it was trained with.
        """
        system = make_backend(learned.backend, **{**learned.settings, **settings})
        alone = np.arange(len(grounding.states)) == variable
        grounding, vectors, problem = query_problem(learned, grounding, alone if hidden is None else hidden | alone)
        if not system.unshardable_reason:
            other = label_components(problem.graph, problem.roles)
            apart = (problem.roles == Role.FREE) & (other != other[variable])
            problem = replace(problem, roles=np.where(apart, Role.ABSENT, problem.roles).astype(np.int8))
        return cls(system, grounding, vectors, problem, variable)

    @cached_property
    def block(self) -> VariableBlock:
        return self.grounding.find_block(self.variable)

    def infer(self, problem: Problem | None = None) -> tuple[np.ndarray, InferenceResult]:
        """The marginal of the variable, shape (n_states,), and the whole answer; under other evidence, too."""
        found = self.system.infer(self.problem if problem is None else problem, self.vectors)
        node = int(np.searchsorted(found.variables, self.variable))
        return found.marginals[found.state_start[node] : found.state_start[node + 1]], found

    def state_index(self, text: str) -> int:
        """The state of that name.

        Raises:
            UsageError: where there is none.
        """
        values = self.block.values
        if text not in values:
            hint = suggestion(text, values) or f"the values are {listing(values)}"
            raise UsageError(Diagnostic("E356", f"{self.block.name} is never '{text}'", hint=hint))
        return values.index(text)


def explain(case: ExplanationCase, against: str | None = None, depth: int = 1) -> Explanation:
    """The most probable state's log odds, divided.

    Args:
        against: the state to compare with; None is the second most probable one.
        depth: 1 gives each neighbour's message whole; 2 divides it by what the neighbour has its belief from, and so on.

    Raises:
        UsageError: for an unknown state, the answer itself, a variable with a single state, or a backend that does not say
            what it answers from.
    """
    started = time.perf_counter()
    probabilities, inferred = case.infer()
    state, other = select_states(case, probabilities, against)
    direction = log_odds_direction(len(probabilities), state, other)
    found = []
    for answering in case.system.inference_tasks(case.problem, case.vectors):
        node = int(np.searchsorted(answering.graph.variables, case.variable))
        found.append(tuple(_ContributionBuilder(case, answering).contributions(node, direction, (), depth)))
    contributions = _mean_contributions(found, len(found))
    log_odds = float(direction @ np.log(np.maximum(probabilities, MIN_PROBABILITY)))
    truth = int(case.grounding.states[case.variable])
    values = case.block.values
    return Explanation(
        case.grounding.variable_name(case.variable),
        values[state],
        values[other],
        dict(zip(values, probabilities.tolist(), strict=True)),
        log_odds,
        contributions,
        log_odds - sum(one.amount for one in contributions),
        None if truth < 0 else values[truth],
        inferred.verdict,
        time.perf_counter() - started,
    )


def select_states(case: ExplanationCase, probabilities: np.ndarray, against: str | None) -> tuple[int, int]:
    """The most probable state and the one to compare it with; for errors see `explain`."""
    if len(probabilities) < 2:
        message = f"{case.block.name} has a single state, which nothing speaks against"
        raise UsageError(Diagnostic("E356", message, hint="explain a variable of several states"))
    order = np.argsort(-probabilities, kind="stable")
    state, other = int(order[0]), int(order[1]) if against is None else case.state_index(against)
    if state == other:
        message = f"'{against}' is the answer itself"
        hint = f"compare it with another of {listing(case.block.values)}"
        raise UsageError(Diagnostic("E356", message, hint=hint))
    return state, other


@dataclass(frozen=True, eq=False)
class _ContributionBuilder:
    """Divides what a graph says of its nodes, and names the parts."""

    case: ExplanationCase
    answering: InferenceTask

    def contributions(
        self, node: int, direction: np.ndarray, removed: tuple[int, ...], depth: int
    ) -> Iterator[Contribution]:
        """What a node's factors say, the largest first.

        Args:
            direction: of the node's states. without: nodes that are taken out.
        """
        answering = self.answering
        taken = () if answering.is_mean_field else (*removed, node)
        bundles = [b for b in bundle_factors(answering.graph, node) if not set(b.others) & set(taken)]
        beliefs = answering.beliefs(taken) if any(bundle.others for bundle in bundles) else np.empty(0)
        found: list[Contribution] = []
        for bundle in bundles:
            if not bundle.others:
                found += self._unary_contributions(node, bundle, direction)
            else:
                found.append(self._message_contribution(bundle, node, direction, taken, beliefs, depth))
        yield from sorted(found, key=lambda one: -abs(one.amount))

    def _unary_contributions(self, node: int, bundle: FactorBundle, direction: np.ndarray) -> Iterator[Contribution]:
        """What the node has for itself, by template, and what known neighbours say, each for itself."""
        grouped: dict[tuple[str, tuple[int, ...]], list[LocalFactor]] = {}
        for piece in bundle.factors:
            known = self._observed_scope(piece)
            template = "" if known else self.case.grounding.group_names[piece.group]
            grouped.setdefault((template, known), []).append(piece)
        for (_, known), pieces in grouped.items():
            neighbours = tuple(self._observed_neighbour(variable) for variable in known)
            yield self._build_contribution("evidence" if known else "itself", neighbours, pieces, direction[:, None])

    def _message_contribution(
        self,
        bundle: FactorBundle,
        node: int,
        direction: np.ndarray,
        removed: tuple[int, ...],
        beliefs: np.ndarray,
        depth: int,
    ) -> Contribution:
        """What neighbours say that are not known, and others that are known in the same factors."""
        answering = self.answering
        potential = bundle.log_potentials(answering.graph.graph, answering.weights)
        each = [self._belief(beliefs, other) for other in bundle.others]
        joint = each[0]
        for belief in each[1:]:
            joint = np.outer(joint, belief).ravel()
        message = FactorMessage(potential, joint, answering.is_mean_field)
        free = tuple(self._neighbour(other, belief) for other, belief in zip(bundle.others, each, strict=True))
        known = sorted({variable for piece in bundle.factors for variable in self._observed_scope(piece)})
        neighbours = (*free, *(self._observed_neighbour(variable) for variable in known))
        kind = "evidence" if all(one.is_observed for one in neighbours) else "neighbour"
        told = self._build_contribution(kind, neighbours, bundle.factors, message.cell_contributions(direction))
        if depth < 2 or len(each) > 1 or free[0].is_observed:
            return told
        start, inner = message.belief_contributions(direction)
        sources = [
            Contribution("start", (), free, start),
            *self.contributions(bundle.others[0], inner, removed, depth - 1),
        ]
        rest = told.amount - sum(one.amount for one in sources)
        return replace(told, sources=(*sources, Contribution("interaction", (), free, rest)))

    def _build_contribution(
        self, kind: str, neighbours: tuple[Neighbour, ...], pieces: Sequence[LocalFactor], shares: np.ndarray
    ) -> Contribution:
        """
        Args:
            shares: what a nat of each cell adds, shape (n_states, n_others).
        """
        parts = _merge_features(part for piece in pieces for part in self._feature_contributions(piece, shares))
        templates = tuple(dict.fromkeys(part.template for part in parts))
        return Contribution(kind, templates, neighbours, sum(part.amount for part in parts), parts)

    def _feature_contributions(self, piece: LocalFactor, shares: np.ndarray) -> Iterator[FeatureContribution]:
        graph = self.answering.graph.graph
        group = graph.groups[piece.group]
        info = self.case.grounding.templates[group.block]
        expected = np.einsum("st,stp->p", shares, piece.patterns(graph))
        amounts = graph.layout.matrix(self.answering.weights, group.block) @ expected
        for feature, value in group.features.row(piece.factor):
            key, name = info.feature_name(feature)
            template = self.case.grounding.group_names[piece.group]
            yield FeatureContribution(template, ", ".join(key), name, value, value * float(amounts[feature]))

    def _observed_scope(self, piece: LocalFactor) -> tuple[int, ...]:
        """The known variables of a factor, ascending."""
        if self.answering.observed_states is not None:
            return ()  # they are nodes
        scope = {int(place[piece.factor]) for place in self.answering.graph.graph.groups[piece.group].scope}
        return tuple(sorted(one for one in scope if self.case.problem.roles[one] == Role.CLAMPED))

    def _belief(self, beliefs: np.ndarray, node: int) -> np.ndarray:
        start = self.answering.graph.state_start
        return beliefs[start[node] : start[node + 1]]

    def _neighbour(self, node: int, belief: np.ndarray) -> Neighbour:
        variable = int(self.answering.graph.variables[node])
        if self.answering.observed_states is not None and self.answering.observed_states[node] >= 0:
            return self._observed_neighbour(variable)
        best = int(belief.argmax())
        state = self.case.grounding.find_block(variable).values[best]
        return Neighbour(self.case.grounding.variable_name(variable), state, float(belief[best]), is_observed=False)

    def _observed_neighbour(self, variable: int) -> Neighbour:
        state = self.case.grounding.find_block(variable).values[self.case.problem.states[variable]]
        return Neighbour(self.case.grounding.variable_name(variable), state, 1.0, is_observed=True)


def _merge_features(parts: Iterator[FeatureContribution]) -> tuple[FeatureContribution, ...]:
    """Parts of the same weights as one each, the largest first."""
    found: dict[tuple[str, str, str], FeatureContribution] = {}
    for part in parts:
        same = (part.template, part.key, part.feature)
        before = found.get(same, replace(part, value=0.0, amount=0.0))
        found[same] = replace(part, value=before.value + part.value, amount=before.amount + part.amount)
    return tuple(sorted(found.values(), key=lambda part: -abs(part.amount)))


def _mean_contributions(found: Sequence[tuple[Contribution, ...]], count: int) -> tuple[Contribution, ...]:
    """The mean of the contributions in so many graphs; one that is missing in some is 0 there."""
    if count == 1:
        return found[0]
    alike: dict[Any, list[Contribution]] = {}
    for one in (one for each in found for one in each):
        alike.setdefault((one.kind, one.templates, tuple(n.name for n in one.neighbours)), []).append(one)
    share = 1.0 / count
    out = [
        replace(
            same[0],
            amount=share * sum(one.amount for one in same),
            features=_merge_features(
                replace(part, amount=share * part.amount) for one in same for part in one.features
            ),
            sources=_mean_contributions([one.sources for one in same], count),
        )
        for same in alike.values()
    ]
    return tuple(sorted(out, key=lambda one: -abs(one.amount)))
