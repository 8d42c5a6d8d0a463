"""Exact likelihoods and answers, on forests and on graphs of small treewidth."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from relcrf.backends.answering import Answering
from relcrf.backends.base import AbstractPart, Problem
from relcrf.errors import Diagnostic, UsageError
from relcrf.graph.reduction import ReducedGraph
from relcrf.graph.scopes import Scopes
from relcrf.inference.clique_tree import CliqueTooLarge
from relcrf.inference.forest import ForestInference
from relcrf.inference.junction_tree import JunctionTree
from relcrf.inference.result import AbstractInference
from relcrf.learning.likelihood import AbstractJointLikelihood, ForestLikelihood, InferredLikelihood

MEMORY = 1 << 32
"""Bytes that the tables of cliques may take."""


def exact_likelihood(
    graph: ReducedGraph, states: np.ndarray, known: np.ndarray | None = None, *, width: int = 1
) -> AbstractJointLikelihood:
    """The likelihood of states of shape (n_nodes,) where the graph has that treewidth. For the rest see there.

    Raises:
        UsageError: where the cliques are too large.
    """
    if width == 1:
        return ForestLikelihood.of(graph, states, known)
    return InferredLikelihood(graph, states, _junction_tree, known)


@dataclass(frozen=True)
class AbstractForestPart(AbstractPart):
    """A distribution on a forest: its likelihood and its answers are exact."""

    @abstractmethod
    def graph(self, problem: Problem) -> ReducedGraph:
        """Return the graph of the free variables, whose edges form a forest."""

    def likelihood(self, problem: Problem) -> AbstractJointLikelihood:
        graph = self.graph(problem)
        return ForestLikelihood.of(graph, problem.states[graph.variables])

    def answering(self, problem: Problem, weights: np.ndarray) -> Answering:
        """Return what a backend answers from."""
        return Answering(self.graph(problem), weights, exact_method(1))


def exact_method(width: int) -> Callable[[Scopes], AbstractInference]:
    """What answers exactly on graphs of a treewidth."""
    return ForestInference if width == 1 else _junction_tree


def _junction_tree(scopes: Scopes) -> AbstractInference:
    inference = JunctionTree(scopes, MEMORY)
    try:
        inference.cliques.require_memory()
    except CliqueTooLarge as error:
        message = f"the graph is too large for this width: {error}"
        raise UsageError(Diagnostic("E308", message, hint="use --set width=1")) from None
    return inference
