"""Numbers per *edge kind*, such as counts; a factor's kind is the combination of the factor's template and key.

The value of a kind is stored once for each weight of the kind. The values can therefore be transferred to other data
together with the weights, even if keys are renumbered.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from relcrf.graph.factor_graph import FactorGroup
from relcrf.graph.reduction import ReducedGraph, TableTerms
from relcrf.graph.weights import WeightLayout

TERMS_PER_CHUNK = 1 << 22
"""Number of terms that are processed at a time, to limit the memory of temporary arrays."""


def edge_kind_values(graph: ReducedGraph, values: np.ndarray) -> np.ndarray:
    """Return, for each edge, the maximum of the values of the kinds of the edge's factors, shape (n_edges,).

    Args:
        values: Values of the kinds, equal for all weights of a kind, shape (layout.size,).
    """
    out = np.full(graph.n_edges, -np.inf)
    for terms, group, chunk, keys in _iter_chunks(graph, TERMS_PER_CHUNK):
        matrix = graph.graph.layout.matrix(values, group.block)
        width = len(matrix) // group.features.n_blocks
        np.maximum.at(out, terms.target[chunk], matrix[keys * width, 0])
    return out


def count_factors_by_kind(graph: ReducedGraph) -> np.ndarray:
    """Return the number of edge factors of each kind, stored for each weight of the kind, shape (layout.size,)."""
    layout = graph.graph.layout
    out = np.zeros(layout.size)
    for _, group, _, keys in _iter_chunks(graph, TERMS_PER_CHUNK):
        counts = np.bincount(keys, minlength=group.features.n_blocks).astype(np.float64)
        block = layout.matrix(out, group.block)
        block += np.repeat(counts, len(block) // len(counts))[:, None]
    return out


def count_joint_states(graph: ReducedGraph, states: np.ndarray, k: int) -> np.ndarray:
    """Count the joint states of the two ends of pairwise factors, by kind.

    Args:
        states: State of each node, shape (n_nodes,).
        k: Maximum cardinality of a node.

    Returns:
        Counts, flat; reshaped to (n_features of all blocks, k, k), entry i contains the counts of the kind whose first
        feature is i, or 0.
    """
    counts = [np.zeros(block.n_features * k * k) for block in graph.graph.layout.blocks]
    for terms, group, chunk, keys in _iter_chunks(graph, TERMS_PER_CHUNK):
        if len(group.scope) != 2:
            continue
        ends = states[graph.edges[terms.target[chunk]]]
        joint = terms.base[chunk] + terms.stride_row[chunk] * ends[:, 0] + terms.stride_column[chunk] * ends[:, 1]
        first, second = np.divmod(joint, group.cardinalities[1])
        width = group.features.n_features // group.features.n_blocks
        cell = (keys.astype(np.int64) * width * k + first) * k + second
        counts[group.block] += np.bincount(cell, minlength=len(counts[group.block]))
    return np.concatenate(counts)


def mutual_information_by_kind(counts: np.ndarray, layout: WeightLayout, k: int, n_keys: dict[int, int]) -> np.ndarray:
    """Return, for each kind, the mutual information of the two ends' states in nats, shape (layout.size,).

    The value of a kind is repeated for each weight of the kind.

    Source: Chow & Liu (1968).

    Args:
        counts: See `count_joint_states`.
        layout: Layout of the weights.
        k: Maximum cardinality.
        n_keys: Number of keys, which is the number of kinds, by the index of the weight block.
    """
    tables = counts.reshape(-1, k, k)
    total = tables.sum(axis=(1, 2), keepdims=True)
    joint = np.divide(tables, total, where=total > 0.0, out=np.zeros_like(tables))
    independent = joint.sum(axis=2, keepdims=True) * joint.sum(axis=1, keepdims=True)
    ratio = np.divide(joint, independent, where=joint > 0.0, out=np.ones_like(joint))
    information = np.maximum((joint * np.log(ratio)).sum(axis=(1, 2)), 0.0)
    out = np.zeros(layout.size)
    start = 0
    for number, block in enumerate(layout.blocks):
        width = block.n_features // n_keys.get(number, 1)
        kind_values = information[start : start + block.n_features : width]
        layout.matrix(out, number)[:] = np.repeat(kind_values, width)[:, None]
        start += block.n_features
    return out


def _iter_chunks(graph: ReducedGraph, size: int) -> Iterator[tuple[TableTerms, FactorGroup, slice, np.ndarray]]:
    """Yield, for each chunk of edge factors, the terms, the factor group, the slice of the terms, and the keys."""
    for terms in graph.edge_terms:
        group = graph.graph.groups[terms.group]
        for start in range(0, len(terms.target), size):
            chunk = slice(start, min(start + size, len(terms.target)))
            yield terms, group, chunk, group.features.block_of(chunk if terms.factor is None else terms.factor[chunk])
