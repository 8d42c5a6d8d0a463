"""The dense model: all factors are active, as in relational Markov networks (RMNs) and Markov logic networks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from relcrf.backends.base import (
    AbstractLikelihoodBackend,
    AbstractLikelihoodSpec,
    FitResult,
    Monitor,
    Problem,
)
from relcrf.backends.pseudo import PseudoBackend, PseudoLikelihoodSpec
from relcrf.backends.whole_graph import PARTITION_METHODS, AbstractWholeGraphBackend, WholeGraphSpec


@dataclass(frozen=True)
class DenseBackend(AbstractLikelihoodBackend, AbstractWholeGraphBackend):
    """A model with all factors, trained by pseudo-likelihood, or by maximum likelihood with any inference method.

    With loopy belief propagation, the likelihood is the Bethe likelihood of relational Markov networks (Taskar, Abbeel
    & Koller 2002).

    Args:
        seed: Seed of the initial weights if the model has latent attributes.
        objective: `likelihood` or `pseudo`.
        inference: Name of a method that computes the log partition; see docs/explanation/inference.

    Raises:
        UsageError: If `objective` or `inference` has an unknown value.
    """

    name: ClassVar[str] = "dense"
    seed: int = 0
    objective: str = "likelihood"
    inference: str = "bp"

    def __post_init__(self) -> None:
        self._require_one_of("objective", ("likelihood", "pseudo"))
        self._require_one_of("inference", PARTITION_METHODS)

    def fit(self, problem: Problem, monitor: Monitor) -> FitResult:
        if self.objective == "pseudo":
            return PseudoBackend(self.l2, self.max_iterations, self.tolerance, self.optimiser).fit(problem, monitor)
        whole = problem.total_likelihood(WholeGraphSpec(self.name, self.inference))
        return self.fit_weights(whole, partial(problem.initial_weights, self.seed), monitor, "variables", "edges")

    def training_likelihood(self, problem: Problem, vectors: dict[str, np.ndarray]) -> AbstractLikelihoodSpec | None:
        if self.objective == "pseudo":
            return PseudoLikelihoodSpec()
        exact = self.inference in ("enumeration", "forest", "jt")
        return self.joint_likelihood(problem, vectors) if exact else None
