"""Semi-supervised learning: training targets for unlabelled variables from the predictions of the model itself.

Source: Yarowsky (1995), Unsupervised word sense disambiguation rivaling supervised methods (self-training with a
threshold); Qu, Bengio & Tang (2019), GMNN: Graph Markov Neural Networks (a second model that sees only evidence); Li, Han &
Wu (2018), Deeper insights into graph convolutional networks (the most certain predictions of each class).
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

    In each round, the model predicts the unlabelled variables given all labels, and the most certain predictions are
    targets of the next model. Targets add no independent evidence, so the penalties grow with the number of targets: the
    ratio of the penalty to the data remains that of the labels.

    Args:
        backend: The backend that predicts.
        learn: A function that learns from the labels of the free variables. The number is the factor of the penalties.
        threshold: Minimum probability of a target if `fraction` is 0.
        fraction: Fraction of the unlabelled variables that are targets after the last round; see `_quotas`.
        rounds: Maximum number of rounds.
        unary_only: Whether `learn` returns weights of factors over one variable only; the other weights are then those
            of the labels alone. Targets that a model predicted along links overstate the agreement of linked variables.
    """

    backend: AbstractBackend
    learn: Callable[[Problem, Monitor, float], FitResult]
    threshold: float
    fraction: float
    rounds: int
    unary_only: bool

    def run(self, problem: Problem, learned: FitResult, monitor: Monitor) -> FitResult:
        """Return the result after all rounds; `learned` itself if there are no unlabelled or no labelled variables.

        Args:
            learned: The result of learning from the labels alone.
        """
        n_rounds, n_labels = 0, int(labelled_targets(problem).sum())
        if not problem.unlabelled.any() or not n_labels:
            return learned
        targets = replace(problem, states=np.where(problem.unlabelled, -1, problem.states))
        while n_rounds < self.rounds:
            previous, targets = targets.states, self._add_targets(problem, learned, n_rounds + 1)
            if not self.fraction and np.array_equal(targets.states, previous):
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

    def _add_targets(self, problem: Problem, learned: FitResult, number: int) -> Problem:
        """Return the problem with certain predictions as labels of unlabelled variables, which become free.

        Args:
            number: Number of the round, from 1.
        """
        unlabelled = problem.unlabelled
        roles = np.where(labelled_targets(problem), Role.CLAMPED, problem.roles).astype(np.int8)
        query = replace(problem, roles=roles, queries=unlabelled).with_unlabelled()
        inferred = learned.configure(self.backend).infer(query, learned.vectors)
        inferred.verdict.raise_if_interrupted()
        found = np.flatnonzero(unlabelled[inferred.variables])
        variables, modes = inferred.variables[found], inferred.modes()[found]
        certainty = np.maximum.reduceat(inferred.marginals, inferred.state_start[:-1])[found]
        if self.fraction:
            strata = _strata(problem, variables, modes)
            is_target = _ranks(strata, -certainty) < self._quotas(problem, number)[strata]
        else:
            is_target = certainty >= self.threshold
        states, roles = np.where(unlabelled, -1, problem.states), problem.roles.copy()
        states[variables[is_target]] = modes[is_target]
        roles[variables[is_target]] = Role.FREE
        return replace(problem, roles=roles, states=states)

    def _quotas(self, problem: Problem, number: int) -> np.ndarray:
        """Return the number of targets of each stratum, shape (n_domains * n_states,).

        In each domain, the number of targets grows by the same factor in each round, from the number of labels to
        `fraction` of the unlabelled variables. It is divided among the states in proportion to their numbers of labels,
        because predictions in proportion to their certainty would soon all have the same state.
        """
        domains, is_label = problem.graph.domains, labelled_targets(problem)
        n_states = max(domains.sizes, default=0)
        strata = _strata(problem, np.flatnonzero(is_label), problem.states[is_label])
        labels = np.bincount(strata, minlength=len(domains.sizes) * n_states).reshape(-1, n_states)
        n_labels = labels.sum(axis=1, keepdims=True)
        last = self.fraction * np.bincount(domains.number[problem.unlabelled], minlength=len(domains.sizes))[:, None]
        growth = np.maximum(last / np.maximum(n_labels, 1), 1.0) ** (number / self.rounds)
        return np.asarray(np.ceil(np.minimum(growth * n_labels, last) * labels / np.maximum(n_labels, 1)).ravel())


def _strata(problem: Problem, variables: np.ndarray, states: np.ndarray) -> np.ndarray:
    """Return a number for each variable that identifies its domain and its state."""
    domains = problem.graph.domains
    return np.asarray(domains.number[variables] * max(domains.sizes, default=0) + states)


def _ranks(strata: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Return the rank of each entry among the entries of its stratum, from 0, in ascending order of `keys`."""
    order = np.lexsort((keys, strata))
    ordered = strata[order]
    first = np.searchsorted(ordered, ordered)
    found = np.empty(len(strata), dtype=np.int64)
    found[order] = np.arange(len(strata)) - first
    return found


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
