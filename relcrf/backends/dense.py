"""The dense model: every factor acts, and the log partition is an approximation; what RMN and MLN are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from relcrf.backends.base import (
    AbstractLikelihoodBackend,
    AbstractPart,
    Learned,
    Monitor,
    Problem,
)
from relcrf.backends.pseudo import Blankets, PseudoBackend
from relcrf.backends.whole_graph import WITH_PARTITION, AbstractWholeGraphBackend, WholeGraph


@dataclass(frozen=True)
class DenseBackend(AbstractLikelihoodBackend, AbstractWholeGraphBackend):
    """Maximum likelihood with all edges, the log partition by a method of inference: with loopy belief propagation the Bethe
    likelihood of relational Markov networks (Taskar, Abbeel & Koller 2002). Or pseudo-likelihood, and then that method.

    Args:
        seed: of the start where the model has latent attributes.
        learn: `likelihood` or `pseudo`.
        inference: a method that has a log partition, by name; see docs/inference.

    Raises:
        UsageError: for any other.
    """

    name: ClassVar[str] = "dense"
    seed: int = 0
    learn: str = "likelihood"
    inference: str = "bp"

    def __post_init__(self) -> None:
        self._require_one_of("learn", ("likelihood", "pseudo"))
        self._require_one_of("inference", WITH_PARTITION)

    def fit(self, problem: Problem, monitor: Monitor) -> Learned:
        if self.learn == "pseudo":
            return PseudoBackend(self.l2, self.max_iterations, self.tolerance).fit(problem, monitor)
        whole = problem.sum_of(WholeGraph(self.name, self.inference))
        return self.fit_part(whole, partial(problem.start, self.seed), monitor, "variables", "edges")

    def maximised(self, problem: Problem, vectors: dict[str, np.ndarray]) -> AbstractPart | None:
        if self.learn == "pseudo":
            return Blankets()
        exact = self.inference in ("enumeration", "forest", "jt")
        return self.joint(problem, vectors) if exact else None
