"""ESS-CRF: for each evidence its own structure, a spanning forest or a thin graph; exact learning and inference on it.

Source: Chechetka & Guestrin, Evidence-Specific Structures for Rich Tractable CRFs (NIPS 2010).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from relcrf.backends.answering import Answering
from relcrf.backends.base import (
    AbstractLikelihoodBackend,
    AbstractPart,
    Learned,
    Monitor,
    Problem,
    SharedVector,
    moments_at,
)
from relcrf.backends.chow_liu import label_information
from relcrf.backends.exact import exact_likelihood, exact_method
from relcrf.errors import Diagnostic, UsageError
from relcrf.graph.reduction import ReducedGraph, Role
from relcrf.learning.likelihood import AbstractJointLikelihood, AbstractLikelihood, PairLikelihood
from relcrf.learning.margin import MarginLoss
from relcrf.learning.mixture import MixtureLikelihood
from relcrf.structure.conditional_chow_liu import EdgeRule, edge_information
from relcrf.structure.edge_kinds import kind_counts


@dataclass(frozen=True)
class Pairs(AbstractPart):
    """Each pair of variables that share a factor, as a model of its own."""

    backend: str

    def graph(self, problem: Problem) -> ReducedGraph:
        """The nodes with all edges."""
        return problem.reduced(self.backend)

    def likelihood(self, problem: Problem) -> PairLikelihood:
        graph = self.graph(problem)
        return PairLikelihood(graph, problem.states[graph.variables])


@dataclass(frozen=True)
class OnStructure(AbstractPart):
    """The edges that the rule chooses under structure weights.

    Args:
        shares, label_information: see `EdgeRule.chosen`.
        in_tree: labelled neighbours take part in the structure.
        sharpness: of the margin loss; 0 is the likelihood.
        trees: structures whose distributions are averaged.
    """

    backend: str
    rule: EdgeRule
    structure: SharedVector
    shares: SharedVector | None
    label_information: SharedVector | None
    in_tree: bool = False
    sharpness: float = 0.0
    trees: int = 1

    def graphs(self, problem: Problem) -> list[ReducedGraph]:
        """The nodes with the edges that act, once for each structure; where neighbours are in the tree, with those as nodes."""
        graph = (problem.opened() if self.in_tree else problem).reduced(self.backend)
        information = edge_information(graph, self.structure.get())
        shares, labels = (None if v is None else v.get() for v in (self.shares, self.label_information))
        return self.rule.chosen(graph, information, self.trees, shares=shares, label_information=labels)

    def graph(self, problem: Problem) -> ReducedGraph:
        """The first of `graphs`."""
        return replace(self, trees=1).graphs(problem)[0]

    def likelihood(self, problem: Problem) -> AbstractLikelihood:
        found = [self._joint(problem, graph) for graph in self.graphs(problem)]
        if self.trees > 1:
            return MixtureLikelihood(tuple(found))
        return MarginLoss(found[0], self.sharpness) if self.sharpness else found[0]

    def _joint(self, problem: Problem, graph: ReducedGraph) -> AbstractJointLikelihood:
        known = problem.roles[graph.variables] == Role.CLAMPED if self.in_tree else None
        return exact_likelihood(graph, problem.states[graph.variables], known, width=self.rule.width)


def _kind_counts(piece: Problem, part: Pairs | OnStructure) -> np.ndarray:
    return kind_counts(part.graph(piece))


@dataclass(frozen=True)
class EssBackend(AbstractLikelihoodBackend):
    """Three steps: structure weights u from pairs, a structure by conditional mutual information under u, then exact
    learning of the weights w on it. At inference u gives the structure for the new evidence.

    Args:
        seed: of the start where the model has latent attributes.
        objective: of the weights: `likelihood`, or `margin`, the structured hinge loss.
        sharpness: of the margin, see `MarginLoss`.
        width: treewidth; 1 is a forest, see `EdgeRule`.
        least_information, least_share, pooling: structure regularisation, see `EdgeRule`.
        trees: of inference alone: structures whose answers are averaged; each discounts the edges of those before it.
        observed_edges: `fold`: a labelled neighbour costs no edge, its factor is the unknown end's alone; `tree`: it takes
            part in the structure like an unknown one.

    Raises:
        UsageError: for another objective or another way with observed edges, a width of 0, or a pooling above 1.
    """

    name: ClassVar[str] = "ess"
    without: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "structure": (
            "objective",
            "sharpness",
            "width",
            "least_information",
            "least_share",
            "pooling",
            "trees",
            "observed_edges",
        )
    }
    seed: int = 0
    objective: str = "likelihood"
    sharpness: float = 10.0
    width: int = 1
    least_information: float = 0.0
    least_share: float = 0.0
    pooling: float = 0.0
    trees: int = 1
    observed_edges: str = "fold"

    def __post_init__(self) -> None:
        self._require_one_of("objective", ("likelihood", "margin"))
        self._require_one_of("observed_edges", ("fold", "tree"))
        self._require_above_0("width", "sharpness", "trees")
        if self.pooling > 1:
            self._refuse("pooling", "it takes a number from 0 to 1")

    @property
    def undivided(self) -> str:
        return (
            "observed_edges=tree joins components at their labelled neighbours" if self.observed_edges == "tree" else ""
        )

    @property
    def _rule(self) -> EdgeRule:
        return EdgeRule(self.width, self.least_information, self.least_share, self.pooling)

    def fit(self, problem: Problem, monitor: Monitor) -> Learned:
        margin = self.objective == "margin"
        if margin and problem.latent.any():
            message = "the margin objective cannot learn latent attributes: it needs every target's state"
            raise UsageError(Diagnostic("E307", message, hint="use --set objective=likelihood"))
        pairs = problem.sum_of(Pairs(self.name))
        nodes, edges = pairs.sizes()
        structure = self.maximise("structure", pairs, partial(problem.start, self.seed), monitor)
        vectors = {"structure": structure.point}
        if self.pooling:
            vectors["label_information"] = label_information(problem, self.name)
        if self.least_share:
            chosen, candidates = (
                problem.map_reduce(partial(_kind_counts, part=part))
                for part in (self._on_structure(problem, vectors), Pairs(self.name))
            )
            vectors["share"] = chosen / np.maximum(candidates, 1.0)
        sharpness = self.sharpness if margin else 0.0
        structured = problem.sum_of(replace(self._on_structure(problem, vectors), sharpness=sharpness))
        weights = self.maximise("weights", structured, structure.point.copy, monitor)
        return Learned(
            {"weights": weights.point, **vectors},
            (("structure", structure), ("weights", weights)),
            {"variables": nodes, "candidate_edges": edges, "forest_edges": structured.sizes()[1]},
            moments=None if margin else moments_at(structured, weights, self.l2),
        )

    def joint(self, problem: Problem, vectors: dict[str, np.ndarray]) -> OnStructure:
        for setting, vector in (("least_share", "share"), ("pooling", "label_information")):
            if getattr(self, setting) and vector not in vectors:
                message = f"backend '{self.name}' was trained without {setting}, and has not learned what it needs"
                raise UsageError(Diagnostic("E305", message, hint=f"train with --set {setting}=..."))
        in_tree = self.observed_edges == "tree"
        return replace(self._on_structure(problem, vectors), in_tree=in_tree, trees=self.trees)

    def _on_structure(self, problem: Problem, vectors: dict[str, np.ndarray]) -> OnStructure:
        """The structure that the vectors give; without those of a setting it does not act."""
        structure, shares, labels = (
            problem.share(vectors[name]) if name in vectors else None
            for name in ("structure", "share", "label_information")
        )
        assert structure is not None
        return OnStructure(self.name, self._rule, structure, shares, labels)

    def answers_from(self, problem: Problem, vectors: dict[str, np.ndarray]) -> tuple[Answering, ...]:
        part = self.joint(problem, vectors)
        given = np.where(problem.roles == Role.CLAMPED, problem.states, -1) if part.in_tree else None
        return tuple(
            Answering(
                graph,
                vectors["weights"],
                exact_method(self.width),
                None if given is None else given[graph.variables],
            )
            for graph in part.graphs(problem)
        )

    def maximised(self, problem: Problem, vectors: dict[str, np.ndarray]) -> OnStructure | None:
        return self._on_structure(problem, vectors) if self.objective == "likelihood" else None
