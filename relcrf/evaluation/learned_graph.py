"""The graph that structure learning chose: nodes are keys of literals, edges pairs of keys (`graph/candidates.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from relcrf.backends.learned_model import LearnedModel
from relcrf.data.frame import Frame
from relcrf.errors import Diagnostic, UsageError
from relcrf.grounding.candidate_split import CandidateSplit, split_candidates
from relcrf.model.expressions import Atom
from relcrf.model.typing import NameScope

NODE_COLUMNS = {"kind": object, "name": object}
"""Columns of the table of nodes, with their types."""

EDGE_COLUMNS = {"first": int, "second": int, "template": object, "strength": float, "weight": float, "gain": float}
"""Columns of the table of edges, with their types."""


@dataclass(frozen=True)
class LearnedGraph:
    """The graph of the chosen pairs of keys; edges are sorted by descending strength, nodes by first occurrence.

    Args:
        nodes: One row per key in a chosen pair. `kind` is the predicted relation of the key's literal, or the entity
            type and the attribute of the literal; `name` is the text of the key.
        edges: One row per chosen pair: `first` and `second` are the indices of the two nodes, which are equal if a key
            is paired with itself; `template` is the name of the `candidates` declaration; `strength` is the norm of the
            pair's weights, above 0; `weight` is the pair's only weight, or nan if the pair has several weights; `gain`
            is the decrease of the labels' log-likelihood if the pair is removed, in nats, or nan if training did not
            compute it.
        triples: The number of chosen candidates with three literals, which are not edges.
    """

    nodes: Frame
    edges: Frame
    triples: int = 0

    @cached_property
    def pairs(self) -> np.ndarray:
        """The two nodes of each edge, shape (n_edges, 2)."""
        return np.column_stack((self.edges["first"], self.edges["second"]))

    @cached_property
    def degrees(self) -> np.ndarray:
        """The number of edges at each node, shape (n_nodes,)."""
        return np.bincount(self.pairs.ravel(), minlength=len(self.nodes))


def require_edges(graph: LearnedGraph) -> None:
    """Reject a graph without edges.

    Raises:
        UsageError: The model contains no candidate with two literals (E398).
    """
    if not len(graph.edges):
        message = "the run has no learned graph: its model contains no candidate with two literals"
        hint = "train a model that declares 'candidates' with --backend trmrf or grafting; a smaller l1 selects more candidates"
        raise UsageError(Diagnostic("E398", message, hint=hint))


def build_learned_graph(learned: LearnedModel) -> LearnedGraph:
    """Return the graph of a trained model, without pairs whose weights are all 0."""
    candidates = {t.name: t for t in learned.spec.flatten().templates if t.is_candidate}
    numbers: dict[tuple[str, str], int] = {}
    rows: list[tuple[int, int, str, float, float, float]] = []
    triples = 0
    for block, info in enumerate(learned.templates):
        if info.name not in candidates or info.keys is None:
            continue
        template = candidates[info.name]
        scope = NameScope(learned.spec, template.parameters, template.where)
        split = split_candidates(template, scope)
        weights = learned.layout.matrix(learned.vectors["weights"], block)
        strengths = np.linalg.norm(weights, axis=1)
        chosen = np.flatnonzero(strengths).tolist()
        if len(split.literal_templates) > 2:
            triples += len(chosen)
            continue
        unknown = np.full(len(weights), np.nan)
        single = weights[:, 0] if weights.shape[1] == 1 else unknown
        gains = learned.layout.matrix(learned.vectors["gain"], block)[:, 0] if "gain" in learned.vectors else unknown
        for key in chosen:
            first, second = (
                numbers.setdefault(node, len(numbers)) for node in _edge_nodes(split, scope, info.keys.values[key])
            )
            rows.append((first, second, info.name, strengths[key], single[key], gains[key]))
    rows.sort(key=lambda row: -row[3])
    return LearnedGraph(Frame.from_rows(NODE_COLUMNS, list(numbers)), Frame.from_rows(EDGE_COLUMNS, rows), triples)


def _edge_nodes(split: CandidateSplit, scope: NameScope, key: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield the kind and the name of each node of an edge; `key` contains one string per entry of the `per` clause."""
    for side, template in enumerate(split.literal_templates):
        (term,) = scope.random_terms(template.over[0])
        kind = term.relation if isinstance(term, Atom) else f"{scope.type_names[term.binder]}.{term.attribute}"
        parts = sorted(
            (location, text) for (owner, location), text in zip(split.key_locations, key, strict=True) if owner == side
        )
        yield kind, ", ".join(text for _, text in parts)
