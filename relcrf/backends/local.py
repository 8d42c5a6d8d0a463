"""Every variable alone: the factors that join unknown variables are left out. The baseline of all relational models."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from relcrf.backends.answering import Answering
from relcrf.backends.base import AbstractLikelihoodBackend, Learned, Monitor, Problem
from relcrf.backends.exact import AbstractForestPart
from relcrf.graph.factor_graph import FactorGraph
from relcrf.graph.reduction import ReducedGraph


@dataclass(frozen=True)
class LocalBackend(AbstractLikelihoodBackend):
    """Multinomial logistic regression on the unary templates, by exact maximum likelihood.

    Relations play no part, not even those to labelled neighbours. For the settings see `AbstractLikelihoodBackend`.
    """

    name: ClassVar[str] = "local"
    seed: int = 0

    def fit(self, problem: Problem, monitor: Monitor) -> Learned:
        unary = problem.sum_of(Unary(self.name))
        return self.fit_part(unary, partial(problem.start, self.seed), monitor, "variables")

    def joint(self, problem: Problem, vectors: dict[str, np.ndarray]) -> Unary:
        return Unary(self.name)

    def answers_from(self, problem: Problem, vectors: dict[str, np.ndarray]) -> tuple[Answering, ...]:
        return (self.joint(problem, vectors).answering(problem, vectors["weights"]),)

    def maximised(self, problem: Problem, vectors: dict[str, np.ndarray]) -> Unary:
        return Unary(self.name)


@dataclass(frozen=True)
class Unary(AbstractForestPart):
    """Each variable by the factors that it has for itself."""

    backend: str

    def graph(self, problem: Problem) -> ReducedGraph:
        graph = problem.graph
        unary = tuple(group for group in graph.groups if len(group.scope) == 1)
        return replace(problem, graph=FactorGraph(graph.cardinality, unary, graph.layout)).reduced(self.backend)
