"""The dense model: all factors are active, as in relational Markov networks (RMNs) and Markov logic networks."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from relcrf.backends.base import AbstractLikelihoodSpec, FitResult, Monitor, Problem
from relcrf.backends.likelihood_backend import AbstractLikelihoodBackend
from relcrf.backends.piecewise import PiecewiseTraining
from relcrf.backends.pseudo import PseudoBackend, PseudoLikelihoodSpec
from relcrf.backends.whole_graph import PARTITION_METHODS, AbstractWholeGraphBackend

START_ACCURACY = 0.1
"""Tolerance of the maximum of the pseudo-likelihood from which learning starts, relative to the setting `tolerance`. The last
iterations provide the curvature along flat directions: with 1, the likelihood of 20,000 pages without labelled neighbours is
evaluated 33 times instead of 17 times, and an evaluation takes ten times as long as one of the pseudo-likelihood."""

MIN_COARSE_EDGES = 1 << 16
"""Minimum number of edges for which a stage with coarse propagation precedes the accurate one. On 100,000 pages without labelled
neighbours, belief propagation runs 90 rounds instead of 211; on small graphs, the stage would save less than a second."""


@dataclass(frozen=True)
class DenseBackend(AbstractLikelihoodBackend, AbstractWholeGraphBackend):
    """A model with all factors, trained by likelihood with any inference method, pseudo-likelihood, or in pieces.

    With loopy belief propagation, the likelihood is the Bethe likelihood of relational Markov networks (Taskar, Abbeel
    & Koller 2002). It has several maxima, because propagation has several fixed points: on 10,000 linked pages without
    labelled neighbours, learning from weights of 0 leads to one that predicts a single category for nearly all pages. If all
    variables are labelled, learning therefore starts at the maximum of the pseudo-likelihood.

    Args:
        seed: Seed of the initial weights if the model has latent attributes, and of the assignment of labels to folds.
        objective: `likelihood`, `pseudo` or `piecewise`. `piecewise` learns the weights of unary factors like backend
            `local`, then the weights of the other factors, each factor as a separate model. Two scales, one of the
            unary weights and one of the others, maximise the log-likelihood of held-out labels; the model of `local`
            is one of the choices. Use it for rules such as transitivity.
        folds: For `piecewise`: number of folds of the labels for the choice of the scales. A fold contains whole
            connected components unless one component contains more than half of the labels.
        inference: Name of a method that computes the log partition; see docs/explanation/inference.
        device: `cpu`, or `gpu` to compute the pseudo-likelihood and belief propagation on a CUDA GPU.

    Raises:
        UsageError: If `objective` or `inference` has an unknown value, `folds` is below 2, or `device` is `gpu` and the
            inference method cannot use a GPU.
    """

    name: ClassVar[str] = "dense"
    learning_arrays: ClassVar[tuple[float, float]] = (9, 4)
    inference_arrays: ClassVar[tuple[float, float]] = (10, 10)
    method_settings: ClassVar[tuple[str, ...]] = ("device",)
    seed: int = 0
    objective: str = "likelihood"
    folds: int = 5
    inference: str = "bp"
    device: str = "cpu"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_one_of("objective", ("likelihood", "pseudo", "piecewise"))
        self._require_one_of("inference", PARTITION_METHODS)
        self._require_device(self.device)
        if self.unlabelled == "marginal" and self.objective != "likelihood":
            self._reject_setting("unlabelled", "use --set objective=likelihood; other objectives do not sum out states")
        if self.folds < 2:
            self._reject_setting("folds", "use a number of at least 2")

    @property
    def separate_tables_per_variable(self) -> float:
        return math.inf if self.objective == "piecewise" else super().separate_tables_per_variable

    @property
    def unshardable_reason(self) -> str:
        if self.objective == "piecewise":
            return "objective=piecewise holds out folds of the whole graph"
        return super().unshardable_reason

    def fit_labels(self, problem: Problem, monitor: Monitor) -> FitResult:
        if self.objective == "pseudo":
            return replace(self.as_backend(PseudoBackend), device=self.device).fit_labels(problem, monitor)
        spec = self.joint_likelihood(problem, {})
        if self.objective == "piecewise":
            self._require_labels(problem, "piecewise training needs every variable's state", "use --backend ess")
            self._require_unsharded(problem)
            return PiecewiseTraining(self, spec, self.folds, self.seed).fit(problem, monitor)
        whole, sizes = problem.total_likelihood(spec), ("variables", "edges")
        if problem.latent.any():
            return self.fit_weights(whole, partial(problem.initial_weights, self.seed), monitor, *sizes)
        conditionals = problem.total_likelihood(PseudoLikelihoodSpec(self.device))
        accurate, initial = replace(self, tolerance=START_ACCURACY * self.tolerance), problem.graph.layout.initial
        pseudo = accurate.maximise("pseudo", conditionals, initial, monitor, keep_memory=True)
        coarse = None
        if self.inference == "bp" and whole.sizes()[1] >= MIN_COARSE_EDGES:
            # The likelihood of a shard, with its messages, may be discarded between two evaluations.
            objective = replace(whole, is_coarse=True, near=None if problem.is_sharded else pseudo.point)
            found = self.maximise("coarse", objective, pseudo.point.copy, monitor, pseudo, keep_memory=True)
            coarse = found if found.status == "converged" else None
        learned = self.fit_weights(whole, pseudo.point.copy, monitor, *sizes, previous=pseudo, coarse=coarse)
        if pseudo.gradient_norm <= self.tolerance * pseudo.initial_gradient_norm:
            pseudo = replace(pseudo, status="converged")
        earlier = {"pseudo": pseudo} if coarse is None else {"pseudo": pseudo, "coarse": coarse}
        stages = ((name, replace(state, steps=(), changes=())) for name, state in earlier.items())
        return replace(learned, stages=(*stages, *learned.stages))

    def training_likelihood(self, problem: Problem, vectors: dict[str, np.ndarray]) -> AbstractLikelihoodSpec | None:
        if self.objective == "pseudo":
            return PseudoLikelihoodSpec(self.device)
        exact = self.objective == "likelihood" and self.inference in ("enumeration", "forest", "jt")
        return self.joint_likelihood(problem, vectors) if exact else None
