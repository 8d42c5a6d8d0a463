"""Every variable alone: the factors that join unknown variables are left out. The baseline of all relational models."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from relcrf.backends.answering import Answering
from relcrf.backends.base import (
    AbstractBackend,
    AbstractPart,
    Inferred,
    Learned,
    Monitor,
    Problem,
    maximise_likelihood,
    moments_at,
)
from relcrf.backends.exact import exact_method, infer_exactly
from relcrf.graph.factor_graph import FactorGraph
from relcrf.graph.reduction import ReducedGraph
from relcrf.inference.result import Observer, silent
from relcrf.learning.lbfgs import Lbfgs
from relcrf.learning.likelihood import ForestLikelihood


@dataclass(frozen=True)
class LocalBackend(AbstractBackend):
    """Multinomial logistic regression on the unary templates, by exact maximum likelihood.

    Relations play no part, not even those to labelled neighbours. For the settings see `EssBackend`.
    """

    name: ClassVar[str] = "local"
    l2: float = 1.0
    max_iterations: int = 200
    tolerance: float = 1e-5
    seed: int = 0

    def fit(self, problem: Problem, monitor: Monitor) -> Learned:
        optimiser = Lbfgs(self.tolerance, max_iterations=self.max_iterations)
        alone, layout = problem.sum_of(Unary(self.name)), problem.graph.layout
        weights = maximise_likelihood(
            "weights", layout, alone, optimiser, self.l2, lambda: problem.start(self.seed), monitor
        )
        return Learned(
            {"weights": weights.point},
            (("weights", weights),),
            {"variables": alone.sizes()[0]},
            moments=moments_at(alone, layout, weights, self.l2),
        )

    def joint(self, problem: Problem, vectors: dict[str, np.ndarray]) -> Unary:
        return Unary(self.name)

    def answers_from(self, problem: Problem, vectors: dict[str, np.ndarray]) -> tuple[Answering, ...]:
        return (Answering(_unary(problem, self.name), vectors["weights"], exact_method(1)),)

    def maximised(self, problem: Problem, vectors: dict[str, np.ndarray]) -> Unary:
        return Unary(self.name)

    def infer(self, problem: Problem, vectors: dict[str, np.ndarray], observe: Observer = silent) -> Inferred:
        return infer_exactly(_unary(problem, self.name), vectors["weights"])


@dataclass(frozen=True)
class Unary(AbstractPart):
    """Each variable by the factors that it has for itself."""

    backend: str

    def likelihood(self, problem: Problem) -> ForestLikelihood:
        graph = _unary(problem, self.backend)
        return ForestLikelihood.of(graph, problem.states[graph.variables])


def _unary(problem: Problem, backend: str) -> ReducedGraph:
    graph = problem.graph
    unary = tuple(group for group in graph.groups if len(group.scope) == 1)
    return replace(problem, graph=FactorGraph(graph.cardinality, unary, graph.layout)).reduced(backend)
