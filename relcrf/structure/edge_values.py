"""What a number for each weight says of each edge."""

from __future__ import annotations

import numpy as np

from relcrf.graph.reduction import CHUNK, ReducedGraph


def edge_values(graph: ReducedGraph, values: np.ndarray) -> np.ndarray:
    """For each edge, of its factors' means of the values of their features, weighted by squares, the largest.

    Where all factors of a template with a key have the constant feature alone, that is the value of the edge's key.

    Args:
        values: shape (layout.size,), the same for all patterns of a feature.

    Returns:
        shape (n_edges,); 0 where no feature of an edge is other than 0.
    """
    out = np.zeros(graph.n_edges)
    for terms in graph.edge_terms:
        group = graph.graph.groups[terms.group]
        squares = group.features.squared()
        column = np.ascontiguousarray(graph.graph.layout.matrix(values, group.block)[:, :1])
        ones = np.ones_like(column)
        for start in range(0, len(terms.target), CHUNK):
            chunk = slice(start, min(start + CHUNK, len(terms.target)))
            rows = chunk if terms.factor is None else terms.factor[chunk]
            weighted, total = squares.scores(column, rows)[:, 0], squares.scores(ones, rows)[:, 0]
            mean = np.divide(weighted, total, where=total > 0.0, out=np.zeros_like(total))
            np.maximum.at(out, terms.target[chunk], mean)
    return out
