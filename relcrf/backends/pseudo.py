"""Pseudo-likelihood with approximate inference, for factors over any number of variables, such as transitivity rules.

Source: Besag, Statistical analysis of non-lattice data (1975); in relational models, Richardson & Domingos (2006).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relcrf.backends.base import AbstractLikelihoodSpec, FitResult, Monitor, Problem
from relcrf.backends.likelihood_backend import AbstractLikelihoodBackend
from relcrf.backends.whole_graph import MARGINAL_METHODS, AbstractWholeGraphBackend
from relcrf.graph.blanket import blanket_graph
from relcrf.graph.reduction import ReducedGraph
from relcrf.learning.conditional_likelihood import GpuConditionalLikelihood
from relcrf.learning.counted_terms import conditional_likelihood
from relcrf.learning.likelihood import AbstractJointLikelihood


@dataclass(frozen=True)
class PseudoLikelihoodSpec(AbstractLikelihoodSpec):
    """A specification of the pseudo-likelihood: each variable is conditioned on its neighbours' labels.

    Args:
        device: Device that computes the value and the gradient, `cpu` or `gpu`.
    """

    device: str = "cpu"

    def likelihood(self, problem: Problem) -> AbstractJointLikelihood:
        graph = self.conditional_graph(problem)
        if self.device == "gpu":
            return GpuConditionalLikelihood(graph, problem.states[graph.variables])
        return conditional_likelihood(graph, problem.states[graph.variables])

    def conditional_graph(self, problem: Problem) -> ReducedGraph:
        return blanket_graph(problem.graph, problem.roles, problem.states)


@dataclass(frozen=True)
class PseudoBackend(AbstractLikelihoodBackend, AbstractWholeGraphBackend):
    """Pseudo-likelihood of each variable given its neighbours' labels, with inference by sampling or by mean field.

    Training omits unlabelled variables and all factors over unlabelled variables.

    Args:
        inference: Name of a method that computes marginals; see docs/explanation/inference.
        sweeps: Number of sweeps, for sampling methods.
        chains: Number of chains, for sampling methods.
        seed: Seed of sampling methods.
        device: `cpu`, or `gpu` to compute the pseudo-likelihood and belief propagation on a CUDA GPU.

    Raises:
        UsageError: If `inference` has an unknown value, or `device` is `gpu` and the inference method cannot use a GPU.
    """

    name: ClassVar[str] = "pseudo"
    learning_arrays: ClassVar[tuple[float, float]] = (2, 0.5)
    inference_arrays: ClassVar[tuple[float, float]] = (6, 10)
    method_settings: ClassVar[tuple[str, ...]] = ("sweeps", "chains", "seed", "device")
    can_sum_out: ClassVar[bool] = False
    inference: str = "auto"
    sweeps: int = 200
    chains: int = 4
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_one_of("inference", MARGINAL_METHODS)
        self._require_device(self.device)

    def fit_labels(self, problem: Problem, monitor: Monitor) -> FitResult:
        self._require_labels(problem, "pseudo-likelihood needs every neighbour's state", "use --backend ess")
        return self.fit_weights(
            problem.total_likelihood(PseudoLikelihoodSpec(self.device)),
            problem.graph.layout.initial,
            monitor,
            "variables",
        )

    def training_likelihood(self, problem: Problem, vectors: dict[str, np.ndarray]) -> PseudoLikelihoodSpec:
        return PseudoLikelihoodSpec(self.device)
