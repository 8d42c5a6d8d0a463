"""Chow-Liu: one tree for all evidence, by the information that pairs share in the training labels.

Source: Chow & Liu (1968). In relational models every pair has the information of its template and key: with one table for all
links, all links are worth the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relcrf.graph.reduction import ReducedGraph
from relcrf.graph.weights import WeightLayout
from relcrf.learning.likelihood import AbstractLikelihood

CELLS = 1 << 22
"""Numbers that are held at a time."""


@dataclass(frozen=True, eq=False)
class JointCounts(AbstractLikelihood):
    """How often each pair of states occurs with each feature of the factors over two nodes, weighted by the feature's square.

    No likelihood: its value is 0, and in the place of a gradient stand counts, flat, shape (n_features of all blocks, k, k).

    Args:
        states: all observed.
        k: the largest cardinality.
    """

    graph: ReducedGraph
    states: np.ndarray
    k: int

    def __call__(self, weights: np.ndarray) -> tuple[float, np.ndarray]:
        graph, k = self.graph, self.k
        blocks = graph.graph.layout.blocks
        counts = [np.zeros((block.n_features, k * k)) for block in blocks]
        for terms in graph.edge_terms:
            group = graph.graph.groups[terms.group]
            if len(group.scope) != 2:
                continue
            squares = group.features.squared()
            step = max(1, CELLS // (k * k))
            for start in range(0, len(terms.target), step):
                chunk = slice(start, min(start + step, len(terms.target)))
                ends = self.states[graph.edges[terms.target[chunk]]]
                joint = (
                    terms.base[chunk] + terms.stride_row[chunk] * ends[:, 0] + terms.stride_column[chunk] * ends[:, 1]
                )
                first, second = np.divmod(joint, group.cardinalities[1])
                occurs = np.zeros((len(joint), k * k))
                occurs[np.arange(len(joint)), first * k + second] = 1.0
                if squares.rows_are_equal:
                    occurs = occurs.sum(axis=0, keepdims=True)
                rows = chunk if terms.factor is None else terms.factor[chunk]
                squares.accumulate(occurs, rows, counts[group.block])
        return 0.0, np.concatenate([each.ravel() for each in counts])


def information(counts: np.ndarray, layout: WeightLayout, k: int) -> np.ndarray:
    """Mutual information of the two states of each feature's pairs, in nats, for each weight of it, shape (layout.size,).

    Args:
        counts: see `JointCounts`.
    """
    tables = counts.reshape(-1, k, k)
    total = tables.sum(axis=(1, 2), keepdims=True)
    joint = np.divide(tables, total, where=total > 0.0, out=np.zeros_like(tables))
    apart = joint.sum(axis=2, keepdims=True) * joint.sum(axis=1, keepdims=True)
    ratio = np.divide(joint, apart, where=joint > 0.0, out=np.ones_like(joint))
    found = np.maximum((joint * np.log(ratio)).sum(axis=(1, 2)), 0.0)
    return np.repeat(found, np.concatenate([np.full(b.n_features, b.n_patterns) for b in layout.blocks]))
