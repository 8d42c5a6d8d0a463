"""The graph that training chose: keys of candidates as nodes, and as edges the pairs that are in the model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from relcrf.backends.learned import LearnedModel
from relcrf.errors import Diagnostic, UsageError
from relcrf.grounding.split import CandidateSplit, split_candidates
from relcrf.model.expressions import Atom
from relcrf.model.typing import Scope


@dataclass(frozen=True)
class KeyNode:
    """A key of one side of candidates.

    Args:
        kind: what its random term is of: a relation, or an entity and its attribute.
        name: the texts of the key.
    """

    kind: str
    name: str


@dataclass(frozen=True)
class Edge:
    """A chosen pair of keys.

    Args:
        first, second: numbers of nodes; the same where a key is paired with itself.
        template: the candidates that it is of.
        strength: the norm of its weights, above 0.
        weight: None where it has several.
        gain: how much less probable the labels would be without it, in nats; None where training did not tell.
    """

    first: int
    second: int
    template: str
    strength: float
    weight: float | None
    gain: float | None


@dataclass(frozen=True)
class LearnedGraph:
    """The chosen pairs, the strongest first, and the keys that they join, in the order in which these come.

    Args:
        triples: how many candidates of three literals were chosen; they are no edges.
    """

    nodes: tuple[KeyNode, ...]
    edges: tuple[Edge, ...]
    triples: int = 0

    @cached_property
    def pairs(self) -> np.ndarray:
        """The nodes of each edge, shape (n_edges, 2)."""
        return np.array([(edge.first, edge.second) for edge in self.edges], dtype=np.int64).reshape(-1, 2)

    @cached_property
    def strengths(self) -> np.ndarray:
        """Of each edge, descending, shape (n_edges,)."""
        return np.array([edge.strength for edge in self.edges])

    @cached_property
    def degrees(self) -> np.ndarray:
        """How many edges end at each node, shape (n_nodes,)."""
        return np.bincount(self.pairs.ravel(), minlength=len(self.nodes))


def require_edges(graph: LearnedGraph) -> None:
    """Refuses an empty graph.

    Raises:
        UsageError: where no pair of candidates is in the model.
    """
    if not graph.edges:
        message = "the run has no learned graph: no pair of candidates is in its model"
        hint = "train a model with 'candidates' by --backend trmrf or grafting; a smaller l1 chooses more"
        raise UsageError(Diagnostic("E398", message, hint=hint))


def learned_graph(learned: LearnedModel) -> LearnedGraph:
    """The graph of a trained model; pairs whose weights are all 0 are not in it."""
    candidates = {t.name: t for t in learned.spec.flat().templates if t.is_candidate}
    numbers: dict[KeyNode, int] = {}
    edges, triples = [], 0
    for block, info in enumerate(learned.templates):
        if info.name not in candidates or info.keys is None:
            continue
        template = candidates[info.name]
        scope = Scope(learned.spec, template.parameters, template.where)
        split = split_candidates(template, scope)
        weights = learned.layout.matrix(learned.vectors["weights"], block)
        gains = learned.layout.matrix(learned.vectors["gain"], block)[:, 0] if "gain" in learned.vectors else None
        strengths = np.linalg.norm(weights, axis=1)
        chosen = np.flatnonzero(strengths).tolist()
        if len(split.sides) > 2:
            triples += len(chosen)
            continue
        for key in chosen:
            first, second = (
                numbers.setdefault(node, len(numbers)) for node in _nodes(split, scope, info.keys.values[key])
            )
            weight = float(weights[key, 0]) if weights.shape[1] == 1 else None
            gain = None if gains is None else float(gains[key])
            edges.append(Edge(first, second, info.name, float(strengths[key]), weight, gain))
    return LearnedGraph(tuple(numbers), tuple(sorted(edges, key=lambda edge: -edge.strength)), triples)


def _nodes(split: CandidateSplit, scope: Scope, key: tuple[str, ...]) -> Iterator[KeyNode]:
    """The two nodes of an edge, whose key is as `per` has it."""
    for side, template in enumerate(split.sides):
        (term,) = scope.random_terms(template.over[0])
        kind = term.relation if isinstance(term, Atom) else f"{scope.sorts[term.binder]}.{term.attribute}"
        own = sorted((place, text) for (of, place), text in zip(split.places, key, strict=True) if of == side)
        yield KeyNode(kind, ", ".join(text for _, text in own))
