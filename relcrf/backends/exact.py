"""Exact likelihoods and exact inference on forests and on graphs of small treewidth."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from relcrf.backends.base import AbstractLikelihoodSpec, Problem
from relcrf.backends.inference_task import InferenceTask
from relcrf.errors import Diagnostic, UsageError
from relcrf.graph.reduction import ReducedGraph
from relcrf.graph.scopes import Scopes
from relcrf.inference.clique_tree import CliqueTooLargeError
from relcrf.inference.forest import ForestInference
from relcrf.inference.junction_tree import JunctionTree
from relcrf.inference.result import AbstractInference
from relcrf.learning.likelihood import AbstractJointLikelihood, ForestLikelihood, InferredLikelihood

MAX_CELLS = 1 << 29
"""Maximum number of cells of all cliques; 2**29 cells take about five seconds per evaluation of the likelihood."""


def exact_likelihood(
    graph: ReducedGraph, states: np.ndarray, evidence: np.ndarray | None = None, *, treewidth: int = 1
) -> AbstractJointLikelihood:
    """Return the exact likelihood of the nodes' states in a graph of at most the given treewidth.

    For the arguments, see `ForestLikelihood.build` and `InferredLikelihood`.

    Raises:
        UsageError: If the cliques are too large.
    """
    if treewidth == 1:
        return ForestLikelihood.build(graph, states, evidence)
    return InferredLikelihood(graph, states, _junction_tree, evidence)


@dataclass(frozen=True)
class AbstractForestSpec(AbstractLikelihoodSpec):
    """A specification of a distribution on a forest, with exact likelihood and exact inference."""

    @abstractmethod
    def graph(self, problem: Problem) -> ReducedGraph:
        """Return the graph of the free variables; the edges form a forest."""

    def likelihood(self, problem: Problem) -> AbstractJointLikelihood:
        graph = self.graph(problem)
        return ForestLikelihood.build(graph, problem.states[graph.variables])

    def inference_task(self, problem: Problem, weights: np.ndarray) -> InferenceTask:
        """Return the inference task of the forest."""
        return InferenceTask(self.graph(problem), weights, exact_method(1))


@dataclass(frozen=True)
class UnaryLikelihoodSpec(AbstractForestSpec):
    """A specification of the likelihood of independent variables, each under its unary factors."""

    backend: str

    def graph(self, problem: Problem) -> ReducedGraph:
        graph = problem.graph
        unary = tuple(group for group in graph.groups if len(group.scope) == 1)
        reduced = replace(problem, graph=replace(graph, groups=unary)).reduced_graph(self.backend)
        # Joint marginals are products of marginals, because these groups have no terms.
        others = tuple(group for group in graph.groups if group.needs_marginals)
        return replace(reduced, graph=replace(reduced.graph, groups=(*unary, *others)))


def exact_method(treewidth: int) -> Callable[[Scopes], AbstractInference]:
    """Return a constructor of exact inference for graphs of at most the given treewidth."""
    return ForestInference if treewidth == 1 else _junction_tree


def _junction_tree(scopes: Scopes) -> AbstractInference:
    inference = JunctionTree(scopes, max_cells=MAX_CELLS)
    try:
        inference.clique_tree.check_limits()
    except CliqueTooLargeError as error:
        message = f"the graph is too large for exact inference with this treewidth: {error}"
        raise UsageError(Diagnostic("E308", message, hint="use --set treewidth=1")) from None
    return inference
