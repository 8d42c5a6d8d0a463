"""ESS-CRF: for each evidence its own spanning forest; exact learning and inference on it.

Source: Chechetka & Guestrin, Evidence-Specific Structures for Rich Tractable CRFs (NIPS 2010).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relcrf.backends.base import (
    AbstractBackend,
    AbstractPart,
    Inferred,
    Learned,
    Monitor,
    Problem,
    Vector,
    maximise_likelihood,
)
from relcrf.graph.reduction import ReducedGraph
from relcrf.inference.forest import ForestInference
from relcrf.inference.result import Observer, silent
from relcrf.learning.lbfgs import Lbfgs
from relcrf.learning.likelihood import ForestLikelihood, PairLikelihood
from relcrf.structure.conditional_chow_liu import spanning_forest


@dataclass(frozen=True)
class Pairs(AbstractPart):
    """Each pair of variables that share a factor, as a model of its own."""

    backend: str

    def likelihood(self, problem: Problem) -> PairLikelihood:
        graph = problem.reduced(self.backend)
        return PairLikelihood(graph, problem.states[graph.variables])


@dataclass(frozen=True)
class OnForest(AbstractPart):
    """The spanning forest under structure weights."""

    backend: str
    structure: Vector

    def likelihood(self, problem: Problem) -> ForestLikelihood:
        graph = spanning_forest(problem.reduced(self.backend), self.structure.get())
        return ForestLikelihood.of(graph, problem.states[graph.variables])


@dataclass(frozen=True)
class EssBackend(AbstractBackend):
    """Three steps: structure weights u from pairs, a forest by conditional mutual information under u, then exact
    maximum likelihood of the weights w on that forest. At inference u gives the forest for the new evidence.

    Args:
        l2: penalty `l2 / 2 * w^2` on the sum of log-likelihoods, where a template does not set its own.
        max_iterations: of L-BFGS, in each of the two optimisations.
        tolerance: L-BFGS has converged when the gradient has fallen to this share of its start.
        seed: of the start where the model has latent attributes.
    """

    name: ClassVar[str] = "ess"
    l2: float = 1.0
    max_iterations: int = 200
    tolerance: float = 1e-5
    seed: int = 0

    def fit(self, problem: Problem, monitor: Monitor) -> Learned:
        layout, optimiser = problem.graph.layout, Lbfgs(self.tolerance, max_iterations=self.max_iterations)
        pairs = problem.sum_of(Pairs(self.name))
        structure = maximise_likelihood(
            "structure", layout, pairs, optimiser, self.l2, lambda: problem.start(self.seed), monitor
        )
        forest = problem.sum_of(OnForest(self.name, problem.share(structure.point)))
        weights = maximise_likelihood("weights", layout, forest, optimiser, self.l2, structure.point.copy, monitor)
        nodes, edges = pairs.sizes()
        return Learned(
            {"weights": weights.point, "structure": structure.point},
            (("structure", structure), ("weights", weights)),
            {"variables": nodes, "candidate_edges": edges, "forest_edges": forest.sizes()[1]},
        )

    def infer(self, problem: Problem, vectors: dict[str, np.ndarray], observe: Observer = silent) -> Inferred:
        forest = spanning_forest(problem.reduced(self.name), vectors["structure"])
        return infer_on_forest(forest, vectors["weights"])


def infer_on_forest(graph: ReducedGraph, weights: np.ndarray) -> Inferred:
    """Marginals and most probable states together."""
    inference, potentials = ForestInference(graph.scopes), graph.potentials(weights)
    found, best = inference.marginals(potentials), inference.map_states(potentials)
    edges = graph.variables[graph.edges]
    return Inferred(
        graph.variables, graph.state_start, found.nodes, best.states, edges, found.log_partition, found.verdict
    )
