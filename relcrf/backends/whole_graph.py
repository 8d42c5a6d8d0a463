"""All factors at once, by a method of inference with a name."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from relcrf.backends.answering import Answering
from relcrf.backends.base import AbstractBackend, AbstractPart, Inferred, Problem, infer_by
from relcrf.errors import Diagnostic, UsageError
from relcrf.graph.reduction import ReducedGraph, reduce_graph
from relcrf.graph.scopes import Potentials, Scopes
from relcrf.inference.choice import METHODS, make, settings_of
from relcrf.inference.result import AbstractInference, MapStates, Marginals, Observer, Unanswerable, silent
from relcrf.learning.likelihood import InferredLikelihood

MAX_CELLS = 1 << 27
"""Cells of all factor tables together: a gigabyte."""

WITH_MARGINALS = tuple(name for name in METHODS if name != "dual")
"""Methods that give marginals."""

WITH_PARTITION = tuple(name for name in WITH_MARGINALS if name != "gibbs")
"""Methods that give a log partition besides, or an estimate of it."""


@dataclass(frozen=True)
class WholeGraph(AbstractPart):
    """The graph of the free variables with all its factors.

    Args:
        backend: whose name messages tell.
        inference: the method's name.
        settings: of it, by name; what it does not have is left out.
    """

    backend: str
    inference: str
    settings: tuple[tuple[str, Any], ...] = ()

    def method(self, scopes: Scopes, observe: Observer = silent) -> AbstractInference:
        known = settings_of(METHODS[self.inference])
        made = make(self.inference, scopes, {n: value for n, value in self.settings if n in known}, observe)
        return _Told(scopes, made, self)

    def graph(self, problem: Problem) -> ReducedGraph:
        graph = reduce_graph(problem.graph, problem.roles, problem.states)
        if graph.scopes.table_start[-1] > MAX_CELLS:
            message = f"backend '{self.backend}' would need factor tables of more than {MAX_CELLS} cells"
            hint = "narrow the 'where' of the largest template, or use --backend ess"
            raise UsageError(Diagnostic("E308", message, hint=hint))
        return graph

    def likelihood(self, problem: Problem) -> InferredLikelihood:
        graph = self.graph(problem)
        return InferredLikelihood(graph, problem.states[graph.variables], self.method)

    def answering(self, problem: Problem, weights: np.ndarray, observe: Observer = silent) -> Answering:
        """Return what `infer` answers from."""
        graph = self.graph(problem).with_agreements()
        return Answering(graph, weights, partial(self.method, observe=observe), is_expected=self.inference == "mf")


class AbstractWholeGraphBackend(AbstractBackend):
    """A backend that infers on the whole graph, by the method that its setting `inference` names."""

    method_settings: ClassVar[tuple[str, ...]] = ()
    """Names of its settings that are those of the method, too."""
    inference: str

    def joint(self, problem: Problem, vectors: dict[str, np.ndarray]) -> WholeGraph:
        settings = tuple((name, getattr(self, name)) for name in self.method_settings)
        return WholeGraph(self.name, self.inference, settings)

    def answers_from(self, problem: Problem, vectors: dict[str, np.ndarray]) -> tuple[Answering, ...]:
        return (self.joint(problem, vectors).answering(problem, vectors["weights"]),)

    def infer(self, problem: Problem, vectors: dict[str, np.ndarray], observe: Observer = silent) -> Inferred:
        return infer_by(self.joint(problem, vectors).answering(problem, vectors["weights"], observe))


@dataclass(frozen=True)
class _Told(AbstractInference):
    """A method that says what it cannot do as a user's mistake."""

    scopes: Scopes
    method: AbstractInference
    part: WholeGraph

    def marginals(self, potentials: Potentials) -> Marginals:
        try:
            return self.method.marginals(potentials)
        except Unanswerable as error:
            raise self._told(error) from None

    def map_states(self, potentials: Potentials) -> MapStates:
        try:
            return self.method.map_states(potentials)
        except Unanswerable as error:
            raise self._told(error) from None

    def _told(self, error: Unanswerable) -> UsageError:
        message = f"backend '{self.part.backend}' cannot go by method '{self.part.inference}' here: {error}"
        return UsageError(Diagnostic("E381", message, hint="use --set inference=bp, or auto"))
