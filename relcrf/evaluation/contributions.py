"""Signed contributions of templates and neighbours to a prediction, and those of the factors of an inference graph.

The decomposition of the log odds is described in `inference/attribution.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from relcrf.backends.base import Problem
from relcrf.backends.inference_task import InferenceTask
from relcrf.graph.local_factors import FactorBundle, LocalFactor, bundle_factors
from relcrf.graph.numeric_graph import numeric_slots
from relcrf.graph.reduction import Role
from relcrf.grounding.grounding import Grounding
from relcrf.inference.attribution import FactorMessage

SOURCES = {
    "start": "without evidence",
    "interaction": "interaction",
    "constant": "constant",
    "others": "other numbers",
}
"""Texts of the kinds of contributions that are not named by their templates or neighbours."""


@dataclass(frozen=True)
class FeatureContribution:
    """The contribution of one feature of a template.

    Args:
        key: The key of the feature's weight, i.e. the values of the template's `per` clause; empty without such a
            clause.
        value: The value of the feature; in a gated factor, it is multiplied by the gate.
        amount: The contribution to the log odds, in nats, to the score difference, or to the mean (see `Explanation`).
    """

    template: str
    key: str
    feature: str
    value: float
    amount: float

    @property
    def name(self) -> str:
        """The key and the feature, or the template if they are empty."""
        name = self.key if self.feature == "1" else f"{self.key} {self.feature}".strip()
        return name or self.template


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
    """The contribution of one or more templates; a positive amount supports the explained state.

    Args:
        kind: `itself` (local evidence), `evidence` (an observed neighbour) or `neighbour` (an unobserved neighbour).
            Two further kinds occur in `sources`: `start` (the message under a uniform belief) and `interaction` (the
            remainder). For those of numbers, see `number_explanation.NumberExplanation`.
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


@dataclass(frozen=True, eq=False)
class NumberEvidence:
    """Known numbers that are evidence about discrete variables.

    Args:
        variables: The number of each factor in each of the groups that contain this evidence, shape (n_factors,) each. These
            groups are the last ones of a problem.
        describe: Function that returns the templates that join a number and its discrete variable, and the number.
    """

    variables: tuple[np.ndarray, ...]
    describe: Callable[[int], tuple[str, Neighbour]]


@dataclass(frozen=True, eq=False)
class FactorContributions:
    """The named contributions to the marginals of one inference graph.

    Args:
        problem: The inference problem whose clamped variables are observed.
        numbers: The numbers that are evidence about discrete variables; None without numbers.
    """

    grounding: Grounding
    problem: Problem
    task: InferenceTask
    numbers: NumberEvidence | None = None

    @cached_property
    def _template_names(self) -> tuple[str, ...]:
        """The name of the template of each group of the task's graph, which lacks the larger groups if `local` built it.

        The names of the groups that contain the evidence of numbers are empty.
        """
        n_evidence = 0 if self.numbers is None else len(self.numbers.variables)
        names, groups = (*discrete_group_names(self.grounding), *[""] * n_evidence), self.problem.graph.groups
        if len(self.task.graph.graph.groups) == len(groups):
            return names
        return tuple(name for name, group in zip(names, groups, strict=False) if len(group.scope) == 1)

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
            template = "" if observed else self._template_names[factor.group]
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
        parts = merge_features(
            part for factor in factors for part in self._feature_contributions(factor, cell_contributions)
        )
        templates = tuple(dict.fromkeys(part.template for part in parts))
        return Contribution(kind, templates, neighbours, sum(part.amount for part in parts), parts)

    def _feature_contributions(
        self, factor: LocalFactor, cell_contributions: np.ndarray
    ) -> Iterator[FeatureContribution]:
        graph = self.task.graph.graph
        group = graph.groups[factor.group]
        number = self._number(factor)
        if number is not None and self.numbers is not None:
            template, _ = self.numbers.describe(number)
            amount = float(np.sum(cell_contributions * factor.log_potentials(graph, self.task.weights)))
            yield FeatureContribution(template, "", "1", 1.0, amount)
            return
        info = self.grounding.templates[group.block]
        expected = np.einsum("st,stp->p", cell_contributions, factor.patterns(graph))
        amounts = graph.layout.matrix(self.task.weights, group.block) @ expected
        for feature, value in group.features.row(factor.factor):
            key, name = info.feature_name(feature)
            template = self._template_names[factor.group]
            yield FeatureContribution(template, ", ".join(key), name, value, value * float(amounts[feature]))

    def _observed_scope(self, factor: LocalFactor) -> tuple[int, ...]:
        """Return the observed variables of a factor in ascending order."""
        if (number := self._number(factor)) is not None:
            return (number,)
        if self.task.observed_states is not None:
            return ()  # observed variables are also nodes of this graph
        scope = {int(place[factor.factor]) for place in self.task.graph.graph.groups[factor.group].scope}
        return tuple(sorted(one for one in scope if self.problem.roles[one] == Role.CLAMPED))

    def _number(self, factor: LocalFactor) -> int | None:
        """Return the number whose evidence is a factor; None for other factors."""
        if self.numbers is None:
            return None
        group = factor.group - len(self.task.graph.graph.groups) + len(self.numbers.variables)
        return int(self.numbers.variables[group][factor.factor]) if group >= 0 else None

    def _belief(self, beliefs: np.ndarray, node: int) -> np.ndarray:
        start = self.task.graph.state_start
        return beliefs[start[node] : start[node + 1]]

    def _neighbour(self, node: int, belief: np.ndarray) -> Neighbour:
        variable = int(self.task.graph.variables[node])
        if self.task.observed_states is not None and self.task.observed_states[node] >= 0:
            return self._observed_neighbour(variable)
        best = int(belief.argmax())
        state = self.grounding.find_block(variable).values[best]
        return Neighbour(self.grounding.variable_name(variable), state, float(belief[best]), is_observed=False)

    def _observed_neighbour(self, variable: int) -> Neighbour:
        if self.numbers is not None and self.grounding.find_block(variable).is_numeric:
            return self.numbers.describe(variable)[1]
        state = self.grounding.find_block(variable).values[self.problem.states[variable]]
        return Neighbour(self.grounding.variable_name(variable), state, 1.0, is_observed=True)


def discrete_group_names(grounding: Grounding) -> tuple[str, ...]:
    """Return the name of the template of each group of `discrete_part(grounding.graph)`."""
    graph = grounding.graph
    named = zip(grounding.group_names, graph.groups, strict=True)
    return tuple(name for name, group in named if not numeric_slots(graph, group))


def merge_features(parts: Iterable[FeatureContribution]) -> tuple[FeatureContribution, ...]:
    """Merge contributions of the same weight, and sort the results, largest first."""
    merged: dict[tuple[str, str, str], FeatureContribution] = {}
    for part in parts:
        identity = (part.template, part.key, part.feature)
        previous = merged.get(identity, replace(part, value=0.0, amount=0.0))
        merged[identity] = replace(part, value=previous.value + part.value, amount=previous.amount + part.amount)
    return tuple(sorted(merged.values(), key=lambda part: -abs(part.amount)))


def mean_contributions(per_graph: Sequence[tuple[Contribution, ...]], count: int) -> tuple[Contribution, ...]:
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
            features=merge_features(
                replace(part, amount=weight * part.amount) for one in same for part in one.features
            ),
            sources=mean_contributions([one.sources for one in same], count),
        )
        for same in groups.values()
    ]
    return tuple(sorted(means, key=lambda one: -abs(one.amount)))
