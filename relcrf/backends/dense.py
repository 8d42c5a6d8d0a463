"""The dense model: every factor acts, and the log partition is an approximation; what RMN and MLN are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relcrf.backends.base import (
    AbstractPart,
    Learned,
    Monitor,
    Problem,
    maximise_likelihood,
    moments_at,
)
from relcrf.backends.pseudo import Blankets, PseudoBackend
from relcrf.backends.whole_graph import WITH_PARTITION, AbstractWholeGraphBackend, WholeGraph
from relcrf.learning.lbfgs import Lbfgs


@dataclass(frozen=True)
class DenseBackend(AbstractWholeGraphBackend):
    """Maximum likelihood with all edges, the log partition by a method of inference: with loopy belief propagation the Bethe
    likelihood of relational Markov networks (Taskar, Abbeel & Koller 2002). Or pseudo-likelihood, and then that method.

    Args:
        l2, max_iterations, tolerance, seed: see `EssBackend`.
        learn: `likelihood` or `pseudo`.
        inference: a method that has a log partition, by name; see docs/inference.

    Raises:
        UsageError: for any other.
    """

    name: ClassVar[str] = "dense"
    l2: float = 1.0
    max_iterations: int = 200
    tolerance: float = 1e-5
    seed: int = 0
    learn: str = "likelihood"
    inference: str = "bp"

    def __post_init__(self) -> None:
        self._require_one_of("learn", ("likelihood", "pseudo"))
        self._require_one_of("inference", WITH_PARTITION)

    def fit(self, problem: Problem, monitor: Monitor) -> Learned:
        if self.learn == "pseudo":
            return PseudoBackend(self.l2, self.max_iterations, self.tolerance).fit(problem, monitor)
        whole, layout = problem.sum_of(WholeGraph(self.name, self.inference)), problem.graph.layout
        optimiser = Lbfgs(self.tolerance, max_iterations=self.max_iterations)
        weights = maximise_likelihood(
            "weights", layout, whole, optimiser, self.l2, lambda: problem.start(self.seed), monitor
        )
        nodes, edges = whole.sizes()
        return Learned(
            {"weights": weights.point},
            (("weights", weights),),
            {"variables": nodes, "edges": edges},
            moments=moments_at(whole, layout, weights, self.l2),
        )

    def maximised(self, problem: Problem, vectors: dict[str, np.ndarray]) -> AbstractPart | None:
        if self.learn == "pseudo":
            return Blankets()
        exact = self.inference in ("enumeration", "forest", "jt")
        return self.joint(problem, vectors) if exact else None
