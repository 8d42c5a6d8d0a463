"""Chow-Liu trees: one structure for every evidence assignment, selected by mutual information of the labels.

Chow-Liu trees are the baseline for evidence-specific structures (ESS-CRF).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from relcrf.backends.base import FitResult, Monitor, Problem, SharedVector
from relcrf.backends.exact import AbstractForestSpec
from relcrf.backends.inference_task import InferenceTask
from relcrf.backends.likelihood_backend import AbstractLikelihoodBackend
from relcrf.errors import Diagnostic, UsageError
from relcrf.graph.blanket import blanket_graph
from relcrf.graph.reduction import ReducedGraph
from relcrf.structure.conditional_chow_liu import EdgeSelector
from relcrf.structure.edge_kinds import count_joint_states, edge_kind_values, mutual_information_by_kind


def label_information(problem: Problem, backend: str) -> np.ndarray:
    """Return the mutual information of the training labels for each edge kind (template and key), shape (layout.size,).

    The value of a kind is repeated for each of its weights.

    Raises:
        UsageError: If the problem has latent variables.
    """
    if problem.latent.any():
        message = f"backend '{backend}' counts states of pairs, but the states of latent attributes are not observed"
        raise UsageError(Diagnostic("E307", message, hint="use --backend ess with --set pooling=0"))
    layout, k = problem.graph.layout, int(problem.graph.cardinality.max(initial=1))
    counts = problem.map_reduce(partial(_joint_counts, backend=backend, k=k))
    return mutual_information_by_kind(
        counts, layout, k, {group.block: group.features.n_blocks for group in problem.graph.groups}
    )


def _joint_counts(problem: Problem, backend: str, k: int) -> np.ndarray:
    graph = problem.reduced_graph(backend)
    return count_joint_states(graph, problem.states[graph.variables], k)


@dataclass(frozen=True)
class TreeLikelihoodSpec(AbstractForestSpec):
    """A specification of the likelihood of the spanning forest with maximum mutual information.

    Args:
        information: The result of `label_information` in training.
    """

    backend: str
    information: SharedVector

    def graph(self, problem: Problem) -> ReducedGraph:
        graph = problem.reduced_graph(self.backend)
        (tree,) = EdgeSelector().select(graph, edge_kind_values(graph, self.information.load()))
        return tree


@dataclass(frozen=True)
class ChowLiuBackend(AbstractLikelihoodBackend):
    """The spanning forest with maximum mutual information of the training labels, with exact learning of the weights.

    The mutual information of an edge is computed from all pairs of variables with the same template and key. In a
    propositional model, all rows therefore have the same tree.

    The settings are those of learning by likelihood.
    """

    name: ClassVar[str] = "chow-liu"
    can_sum_out: ClassVar[bool] = False

    def fit_labels(self, problem: Problem, monitor: Monitor) -> FitResult:
        information = label_information(problem, self.name)
        likelihood = problem.total_likelihood(TreeLikelihoodSpec(self.name, problem.share_vector(information)))
        result = self.fit_weights(likelihood, problem.graph.layout.initial, monitor, "variables", "tree_edges")
        return replace(result, vectors={**result.vectors, "information": information})

    def joint_likelihood(self, problem: Problem, vectors: dict[str, np.ndarray]) -> TreeLikelihoodSpec:
        return TreeLikelihoodSpec(self.name, problem.share_vector(vectors["information"]))

    def conditional_graph(self, problem: Problem) -> ReducedGraph:
        return blanket_graph(problem.graph, problem.roles, problem.states)

    def inference_tasks(self, problem: Problem, vectors: dict[str, np.ndarray]) -> tuple[InferenceTask, ...]:
        return (self.joint_likelihood(problem, vectors).inference_task(problem, vectors["weights"]),)

    def training_likelihood(self, problem: Problem, vectors: dict[str, np.ndarray]) -> TreeLikelihoodSpec:
        return self.joint_likelihood(problem, vectors)
