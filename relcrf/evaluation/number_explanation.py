"""Explanations of predicted numbers: contributions that add up to the mean.

Given the known numbers K, the mean of a number i is

    mean_i + scale_i * E[u_i | K],    E[u_U | K] = Q_UU^-1 (shift_U - Q_UK u_K)

(see `graph/numeric_graph.py` and `backends/number_inference.py`). The mean without links is a sum over the features of the
templates over the number alone. The second term is a sum over the known numbers: row i of Q_UU^-1, which is the solution of one
sparse system, contains the effect of each on the mean. Both sums are exact.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from relcrf.backends.base import Problem
from relcrf.backends.number_inference import JointPosterior
from relcrf.backends.number_model import NumberModel
from relcrf.errors import Diagnostic, UsageError
from relcrf.evaluation.contributions import Contribution, FeatureContribution, Neighbour, merge_features
from relcrf.evaluation.explanation import MAX_DEPTH, CategoryExplanation, Explanation, ExplanationCase, explain
from relcrf.evaluation.number_evidence import format_number, known_number
from relcrf.graph.factor_graph import FactorGroup
from relcrf.graph.numeric_graph import NumericTargets, numeric_slots
from relcrf.graph.reduction import Role
from relcrf.grounding.bindings import find_factors
from relcrf.grounding.grounding import Grounding
from relcrf.inference.gaussian import PairWeights, PrecisionPattern

MAX_NEIGHBOURS = 100
"""Maximum number of known numbers with separate contributions, largest first; one contribution contains the others."""

DEVIATION = "deviation"
"""Name of the feature of a known number: its value minus its mean without links."""


@dataclass(frozen=True)
class NumberExplanation(Explanation):
    """The explanation of a predicted number.

    The first contribution is the constant of the attribute. The kinds of contributions are those of `Contribution`,
    `constant`, and `others` (the known numbers beyond `MAX_NEIGHBOURS`). The remainder is a rounding error.

    Args:
        mean, deviation: The predicted mean and standard deviation.
        deviation_alone: The standard deviation if no other number were known.
        truth: The value in the data, which is hidden during inference; None without a value.
    """

    mean: float
    deviation: float
    deviation_alone: float
    truth: float | None

    @property
    def total(self) -> float:
        """The mean."""
        return self.mean

    @property
    def quantity(self) -> str:
        return "mean"

    @property
    def unit(self) -> str:
        """The name of the attribute, whose unit the contributions have."""
        return self.variable.rpartition(".")[2]

    @property
    def title(self) -> str:
        return f"contributions to the mean of {self.unit}"

    @property
    def axis_label(self) -> str:
        return self.unit

    @property
    def effects(self) -> tuple[str, str]:
        return f"raises {self.unit}", f"lowers {self.unit}"

    @property
    def short_answer(self) -> str:
        return f"{self.format_number(self.mean)} ± {self.format_number(self.deviation)}"

    @property
    def summary(self) -> str:
        return self.short_answer

    @property
    def truth_text(self) -> str:
        return "" if self.truth is None else f"its value is {self.format_number(self.truth)}"

    @property
    def amount_scale(self) -> float:
        return self.deviation

    @property
    def gain_text(self) -> str:
        """How much the known numbers reduce the standard deviation; empty if this is invisible."""
        alone, deviation = map(self.format_number, (self.deviation_alone, self.deviation))
        return "" if alone == deviation else f"known numbers reduce the standard deviation from {alone} to {deviation}"

    def parts_text(self, contribution: Contribution, n_parts: int) -> str:
        """Return the largest features of a contribution with their values and amounts, or the deviation of a known number."""
        parts, text = contribution.features[:n_parts], ""
        if contribution.kind == "constant" or not parts:
            return text
        if parts[0].feature == DEVIATION and contribution.kind != "others":
            deviation = self.format_number(abs(parts[0].value))
            text = f"{deviation} {'above' if parts[0].value > 0.0 else 'below'} its mean"
            if len(parts) == 1:
                return text
        amounts = ((_part_name(part), self.format_amount(part.amount)) for part in parts)
        return "; ".join(filter(None, (text, ", ".join(f"{name}: {amount}" for name, amount in amounts))))

    def format_number(self, value: float) -> str:
        """Format a number of the attribute."""
        return format_number(value, self.deviation)

    def format_amount(self, amount: float, decimals: int = 4) -> str:
        """Format a contribution with its sign; the standard deviation determines the number of decimals."""
        return format_number(amount, self.deviation, sign=True)


def explain_prediction(
    case: ExplanationCase, against: str | None = None, depth: int = 1
) -> CategoryExplanation | NumberExplanation:
    """Explain the prediction of a category, see `explanation.explain`, or of a number.

    Raises:
        UsageError: See `explanation.explain`; the depth is not between 1 and MAX_DEPTH (E356); `against` or a depth is set
            for a number (E379).
    """
    if not 1 <= depth <= MAX_DEPTH:
        message = f"the depth of an explanation must be between 1 and {MAX_DEPTH}, not {depth}"
        raise UsageError(Diagnostic("E356", message, hint="choose a depth such as 2"))
    if not case.block.is_numeric:
        return explain(case, against, depth)
    if against is not None:
        message = f"{case.block.name} is a number, which has no other value to compare its mean with"
        raise UsageError(Diagnostic("E379", message, hint="omit --against"))
    if depth > 1:
        message = f"the contributions to the mean of {case.block.name} already contain all paths of links"
        raise UsageError(Diagnostic("E379", message, hint="omit --depth"))
    return explain_number(case)


def explain_number(case: ExplanationCase) -> NumberExplanation:
    """Decompose the mean of a free number into contributions."""
    started = time.perf_counter()
    posterior, targets = case.posterior, case.problem.numbers
    assert posterior is not None and targets is not None
    numbers = posterior.inferred.numbers
    assert numbers is not None
    row = int(np.searchsorted(numbers.variables, case.variable))
    mean, deviation = float(numbers.means[row]), float(numbers.deviations[row])
    parts = _NumberContributions(case.grounding, case.problem, targets, case.vectors, posterior, case.variable)
    contributions = parts.contributions()
    truth = float(case.grounding.numbers[case.variable])
    return NumberExplanation(
        case.grounding.variable_name(case.variable),
        contributions,
        mean - sum(one.amount for one in contributions),
        posterior.inferred.verdict,
        time.perf_counter() - started,
        mean,
        deviation,
        parts.deviation_alone(),
        None if math.isnan(truth) else truth,
    )


@dataclass(frozen=True, eq=False)
class _NumberContributions:
    """The named contributions to the mean of one number."""

    grounding: Grounding
    problem: Problem
    targets: NumericTargets
    vectors: dict[str, np.ndarray]
    posterior: JointPosterior
    variable: int

    @cached_property
    def row(self) -> int:
        """The position of the number in the arrays of the posterior."""
        return int(np.searchsorted(self.posterior.numeric.variables, self.variable))

    @cached_property
    def _model(self) -> NumberModel:
        return NumberModel.from_vectors(self.vectors)

    @cached_property
    def _probabilities(self) -> np.ndarray:
        """The probability of each joint state of the unknown discrete variables, shape (n_states,); 1 without them."""
        return np.asarray(self.posterior.probabilities[self.posterior.states.of_number(self.row)])

    def contributions(self) -> tuple[Contribution, ...]:
        """Return the constant, followed by the other contributions, largest first."""
        name = self.grounding.find_block(self.variable).name
        amount = float(self._model.weights.offset[self.posterior.numeric.attribute[self.row], 0])
        constant = FeatureContribution(name, "", "1", 1.0, amount)
        found = [*self._own_contributions(), *self._neighbour_contributions()]
        found.sort(key=lambda one: -abs(one.amount))
        return Contribution("constant", (name,), (), amount, (constant,)), *found

    def deviation_alone(self) -> float:
        """Return the standard deviation of the number if no other number is known."""
        row = self.row
        variance = 1.0 if self._model.weights.is_forest else self._variance_alone()
        states = self.posterior.states.of_number(row)
        means, variances = self.posterior.state_means[states], self.posterior.state_scales[states] ** 2 * variance
        center = float(self._probabilities @ means)
        return math.sqrt(float(self._probabilities @ (variances + (means - center) ** 2)))

    def _variance_alone(self) -> float:
        """Return the variance of the deviation of the number if no other number is known."""
        numeric, row, pairs = self.posterior.numeric, self.row, self.posterior.pairs
        chosen = numeric.component == numeric.component[row]
        part, kept = numeric.select(chosen), chosen[numeric.first] & chosen[numeric.second]
        n, position = len(part.variables), int(chosen[:row].sum())
        weights = PairWeights(n, part.first, part.second, pairs.difference[kept], pairs.sum[kept])
        inverse = PrecisionPattern(n, part.first, part.second).invert(weights.diagonal, weights.values)
        return float(inverse.solve((np.arange(n) == position).astype(np.float64))[position])

    def _own_contributions(self) -> Iterator[Contribution]:
        """Yield a contribution for each template over the number alone or with discrete variables.

        With unknown discrete variables, the amounts of their joint states are weighted with their probabilities.
        """
        found: dict[tuple[str, tuple[int, ...]], list[FeatureContribution]] = {}
        graph, names = self.targets.graph, self.grounding.group_names
        for number, group in enumerate(graph.groups):
            slots = numeric_slots(graph, group)
            if len(slots) != 1:
                continue
            for factor in find_factors(group.scope, slots[0], self.variable).tolist():
                others = tuple(sorted({int(place[factor]) for place in group.scope} - {self.variable}))
                features = found.setdefault((names[number], others), [])
                features += self._feature_contributions(names[number], group, factor)
        for (_, others), features in found.items():
            neighbours = tuple(self._category(other) for other in others)
            is_observed = all(one.is_observed for one in neighbours)
            kind = "itself" if not neighbours else "evidence" if is_observed else "neighbour"
            yield _sum_of(kind, neighbours, merge_features(features))

    def _feature_contributions(self, template: str, group: FactorGroup, factor: int) -> Iterator[FeatureContribution]:
        """Yield the contributions of the features of one factor, for each joint state of its unknown discrete variables."""
        posterior, states = self.posterior, np.where(self.problem.roles == Role.CLAMPED, self.problem.states, -1)
        matrix = self.targets.graph.layout.matrix(self.vectors["weights"], group.block)
        info, scope = self.grounding.templates[group.block], [int(place[factor]) for place in group.scope]
        _, _, joint = posterior.states.of_factors(group, np.array([factor]), np.array([self.row]), states)
        shares = np.bincount(joint, self._probabilities)
        free = [k for k, one in enumerate(scope) if one in posterior.states.parents[self.row] and one not in scope[:k]]
        for feature, value in group.features.row(factor):
            key, name = info.feature_name(feature)
            for state in np.unique(joint).tolist():
                each = np.unravel_index(state, group.cardinalities)
                keys = (*key, *(self.grounding.find_block(scope[k]).values[int(each[k])] for k in free))
                amount = float(shares[state] * matrix[feature, state]) * value
                yield FeatureContribution(template, ", ".join(keys), name, value, amount)

    def _category(self, variable: int) -> Neighbour:
        """Return a discrete variable with its observed or its most probable state."""
        name, values = self.grounding.variable_name(variable), self.grounding.find_block(variable).values
        if self.problem.roles[variable] == Role.CLAMPED:
            return Neighbour(name, values[self.problem.states[variable]], 1.0, is_observed=True)
        inferred = self.posterior.inferred
        start = inferred.state_start[np.searchsorted(inferred.variables, variable)]
        probabilities = inferred.marginals[start : start + len(values)]
        best = int(probabilities.argmax())
        return Neighbour(name, values[best], float(probabilities[best]), is_observed=False)

    def _neighbour_contributions(self) -> Iterator[Contribution]:
        """Yield the contribution of each known number with links to the number, directly or through unknown numbers.

        A contribution is divided among the templates of the links between the known number and unknown ones. A known number
        that depends on an unknown discrete variable is not divided.
        """
        posterior = self.posterior
        source, group, amount = self._link_amounts()
        n_groups = max(1, len(self.targets.graph.groups))
        keys, entry = np.unique(source * n_groups + group, return_inverse=True)
        amounts = np.bincount(entry, amount, minlength=len(keys))
        sources, of_source = np.unique(keys // n_groups, return_inverse=True)
        totals = np.bincount(of_source, amounts, minlength=len(sources))
        order = np.argsort(-np.abs(totals), kind="stable")
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        names = self.grounding.group_names
        deviations = posterior.values - posterior.expect(posterior.state_means)
        by_source: dict[int, list[FeatureContribution]] = {}
        others: list[FeatureContribution] = []
        for key, place, part in zip(keys.tolist(), rank[of_source].tolist(), amounts.tolist(), strict=True):
            number, template = key // n_groups, names[key % n_groups]
            if place < MAX_NEIGHBOURS:
                feature = FeatureContribution(template, "", DEVIATION, float(deviations[number]), part)
                by_source.setdefault(number, []).append(feature)
            else:
                others.append(FeatureContribution(template, "", DEVIATION, 0.0, part))
        for number, features in by_source.items():
            yield _sum_of("evidence", (known_number(self.grounding, posterior, number),), features)
        if others:
            yield _sum_of("others", (), merge_features(others))

    def _link_amounts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the terms of the mean: the known number, the index of the factor group, and the amount, shape (n_terms,)."""
        posterior = self.posterior
        numeric, is_unknown = posterior.numeric, ~posterior.is_known
        unknown = np.flatnonzero(is_unknown)
        gain = np.zeros(len(is_unknown))
        indicator = (unknown == self.row).astype(np.float64)
        gain[unknown] = posterior.scales[self.row] * posterior.inverse.solve(indicator)
        group = np.tile(numeric.group, 2)
        near = np.concatenate((numeric.first, numeric.second))
        far = np.concatenate((numeric.second, numeric.first)).astype(np.int64)
        flow = -gain[near] * np.tile(posterior.pairs.values, 2)
        # Row j of Q_UU times `gain` is 0: the flows to a number with a message are proportional to its gain.
        total = np.bincount(far, flow, minlength=len(gain))
        messages = np.divide(posterior.shift * gain, total, out=np.zeros(len(gain)), where=total != 0.0)
        amount = flow * np.where(posterior.is_known, posterior.deviations, messages)[far]
        used = np.flatnonzero(amount)
        return far[used], group[used], amount[used]


def _part_name(part: FeatureContribution) -> str:
    """Return the name of a feature with its value."""
    if part.feature == DEVIATION:
        return part.template
    return part.name if part.feature == "1" else f"{part.name} = {part.value:g}"


def _sum_of(kind: str, neighbours: tuple[Neighbour, ...], features: Sequence[FeatureContribution]) -> Contribution:
    """Return the contribution of some features."""
    ordered = tuple(sorted(features, key=lambda part: -abs(part.amount)))
    templates = tuple(dict.fromkeys(part.template for part in ordered))
    return Contribution(kind, templates, neighbours, sum(part.amount for part in ordered), ordered)
