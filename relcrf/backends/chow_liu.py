"""The fixed tree: one structure for all evidence, by the information in the training labels; the baseline of ESS-CRF."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from relcrf.backends.answering import Answering
from relcrf.backends.base import (
    AbstractBackend,
    AbstractPart,
    Inferred,
    Learned,
    Monitor,
    Problem,
    SharedVector,
    maximise_likelihood,
    moments_at,
)
from relcrf.backends.exact import exact_likelihood, exact_method, infer_exactly
from relcrf.errors import Diagnostic, UsageError
from relcrf.graph.reduction import ReducedGraph, Role
from relcrf.inference.result import Observer, silent
from relcrf.learning.lbfgs import Lbfgs
from relcrf.learning.likelihood import AbstractJointLikelihood
from relcrf.structure.conditional_chow_liu import EdgeRule
from relcrf.structure.edge_kinds import edge_values, information, joint_counts


def label_information(problem: Problem, backend: str) -> np.ndarray:
    """Mutual information of the training labels of each kind's pairs, for each weight of it, shape (layout.size,).

    Raises:
        UsageError: where some of them are latent.
    """
    if ((problem.roles == Role.FREE) & (problem.states < 0)).any():
        message = f"backend '{backend}' counts the states of pairs here, and those of latent attributes are not known"
        raise UsageError(Diagnostic("E307", message, hint="use --backend ess without pooling"))
    layout, k = problem.graph.layout, int(problem.graph.cardinality.max(initial=1))
    counts = problem.map_reduce(partial(_joint_counts, backend=backend, k=k))
    return information(counts, layout, k, {group.block: group.features.n_blocks for group in problem.graph.groups})


def _joint_counts(piece: Problem, backend: str, k: int) -> np.ndarray:
    graph = piece.reduced(backend)
    return joint_counts(graph, piece.states[graph.variables], k)


@dataclass(frozen=True)
class OnTree(AbstractPart):
    """The forest of the largest information, which each weight has for its feature."""

    backend: str
    information: SharedVector

    def graph(self, problem: Problem) -> ReducedGraph:
        graph = problem.reduced(self.backend)
        return EdgeRule().chosen(graph, edge_values(graph, self.information.get()))

    def likelihood(self, problem: Problem) -> AbstractJointLikelihood:
        graph = self.graph(problem)
        return exact_likelihood(graph, problem.states[graph.variables])


@dataclass(frozen=True)
class ChowLiuBackend(AbstractBackend):
    """A forest by the mutual information of each template's and key's pairs in the training labels, then exact maximum
    likelihood on it, with the model's own features. In propositional models the tree is the same for every row.

    For the settings see `EssBackend`.
    """

    name: ClassVar[str] = "chow-liu"
    l2: float = 1.0
    max_iterations: int = 200
    tolerance: float = 1e-5

    def fit(self, problem: Problem, monitor: Monitor) -> Learned:
        layout, found = problem.graph.layout, label_information(problem, self.name)
        tree = problem.sum_of(OnTree(self.name, problem.share(found)))
        optimiser = Lbfgs(self.tolerance, max_iterations=self.max_iterations)
        weights = maximise_likelihood("weights", layout, tree, optimiser, self.l2, layout.initial, monitor)
        nodes, edges = tree.sizes()
        return Learned(
            {"weights": weights.point, "information": found},
            (("weights", weights),),
            {"variables": nodes, "tree_edges": edges},
            moments=moments_at(tree, layout, weights, self.l2),
        )

    def joint(self, problem: Problem, vectors: dict[str, np.ndarray]) -> OnTree:
        return OnTree(self.name, problem.share(vectors["information"]))

    def answers_from(self, problem: Problem, vectors: dict[str, np.ndarray]) -> tuple[Answering, ...]:
        return (Answering(self.joint(problem, vectors).graph(problem), vectors["weights"], exact_method(1)),)

    def maximised(self, problem: Problem, vectors: dict[str, np.ndarray]) -> OnTree:
        return self.joint(problem, vectors)

    def infer(self, problem: Problem, vectors: dict[str, np.ndarray], observe: Observer = silent) -> Inferred:
        return infer_exactly(self.joint(problem, vectors).graph(problem), vectors["weights"])
