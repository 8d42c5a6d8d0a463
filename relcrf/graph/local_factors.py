"""The factors over one node of a reduced graph, indexed by the states of that node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from relcrf.graph.factor_graph import FactorGraph
from relcrf.graph.reduction import ReducedGraph, TableTerms


@dataclass(frozen=True, eq=False)
class LocalFactor:
    """A factor over a given node, indexed by the state of this node and the joint state of the factor's other nodes.

    Args:
        group: Index of the factor's group in the graph.
        factor: Index of the factor in the group.
        cells: Index of the factor's joint state, for each state of the given node (row) and each joint state of the
            other nodes (column), shape (n_states, n_others).
    """

    group: int
    factor: int
    cells: np.ndarray

    def patterns(self, graph: FactorGraph) -> np.ndarray:
        """Return the state patterns of the joint states in `cells`, shape (n_states, n_others, n_patterns)."""
        group = graph.groups[self.group]
        table = np.eye(group.n_joint_states) if group.patterns is None else group.patterns
        return np.asarray(table[self.cells])

    def log_potentials(self, graph: FactorGraph, weights: np.ndarray) -> np.ndarray:
        """Return the log potentials of the joint states in `cells`, shape (n_states, n_others)."""
        group = graph.groups[self.group]
        matrix = graph.layout.matrix(weights, group.block)
        (scores,) = group.features.scores(matrix, np.array([self.factor]))
        return np.asarray((scores if group.patterns is None else group.patterns @ scores)[self.cells])


@dataclass(frozen=True, eq=False)
class FactorBundle:
    """All factors over a given node that have the same set of other nodes.

    Args:
        others: The other nodes, ascending; empty for unary factors. Their joint states are in row-major order.
        factors: The factors.
    """

    others: tuple[int, ...]
    factors: tuple[LocalFactor, ...]

    def log_potentials(self, graph: FactorGraph, weights: np.ndarray) -> np.ndarray:
        """Return the sum of the factors' log potentials, shape (n_states, n_others)."""
        return np.asarray(np.sum([factor.log_potentials(graph, weights) for factor in self.factors], axis=0))


def bundle_factors(graph: ReducedGraph, node: int) -> list[FactorBundle]:
    """Return the factors over a node, grouped by their other nodes in ascending order; unary factors come first."""
    bundles: dict[tuple[int, ...], list[LocalFactor]] = {}
    for others, factor in _iter_local_factors(graph, node):
        bundles.setdefault(others, []).append(factor)
    return [FactorBundle(others, tuple(factors)) for others, factors in sorted(bundles.items())]


def _iter_local_factors(graph: ReducedGraph, node: int) -> Iterator[tuple[tuple[int, ...], LocalFactor]]:
    for terms in graph.node_terms:
        for row in _term_range(terms, node):
            yield _make_local_factor(
                graph, node, terms.group, _factor_index(terms, row), terms.base[row], [node], [terms.stride_row[row]]
            )
    for edge in np.flatnonzero((graph.edges == node).any(axis=1)):
        for terms in graph.edge_terms:
            for row in _term_range(terms, int(edge)):
                strides = [terms.stride_row[row], terms.stride_column[row]]
                factor = _factor_index(terms, row)
                yield _make_local_factor(
                    graph, node, terms.group, factor, terms.base[row], graph.edges[edge].tolist(), strides
                )
    for cliques in graph.clique_terms:
        for row in np.flatnonzero((cliques.node == node).any(axis=1)).tolist():
            nodes, factor = cliques.node[row].tolist(), int(cliques.factor[row])
            yield _make_local_factor(
                graph, node, cliques.group, factor, cliques.base[row], nodes, cliques.stride[row].tolist()
            )


def _term_range(terms: TableTerms, target: int) -> range:
    span = terms.span(target, target + 1)
    return range(span.start, span.stop)


def _factor_index(terms: TableTerms, row: int) -> int:
    return row if terms.factor is None else int(terms.factor[row])


def _make_local_factor(
    graph: ReducedGraph, node: int, group: int, factor: int, base: int, nodes: Sequence[int], strides: Sequence[int]
) -> tuple[tuple[int, ...], LocalFactor]:
    """Return the other nodes of a factor over `node`, and the factor indexed by the states of `node`."""
    stride = dict(zip(nodes, strides, strict=True))
    others = tuple(sorted(set(nodes) - {node}))
    cells = np.asarray(base, dtype=np.int64)
    for each in (node, *others):
        cells = cells[..., None] + int(stride[each]) * np.arange(graph.cardinality[each])
    return others, LocalFactor(group, factor, cells.reshape(int(graph.cardinality[node]), -1))
