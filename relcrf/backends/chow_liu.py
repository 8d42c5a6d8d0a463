"""The fixed tree: one structure for all evidence, by the information in the training labels; the baseline of ESS-CRF."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from relcrf.backends.base import AbstractLikelihoodBackend, FitResult, Monitor, Problem, SharedVector
from relcrf.backends.exact import AbstractForestSpec
from relcrf.backends.inference_task import InferenceTask
from relcrf.errors import Diagnostic, UsageError
from relcrf.graph.reduction import ReducedGraph
from relcrf.structure.conditional_chow_liu import EdgeSelector
from relcrf.structure.edge_kinds import count_joint_states, edge_kind_values, kind_information


def label_information(problem: Problem, backend: str) -> np.ndarray:
    """Mutual information of the training labels of each kind's pairs, for each weight of it, shape (layout.size,).

    Raises:
        UsageError: where some of them are latent.
    """
    if problem.latent.any():
        message = f"backend '{backend}' counts the states of pairs here, and those of latent attributes are not known"
        raise UsageError(Diagnostic("E307", message, hint="use --backend ess without pooling"))
    layout, k = problem.graph.layout, int(problem.graph.cardinality.max(initial=1))
    counts = problem.map_reduce(partial(_joint_counts, backend=backend, k=k))
    return kind_information(counts, layout, k, {group.block: group.features.n_blocks for group in problem.graph.groups})


def _joint_counts(problem: Problem, backend: str, k: int) -> np.ndarray:
    graph = problem.reduced_graph(backend)
    return count_joint_states(graph, problem.states[graph.variables], k)


@dataclass(frozen=True)
class TreeLikelihoodSpec(AbstractForestSpec):
    """The forest of the largest information, which each weight has for its feature."""

    backend: str
    information: SharedVector

    def graph(self, problem: Problem) -> ReducedGraph:
        graph = problem.reduced_graph(self.backend)
        (tree,) = EdgeSelector().select(graph, edge_kind_values(graph, self.information.load()))
        return tree


@dataclass(frozen=True)
class ChowLiuBackend(AbstractLikelihoodBackend):
    """A forest by the mutual information of each template's and key's pairs in the training labels, then exact maximum
    likelihood on it, with the model's own features. In propositional models the tree is the same for every row.

    For the settings see `AbstractLikelihoodBackend`.
    """

    name: ClassVar[str] = "chow-liu"

    def fit(self, problem: Problem, monitor: Monitor) -> FitResult:
        found = label_information(problem, self.name)
        tree = problem.total_likelihood(TreeLikelihoodSpec(self.name, problem.share_vector(found)))
        learned = self.fit_weights(tree, problem.graph.layout.initial, monitor, "variables", "tree_edges")
        return replace(learned, vectors={**learned.vectors, "information": found})

    def joint_likelihood(self, problem: Problem, vectors: dict[str, np.ndarray]) -> TreeLikelihoodSpec:
        return TreeLikelihoodSpec(self.name, problem.share_vector(vectors["information"]))

    def inference_tasks(self, problem: Problem, vectors: dict[str, np.ndarray]) -> tuple[InferenceTask, ...]:
        return (self.joint_likelihood(problem, vectors).inference_task(problem, vectors["weights"]),)

    def training_likelihood(self, problem: Problem, vectors: dict[str, np.ndarray]) -> TreeLikelihoodSpec:
        return self.joint_likelihood(problem, vectors)
