"""ESS-CRF: evidence-specific structures of small treewidth, with exact learning and exact inference.

Source: Chechetka & Guestrin, Evidence-Specific Structures for Rich Tractable CRFs (NIPS 2010).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from relcrf.backends.base import (
    AbstractLikelihoodBackend,
    AbstractLikelihoodSpec,
    FitResult,
    Monitor,
    Problem,
    SharedVector,
    moments_at,
)
from relcrf.backends.chow_liu import label_information
from relcrf.backends.exact import exact_likelihood, exact_method
from relcrf.backends.inference_task import InferenceTask
from relcrf.errors import Diagnostic, UsageError
from relcrf.graph.reduction import ReducedGraph, Role
from relcrf.learning.likelihood import AbstractJointLikelihood, AbstractLikelihood, PairLikelihood
from relcrf.learning.margin import MarginLoss
from relcrf.learning.mixture import MixtureLikelihood
from relcrf.structure.conditional_chow_liu import EdgeSelector, edge_information
from relcrf.structure.edge_kinds import count_factors_by_kind


@dataclass(frozen=True)
class PairLikelihoodSpec(AbstractLikelihoodSpec):
    """A specification of the likelihood of pairs: each pair of variables with a common factor is a separate model."""

    backend: str

    def graph(self, problem: Problem) -> ReducedGraph:
        """Return the graph of the free variables with all edges."""
        return problem.reduced_graph(self.backend)

    def likelihood(self, problem: Problem) -> PairLikelihood:
        graph = self.graph(problem)
        return PairLikelihood(graph, problem.states[graph.variables])


@dataclass(frozen=True)
class StructureLikelihoodSpec(AbstractLikelihoodSpec):
    """A specification of the likelihood of a structure, i.e. of the graph with only the edges that a rule selects.

    Args:
        structure: The structure weights, from which the information of the edges is computed.
        fractions, label_information: Arguments of `EdgeSelector.select`.
        observed_in_tree: Whether labelled variables are nodes of the structure.
        sharpness: Sharpness of the margin loss; 0 selects the likelihood.
        trees: Number of structures whose distributions are averaged.
    """

    backend: str
    rule: EdgeSelector
    structure: SharedVector
    fractions: SharedVector | None
    label_information: SharedVector | None
    observed_in_tree: bool = False
    sharpness: float = 0.0
    trees: int = 1

    def graphs(self, problem: Problem) -> list[ReducedGraph]:
        """Return one graph of selected edges per structure, with nodes for labelled variables if `observed_in_tree`."""
        graph = (problem.unclamp() if self.observed_in_tree else problem).reduced_graph(self.backend)
        information = edge_information(graph, self.structure.load())
        fractions, labels = (None if v is None else v.load() for v in (self.fractions, self.label_information))
        return self.rule.select(graph, information, self.trees, fractions=fractions, label_information=labels)

    def graph(self, problem: Problem) -> ReducedGraph:
        """Return the first of the graphs that `graphs` returns."""
        return replace(self, trees=1).graphs(problem)[0]

    def likelihood(self, problem: Problem) -> AbstractLikelihood:
        likelihoods = [self._graph_likelihood(problem, graph) for graph in self.graphs(problem)]
        if self.trees > 1:
            return MixtureLikelihood(tuple(likelihoods))
        return MarginLoss(likelihoods[0], self.sharpness) if self.sharpness else likelihoods[0]

    def _graph_likelihood(self, problem: Problem, graph: ReducedGraph) -> AbstractJointLikelihood:
        evidence = problem.roles[graph.variables] == Role.CLAMPED if self.observed_in_tree else None
        return exact_likelihood(graph, problem.states[graph.variables], evidence, treewidth=self.rule.treewidth)


def _kind_counts(problem: Problem, spec: PairLikelihoodSpec | StructureLikelihoodSpec) -> np.ndarray:
    return count_factors_by_kind(spec.graph(problem))


@dataclass(frozen=True)
class EssBackend(AbstractLikelihoodBackend):
    """Evidence-specific structures, selected by conditional mutual information, with exact learning of the weights.

    Training has three steps: learn structure weights u from pairs of variables, select edges by their conditional
    mutual information under u, and learn the weights w on these edges by exact likelihood. In prediction, edges are
    selected under u given the new evidence.

    Args:
        seed: Seed of the initial weights if the model has latent attributes.
        objective: Objective of learning the weights w: `likelihood`, or `margin` for the structured hinge loss.
        sharpness: Sharpness of the smoothed margin loss; with larger values, the loss is closer to the hinge loss.
        treewidth: Maximum treewidth of the structure. With 1, the structure is a spanning forest; with larger values,
            edges are selected greedily.
        min_information: Minimum conditional mutual information of an edge, in nats.
        min_fraction: Minimum ratio of selected edges to candidate edges in training, for each template and key. If the
            ratio is smaller, all edges with this template and key are excluded.
        pooling: Weight, from 0 to 1, of the mutual information of the training labels; the conditional mutual
            information has the weight `1 - pooling`. 1 gives the fixed tree of Chow & Liu.
        trees: Number of structures whose predictions inference averages. For each structure, the information of edges
            in earlier structures is discounted.
        observed_edges: Treatment of factors that join an unknown variable to a labelled neighbour. `fold` adds the
            factor to the potential of the variable. `tree` makes the neighbour a node of the structure, like an unknown
            variable.

    Raises:
        UsageError: If `objective` or `observed_edges` has an unknown value, a setting that must be positive is 0, or
            `pooling` exceeds 1.
    """

    name: ClassVar[str] = "ess"
    unused_settings: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "structure": (
            "objective",
            "sharpness",
            "treewidth",
            "min_information",
            "min_fraction",
            "pooling",
            "trees",
            "observed_edges",
        )
    }
    seed: int = 0
    objective: str = "likelihood"
    sharpness: float = 10.0
    treewidth: int = 1
    min_information: float = 0.0
    min_fraction: float = 0.0
    pooling: float = 0.0
    trees: int = 1
    observed_edges: str = "fold"

    def __post_init__(self) -> None:
        self._require_one_of("objective", ("likelihood", "margin"))
        self._require_one_of("observed_edges", ("fold", "tree"))
        self._require_positive("treewidth", "sharpness", "trees")
        if self.pooling > 1:
            self._reject_setting("pooling", "use a number from 0 to 1")

    @property
    def unshardable_reason(self) -> str:
        return (
            "observed_edges=tree joins components at their labelled neighbours (observed_edges=fold does not)"
            if self.observed_edges == "tree"
            else ""
        )

    @property
    def _rule(self) -> EdgeSelector:
        return EdgeSelector(self.treewidth, self.min_information, self.min_fraction, self.pooling)

    def fit(self, problem: Problem, monitor: Monitor) -> FitResult:
        margin = self.objective == "margin"
        if margin and problem.latent.any():
            message = "the margin objective cannot learn latent attributes: the loss needs every target's state"
            raise UsageError(Diagnostic("E307", message, hint="use --set objective=likelihood"))
        pairs = problem.total_likelihood(PairLikelihoodSpec(self.name))
        nodes, edges = pairs.sizes()
        structure = self.maximise("structure", pairs, partial(problem.initial_weights, self.seed), monitor)
        vectors = {"structure": structure.point}
        if self.pooling:
            vectors["label_information"] = label_information(problem, self.name)
        if self.min_fraction:
            chosen, candidates = (
                problem.map_reduce(partial(_kind_counts, spec=spec))
                for spec in (self._structure_spec(problem, vectors), PairLikelihoodSpec(self.name))
            )
            vectors["selected_fraction"] = chosen / np.maximum(candidates, 1.0)
        sharpness = self.sharpness if margin else 0.0
        likelihood = problem.total_likelihood(replace(self._structure_spec(problem, vectors), sharpness=sharpness))
        weights = self.maximise("weights", likelihood, structure.point.copy, monitor)
        return FitResult(
            {"weights": weights.point, **vectors},
            (("structure", structure), ("weights", weights)),
            {"variables": nodes, "candidate_edges": edges, "forest_edges": likelihood.sizes()[1]},
            moments=None if margin else moments_at(likelihood, weights, self.l2),
        )

    def joint_likelihood(self, problem: Problem, vectors: dict[str, np.ndarray]) -> StructureLikelihoodSpec:
        for setting, vector in (("min_fraction", "selected_fraction"), ("pooling", "label_information")):
            if getattr(self, setting) and vector not in vectors:
                message = f"backend '{self.name}' was trained without setting '{setting}'; prediction cannot add it"
                raise UsageError(Diagnostic("E305", message, hint=f"train with --set {setting}=..."))
        in_tree = self.observed_edges == "tree"
        return replace(self._structure_spec(problem, vectors), observed_in_tree=in_tree, trees=self.trees)

    def _structure_spec(self, problem: Problem, vectors: dict[str, np.ndarray]) -> StructureLikelihoodSpec:
        """Return the specification for the learned vectors; a setting whose vector was not learned has no effect."""
        structure, fractions, labels = (
            problem.share_vector(vectors[name]) if name in vectors else None
            for name in ("structure", "selected_fraction", "label_information")
        )
        assert structure is not None
        return StructureLikelihoodSpec(self.name, self._rule, structure, fractions, labels)

    def inference_tasks(self, problem: Problem, vectors: dict[str, np.ndarray]) -> tuple[InferenceTask, ...]:
        spec = self.joint_likelihood(problem, vectors)
        observed = np.where(problem.roles == Role.CLAMPED, problem.states, -1) if spec.observed_in_tree else None
        return tuple(
            InferenceTask(
                graph,
                vectors["weights"],
                exact_method(self.treewidth),
                None if observed is None else observed[graph.variables],
            )
            for graph in spec.graphs(problem)
        )

    def training_likelihood(self, problem: Problem, vectors: dict[str, np.ndarray]) -> StructureLikelihoodSpec | None:
        return self._structure_spec(problem, vectors) if self.objective == "likelihood" else None
