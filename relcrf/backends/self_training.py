"""Semi-supervised learning: training targets for unlabelled variables from the predictions of the model itself.

Source: Yarowsky (1995), Unsupervised word sense disambiguation rivaling supervised methods (self-training with a
threshold); Qu, Bengio & Tang (2019), GMNN: Graph Markov Neural Networks (a second model that sees only evidence).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from relcrf.backends.base import AbstractBackend, FitResult, Monitor, Problem
from relcrf.backends.weight_priors import unary_weight_mask, with_scaled_l2
from relcrf.graph.reduction import Role
from relcrf.learning.lbfgs import AnyState, OptimiserState


@dataclass(frozen=True)
class SelfTraining:
    """Rounds of prediction and learning, in which confident predictions become training targets.

    In each round, the model predicts the unlabelled variables given all labels. The predictions with a probability of
    at least `threshold` are targets of the next model. Targets add no independent evidence, so the penalties grow with
    the number of targets: the ratio of the penalty to the data remains that of the labels.

    Args:
        backend: The backend that predicts.
        learn: A function that learns from the labels of the free variables. The number is the factor of the penalties.
        threshold: Minimum probability of a target.
        rounds: Maximum number of rounds.
        unary_only: Whether `learn` returns weights of factors over one variable only; the other weights are then those
            of the labels alone. Targets that a model predicted along links overstate the agreement of linked variables.
    """

    backend: AbstractBackend
    learn: Callable[[Problem, Monitor, float], FitResult]
    threshold: float
    rounds: int
    unary_only: bool

    def run(self, problem: Problem, learned: FitResult, monitor: Monitor) -> FitResult:
        """Return the result after all rounds.

        Args:
            learned: The result of learning from the labels alone.
        """
        n_rounds, n_labels = 0, int(labelled_targets(problem).sum())
        targets = replace(problem, states=np.where(problem.unlabelled, -1, problem.states))
        while n_rounds < self.rounds:
            previous, targets = targets.states, self._add_targets(problem, learned)
            if np.array_equal(targets.states, previous):
                break
            n_rounds += 1
            factor = int(labelled_targets(targets).sum()) / n_labels
            scaled = replace(targets, graph=with_scaled_l2(targets.graph, factor))
            found = self.learn(scaled, _RoundMonitor(monitor, n_rounds), factor)
            stages = tuple((f"{name}_{n_rounds}", state) for name, state in found.stages)
            vectors = found.vectors
            if self.unary_only:
                unary, weights = unary_weight_mask(problem.graph, problem.latent), learned.vectors["weights"]
                vectors = {**learned.vectors, "weights": np.where(unary, vectors["weights"], weights)}
            learned = replace(
                found,
                vectors=vectors,
                stages=(*learned.stages, *stages),
                summary={**learned.summary, **found.summary},
                settings={**learned.settings, **found.settings},
                moments=None,
            )
        n_added = int(labelled_targets(targets).sum()) - n_labels
        summary: dict[str, Any] = {**learned.summary, "self_training_rounds": n_rounds, "predicted_targets": n_added}
        return replace(learned, summary=summary)

    def _add_targets(self, problem: Problem, learned: FitResult) -> Problem:
        """Return the problem with confident predictions as labels of unlabelled variables, which become free."""
        unlabelled = problem.unlabelled
        roles = np.where(labelled_targets(problem), Role.CLAMPED, problem.roles).astype(np.int8)
        query = replace(problem, roles=roles, queries=unlabelled).with_unlabelled()
        inferred = learned.configure(self.backend).infer(query, learned.vectors)
        is_confident = np.maximum.reduceat(inferred.marginals, inferred.state_start[:-1]) >= self.threshold
        is_confident &= unlabelled[inferred.variables]
        chosen, states = inferred.variables[is_confident], problem.states.copy()
        states[unlabelled] = -1
        states[chosen] = inferred.modes()[is_confident]
        roles = problem.roles.copy()
        roles[chosen] = Role.FREE
        return replace(problem, roles=roles, states=states)


def labelled_targets(problem: Problem) -> np.ndarray:
    """Return the mask of the free variables with a label, shape (n_variables,), bool."""
    return np.asarray((problem.roles == Role.FREE) & (problem.states >= 0))


class _RoundMonitor(Monitor):
    """A monitor that adds the number of the round to the name of each stage."""

    def __init__(self, monitor: Monitor, number: int) -> None:
        self._monitor, self._number = monitor, number

    def restore(self, stage: str, state_class: type[AnyState]) -> AnyState | None:
        return self._monitor.restore(f"{stage}_{self._number}", state_class)

    def step(self, stage: str, state: OptimiserState, max_iterations: int) -> None:
        self._monitor.step(f"{stage}_{self._number}", state, max_iterations)
