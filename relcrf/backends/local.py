"""Every variable alone: the factors that join unknown variables are left out. The baseline of all relational models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relcrf.backends.base import AbstractBackend, Inferred, Learned, Monitor, Problem, maximise_likelihood
from relcrf.backends.ess import infer_on_forest
from relcrf.graph.factor_graph import FactorGraph
from relcrf.graph.reduction import ReducedGraph
from relcrf.inference.forest import ForestInference
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
        graph = self._reduced(problem)
        optimiser = Lbfgs(self.tolerance, max_iterations=self.max_iterations)
        likelihood = ForestLikelihood(graph, problem.states[graph.variables])
        weights = maximise_likelihood(
            "weights", likelihood, optimiser, self.l2, lambda: problem.start(self.seed), monitor
        )
        return Learned({"weights": weights.point}, (("weights", weights),), {"variables": graph.n_nodes})

    def infer(self, problem: Problem, vectors: dict[str, np.ndarray]) -> Inferred:
        return infer_on_forest(ForestInference(self._reduced(problem)), vectors["weights"])

    def _reduced(self, problem: Problem) -> ReducedGraph:
        graph = problem.graph
        unary = tuple(group for group in graph.groups if len(group.scope) == 1)
        alone = Problem(FactorGraph(graph.cardinality, unary, graph.layout), problem.roles, problem.states)
        return alone.reduced(self.name)
