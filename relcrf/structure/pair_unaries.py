"""The unary features in the models of pairs, which `PairLikelihood` fits and `edge_information` evaluates."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from scipy.sparse import csc_array

from relcrf.columns.offsets import entries_of_runs, offsets
from relcrf.errors import Diagnostic, UsageError
from relcrf.graph.factor_graph import FactorGraph
from relcrf.graph.features import AbstractFeatures, Sparse
from relcrf.graph.reduction import ReducedGraph, TableTerms
from relcrf.graph.scope_components import label_scope_components
from relcrf.graph.weights import WeightBlock, WeightLayout
from relcrf.kernels.distinct import distinct

COMPARED_EDGES = 1 << 12
"""Number of edges whose features are compared; on real data, different features differ within a few dozen edges."""


def without_unaries(graph: ReducedGraph) -> ReducedGraph:
    """Return the graph without the terms of nodes."""
    return replace(graph, node_terms=())


@dataclass(frozen=True)
class OwnUnaries:
    """The unary features of one template at one end of the pairs of another template, with separate weights.

    Args:
        pair, unary: Indices of the weight blocks of the two templates.
        end: Position in the scope of the pair, 0 or 1.
        weights: The weights, with one key for each key of the pair.
    """

    pair: int
    unary: int
    end: int
    weights: WeightBlock


def own_unaries(graph: FactorGraph) -> list[OwnUnaries]:
    """Return the weight blocks of unary features that `with_own_unaries` appends to the layout of the graph."""
    n_keys = {group.block: group.features.n_blocks for group in graph.groups if len(group.scope) == 2}
    widths = {
        group.block: group.features.n_features // group.features.n_blocks
        for group in graph.groups
        if len(group.scope) == 1
    }
    blocks = graph.layout.blocks
    return [
        OwnUnaries(
            pair,
            unary,
            end,
            replace(
                blocks[unary],
                name=f"{blocks[pair].name}: {blocks[unary].name} {end + 1}",
                n_features=n_keys[pair] * widths[unary],
            ),
        )
        for pair in sorted(n_keys)
        for unary in sorted(widths)
        for end in (0, 1)
    ]


def with_own_unaries(graph: ReducedGraph) -> ReducedGraph:
    """Return the graph with the unary terms of both ends as terms of each edge, with separate weights for each kind.

    If an edge has factors of several templates, the weights belong to the first of these templates. Observed neighbours
    remain terms of nodes.

    Source: Chechetka & Guestrin (2010), equation (9), which fits each pair separately.

    Raises:
        UsageError: If edges of the same kind have ends with different keys of unary weights.
    """
    blocks = own_unaries(graph.graph)
    first_block = len(graph.graph.layout.blocks)
    index = {(own.pair, own.unary, own.end): (own, block) for block, own in enumerate(blocks, first_block)}
    layout = WeightLayout((*graph.graph.layout.blocks, *(own.weights for own in blocks)))
    groups, edge_terms = list(graph.graph.groups), list(graph.edge_terms)
    covered = np.zeros(graph.n_edges, dtype=bool)
    for pair in graph.edge_terms:
        group = graph.graph.groups[pair.group]
        if len(group.scope) != 2:
            continue
        # The first term of each edge that no earlier template covers.
        new = np.flatnonzero(~covered[pair.target] & (np.diff(pair.target, prepend=-1) > 0))
        covered[pair.target[new]] = True
        kind = group.features.block_of(_rows(pair, new))
        for unary, end in product(graph.node_terms, (0, 1)):
            unary_group = graph.graph.groups[unary.group]
            if len(unary_group.scope) != 1:
                continue
            # Strides are those of the row-major joint state, so the lower node of an edge has the larger stride if it
            # is first in the scope.
            on_row = (pair.stride_row[new] >= pair.stride_column[new]) == (end == 0)
            node = np.where(on_row, *graph.edges[pair.target[new]].T)
            start = np.searchsorted(unary.target, np.arange(graph.n_nodes + 1))
            entry, edge = entries_of_runs(start, node), np.repeat(np.arange(len(new)), np.diff(start)[node])
            if not len(entry):
                continue
            own, block = index[group.block, unary_group.block, end]
            features = _keyed_by_kind(unary_group.features, _rows(unary, entry), kind[edge], own, layout)
            stride, is_row = unary.stride_row[entry], on_row[edge]
            edge_terms.append(
                TableTerms(
                    len(groups),
                    True,
                    None,
                    pair.target[new][edge],
                    unary.base[entry],
                    np.where(is_row, stride, 0).astype(np.int32),
                    np.where(is_row, 0, stride).astype(np.int32),
                )
            )
            groups.append(replace(unary_group, features=features, block=block))
    return replace(
        graph,
        graph=replace(graph.graph, groups=tuple(groups), layout=layout),
        node_terms=tuple(t for t in graph.node_terms if len(graph.graph.groups[t.group].scope) != 1),
        edge_terms=tuple(edge_terms),
    )


def _keyed_by_kind(
    features: AbstractFeatures, rows: np.ndarray, kind: np.ndarray, own: OwnUnaries, layout: WeightLayout
) -> AbstractFeatures:
    """Return rows of unary features, with the kinds of pairs, shape (len(rows),), in place of the keys.

    Raises:
        UsageError: If rows with the same kind have different keys.
    """
    if _count_combinations(kind, features.block_of(rows), features.n_blocks) != len(distinct(kind)):
        pair, unary = (layout.blocks[block].name for block in (own.pair, own.unary))
        message = f"with 'structure_unaries=own', the key of template '{pair}' must determine the key of '{unary}'"
        hint = "use --set structure_unaries=shared"
        raise UsageError(Diagnostic("E305", message, hint=hint))
    width = features.n_features // features.n_blocks
    entries = features.entries(rows)
    column = kind[entries.row].astype(np.int64) * width + entries.feature % width
    return Sparse(
        offsets(np.bincount(entries.row, minlength=len(rows))),
        column.astype(np.int32),
        entries.value.astype(np.float64),
        own.weights.n_features,
    )


def _count_combinations(first: np.ndarray, second: np.ndarray, n_second: int) -> int:
    """Return the number of distinct pairs of two numbers; the second is less than `n_second`."""
    return len(distinct(first.astype(np.int64) * n_second + second))


def pairs_contain_unaries(graph: ReducedGraph) -> bool:
    """Return True if each edge has separate weights, and its tables contain the unary features of both ends.

    This is the case if no two edges of a connected component have the same kind (template and key), and if each column
    of unary features is also a column of features of the pairs, each with a weight for each joint state. The unary
    weights of such pairs are redundant.
    """
    if not graph.n_edges or not _kinds_are_unique(graph):
        return False
    return all(
        _contains(graph, pair, unary, end) for pair in graph.edge_terms for unary in graph.node_terms for end in (0, 1)
    )


def _kinds_are_unique(graph: ReducedGraph) -> bool:
    """Return True if no two edge factors of a connected component have the same kind."""
    component = label_scope_components(graph.scopes)
    instances = defaultdict(list)
    for terms in graph.edge_terms:
        group = graph.graph.groups[terms.group]
        kind = group.features.block_of(_rows(terms, slice(None))).astype(np.int64)
        instances[group.block].append(
            component[graph.edges[terms.target, 0]] * np.int64(group.features.n_blocks) + kind
        )
    return all(len(distinct(np.concatenate(parts))) == sum(map(len, parts)) for parts in instances.values())


def _contains(graph: ReducedGraph, pair: TableTerms, unary: TableTerms, end: int) -> bool:
    """Return True if the tables of some edges contain the unary features of one end (0: the lower node)."""
    pair_group, unary_group = graph.graph.groups[pair.group], graph.graph.groups[unary.group]
    if pair_group.patterns is not None or len(pair_group.scope) != 2 or len(unary_group.scope) != 1:
        return False
    node = graph.edges[pair.target, end]
    first = np.searchsorted(unary.target, node)
    is_single = np.searchsorted(unary.target, node, side="right") == first + 1
    if not is_single.any():
        return True  # no end has such a feature
    if not is_single.all():
        return False
    pair_rows, unary_rows = _rows(pair, slice(None)), _rows(unary, first)
    kind, key = pair_group.features.block_of(pair_rows), unary_group.features.block_of(unary_rows)
    if _count_combinations(kind, key, unary_group.features.n_blocks) != len(distinct(kind)):
        return False  # pairs with the same weights have ends with different weights
    compared = np.linspace(0, len(node) - 1, min(len(node), COMPARED_EDGES)).astype(np.int64)
    return _columns(unary_group.features, unary_rows[compared]) <= _columns(pair_group.features, pair_rows[compared])


def _rows(terms: TableTerms, index: np.ndarray | slice) -> np.ndarray:
    """Return the feature rows of some terms."""
    factor = np.arange(len(terms.target)) if terms.factor is None else terms.factor
    return np.asarray(factor[index])


def _columns(features: AbstractFeatures, rows: np.ndarray) -> set[tuple[bytes, bytes]]:
    """Return the distinct nonzero columns of a column block in some rows, each as its row numbers and values."""
    width = features.n_features // features.n_blocks
    entries = features.entries(rows)
    matrix = csc_array((entries.value, (entries.row, entries.feature % width)), shape=(len(rows), width))
    matrix.eliminate_zeros()
    matrix.sort_indices()
    bounds = zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True)
    return {(matrix.indices[a:b].tobytes(), matrix.data[a:b].tobytes()) for a, b in bounds if a < b}
