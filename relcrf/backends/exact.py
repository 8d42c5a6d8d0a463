"""Exact likelihoods and answers, on forests and on graphs of small treewidth."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from relcrf.backends.base import Inferred
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


def infer_exactly(
    graph: ReducedGraph, weights: np.ndarray, *, width: int = 1, given: np.ndarray | None = None
) -> Inferred:
    """Marginals and most probable states together.

    Args:
        given: states of the nodes that are known and not asked for, shape (n_nodes,), -1 at all others; None is none.

    Raises:
        UsageError: where the cliques are too large.
    """
    inference = exact_method(width)(graph.scopes)
    potentials = graph.potentials(weights)
    if given is not None:
        potentials = potentials.given(graph.scopes, given)
    found, best = inference.marginals(potentials), inference.map_states(potentials)
    edges = graph.variables[graph.edges]
    answers = Inferred(
        graph.variables, graph.state_start, found.nodes, best.states, edges, found.log_partition, found.verdict
    )
    return answers if given is None else answers.only(given < 0)


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
