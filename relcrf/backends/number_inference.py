"""Inference of predicted numbers together with the discrete variables on which they depend.

Numbers whose discrete variables are known have a Gaussian distribution, and their marginals are exact. An observed number whose
discrete variable x is unknown is evidence about x: a factor over x with the density of the number in each state. If the number is
also linked to other numbers, its density depends on theirs, and the two distributions are computed in turn by expectation
propagation (Minka 2001): each such number sends its deviation to the others as a Gaussian message.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np

from relcrf.backends.base import InferenceResult, Problem
from relcrf.backends.learned_model import SEPARATE_LAYOUTS
from relcrf.backends.number_model import NumberModel
from relcrf.backends.numeric_targets import without_numbers
from relcrf.errors import Diagnostic, UsageError
from relcrf.graph.factor_graph import FactorGroup
from relcrf.graph.features import Dense
from relcrf.graph.numeric_graph import NumericGraph, NumericTargets, lacks_states, numeric_graph, numeric_slots
from relcrf.graph.reduction import Role
from relcrf.graph.weights import WeightBlock
from relcrf.inference.gaussian import CholeskyFactor, ConditionalPattern, NumberMarginals, PairWeights
from relcrf.inference.gaussian_estimates import EstimatedInverse
from relcrf.inference.result import Verdict
from relcrf.learning.gaussian_likelihood import NumberWeights

MAX_ROUNDS = 50
"""Maximum number of rounds of expectation propagation."""

UNDAMPED_ROUNDS, DAMPED_SHARE = 10, 0.3
"""Number of rounds without damping, which usually converge, and the share of the new messages in later rounds."""

TOLERANCE = 1e-4
"""Maximum change of a marginal probability, and of the mean of a deviation, in the last round."""

MIN_VARIANCE = 1e-8
"""Minimum variance of a deviation whose discrete variable is nearly certain."""

NOTHING_INFERRED = InferenceResult(
    np.empty(0, dtype=np.int64),
    np.zeros(1, dtype=np.int64),
    np.empty(0),
    np.empty((0, 2), dtype=np.int64),
    0.0,
    Verdict("exact"),
)
"""The result of inference without free discrete variables."""


DiscreteInference: TypeAlias = Callable[[Problem, dict[str, np.ndarray]], InferenceResult]
"""A function that infers the marginals of a problem without numbers with the given vectors."""


@dataclass(frozen=True, eq=False)
class JointPosterior:
    """The posterior distribution of the discrete variables and the numbers of a problem.

    A free number in state x of its unknown discrete variable has the mean `means[:, x] + scales[:, x] * u`. The deviations u of
    the numbers that are not `is_known` have a Gaussian distribution with the covariance matrix `inverse`; their means are its
    product with (shift - the product of Q and the deviations of the known numbers).

    Args:
        inferred: The marginals of the free discrete variables and of the free numbers.
        problem, vectors: The problem of the discrete variables, with the evidence of numbers as factors, and its vectors.
        evidence: The number of each factor of the evidence, as a position in `numeric.variables`, for each group of these
            factors, which are the last groups of the problem.
        numeric: The numbers that are connected with free ones, or are evidence about discrete variables; n of them.
        pairs: The weights of their pairs.
        values: Value of each number, shape (n,); nan if it is free.
        is_known: Mask of the numbers whose value and deviation are known, shape (n,).
        deviations: Mean of each deviation, shape (n,).
        shift: Message of each number with a known value and an unknown discrete variable, shape (n,); 0 for others.
        inverse: The covariance matrix of the numbers that are not `is_known`, in ascending order.
        parent: The unknown discrete variable on which each number depends, shape (n,); -1 for none.
        probabilities: Probability of each state of this variable, shape (n, n_states); 1 in state 0 without a variable.
        means, scales: Mean and deviation of each number in each state, shape (n, n_states).
    """

    inferred: InferenceResult
    problem: Problem
    vectors: dict[str, np.ndarray]
    evidence: tuple[np.ndarray, ...]
    numeric: NumericGraph
    pairs: PairWeights
    values: np.ndarray
    is_known: np.ndarray
    deviations: np.ndarray
    shift: np.ndarray
    inverse: CholeskyFactor | EstimatedInverse
    parent: np.ndarray
    probabilities: np.ndarray
    means: np.ndarray
    scales: np.ndarray


def infer_with_numbers(problem: Problem, vectors: dict[str, np.ndarray], infer: DiscreteInference) -> InferenceResult:
    """Return the marginals of the free discrete variables and of the free numbers, given the clamped ones.

    For the errors see `infer_posterior`.
    """
    return infer_posterior(problem, vectors, infer).inferred


def infer_posterior(problem: Problem, vectors: dict[str, np.ndarray], infer: DiscreteInference) -> JointPosterior:
    """Return the posterior distribution of the free discrete variables and of the free numbers, given the clamped ones.

    Raises:
        DataError: If training saw no numbers (E225).
        UsageError: If a number depends on several unknown discrete variables (E383).
    """
    targets, discrete = problem.numbers, without_numbers(problem)
    assert targets is not None
    numbers = _Numbers.from_problem(problem, targets, NumberModel.from_vectors(vectors))
    has_free = bool((discrete.roles == Role.FREE).any())
    deviations = _Deviations(numbers)

    def with_evidence() -> tuple[Problem, dict[str, np.ndarray]]:
        evidence = numbers.evidence(deviations.cavity_means, deviations.cavity_variances)
        return _with_evidence(discrete, vectors, evidence)

    def infer_discrete() -> InferenceResult:
        return infer(*with_evidence()) if has_free else NOTHING_INFERRED

    inferred = infer_discrete()
    probabilities = numbers.probabilities(inferred)
    n_rounds, change = 0, np.inf if deviations.are_linked else 0.0
    while change > TOLERANCE and n_rounds < MAX_ROUNDS:
        shift = deviations.update(probabilities, 1.0 if n_rounds < UNDAMPED_ROUNDS else DAMPED_SHARE)
        inferred, previous = infer_discrete(), probabilities
        probabilities = numbers.probabilities(inferred)
        n_rounds, change = n_rounds + 1, max(shift, float(np.abs(probabilities - previous).max(initial=0.0)))
    verdict = deviations.inverse.verdict
    if n_rounds and verdict.is_good:
        status = "converged" if change <= TOLERANCE else "not converged"
        remarks = ("approximate for linked numbers that depend on unknown discrete values", verdict.remark)
        verdict = Verdict(status, n_rounds, change, "; ".join(filter(None, remarks)))
    if inferred.verdict.is_good and verdict.status != "exact":
        inferred = replace(inferred, verdict=verdict)
    return JointPosterior(
        replace(inferred, numbers=numbers.marginals(probabilities, deviations)),
        *with_evidence(),
        tuple(numbers.evidence_rows),
        numbers.numeric,
        deviations.pairs,
        numbers.values,
        numbers.is_known & ~numbers.is_uncertain,
        deviations.means,
        deviations.shift,
        deviations.inverse,
        numbers.parent,
        probabilities,
        numbers.means,
        numbers.scales,
    )


def leave_out_numbers(problem: Problem, model: NumberModel) -> NumberMarginals:
    """Return the distribution of each clamped number given all other clamped variables.

    Numbers that depend on an unknown discrete variable are left out of the result, and are treated as unknown.
    """
    targets, weights = problem.numbers, model.weights
    assert targets is not None
    states = np.where(problem.roles == Role.CLAMPED, problem.states, -1)
    whole = numeric_graph(targets, states)
    role, lacks = problem.roles[whole.variables], lacks_states(targets, states)[whole.variables]
    used = role != Role.ABSENT
    is_known = (role == Role.CLAMPED)[used] & ~lacks[used]
    numeric = model.select_for_left_out(whole.select(used), is_known)
    pattern = ConditionalPattern(len(numeric.variables), numeric.first, numeric.second, is_known)
    mean, scale = weights.mean(numeric), np.exp(-0.5 * weights.log_precision(numeric))
    deviations = np.where(is_known, (targets.values[numeric.variables] - mean) / scale, 0.0)
    means, variances = pattern.leave_one_out(weights.pairs(numeric), deviations)
    mean, scale = mean[is_known], scale[is_known]
    return NumberMarginals(numeric.variables[is_known], mean + scale * means, scale * np.sqrt(variances))


@dataclass(frozen=True, eq=False)
class _Numbers:
    """The numbers of a problem, with their distribution in each state of the discrete variable that is unknown.

    Args:
        numeric: The graph of the numbers that are connected with free ones or have an unknown variable; its means and precisions
            are those in state 0 of unknown variables.
        values: Value of each number, shape (n,); nan if it is free.
        parent: The unknown discrete variable on which each number depends, shape (n,); -1 for none.
        cardinality: Number of states of this variable, shape (n,); 1 for none.
        means, scales: Mean and deviation of each number in each state, shape (n, n_states); states beyond the cardinality repeat
            the last one.
    """

    numeric: NumericGraph
    weights: NumberWeights
    values: np.ndarray
    parent: np.ndarray
    cardinality: np.ndarray
    means: np.ndarray
    scales: np.ndarray

    @classmethod
    def from_problem(cls, problem: Problem, targets: NumericTargets, model: NumberModel) -> _Numbers:
        states, weights = np.where(problem.roles == Role.CLAMPED, problem.states, -1), model.weights
        all_parents = _unknown_parents(targets, problem)
        is_parent = np.zeros(len(states), dtype=bool)
        is_parent[all_parents[all_parents >= 0]] = True
        graphs: list[NumericGraph] = []
        for state in range(int(problem.graph.cardinality[is_parent].max(initial=1))):
            chosen = np.where(is_parent, np.minimum(state, problem.graph.cardinality - 1), states)
            graph = numeric_graph(targets, chosen)
            present = problem.roles[graph.variables] != Role.ABSENT
            graphs.append((graph if not graphs else graph.without_pairs()).select(present))
        role, parent = problem.roles[graphs[0].variables], all_parents[graphs[0].variables]
        linked = model.select(graphs[0], (role == Role.CLAMPED) & (parent < 0))
        is_used = (role == Role.FREE) | ((role == Role.CLAMPED) & (parent >= 0))
        used = (np.bincount(linked.component, is_used) > 0)[linked.component]
        numeric, parent = linked.select(used), parent[used]
        is_known = problem.roles[numeric.variables] == Role.CLAMPED
        values = np.where(is_known, targets.values[numeric.variables], np.nan)
        cardinality = np.where(parent >= 0, problem.graph.cardinality[parent], 1)
        means = np.stack([weights.mean(graph)[used] for graph in graphs], axis=1)
        log_precisions = np.stack([weights.log_precision(graph)[used] for graph in graphs], axis=1)
        scales = np.exp(-0.5 * log_precisions)
        return cls(numeric, weights, values, parent, cardinality, means, scales)

    @cached_property
    def is_known(self) -> np.ndarray:
        """The mask of the numbers whose value is known, shape (n,)."""
        return np.asarray(~np.isnan(self.values))

    @cached_property
    def is_uncertain(self) -> np.ndarray:
        """The mask of the known numbers whose deviation is unknown, because their discrete variable is."""
        return np.asarray(self.is_known & (self.parent >= 0))

    @cached_property
    def is_possible(self) -> np.ndarray:
        """The mask of the states of each number, shape (n, n_states)."""
        return np.asarray(np.arange(self.means.shape[1]) < self.cardinality[:, None])

    @cached_property
    def deviations(self) -> np.ndarray:
        """The deviation of each number in each state, shape (n, n_states); 0 for free numbers."""
        values = np.where(self.is_known, self.values, 0.0)[:, None]
        deviations: np.ndarray = (values - self.means) / self.scales
        deviations[~self.is_known] = 0.0
        return deviations

    @cached_property
    def evidence_rows(self) -> list[np.ndarray]:
        """The numbers that are evidence about discrete variables, by the cardinality of these variables."""
        sizes = np.unique(self.cardinality[self.is_uncertain])
        return [np.flatnonzero(self.is_uncertain & (self.cardinality == size)) for size in sizes]

    def evidence(self, means: np.ndarray, variances: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the factors over discrete variables, by cardinality: variables, and log densities of shape (n, n_states).

        Args:
            means, variances: Mean and variance of the deviation of each number, given the others, shape (n,).
        """
        factors = []
        for rows in self.evidence_rows:
            size = int(self.cardinality[rows[0]])
            error = self.deviations[rows, :size] - means[rows, None]
            table = -0.5 * error**2 / variances[rows, None] - np.log(self.scales[rows, :size])
            factors.append((self.parent[rows], table - table.max(axis=1, keepdims=True)))
        return factors

    def probabilities(self, inferred: InferenceResult) -> np.ndarray:
        """Return the probability of each state of each number, shape (n, n_states); 1 in state 0 without unknown variable."""
        n_states = self.means.shape[1]
        out = np.zeros((len(self.means), n_states))
        out[:, 0] = 1.0
        rows = np.flatnonzero(self.parent >= 0)
        start = inferred.state_start[np.searchsorted(inferred.variables, self.parent[rows])]
        last_state = self.cardinality[rows] - 1
        cells = np.minimum(start[:, None] + np.arange(n_states), (start + last_state)[:, None])
        out[rows] = np.where(self.is_possible[rows], inferred.marginals[cells], 0.0)
        return out

    def marginals(self, probabilities: np.ndarray, deviations: _Deviations) -> NumberMarginals:
        """Return the mean and the deviation of each free number: those of the mixture of its states."""
        rows = np.flatnonzero(~self.is_known)
        means = self.means[rows] + self.scales[rows] * deviations.means[rows, None]
        variances = self.scales[rows] ** 2 * deviations.variances[rows, None]
        share = probabilities[rows]
        mean = (share * means).sum(axis=1)
        variance = (share * (variances + (means - mean[:, None]) ** 2)).sum(axis=1)
        return NumberMarginals(self.numeric.variables[rows], mean, np.sqrt(variance))


class _Deviations:
    """The Gaussian distribution of the unknown deviations, with the messages of numbers whose discrete variable is unknown.

    Attributes:
        means, variances: Moments of each deviation, shape (n,).
        cavity_means, cavity_variances: The same without the message of the number itself.
        are_linked: Whether any message reaches another number.
        pairs: The weights of the pairs.
        shift: The message of each number, divided by its variance, shape (n,); 0 without a message.
        inverse: The inverse of the precision matrix of the unknown deviations.
    """

    def __init__(self, numbers: _Numbers) -> None:
        self._numbers, graph = numbers, numbers.numeric
        is_known = numbers.is_known & ~numbers.is_uncertain
        self._pattern = ConditionalPattern(len(graph.variables), graph.first, graph.second, is_known)
        self.pairs = numbers.weights.pairs(graph)
        self._precision, self.shift = np.zeros(len(is_known)), np.zeros(len(is_known))
        ends = np.concatenate((graph.first, graph.second))
        self.are_linked = bool(numbers.is_uncertain[ends].any())
        self._refresh()

    def _refresh(self) -> None:
        pattern, unknown = self._pattern, self._pattern.unknown
        u, self.inverse = pattern.condition(self.pairs, self._numbers.deviations[:, 0], self._precision, self.shift)
        variances = np.zeros(len(u))
        variances[unknown] = self.inverse.variances
        self.means, self.variances = u, variances
        cavity = np.ones(len(u))
        # Without its message, a deviation has a variance of at most 1; estimates may violate this.
        cavity[unknown] = 1.0 / np.maximum(1.0 / variances[unknown] - self._precision[unknown], 1.0)
        shift = np.zeros(len(u))
        shift[unknown] = u[unknown] / variances[unknown] - self.shift[unknown]
        self.cavity_variances, self.cavity_means = cavity, cavity * shift

    def update(self, probabilities: np.ndarray, share_of_new: float) -> float:
        """Set the messages so that each deviation has the moments that the probabilities of its states imply.

        Args:
            probabilities: Probability of each state of each number, shape (n, n_states).
            share_of_new: Share of the new messages in a mean with the old ones, which damps oscillations.

        Returns:
            The largest change of the mean of a deviation.
        """
        before = self.means
        rows = np.flatnonzero(self._numbers.is_uncertain)
        share, values = probabilities[rows], self._numbers.deviations[rows]
        mean = (share * values).sum(axis=1)
        variance = np.maximum((share * (values - mean[:, None]) ** 2).sum(axis=1), MIN_VARIANCE)
        cavity = self.cavity_variances[rows]
        precision = np.maximum(1.0 / variance - 1.0 / cavity, 0.0)
        shift = mean * (precision + 1.0 / cavity) - self.cavity_means[rows] / cavity
        self._precision[rows] += share_of_new * (precision - self._precision[rows])
        self.shift[rows] += share_of_new * (shift - self.shift[rows])
        self._refresh()
        return float(np.abs(self.means - before).max(initial=0.0))


def _unknown_parents(targets: NumericTargets, problem: Problem) -> np.ndarray:
    """Return the free discrete variable on which each variable, if it is a number, depends, shape (n_variables,); -1 for none."""
    parent = np.full(len(problem.roles), -1, dtype=np.int64)
    for group in targets.groups:
        slots = numeric_slots(targets.graph, group)
        if len(slots) == 2:
            continue
        number = group.scope[slots[0]]
        for slot in set(range(len(group.scope))) - set(slots):
            discrete = np.asarray(group.scope[slot])
            is_free = (problem.roles[discrete] == Role.FREE) & (problem.roles[number] != Role.ABSENT)
            before = parent[number]
            parent[number[is_free]] = discrete[is_free]
            # The other value is that of an earlier template, or of another factor of this one.
            is_other = is_free & (((before >= 0) & (before != discrete)) | (parent[number] != discrete))
            if is_other.any():
                block = targets.graph.layout.blocks[group.block].name
                message = (
                    f"a number of template '{block}' depends on two unknown discrete values, but only one is supported"
                )
                hint = "write separate templates for the discrete terms, or provide the values of one of them"
                raise UsageError(Diagnostic("E383", message, hint=hint))
    return parent


def _with_evidence(
    discrete: Problem, vectors: dict[str, np.ndarray], evidence: list[tuple[np.ndarray, np.ndarray]]
) -> tuple[Problem, dict[str, np.ndarray]]:
    """Return the problem and the vectors with factors whose tables are given, see `_Numbers.evidence`."""
    graph, fixed = discrete.graph, []
    for variables, table in evidence:
        size = table.shape[1]
        identity = tuple(map(tuple, np.eye(size).tolist()))
        block = WeightBlock(f"numbers with {size} states", size, size, identity, fixed=True)
        group = FactorGroup((variables.astype(np.int32),), (size,), Dense(table), None, len(graph.layout.blocks))
        graph = graph.with_groups((group,), block)
        fixed.append(np.eye(size).ravel())
    if not evidence:
        return discrete, vectors
    extended = {
        name: vector if name in SEPARATE_LAYOUTS else np.concatenate((vector, *fixed))
        for name, vector in vectors.items()
    }
    return replace(discrete, graph=graph), extended
