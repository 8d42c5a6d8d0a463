"""Pseudo-likelihood, and approximate inference: for factors of any size, such as transitivity.

Source: Besag, Statistical analysis of non-lattice data (1975); in relational models, Richardson & Domingos (2006).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from relcrf.backends.base import AbstractBackend, AbstractPart, Inferred, Learned, Monitor, Problem, maximise_likelihood
from relcrf.errors import Diagnostic, UsageError, listing
from relcrf.graph.blanket import blanket_graph
from relcrf.graph.reduction import ReducedGraph, Role, reduce_graph
from relcrf.graph.scopes import Scopes
from relcrf.inference.choice import METHODS, make, settings_of
from relcrf.inference.clique_tree import CliqueTooLarge
from relcrf.inference.result import AbstractInference, Observer, silent
from relcrf.learning.lbfgs import Lbfgs
from relcrf.learning.likelihood import ForestLikelihood

MAX_CELLS = 1 << 27
"""Cells of all factor tables together: a gigabyte."""

INFERENCE = tuple(name for name in METHODS if name != "dual")


@dataclass(frozen=True)
class Blankets(AbstractPart):
    """Each variable given the labels of its neighbours."""

    def likelihood(self, problem: Problem) -> ForestLikelihood:
        graph = blanket_graph(problem.graph, problem.roles, problem.states)
        return ForestLikelihood.of(graph, problem.states[graph.variables])


@dataclass(frozen=True)
class PseudoBackend(AbstractBackend):
    """Learns each variable given the labels of its neighbours, and infers by sampling or by mean field.

    Unlabelled variables take no part in learning, nor does a factor that touches one.

    Args:
        l2, max_iterations, tolerance: see `EssBackend`.
        inference: a method that has marginals, by name; see docs/inference.
        sweeps, chains, seed: of methods that have such settings.

    Raises:
        UsageError: for any other inference.
    """

    name: ClassVar[str] = "pseudo"
    l2: float = 1.0
    max_iterations: int = 200
    tolerance: float = 1e-5
    inference: str = "auto"
    sweeps: int = 200
    chains: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        if self.inference not in INFERENCE:
            message = f"setting 'inference' of backend 'pseudo' cannot be '{self.inference}'"
            raise UsageError(Diagnostic("E305", message, hint=f"it takes {listing(INFERENCE)}"))

    def fit(self, problem: Problem, monitor: Monitor) -> Learned:
        if ((problem.roles == Role.FREE) & (problem.states < 0)).any():
            message = "backend 'pseudo' cannot learn latent attributes: it needs every neighbour's state"
            raise UsageError(Diagnostic("E307", message, hint="use --backend ess"))
        blankets, layout = problem.sum_of(Blankets()), problem.graph.layout
        optimiser = Lbfgs(self.tolerance, max_iterations=self.max_iterations)
        weights = maximise_likelihood("weights", layout, blankets, optimiser, self.l2, layout.initial, monitor)
        return Learned({"weights": weights.point}, (("weights", weights),), {"variables": blankets.sizes()[0]})

    def infer(self, problem: Problem, vectors: dict[str, np.ndarray], observe: Observer = silent) -> Inferred:
        graph = reduce_graph(problem.graph, problem.roles, problem.states)
        if graph.scopes.table_start[-1] > MAX_CELLS:
            message = f"backend 'pseudo' would need factor tables of more than {MAX_CELLS} cells"
            hint = "narrow the 'where' of the largest template, or use --backend ess"
            raise UsageError(Diagnostic("E308", message, hint=hint))
        graph = graph.with_agreements()
        inference, potentials = self._method(graph.scopes, observe), graph.potentials(vectors["weights"])
        try:
            found = inference.marginals(potentials)
            interrupted = found.verdict.status == "interrupted"
            states = _modes(graph, found.nodes) if interrupted else inference.map_states(potentials).states
        except CliqueTooLarge as error:
            message = f"backend 'pseudo' cannot infer here by '{self.inference}': {error}"
            raise UsageError(Diagnostic("E308", message, hint="use --set inference=auto, bp or gibbs")) from None
        return Inferred(
            variables=graph.variables,
            state_start=graph.state_start,
            marginals=found.nodes,
            map_states=states,
            edges=graph.variables[graph.edges],
            log_partition=found.log_partition,
            verdict=found.verdict,
        )

    def _method(self, scopes: Scopes, observe: Observer) -> AbstractInference:
        known = settings_of(METHODS[self.inference])
        settings: dict[str, Any] = {n: getattr(self, n) for n in ("sweeps", "chains", "seed") if n in known}
        return make(self.inference, scopes, settings, observe)


def _modes(graph: ReducedGraph, marginals: np.ndarray) -> np.ndarray:
    """The most probable state of each node alone, shape (n_nodes,), int32."""
    states = np.empty(graph.n_nodes, dtype=np.int32)
    for k in np.unique(graph.cardinality):
        nodes = np.flatnonzero(graph.cardinality == k)
        states[nodes] = marginals[graph.state_start[nodes, None] + np.arange(k)].argmax(axis=1)
    return states
