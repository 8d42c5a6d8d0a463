"""A reduced graph whose factors over pairs can be turned down one by one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from relcrf.columns.offsets import offsets
from relcrf.graph.factor_graph import FactorGraph
from relcrf.graph.reduction import ReducedGraph, TableTerms


@dataclass(frozen=True, eq=False)
class GatedGraph:
    """The free variables, with the factors that have a gate each for itself, wherever they are.

    Gated are the factors over two different variables. Where one of them is clamped a factor is *folded*: it speaks of the
    other one alone, and still has its gate. Where none is, it is a *pair*; parallel pairs stay apart.

    Args:
        ungated: the free variables with all that has no gate; no edges.
        folded: each folded factor as a node of its own.
        folded_node: the node of `ungated` that each folded factor speaks of, shape (n_folded,).
        pairs: each pair as an edge of its own, between the nodes of `ungated`.
        distinct_pairs: of pairs with the same table under any weights one; ascending places among `pairs`.
        pair_class: which of them each pair is like, shape (n_pairs,).
        factors: of the folded ones and then of the pairs: group of the graph, and factors.
    """

    ungated: ReducedGraph
    folded: ReducedGraph
    folded_node: np.ndarray
    pairs: ReducedGraph
    distinct_pairs: ReducedGraph
    pair_class: np.ndarray
    factors: tuple[tuple[int, np.ndarray], ...]

    @classmethod
    def from_reduced(cls, graph: ReducedGraph) -> GatedGraph:
        """Of a graph without cliques."""
        none = np.empty((0, 2), dtype=graph.edges.dtype)
        gated = [_gate_mask(graph.graph, terms) for terms in graph.node_terms]
        plain = (terms.take(np.flatnonzero(~one), terms.target[~one]) for terms, one in _zip_masks(graph, gated))
        folded = [terms.take(np.flatnonzero(one), terms.target[one]) for terms, one in _zip_masks(graph, gated)]
        folded = [terms for terms in folded if len(terms.target)]
        node = np.concatenate([np.empty(0, dtype=np.int64), *(terms.target for terms in folded)])
        cardinality = graph.cardinality[node]
        alone = replace(
            graph,
            node_terms=tuple(terms for terms in plain if len(terms.target)),
            edge_terms=(),
            edges=none,
            table_start=np.zeros(1, dtype=np.int64),
        )
        apart = replace(
            alone,
            variables=graph.variables[node],
            cardinality=cardinality,
            state_start=offsets(cardinality),
            node_terms=tuple(_renumber_targets(folded)),
        )
        pairs = _split_parallel_edges(graph)
        kind, kinds = np.arange(pairs.n_edges), pairs
        classes = pairs.edge_classes() if pairs.n_edges else None
        if classes is not None:
            kind, first = classes
            order = np.argsort(first)
            kinds = pairs.with_edges(first[order])
            rank = np.empty(len(order), dtype=np.int64)
            rank[order] = np.arange(len(order))
            kind = rank[kind]
        factors = tuple((terms.group, _factors(terms)) for terms in (*folded, *graph.edge_terms))
        return cls(alone, apart, node, pairs, kinds, kind, factors)

    @property
    def n_folded(self) -> int:
        return len(self.folded_node)

    @property
    def n_pairs(self) -> int:
        return self.pairs.n_edges


def _zip_masks(graph: ReducedGraph, masks: list[np.ndarray]) -> zip[tuple[TableTerms, np.ndarray]]:
    return zip(graph.node_terms, masks, strict=True)


def _factors(terms: TableTerms) -> np.ndarray:
    return np.arange(len(terms.target)) if terms.factor is None else terms.factor


def _gate_mask(graph: FactorGraph, terms: TableTerms) -> np.ndarray:
    """Which of some terms of nodes have a gate, shape (n_terms,), bool."""
    group = graph.groups[terms.group]
    if len(group.scope) != 2:
        return np.zeros(len(terms.target), dtype=bool)
    factor = _factors(terms)
    return np.asarray(group.scope[0][factor] != group.scope[1][factor])


def _renumber_targets(parts: list[TableTerms]) -> list[TableTerms]:
    """Terms each of which has a target of its own."""
    out, before = [], 0
    for terms in parts:
        target = np.arange(before, before + len(terms.target), dtype=np.int32)
        out.append(replace(terms, target=target))
        before += len(target)
    return out


def _split_parallel_edges(graph: ReducedGraph) -> ReducedGraph:
    """The same with an edge for each factor on an edge."""
    edges = np.concatenate([graph.edges[:0], *(graph.edges[terms.target] for terms in graph.edge_terms)])
    sizes = graph.cardinality[edges].astype(np.int64).prod(axis=1)
    start = offsets(sizes)
    return replace(
        graph,
        edges=edges,
        table_start=start,
        edge_terms=tuple(_renumber_targets(list(graph.edge_terms))),
        agreement=None,
    )
