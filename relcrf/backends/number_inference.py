"""Inference of predicted numbers together with the discrete variables on which they depend.

Numbers whose discrete variables are known have a Gaussian distribution, and their marginals are exact. An observed number with
unknown discrete variables x, its *parents*, is evidence about x: a factor over x with the density of the number in each joint
state. An unknown number is a mixture over the joint states of its parents; their probabilities are the joint marginals of a
constant factor over these. If an observed number with parents is also linked to other numbers, its density depends on theirs, and
the two distributions are computed in turn by expectation propagation (Minka 2001): each such number sends its deviation to the
others as a Gaussian message.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from relcrf.backends.base import Problem
from relcrf.backends.inference_result import InferenceResult
from relcrf.backends.learned_model import SEPARATE_LAYOUTS
from relcrf.backends.number_model import NumberModel
from relcrf.backends.number_states import JointStates, find_parents, state_moments
from relcrf.backends.numeric_targets import without_numbers
from relcrf.graph.factor_graph import FactorGroup
from relcrf.graph.features import Keyed
from relcrf.graph.numeric_graph import NumericGraph, NumericTargets, lacks_states, numeric_graph
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
"""Minimum variance of a deviation whose joint state is nearly certain."""

EVIDENCE_SCORES = {"selected_fraction": 1.0, "label_information": 0.0}
"""Values of the vectors of `ess` that score edges, for factors of evidence: all are admitted, without information of labels."""

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


class EvidenceFactors(NamedTuple):
    """Factors over discrete variables with given tables.

    Args:
        scope: The variables of each factor, ascending, shape (n, arity).
        sizes: Number of states of each variable of a factor.
        table: Log potentials of the joint states, shape (n, n_states).
    """

    scope: np.ndarray
    sizes: tuple[int, ...]
    table: np.ndarray


@dataclass(frozen=True, eq=False)
class JointPosterior:
    """The posterior distribution of the discrete variables and the numbers of a problem.

    In a joint state of its parents, a free number has the value `mean + scale * u`. The deviations u of the numbers that are not
    `is_known` have a Gaussian distribution with the covariance matrix `inverse`; their means are its product with (shift - the
    product of Q and the deviations of the known numbers).

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
        shift: Message of each number with a known value and unknown parents, shape (n,); 0 for others.
        inverse: The covariance matrix of the numbers that are not `is_known`, in ascending order.
        states: The joint states of the parents of each number; n_states of them in total.
        probabilities: Probability of each joint state, shape (n_states,).
        state_means, state_scales: Mean and deviation of the number in each joint state, shape (n_states,).
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
    states: JointStates
    probabilities: np.ndarray
    state_means: np.ndarray
    state_scales: np.ndarray

    def expect(self, values: np.ndarray) -> np.ndarray:
        """Return the expectation of values of the joint states of each number, shape (n,)."""
        return self.states.expect(self.probabilities, values)

    @cached_property
    def scales(self) -> np.ndarray:
        """The expected scale of each number, shape (n,)."""
        return self.expect(self.state_scales)


def infer_with_numbers(problem: Problem, vectors: dict[str, np.ndarray], infer: DiscreteInference) -> InferenceResult:
    """Return the marginals of the free discrete variables and of the free numbers, given the clamped ones.

    For the errors see `infer_posterior`.
    """
    return infer_posterior(problem, vectors, infer).inferred


def infer_posterior(problem: Problem, vectors: dict[str, np.ndarray], infer: DiscreteInference) -> JointPosterior:
    """Return the posterior distribution of the free discrete variables and of the free numbers, given the clamped ones.

    Raises:
        DataError: If training saw no numbers (E225).
        UsageError: If the unknown discrete variables of numbers have too many joint states (E383).
    """
    targets, discrete = problem.numbers, without_numbers(problem)
    assert targets is not None
    numbers = _Numbers.from_problem(problem, targets, NumberModel.from_vectors(vectors))
    has_free = bool((discrete.roles == Role.FREE).any())
    deviations = _Deviations(numbers)

    def infer_discrete() -> InferenceResult:
        if not has_free:
            return NOTHING_INFERRED
        factors = numbers.factors(deviations.cavity_means, deviations.cavity_variances)
        return infer(*_with_factors(discrete, vectors, factors))

    inferred = infer_discrete()
    probabilities = numbers.probabilities(inferred)
    n_rounds, change = 0, np.inf if deviations.are_linked else 0.0
    while change > TOLERANCE and n_rounds < MAX_ROUNDS and inferred.verdict.status != "interrupted":
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
    evidence = numbers.evidence(numbers.evidence_rows, deviations.cavity_means, deviations.cavity_variances)
    return JointPosterior(
        replace(inferred, numbers=numbers.marginals(probabilities, deviations)),
        *_with_factors(discrete, vectors, evidence),
        tuple(numbers.evidence_rows),
        numbers.numeric,
        deviations.pairs,
        numbers.values,
        numbers.is_known & ~numbers.is_uncertain,
        deviations.means,
        deviations.shift,
        deviations.inverse,
        numbers.joint,
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
    """The numbers of a problem, with their distribution in each joint state of their parents.

    Args:
        numeric: The graph of the numbers that are connected with free ones or have parents, without the factors over parents.
        values: Value of each number, shape (n,); nan if it is free.
        joint: The joint states of the parents; n_states of them in total.
        means, scales: Mean and deviation of the number in each joint state, shape (n_states,).
    """

    numeric: NumericGraph
    weights: NumberWeights
    values: np.ndarray
    joint: JointStates
    means: np.ndarray
    scales: np.ndarray

    @classmethod
    def from_problem(cls, problem: Problem, targets: NumericTargets, model: NumberModel) -> _Numbers:
        roles, states = problem.roles, np.where(problem.roles == Role.CLAMPED, problem.states, -1)
        number, parent = find_parents(targets, roles)
        graph = numeric_graph(targets, states)
        graph = graph.select(roles[graph.variables] != Role.ABSENT)
        is_free = roles[graph.variables] == Role.FREE
        has_parents = np.isin(graph.variables, number)
        linked = model.select(graph, ~is_free & ~has_parents)
        numeric = linked.select((np.bincount(linked.component, is_free | has_parents) > 0)[linked.component])
        values = np.where(roles[numeric.variables] == Role.CLAMPED, targets.values[numeric.variables], np.nan)
        joint = JointStates.build(numeric, targets, number, parent)
        moments = state_moments(joint, numeric, targets, model.weights, roles, states)
        return cls(numeric, model.weights, values, joint, *moments)

    @cached_property
    def is_known(self) -> np.ndarray:
        """The mask of the numbers whose value is known, shape (n,)."""
        return np.asarray(~np.isnan(self.values))

    @cached_property
    def is_uncertain(self) -> np.ndarray:
        """The mask of the known numbers whose deviation is unknown, because their joint state is."""
        return np.asarray(self.is_known & (self.joint.n_parents > 0))

    @cached_property
    def deviations(self) -> np.ndarray:
        """The deviation of the number in each joint state, shape (n_states,); 0 for free numbers."""
        row = self.joint.row
        return np.where(self.is_known[row], (self.values[row] - self.means) / self.scales, 0.0)

    @cached_property
    def evidence_rows(self) -> list[np.ndarray]:
        """The numbers that are evidence about discrete variables, by the cardinalities of these variables."""
        return [rows for _, rows in self.joint.shapes(self.is_uncertain)]

    @cached_property
    def factor_rows(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """The numbers with a factor over their parents in inference, by cardinalities, and the factor of each.

        These are the numbers of `evidence_rows`, and free ones with several parents. Numbers of the same parents share a factor,
        because belief propagation is approximate if two factors have several variables in common.
        """
        parents, chosen = self.joint.parents, self.is_uncertain | (self.joint.n_parents > 1)
        groups = [rows for _, rows in self.joint.shapes(chosen)]
        return [(rows, np.unique(parents[rows], axis=0, return_inverse=True)[1].ravel()) for rows in groups]

    def factors(self, means: np.ndarray, variances: np.ndarray) -> list[EvidenceFactors]:
        """Return the factors of inference; for the arguments see `evidence`."""
        evidence = self.evidence([rows for rows, _ in self.factor_rows], means, variances)
        merged = []
        for (_, factor), one in zip(self.factor_rows, evidence, strict=True):
            n = int(factor.max()) + 1
            scope, table = np.empty((n, one.scope.shape[1]), dtype=np.int64), np.zeros((n, one.table.shape[1]))
            scope[factor] = one.scope
            np.add.at(table, factor, one.table)
            merged.append(EvidenceFactors(scope, one.sizes, table))
        return merged

    def evidence(self, groups: list[np.ndarray], means: np.ndarray, variances: np.ndarray) -> list[EvidenceFactors]:
        """Return a factor over the parents of each number of some groups: its log density, which is constant for a free number.

        Args:
            means, variances: Mean and variance of the deviation of each number, given the others, shape (n,).
        """
        factors = []
        for rows in groups:
            cells, n_parents = self.joint.of_numbers(rows), int(self.joint.n_parents[rows[0]])
            error = self.deviations[cells] - means[rows, None]
            table = -0.5 * error**2 / variances[rows, None] - np.log(self.scales[cells])
            table = np.where(self.is_known[rows, None], table - table.max(axis=1, keepdims=True), 0.0)
            sizes = tuple(self.joint.cardinality[rows[0], :n_parents].tolist())
            factors.append(EvidenceFactors(self.joint.parents[rows, :n_parents], sizes, table))
        return factors

    def probabilities(self, inferred: InferenceResult) -> np.ndarray:
        """Return the probability of each joint state, shape (n_states,)."""
        joint = self.joint
        out = np.ones(int(joint.start[-1]))
        for _, rows in joint.shapes(joint.n_parents == 1):
            start = inferred.state_start[np.searchsorted(inferred.variables, joint.parents[rows, 0])]
            out[joint.of_numbers(rows)] = inferred.marginals[start[:, None] + np.arange(joint.sizes[rows[0]])]
        first = 0
        for rows, factor in self.factor_rows:
            if joint.n_parents[rows[0]] > 1:
                shape = int(factor.max()) + 1, int(joint.sizes[rows[0]])
                tables = inferred.joint_marginals[first : first + math.prod(shape)].reshape(shape)
                out[joint.of_numbers(rows)] = tables[factor]
                first += math.prod(shape)
        return out

    def marginals(self, probabilities: np.ndarray, deviations: _Deviations) -> NumberMarginals:
        """Return the mean and the deviation of each free number: those of the mixture of its joint states."""
        joint, rows = self.joint, np.flatnonzero(~self.is_known)
        means = self.means + self.scales * deviations.means[joint.row]
        mean = joint.expect(probabilities, means)
        variances = self.scales**2 * deviations.variances[joint.row] + (means - mean[joint.row]) ** 2
        deviation = np.sqrt(joint.expect(probabilities, variances))
        return NumberMarginals(self.numeric.variables[rows], mean[rows], deviation[rows])


class _Deviations:
    """The Gaussian distribution of the unknown deviations, with the messages of known numbers whose joint state is unknown.

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
        known = self._numbers.deviations[self._numbers.joint.start[:-1]]
        u, self.inverse = pattern.condition(self.pairs, known, self._precision, self.shift)
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
            probabilities: Probability of each joint state, shape (n_states,).
            share_of_new: Share of the new messages in a mean with the old ones, which damps oscillations.

        Returns:
            The largest change of the mean of a deviation.
        """
        before, joint, values = self.means, self._numbers.joint, self._numbers.deviations
        rows = np.flatnonzero(self._numbers.is_uncertain)
        mean = joint.expect(probabilities, values)
        variance = np.maximum(joint.expect(probabilities, (values - mean[joint.row]) ** 2)[rows], MIN_VARIANCE)
        mean = mean[rows]
        cavity = self.cavity_variances[rows]
        precision = np.maximum(1.0 / variance - 1.0 / cavity, 0.0)
        shift = mean * (precision + 1.0 / cavity) - self.cavity_means[rows] / cavity
        self._precision[rows] += share_of_new * (precision - self._precision[rows])
        self.shift[rows] += share_of_new * (shift - self.shift[rows])
        self._refresh()
        return float(np.abs(self.means - before).max(initial=0.0))


def _with_factors(
    discrete: Problem, vectors: dict[str, np.ndarray], groups: list[EvidenceFactors]
) -> tuple[Problem, dict[str, np.ndarray]]:
    """Return the problem and the vectors with factors whose tables are given."""
    graph = discrete.graph
    for scope, sizes, table in groups:
        n, n_states = table.shape
        block = WeightBlock(f"numbers with {n_states} states", n, n_states, fixed=True)
        variables = tuple(np.ascontiguousarray(scope.T, dtype=np.int32))
        features = Keyed(np.arange(n, dtype=np.int32), np.ones((n, 1)), n)
        group = FactorGroup(
            variables, sizes, features, None, len(graph.layout.blocks), needs_marginals=len(variables) > 1
        )
        graph = graph.with_groups((group,), block)
    tables = np.concatenate([np.empty(0), *(group.table.ravel() for group in groups)])
    extended = {
        name: np.concatenate((vector, np.full_like(tables, EVIDENCE_SCORES.get(name, tables))))
        for name, vector in vectors.items()
        if name not in SEPARATE_LAYOUTS
    }
    return replace(discrete, graph=graph), {**vectors, **extended}
