"""Explanations of predictions: signed contributions of templates and neighbours that add up to the log odds.

The decomposition of the log odds is described in `inference/attribution.py`.
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
    """The contribution of one feature of a template.

    Args:
        key: The key of the feature's weight, i.e. the values of the template's `per` clause; empty without such a
            clause.
        value: The value of the feature; in a gated factor, it is multiplied by the gate.
        amount: The contribution to the log odds, in nats.
    """

    template: str
    key: str
    feature: str
    value: float
    amount: float


@dataclass(frozen=True)
class Neighbour:
    """A variable that shares a factor with the explained variable.

    Args:
        state: The observed state or, if there is none, the most probable state without the message from the explained
            variable.
        probability: The probability of this state; 1 if the neighbour is observed.
    """

    name: str
    state: str
    probability: float
    is_observed: bool

    def __str__(self) -> str:
        return f"{self.name} = {self.state}" + ("" if self.is_observed else f" ({self.probability:.2f})")


@dataclass(frozen=True)
class Contribution:
    """The contribution of one or more templates, in nats; a positive amount supports the explained state.

    Args:
        kind: `itself` (local evidence), `evidence` (an observed neighbour) or `neighbour` (an unobserved neighbour).
            Two further kinds occur in `sources`: `start` (the message under a uniform belief) and `interaction` (the
            remainder).
        features: The contributions of the features, largest first; `amount` is their sum.
        sources: The contributions to the neighbour's belief (marginal); `amount` is also their sum. Empty at the
            maximum depth.
    """

    kind: str
    templates: tuple[str, ...]
    neighbours: tuple[Neighbour, ...]
    amount: float
    features: tuple[FeatureContribution, ...] = ()
    sources: tuple[Contribution, ...] = ()


@dataclass(frozen=True)
class Explanation:
    """The explanation of one prediction: `log_odds` is the sum of the contributions and the remainder.

    Args:
        answer, against: The explained state, which is the most probable state, and the state to compare with.
        probabilities: The probability of each state.
        log_odds: The log odds of `answer` against the state `against`, in nats.
        contributions: The contributions, largest first.
        remainder: The rest of the log odds, in nats. It results from paths between neighbours that do not contain the
            variable, and is 0 up to rounding if the factors form a forest and inference is exact.
        truth: The label in the data, which is hidden during inference; None without a label.
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
        """Return the sum of each template's contributions, in nats, largest first; the remainder is not included."""
        totals: dict[str, float] = {}
        for part in (part for one in self.contributions for part in one.features):
            totals[part.template] = totals.get(part.template, 0.0) + part.amount
        return dict(sorted(totals.items(), key=lambda item: -abs(item[1])))


@dataclass(frozen=True, eq=False)
class ExplanationCase:
    """The variable to explain, with the backend, weights and problem that predict it.

    Args:
        problem: The inference problem, restricted to the variable's component if the backend infers components
            independently.
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
        """Build the case of a variable. The label of this variable is hidden; all other labels are evidence.

        Args:
            hidden: Mask of further variables whose labels are hidden, shape (n_variables,), bool.
            settings: Backend settings that override the settings of the training run.
        """
        system = make_backend(learned.backend, **{**learned.settings, **settings})
        is_queried = np.arange(len(grounding.states)) == variable
        grounding, vectors, problem = query_problem(
            learned, grounding, is_queried if hidden is None else hidden | is_queried
        )
        if not system.unshardable_reason:
            component = label_components(problem.graph, problem.roles)
            is_elsewhere = (problem.roles == Role.FREE) & (component != component[variable])
            problem = replace(problem, roles=np.where(is_elsewhere, Role.ABSENT, problem.roles).astype(np.int8))
        return cls(system, grounding, vectors, problem, variable)

    @cached_property
    def block(self) -> VariableBlock:
        return self.grounding.find_block(self.variable)

    def infer(self, problem: Problem | None = None) -> tuple[np.ndarray, InferenceResult]:
        """Infer `problem` or the case's problem; return the variable's marginal, shape (n_states,), and the result."""
        result = self.system.infer(self.problem if problem is None else problem, self.vectors)
        node = int(np.searchsorted(result.variables, self.variable))
        return result.marginals[result.state_start[node] : result.state_start[node + 1]], result

    def state_index(self, text: str) -> int:
        """Return the index of a state by its name.

        Raises:
            UsageError: The variable does not have such a state (E356).
        """
        values = self.block.values
        if text not in values:
            hint = suggestion(text, values) or f"the values are {listing(values)}"
            raise UsageError(Diagnostic("E356", f"unknown value '{text}' of {self.block.name}", hint=hint))
        return values.index(text)


def explain(case: ExplanationCase, against: str | None = None, depth: int = 1) -> Explanation:
    """Decompose the log odds of the most probable state into contributions.

    Args:
        against: The state to compare with. Default: the second most probable state.
        depth: The number of edges to follow. With 1, each neighbour's message is one contribution; with 2, the sources
            of the neighbour's belief are added.

    Raises:
        UsageError: The state `against` is unknown or is the most probable state, or the variable has a single state
            (E356); the backend does not support explanations (E368).
    """
    started = time.perf_counter()
    probabilities, inferred = case.infer()
    state, other = select_states(case, probabilities, against)
    direction = log_odds_direction(len(probabilities), state, other)
    per_task = []
    for task in case.system.inference_tasks(case.problem, case.vectors):
        node = int(np.searchsorted(task.graph.variables, case.variable))
        per_task.append(tuple(_ContributionBuilder(case, task).contributions(node, direction, (), depth)))
    contributions = _mean_contributions(per_task, len(per_task))
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
    """Return the most probable state and the state to compare it with; for errors see `explain`."""
    if len(probabilities) < 2:
        message = f"{case.block.name} has a single state and therefore no log odds"
        raise UsageError(Diagnostic("E356", message, hint="explain a variable with at least two states"))
    order = np.argsort(-probabilities, kind="stable")
    state, other = int(order[0]), int(order[1]) if against is None else case.state_index(against)
    if state == other:
        message = f"'{against}' is the predicted value itself"
        hint = f"compare it with another value: {listing(case.block.values)}"
        raise UsageError(Diagnostic("E356", message, hint=hint))
    return state, other


@dataclass(frozen=True, eq=False)
class _ContributionBuilder:
    """A builder of named contributions to the marginals of one inference graph."""

    case: ExplanationCase
    task: InferenceTask

    def contributions(
        self, node: int, direction: np.ndarray, removed: tuple[int, ...], depth: int
    ) -> Iterator[Contribution]:
        """Yield the contributions of a node's factors, largest first.

        Args:
            direction: The coefficient of each state's log probability in the sum to explain, shape (n_states,).
            removed: Nodes that were already removed from the graph.
        """
        task = self.task
        removed = () if task.is_mean_field else (*removed, node)
        bundles = [b for b in bundle_factors(task.graph, node) if not set(b.others) & set(removed)]
        beliefs = task.beliefs(removed) if any(bundle.others for bundle in bundles) else np.empty(0)
        contributions: list[Contribution] = []
        for bundle in bundles:
            if not bundle.others:
                contributions += self._unary_contributions(node, bundle, direction)
            else:
                contributions.append(self._message_contribution(bundle, node, direction, removed, beliefs, depth))
        yield from sorted(contributions, key=lambda one: -abs(one.amount))

    def _unary_contributions(self, node: int, bundle: FactorBundle, direction: np.ndarray) -> Iterator[Contribution]:
        """Yield one contribution per template of local evidence, and one per set of observed neighbours."""
        grouped: dict[tuple[str, tuple[int, ...]], list[LocalFactor]] = {}
        for factor in bundle.factors:
            observed = self._observed_scope(factor)
            template = "" if observed else self.case.grounding.group_names[factor.group]
            grouped.setdefault((template, observed), []).append(factor)
        for (_, observed), factors in grouped.items():
            neighbours = tuple(self._observed_neighbour(variable) for variable in observed)
            yield self._build_contribution(
                "evidence" if observed else "itself", neighbours, factors, direction[:, None]
            )

    def _message_contribution(
        self,
        bundle: FactorBundle,
        node: int,
        direction: np.ndarray,
        removed: tuple[int, ...],
        beliefs: np.ndarray,
        depth: int,
    ) -> Contribution:
        """Return the contribution of a bundle of factors: the message that these factors send to the node."""
        task = self.task
        potential = bundle.log_potentials(task.graph.graph, task.weights)
        other_beliefs = [self._belief(beliefs, other) for other in bundle.others]
        joint = other_beliefs[0]
        for belief in other_beliefs[1:]:
            joint = np.outer(joint, belief).ravel()
        message = FactorMessage(potential, joint, task.is_mean_field)
        free = tuple(self._neighbour(other, belief) for other, belief in zip(bundle.others, other_beliefs, strict=True))
        observed = sorted({variable for factor in bundle.factors for variable in self._observed_scope(factor)})
        neighbours = (*free, *(self._observed_neighbour(variable) for variable in observed))
        kind = "evidence" if all(one.is_observed for one in neighbours) else "neighbour"
        contribution = self._build_contribution(kind, neighbours, bundle.factors, message.cell_contributions(direction))
        if depth < 2 or len(other_beliefs) > 1 or free[0].is_observed:
            return contribution
        start, inner = message.belief_contributions(direction)
        sources = [
            Contribution("start", (), free, start),
            *self.contributions(bundle.others[0], inner, removed, depth - 1),
        ]
        rest = contribution.amount - sum(one.amount for one in sources)
        return replace(contribution, sources=(*sources, Contribution("interaction", (), free, rest)))

    def _build_contribution(
        self,
        kind: str,
        neighbours: tuple[Neighbour, ...],
        factors: Sequence[LocalFactor],
        cell_contributions: np.ndarray,
    ) -> Contribution:
        """Sum the feature contributions of some factors.

        Args:
            cell_contributions: The change of the log odds per nat of each log potential, shape (n_states, n_others).
        """
        parts = _merge_features(
            part for factor in factors for part in self._feature_contributions(factor, cell_contributions)
        )
        templates = tuple(dict.fromkeys(part.template for part in parts))
        return Contribution(kind, templates, neighbours, sum(part.amount for part in parts), parts)

    def _feature_contributions(
        self, factor: LocalFactor, cell_contributions: np.ndarray
    ) -> Iterator[FeatureContribution]:
        graph = self.task.graph.graph
        group = graph.groups[factor.group]
        info = self.case.grounding.templates[group.block]
        expected = np.einsum("st,stp->p", cell_contributions, factor.patterns(graph))
        amounts = graph.layout.matrix(self.task.weights, group.block) @ expected
        for feature, value in group.features.row(factor.factor):
            key, name = info.feature_name(feature)
            template = self.case.grounding.group_names[factor.group]
            yield FeatureContribution(template, ", ".join(key), name, value, value * float(amounts[feature]))

    def _observed_scope(self, factor: LocalFactor) -> tuple[int, ...]:
        """Return the observed variables of a factor in ascending order."""
        if self.task.observed_states is not None:
            return ()  # observed variables are also nodes of this graph
        scope = {int(place[factor.factor]) for place in self.task.graph.graph.groups[factor.group].scope}
        return tuple(sorted(one for one in scope if self.case.problem.roles[one] == Role.CLAMPED))

    def _belief(self, beliefs: np.ndarray, node: int) -> np.ndarray:
        start = self.task.graph.state_start
        return beliefs[start[node] : start[node + 1]]

    def _neighbour(self, node: int, belief: np.ndarray) -> Neighbour:
        variable = int(self.task.graph.variables[node])
        if self.task.observed_states is not None and self.task.observed_states[node] >= 0:
            return self._observed_neighbour(variable)
        best = int(belief.argmax())
        state = self.case.grounding.find_block(variable).values[best]
        return Neighbour(self.case.grounding.variable_name(variable), state, float(belief[best]), is_observed=False)

    def _observed_neighbour(self, variable: int) -> Neighbour:
        state = self.case.grounding.find_block(variable).values[self.case.problem.states[variable]]
        return Neighbour(self.case.grounding.variable_name(variable), state, 1.0, is_observed=True)


def _merge_features(parts: Iterator[FeatureContribution]) -> tuple[FeatureContribution, ...]:
    """Merge contributions of the same weight, and sort the results, largest first."""
    merged: dict[tuple[str, str, str], FeatureContribution] = {}
    for part in parts:
        identity = (part.template, part.key, part.feature)
        previous = merged.get(identity, replace(part, value=0.0, amount=0.0))
        merged[identity] = replace(part, value=previous.value + part.value, amount=previous.amount + part.amount)
    return tuple(sorted(merged.values(), key=lambda part: -abs(part.amount)))


def _mean_contributions(per_graph: Sequence[tuple[Contribution, ...]], count: int) -> tuple[Contribution, ...]:
    """Return mean contributions over `count` graphs, largest first; a contribution missing in a graph counts as 0."""
    if count == 1:
        return per_graph[0]
    groups: dict[Any, list[Contribution]] = {}
    for one in (one for each in per_graph for one in each):
        groups.setdefault((one.kind, one.templates, tuple(n.name for n in one.neighbours)), []).append(one)
    weight = 1.0 / count
    means = [
        replace(
            same[0],
            amount=weight * sum(one.amount for one in same),
            features=_merge_features(
                replace(part, amount=weight * part.amount) for one in same for part in one.features
            ),
            sources=_mean_contributions([one.sources for one in same], count),
        )
        for same in groups.values()
    ]
    return tuple(sorted(means, key=lambda one: -abs(one.amount)))
