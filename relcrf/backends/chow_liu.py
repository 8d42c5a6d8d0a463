"""The fixed tree: one structure for all evidence, by the information in the training labels; the baseline of ESS-CRF."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from relcrf.backends.answering import Answering
from relcrf.backends.base import AbstractLikelihoodBackend, Learned, Monitor, Problem, SharedVector
from relcrf.backends.exact import AbstractForestPart
from relcrf.errors import Diagnostic, UsageError
from relcrf.graph.reduction import ReducedGraph
from relcrf.structure.conditional_chow_liu import EdgeRule
from relcrf.structure.edge_kinds import edge_values, information, joint_counts


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
    return information(counts, layout, k, {group.block: group.features.n_blocks for group in problem.graph.groups})


def _joint_counts(piece: Problem, backend: str, k: int) -> np.ndarray:
    graph = piece.reduced(backend)
    return joint_counts(graph, piece.states[graph.variables], k)


@dataclass(frozen=True)
class OnTree(AbstractForestPart):
    """The forest of the largest information, which each weight has for its feature."""

    backend: str
    information: SharedVector

    def graph(self, problem: Problem) -> ReducedGraph:
        graph = problem.reduced(self.backend)
        (tree,) = EdgeRule().chosen(graph, edge_values(graph, self.information.get()))
        return tree


@dataclass(frozen=True)
class ChowLiuBackend(AbstractLikelihoodBackend):
    """A forest by the mutual information of each template's and key's pairs in the training labels, then exact maximum
    likelihood on it, with the model's own features. In propositional models the tree is the same for every row.

    For the settings see `AbstractLikelihoodBackend`.
    """

    name: ClassVar[str] = "chow-liu"

    def fit(self, problem: Problem, monitor: Monitor) -> Learned:
        found = label_information(problem, self.name)
        tree = problem.sum_of(OnTree(self.name, problem.share(found)))
        learned = self.fit_part(tree, problem.graph.layout.initial, monitor, "variables", "tree_edges")
        return replace(learned, vectors={**learned.vectors, "information": found})

    def joint(self, problem: Problem, vectors: dict[str, np.ndarray]) -> OnTree:
        return OnTree(self.name, problem.share(vectors["information"]))

    def answers_from(self, problem: Problem, vectors: dict[str, np.ndarray]) -> tuple[Answering, ...]:
        return (self.joint(problem, vectors).answering(problem, vectors["weights"]),)

    def maximised(self, problem: Problem, vectors: dict[str, np.ndarray]) -> OnTree:
        return self.joint(problem, vectors)
