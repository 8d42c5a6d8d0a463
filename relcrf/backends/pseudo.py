"""Pseudo-likelihood and Gibbs sampling: for factors of any size, such as transitivity.

Source: Besag, Statistical analysis of non-lattice data (1975); in relational models, Richardson & Domingos (2006).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relcrf.backends.base import AbstractBackend, AbstractPart, Inferred, Learned, Monitor, Problem, maximise_likelihood
from relcrf.errors import Diagnostic, UsageError
from relcrf.graph.blanket import blanket_graph
from relcrf.graph.reduction import Role
from relcrf.inference.gibbs import GibbsSampler
from relcrf.learning.lbfgs import Lbfgs
from relcrf.learning.likelihood import ForestLikelihood


@dataclass(frozen=True)
class Blankets(AbstractPart):
    """Each variable given the labels of its neighbours."""

    def likelihood(self, problem: Problem) -> ForestLikelihood:
        graph = blanket_graph(problem.graph, problem.roles, problem.states)
        return ForestLikelihood.of(graph, problem.states[graph.variables])


@dataclass(frozen=True)
class PseudoBackend(AbstractBackend):
    """Learns each variable given the labels of its neighbours, and infers by sampling.

    Unlabelled variables take no part in learning, nor does a factor that touches one.

    Args:
        l2, max_iterations, tolerance: see `EssBackend`.
        sweeps, chains, seed: of the sampler, see `GibbsSampler`.
    """

    name: ClassVar[str] = "pseudo"
    l2: float = 1.0
    max_iterations: int = 200
    tolerance: float = 1e-5
    sweeps: int = 200
    chains: int = 4
    seed: int = 0

    def fit(self, problem: Problem, monitor: Monitor) -> Learned:
        if ((problem.roles == Role.FREE) & (problem.states < 0)).any():
            message = "backend 'pseudo' cannot learn latent attributes: it needs every neighbour's state"
            raise UsageError(Diagnostic("E307", message, hint="use --backend ess"))
        blankets, layout = problem.sum_of(Blankets()), problem.graph.layout
        optimiser = Lbfgs(self.tolerance, max_iterations=self.max_iterations)
        weights = maximise_likelihood("weights", layout, blankets, optimiser, self.l2, layout.initial, monitor)
        return Learned({"weights": weights.point}, (("weights", weights),), {"variables": blankets.sizes()[0]})

    def infer(self, problem: Problem, vectors: dict[str, np.ndarray]) -> Inferred:
        sampler = GibbsSampler(
            problem.graph, problem.roles, problem.states, sweeps=self.sweeps, chains=self.chains, seed=self.seed
        )
        try:
            marginals, states, verdict = sampler.run(vectors["weights"])
        except ValueError as error:
            hint = "leave 'by' and 'per' of the largest template out, or use --backend ess"
            raise UsageError(
                Diagnostic("E308", f"backend 'pseudo' would need too much memory: {error}", hint=hint)
            ) from None
        nodes = sampler.nodes
        return Inferred(
            nodes.variables, nodes.state_start, marginals, states, nodes.variables[nodes.edges], float("nan"), verdict
        )
