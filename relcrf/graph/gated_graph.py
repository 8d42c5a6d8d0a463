"""A reduced graph with a separate gate for each pairwise factor."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from relcrf.columns.offsets import offsets
from relcrf.graph.edge_classes import edge_classes
from relcrf.graph.factor_graph import FactorGraph
from relcrf.graph.reduction import ReducedGraph, TableTerms


@dataclass(frozen=True, eq=False)
class GatedGraph:
    """A reduced graph in which each gated factor is a separate node or edge. For gates see `gates.py`.

    Factors over two different variables have gates. If one variable is clamped, the factor is *folded*: it becomes a
    gated unary factor of the free variable. If both variables are free, the factor is a *pair*. Pairs over the same
    variables are not merged.

    Args:
        ungated: Graph of the free variables with the ungated factors, which are unary; it has no edges.
        folded: Graph with one node for each folded factor.
        folded_node: Index, in `ungated`, of the node of each folded factor's free variable, shape (n_folded,).
        pairs: Graph with the nodes of `ungated` and one edge for each pair.
        distinct_pairs: Graph with one edge for each class of pairs, in the order of `pairs`. The pairs of a class have
            equal tables for all weights.
        pair_class: Index, in `distinct_pairs`, of the edge of each pair's class, shape (n_pairs,).
        factors: The gated factors as tuples (group index, factor indices): first folded factors, then pairs.
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
        """Build the gated graph of a reduced graph without cliques."""
        no_edges = np.empty((0, 2), dtype=graph.edges.dtype)
        masks = [_gate_mask(graph.graph, terms) for terms in graph.node_terms]
        plain = (terms.take(np.flatnonzero(~mask), terms.target[~mask]) for terms, mask in _zip_masks(graph, masks))
        folded = [terms.take(np.flatnonzero(mask), terms.target[mask]) for terms, mask in _zip_masks(graph, masks)]
        folded = [terms for terms in folded if len(terms.target)]
        node = np.concatenate([np.empty(0, dtype=np.int64), *(terms.target for terms in folded)])
        cardinality = graph.cardinality[node]
        ungated = replace(
            graph,
            node_terms=tuple(terms for terms in plain if len(terms.target)),
            edge_terms=(),
            edges=no_edges,
            table_start=np.zeros(1, dtype=np.int64),
        )
        folded_graph = replace(
            ungated,
            variables=graph.variables[node],
            cardinality=cardinality,
            state_start=offsets(cardinality),
            node_terms=tuple(_renumber_targets(folded)),
        )
        pairs = _split_parallel_edges(graph)
        pair_class, distinct_pairs = np.arange(pairs.n_edges), pairs
        classes = edge_classes(pairs) if pairs.n_edges else None
        if classes is not None:
            pair_class, first = classes
            distinct_pairs = pairs.with_edges(first)
        factors = tuple((terms.group, _factor_indices(terms)) for terms in (*folded, *graph.edge_terms))
        return cls(ungated, folded_graph, node, pairs, distinct_pairs, pair_class, factors)

    @property
    def n_folded(self) -> int:
        return len(self.folded_node)

    @property
    def n_pairs(self) -> int:
        return self.pairs.n_edges

    @property
    def n_factors(self) -> int:
        """Return the number of gated factors."""
        return self.n_folded + self.n_pairs


def _zip_masks(graph: ReducedGraph, masks: list[np.ndarray]) -> zip[tuple[TableTerms, np.ndarray]]:
    return zip(graph.node_terms, masks, strict=True)


def _factor_indices(terms: TableTerms) -> np.ndarray:
    return np.arange(len(terms.target)) if terms.factor is None else terms.factor


def _gate_mask(graph: FactorGraph, terms: TableTerms) -> np.ndarray:
    """Return a mask of the node terms whose factor has a gate, shape (n_terms,), bool."""
    group = graph.groups[terms.group]
    if len(group.scope) != 2:
        return np.zeros(len(terms.target), dtype=bool)
    factor = _factor_indices(terms)
    return np.asarray(group.scope[0][factor] != group.scope[1][factor])


def _renumber_targets(term_groups: list[TableTerms]) -> list[TableTerms]:
    """Return the terms with new targets: consecutive numbers, a separate target for each term."""
    out, n_targets = [], 0
    for terms in term_groups:
        target = np.arange(n_targets, n_targets + len(terms.target), dtype=np.int32)
        out.append(replace(terms, target=target))
        n_targets += len(target)
    return out


def _split_parallel_edges(graph: ReducedGraph) -> ReducedGraph:
    """Return the graph with a separate edge for each pairwise factor."""
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
