"""Independent variables, without factors over several variables; the baseline of all relational models."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from relcrf.backends.base import FitResult, Monitor, Problem
from relcrf.backends.exact import UnaryLikelihoodSpec
from relcrf.backends.inference_task import InferenceTask
from relcrf.backends.likelihood_backend import AbstractLikelihoodBackend
from relcrf.graph.reduction import ReducedGraph


@dataclass(frozen=True)
class LocalBackend(AbstractLikelihoodBackend):
    """Multinomial logistic regression on the unary templates, by exact maximum likelihood.

    Factors over several variables are ignored, including factors with labelled neighbours. For the other settings, see
    `AbstractLikelihoodBackend`.

    Args:
        seed: Seed of the initial weights if the model has latent attributes.
    """

    name: ClassVar[str] = "local"
    learning_arrays: ClassVar[tuple[float, float]] = (2, 0.5)
    inference_arrays: ClassVar[tuple[float, float]] = (4, 0.5)
    can_sum_out: ClassVar[bool] = False
    seed: int = 0

    def fit_labels(self, problem: Problem, monitor: Monitor) -> FitResult:
        unary = problem.total_likelihood(UnaryLikelihoodSpec(self.name))
        return self.fit_weights(unary, partial(problem.initial_weights, self.seed), monitor, "variables")

    def joint_likelihood(self, problem: Problem, vectors: dict[str, np.ndarray]) -> UnaryLikelihoodSpec:
        return UnaryLikelihoodSpec(self.name)

    def conditional_graph(self, problem: Problem) -> ReducedGraph:
        return UnaryLikelihoodSpec(self.name).graph(problem)

    def inference_tasks(self, problem: Problem, vectors: dict[str, np.ndarray]) -> tuple[InferenceTask, ...]:
        return (self.joint_likelihood(problem, vectors).inference_task(problem, vectors["weights"]),)

    def training_likelihood(self, problem: Problem, vectors: dict[str, np.ndarray]) -> UnaryLikelihoodSpec:
        return UnaryLikelihoodSpec(self.name)
