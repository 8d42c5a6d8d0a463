"""Explanations of predictions: signed contributions of templates and neighbours that add up to the log odds.

The decomposition of the log odds is described in `inference/attribution.py`. If a backend propagates labels, the
contributions add up to the difference of two scores; see `evaluation/propagation_contributions.py`. Those of a number add up
to its mean; see `evaluation/number_explanation.py`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from relcrf.backends.base import AbstractBackend, Problem
from relcrf.backends.inference_result import InferenceResult
from relcrf.backends.learned_model import LearnedModel
from relcrf.backends.number_inference import JointPosterior, infer_posterior, infer_with_numbers
from relcrf.backends.problems import query_problem
from relcrf.backends.propagation import AbstractPropagationBackend
from relcrf.errors import Diagnostic, UsageError, listing, suggestion
from relcrf.evaluation.contributions import Contribution, FactorContributions, mean_contributions
from relcrf.evaluation.number_evidence import number_evidence
from relcrf.evaluation.propagation_contributions import PropagationContributions
from relcrf.graph.components import label_components
from relcrf.graph.factor_graph import FactorGraph
from relcrf.graph.numeric_graph import lacks_states
from relcrf.graph.reduction import Role
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.variables import VariableBlock
from relcrf.inference.attribution import MIN_PROBABILITY, log_odds_direction
from relcrf.inference.result import Verdict

MAX_DEPTH = 5
"""Maximum number of edges that an explanation follows; the number of contributions grows exponentially with it."""


@dataclass(frozen=True)
class Explanation(ABC):
    """The explanation of one prediction: `total` is the sum of the contributions and the remainder.

    Args:
        contributions: The contributions, largest first.
        remainder: The rest of `total`.
    """

    variable: str
    contributions: tuple[Contribution, ...]
    remainder: float
    verdict: Verdict
    seconds: float

    @property
    @abstractmethod
    def total(self) -> float:
        """The explained number, which contributions and remainder add up to."""

    @property
    @abstractmethod
    def quantity(self) -> str:
        """The name of `total`."""

    @property
    @abstractmethod
    def unit(self) -> str:
        """The unit of the contributions."""

    @property
    @abstractmethod
    def title(self) -> str:
        """The title of a table of contributions."""

    @property
    @abstractmethod
    def axis_label(self) -> str:
        """The label of an axis for the contributions."""

    @property
    @abstractmethod
    def effects(self) -> tuple[str, str]:
        """The effects of positive and of negative contributions."""

    @property
    @abstractmethod
    def short_answer(self) -> str:
        """The prediction in a few characters."""

    @property
    @abstractmethod
    def summary(self) -> str:
        """The prediction."""

    @property
    @abstractmethod
    def truth_text(self) -> str:
        """The label in the data, which is hidden during inference; empty without a label."""

    @property
    @abstractmethod
    def amount_scale(self) -> float:
        """The size of an amount that is comparable with amounts of explanations of other attributes."""

    @abstractmethod
    def format_amount(self, amount: float, decimals: int = 4) -> str:
        """Format a contribution with its sign."""

    def parts_text(self, contribution: Contribution, n_parts: int) -> str:
        """Return the largest features of a contribution with their amounts."""
        parts = contribution.features[:n_parts]
        return ", ".join(f"{part.name} {self.format_amount(part.amount, 3)}" for part in parts)

    def by_template(self) -> dict[str, float]:
        """Return the sum of each template's contributions, largest first; the remainder is not included."""
        totals: dict[str, float] = {}
        for part in (part for one in self.contributions for part in one.features):
            totals[part.template] = totals.get(part.template, 0.0) + part.amount
        return dict(sorted(totals.items(), key=lambda item: -abs(item[1])))


@dataclass(frozen=True)
class CategoryExplanation(Explanation):
    """The explanation of a category.

    The remainder of log odds results from paths between neighbours that do not contain the variable, and is 0 up to rounding
    if the factors form a forest and inference is exact. The remainder of scores is 0 up to rounding.

    Args:
        answer, against: The explained state, which is the most probable state, and the state to compare with.
        probabilities: The probability of each state.
        log_odds: The log odds of `answer` against the state `against`, in nats.
        truth: The label in the data, which is hidden during inference; None without a label.
        score: The score of `answer` minus the score of `against` if the backend propagates labels, where positive scores
            have the sum 1; None for other backends.
    """

    answer: str
    against: str
    probabilities: Mapping[str, float]
    log_odds: float
    truth: str | None
    score: float | None = None

    @property
    def total(self) -> float:
        """The score difference or the log odds."""
        return self.log_odds if self.score is None else self.score

    @property
    def quantity(self) -> str:
        return "log odds" if self.score is None else "score difference"

    @property
    def unit(self) -> str:
        return "nats" if self.score is None else "score"

    @property
    def title(self) -> str:
        if self.score is None:
            return "contributions to the log odds, in nats"
        return f"contributions to the score of {self.answer} minus the score of {self.against}"

    @property
    def axis_label(self) -> str:
        return f"{self.quantity} of {self.answer}" + (", in nats" if self.score is None else "")

    @property
    def effects(self) -> tuple[str, str]:
        return f"supports {self.answer}", f"opposes {self.answer}"

    @property
    def short_answer(self) -> str:
        return f"{self.answer} {self.probabilities[self.answer]:.2f}"

    @property
    def summary(self) -> str:
        answer, against = (f"{value} ({self.probabilities[value]:.4f})" for value in (self.answer, self.against))
        return f"{answer}, not {against}"

    @property
    def truth_text(self) -> str:
        return "" if self.truth is None else f"its label is {self.truth}"

    @property
    def amount_scale(self) -> float:
        return 1.0

    def format_amount(self, amount: float, decimals: int = 4) -> str:
        """Format a contribution with its sign and the given number of decimals."""
        return format(amount, f"+.{decimals}f")


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
        system = learned.configure_backend(**settings)
        is_queried = np.arange(len(grounding.states)) == variable
        grounding, vectors, problem = query_problem(
            learned, grounding, is_queried if hidden is None else hidden | is_queried
        )
        return cls.from_problem(system, grounding, vectors, problem, variable)

    @classmethod
    def from_problem(
        cls,
        system: AbstractBackend,
        grounding: Grounding,
        vectors: dict[str, np.ndarray],
        problem: Problem,
        variable: int,
    ) -> ExplanationCase:
        """Build the case of a free variable of an inference problem."""
        if not system.unshardable_reason:
            component = label_components(*_dependent_variables(problem))
            is_elsewhere = (problem.roles == Role.FREE) & (component != component[variable])
            problem = replace(problem, roles=np.where(is_elsewhere, Role.ABSENT, problem.roles).astype(np.int8))
        return cls(system, grounding, vectors, problem, variable)

    @cached_property
    def block(self) -> VariableBlock:
        return self.grounding.find_block(self.variable)

    @cached_property
    def posterior(self) -> JointPosterior | None:
        """The posterior distribution of the case's problem; None without numbers."""
        return None if self.problem.numbers is None else infer_posterior(self.problem, self.vectors, self.system.infer)

    @property
    def discrete(self) -> tuple[Problem, dict[str, np.ndarray]]:
        """The problem of the discrete variables, with the evidence of numbers as factors, and its vectors."""
        return (
            (self.problem, self.vectors) if self.posterior is None else (self.posterior.problem, self.posterior.vectors)
        )

    def infer(self, problem: Problem | None = None) -> tuple[np.ndarray, InferenceResult]:
        """Infer `problem` or the case's problem; return the variable's marginal, shape (n_states,), and the result."""
        if problem is None and self.posterior is not None:
            result = self.posterior.inferred
        else:
            problem = self.problem if problem is None else problem
            infer = (
                self.system.infer if problem.numbers is None else partial(infer_with_numbers, infer=self.system.infer)
            )
            result = infer(problem, self.vectors)
        result.verdict.raise_if_interrupted()
        node = int(np.searchsorted(result.variables, self.variable))
        return result.marginals[result.state_start[node] : result.state_start[node + 1]], result

    def propagated_contributions(self, problem: Problem | None = None) -> PropagationContributions | None:
        """Propagate the labels of `problem` or of the case's problem; None if the backend does not propagate labels."""
        if not isinstance(self.system, AbstractPropagationBackend):
            return None
        return PropagationContributions.build(
            self.grounding, self.discrete[0] if problem is None else problem, self.system, self.vectors, self.variable
        )


def _dependent_variables(problem: Problem) -> tuple[FactorGraph, np.ndarray]:
    """Return the graph and the roles whose components of free variables are independent.

    A known number with an unknown discrete variable is free in these roles: it does not separate its neighbours.
    """
    targets = problem.numbers
    if targets is None:
        return problem.graph, problem.roles
    is_known = problem.roles == Role.CLAMPED
    is_uncertain = is_known & lacks_states(targets, np.where(is_known, problem.states, -1))
    return targets.graph, np.where(is_uncertain, Role.FREE, problem.roles).astype(np.int8)


def state_index(block: VariableBlock, text: str) -> int:
    """Return the index of a state of a block's variables by its name.

    Raises:
        UsageError: The variables do not have such a state (E356).
    """
    if text not in block.values:
        hint = suggestion(text, block.values) or f"the values are {listing(block.values)}"
        raise UsageError(Diagnostic("E356", f"unknown value '{text}' of {block.name}", hint=hint))
    return block.values.index(text)


def explain(case: ExplanationCase, against: str | None = None, depth: int = 1) -> CategoryExplanation:
    """Decompose the log odds of the most probable state, or the difference of scores, into contributions.

    Args:
        against: The state to compare with. Default: the second most probable state.
        depth: The number of edges to follow. With 1, each neighbour's message is one contribution; with 2, the sources
            of the neighbour's belief are added.

    Raises:
        UsageError: The state `against` is unknown or is the most probable state, or the variable has a single state
            (E356); the backend does not support explanations (E368).
    """
    started = time.perf_counter()
    propagated = case.propagated_contributions()
    if propagated is None:
        probabilities, inferred = case.infer()
        verdict = inferred.verdict
    else:
        probabilities, verdict = propagated.probabilities, propagated.propagation.last.verdict
    state, other = select_states(case, probabilities, against)
    direction = log_odds_direction(len(probabilities), state, other)
    if propagated is None:
        score, contributions = None, _factor_contributions(case, direction, depth)
    else:
        score, contributions = float(direction @ propagated.scores), propagated.contributions(direction, depth)
    log_odds = float(direction @ np.log(np.maximum(probabilities, MIN_PROBABILITY)))
    truth = int(case.grounding.states[case.variable])
    values = case.block.values
    return CategoryExplanation(
        case.grounding.variable_name(case.variable),
        contributions,
        (log_odds if score is None else score) - sum(one.amount for one in contributions),
        verdict,
        time.perf_counter() - started,
        values[state],
        values[other],
        dict(zip(values, probabilities.tolist(), strict=True)),
        log_odds,
        None if truth < 0 else values[truth],
        score,
    )


def _factor_contributions(case: ExplanationCase, direction: np.ndarray, depth: int) -> tuple[Contribution, ...]:
    """Return the contributions of factors, averaged over the inference tasks of the backend."""
    per_task = []
    problem, vectors = case.discrete
    evidence = None if case.posterior is None else number_evidence(case.grounding, case.posterior)
    for task in case.system.inference_tasks(problem, vectors):
        node = int(np.searchsorted(task.graph.variables, case.variable))
        factors = FactorContributions(case.grounding, problem, task, evidence)
        per_task.append(tuple(factors.contributions(node, direction, (), depth)))
    return mean_contributions(per_task, len(per_task))


def select_states(case: ExplanationCase, probabilities: np.ndarray, against: str | None) -> tuple[int, int]:
    """Return the most probable state and the state to compare it with; for errors see `explain`."""
    if len(probabilities) < 2:
        message = f"{case.block.name} has a single state and therefore no log odds"
        raise UsageError(Diagnostic("E356", message, hint="explain a variable with at least two states"))
    order = np.argsort(-probabilities, kind="stable")
    state, other = int(order[0]), int(order[1]) if against is None else state_index(case.block, against)
    if state == other:
        message = f"'{against}' is the predicted value itself"
        hint = f"compare it with another value: {listing(case.block.values)}"
        raise UsageError(Diagnostic("E356", message, hint=hint))
    return state, other
