"""Explanations of predictions: signed contributions of templates and neighbours that add up to the log odds.

The decomposition of the log odds is described in `inference/attribution.py`. If a backend propagates labels, the
contributions add up to the difference of two scores; see `evaluation/propagation_contributions.py`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from relcrf.backends.base import AbstractBackend, InferenceResult, Problem
from relcrf.backends.learned_model import LearnedModel
from relcrf.backends.numeric_targets import require_no_numbers
from relcrf.backends.problems import query_problem
from relcrf.backends.propagation import AbstractPropagationBackend
from relcrf.errors import Diagnostic, UsageError, listing, suggestion
from relcrf.evaluation.contributions import Contribution, FactorContributions, mean_contributions
from relcrf.evaluation.propagation_contributions import PropagationContributions
from relcrf.graph.components import label_components
from relcrf.graph.reduction import Role
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.variables import VariableBlock
from relcrf.inference.attribution import MIN_PROBABILITY, log_odds_direction
from relcrf.inference.result import Verdict


@dataclass(frozen=True)
class Explanation:
    """The explanation of one prediction: `total` is the sum of the contributions and the remainder.

    Args:
        answer, against: The explained state, which is the most probable state, and the state to compare with.
        probabilities: The probability of each state.
        log_odds: The log odds of `answer` against the state `against`, in nats.
        contributions: The contributions, largest first.
        remainder: The rest of `total`. In log odds, it results from paths between neighbours that do not contain the
            variable, and is 0 up to rounding if the factors form a forest and inference is exact. In scores, it is 0
            up to rounding.
        truth: The label in the data, which is hidden during inference; None without a label.
        score: The score of `answer` minus the score of `against` if the backend propagates labels, where positive scores
            have the sum 1; None for other backends.
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
    score: float | None = None

    @property
    def total(self) -> float:
        """The explained number, which contributions and remainder add up to: the score difference or the log odds."""
        return self.log_odds if self.score is None else self.score

    @property
    def quantity(self) -> str:
        """The name of `total`."""
        return "log odds" if self.score is None else "score difference"

    def by_template(self) -> dict[str, float]:
        """Return the sum of each template's contributions, largest first; the remainder is not included."""
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
        require_no_numbers(learned.spec, "an explanation")
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

    def propagated_contributions(self, problem: Problem | None = None) -> PropagationContributions | None:
        """Propagate the labels of `problem` or of the case's problem; None if the backend does not propagate labels."""
        if not isinstance(self.system, AbstractPropagationBackend):
            return None
        return PropagationContributions.build(
            self.grounding, self.problem if problem is None else problem, self.system, self.vectors, self.variable
        )


def state_index(block: VariableBlock, text: str) -> int:
    """Return the index of a state of a block's variables by its name.

    Raises:
        UsageError: The variables do not have such a state (E356).
    """
    if text not in block.values:
        hint = suggestion(text, block.values) or f"the values are {listing(block.values)}"
        raise UsageError(Diagnostic("E356", f"unknown value '{text}' of {block.name}", hint=hint))
    return block.values.index(text)


def explain(case: ExplanationCase, against: str | None = None, depth: int = 1) -> Explanation:
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
    return Explanation(
        case.grounding.variable_name(case.variable),
        values[state],
        values[other],
        dict(zip(values, probabilities.tolist(), strict=True)),
        log_odds,
        contributions,
        (log_odds if score is None else score) - sum(one.amount for one in contributions),
        None if truth < 0 else values[truth],
        verdict,
        time.perf_counter() - started,
        score,
    )


def _factor_contributions(case: ExplanationCase, direction: np.ndarray, depth: int) -> tuple[Contribution, ...]:
    """Return the contributions of factors, averaged over the inference tasks of the backend."""
    per_task = []
    for task in case.system.inference_tasks(case.problem, case.vectors):
        node = int(np.searchsorted(task.graph.variables, case.variable))
        factors = FactorContributions(case.grounding, case.problem, task)
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
