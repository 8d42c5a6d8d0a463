"""Pseudo-likelihood with approximate inference, for factors over any number of variables, such as transitivity rules.

Source: Besag, Statistical analysis of non-lattice data (1975); in relational models, Richardson & Domingos (2006).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from relcrf.backends.absent_links import absent_links, measure_assortativity
from relcrf.backends.base import AbstractLikelihoodSpec, FitResult, Monitor, Problem
from relcrf.backends.exact import UnaryLikelihoodSpec
from relcrf.backends.inference_result import InferenceResult, run_inference
from relcrf.backends.inference_task import InferenceTask
from relcrf.backends.likelihood_backend import AbstractLikelihoodBackend, learn_unary
from relcrf.backends.propagation import IndependentMarginalsSpec, training_labels
from relcrf.backends.whole_graph import MARGINAL_METHODS, AbstractWholeGraphBackend, WholeGraphSpec
from relcrf.graph.blanket import blanket_graph
from relcrf.graph.reduction import ReducedGraph
from relcrf.graph.scopes import Scopes
from relcrf.inference.result import AbstractInference, Observer, ignore_progress
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
        balanced: Whether predictions include the evidence of absent links (see
            docs/explanation/inference/belief_propagation.md), for graphs in which few labels are known: the sizes of the
            classes then stay near those that backend `local` predicts. Use it with `inference=bp`.
        assortativity: Tendency of links to join equal classes, up to 1, for `balanced`; 0 measures it on the labels.
        population: Number of variables of a graph of which a graph with few unlabelled variables is a part, for `balanced`; 0
            selects the number of labels in training.

    Raises:
        UsageError: If `inference` has an unknown value, `sweeps` or `chains` is 0 for `gibbs`, `device` is `gpu` and the
            inference method cannot use a GPU, or `balanced` is used with another method than `bp`, or with a GPU.
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
    balanced: bool = False
    assortativity: float = 0.0
    population: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_one_of("inference", MARGINAL_METHODS)
        self._require_device(self.device)
        if self.inference == "gibbs":
            self._require_positive("sweeps", "chains")
        if self.balanced and self.inference != "bp":
            self._reject_setting("inference", "use --set inference=bp, which balanced=true requires")
        if self.balanced and self.device != "cpu":
            self._reject_setting("device", "use --device cpu, which balanced=true requires")
        if not 0.0 <= self.assortativity <= 1.0:
            self._reject_setting("assortativity", "use a number from 0 to 1")

    @property
    def unshardable_reason(self) -> str:
        return "the sizes of classes depend on the whole graph (balanced=True)" if self.balanced else ""

    @property
    def labels_separate(self) -> bool:
        return not self.balanced

    def fit_labels(self, problem: Problem, monitor: Monitor) -> FitResult:
        self._require_labels(problem, "pseudo-likelihood needs every neighbour's state", "use --backend ess")
        learned = self.fit_weights(
            problem.total_likelihood(PseudoLikelihoodSpec(self.device)),
            problem.graph.layout.initial,
            monitor,
            "variables",
        )
        if not self.balanced:
            return learned
        self._require_unsharded(problem)
        unary = learn_unary(problem, self.name, self._likelihood_optimiser, self.l2, monitor)
        chosen: dict[str, float | int | str] = {
            "assortativity": self.assortativity or measure_assortativity(problem),
            "population": self.population or int((training_labels(problem) >= 0).sum()),
        }
        return replace(
            learned,
            vectors={**learned.vectors, "unary": unary.vectors["weights"]},
            stages=(*unary.stages, *learned.stages),
            settings=chosen,
            summary={**learned.summary, **chosen},
        )

    def infer(
        self, problem: Problem, vectors: dict[str, np.ndarray], observe: Observer = ignore_progress
    ) -> InferenceResult:
        if not self.balanced:
            return super().infer(problem, vectors, observe)
        return replace(run_inference(self._balanced_task(problem, vectors, observe)), find_joint_states=None)

    def inference_tasks(self, problem: Problem, vectors: dict[str, np.ndarray]) -> tuple[InferenceTask, ...]:
        return (self._balanced_task(problem, vectors),) if self.balanced else super().inference_tasks(problem, vectors)

    def _balanced_task(
        self, problem: Problem, vectors: dict[str, np.ndarray], observe: Observer = ignore_progress
    ) -> InferenceTask:
        """Return the inference task with the potentials of absent links; parts of the graph have none."""
        self._require_unsharded(problem)
        local = run_inference(UnaryLikelihoodSpec(self.name).inference_task(problem, vectors["unary"]))
        balance = absent_links(problem, local.marginals, self.assortativity, self.population)
        spec = WholeGraphSpec(self.name, self.inference)
        task = spec.inference_task(problem, vectors["weights"], observe)

        def method(scopes: Scopes) -> AbstractInference:
            is_whole = scopes.n_nodes == task.graph.n_nodes
            return spec.balanced_method(scopes, balance, observe) if is_whole else task.method(scopes)

        return replace(task, method=method)

    def joint_likelihood(self, problem: Problem, vectors: dict[str, np.ndarray]) -> AbstractLikelihoodSpec:  # type: ignore[override]
        if not self.balanced:
            return super().joint_likelihood(problem, vectors)
        others = {name: problem.share_vector(vector) for name, vector in vectors.items() if name != "weights"}
        return IndependentMarginalsSpec(self, tuple(others.items()))

    def training_likelihood(self, problem: Problem, vectors: dict[str, np.ndarray]) -> PseudoLikelihoodSpec:
        return PseudoLikelihoodSpec(self.device)
