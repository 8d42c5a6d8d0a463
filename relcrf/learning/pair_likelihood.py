"""The likelihood of pairs: each edge is a separate model of its two ends, with weights that all edges share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np

from relcrf.columns.offsets import offsets
from relcrf.graph.edge_classes import SharedEdgeTables, shared_edge_tables
from relcrf.graph.reduction import ReducedGraph
from relcrf.kernels import conditionals, pairs
from relcrf.kernels.threads import freeze, map_lanes
from relcrf.learning.likelihood import AbstractJointLikelihood
from relcrf.learning.node_passes import add_in_place, node_counts, node_potentials


@dataclass(frozen=True)
class PairLikelihood(AbstractJointLikelihood):
    """The negative sum over edges of `log P(x_i, x_j | e)`; each edge is a separate model of its two ends.

    A node without edges is also a separate model. All of these models have the same weights.

    Source: Chechetka & Guestrin (2010), equation (9) and the relational form in section 5. If several relations join
    the same two variables, the factors of these relations are in the same model.
    """

    graph: ReducedGraph
    states: np.ndarray
    evidence: None = None

    @cached_property
    def _degree(self) -> np.ndarray:
        """Return the number of edges of each node, shape (n_nodes,)."""
        return np.bincount(self.graph.edges.ravel(), minlength=self.graph.n_nodes)

    @cached_property
    def observed_counts(self) -> np.ndarray:
        """Return the pattern counts of the observed states, summed over all models, shape (layout.size,)."""
        counts, repetitions = self.graph.state_counts(self.states), np.zeros(int(self.graph.state_start[-1]))
        repetitions[self.graph.state_start[:-1] + self.states] = np.maximum(self._degree - 1, 0)
        self.graph.add_node_counts(repetitions, counts)
        return counts

    @cached_property
    def _shared_tables(self) -> SharedEdgeTables | None:
        return shared_edge_tables(self.graph)

    @cached_property
    def _shared_kernel(self) -> Callable[..., float]:
        sizes = np.unique(self.graph.cardinality).tolist()
        known = len(sizes) == 1 and sizes[0] in pairs.SHARED_PAIR_KERNELS
        return cast(Callable[..., float], pairs.SHARED_PAIR_KERNELS[sizes[0] if known else 0])

    def expectation(self, weights: np.ndarray, added_potentials: np.ndarray | None) -> tuple[float, np.ndarray]:
        """Return the log partition functions and the expected pattern counts, each summed over all models."""
        graph = self.graph
        node_tables = node_potentials(graph, weights)
        if added_potentials is not None:
            node_tables += added_potentials
        sum_edges = self._sum_shared_edges if self._shared_tables else self._sum_edges
        log_partition, expected_nodes, expected = sum_edges(weights, node_tables)
        sizes = graph.cardinality[self._degree == 0]
        isolated = np.repeat(self._degree == 0, graph.cardinality)
        tables, log_partitions = node_tables[isolated], np.empty(len(sizes))
        conditionals.normalise(freeze(offsets(sizes), np.int64), tables, log_partitions)
        log_partition += float(log_partitions.sum())
        expected_nodes[isolated] += tables
        return log_partition, expected + node_counts(graph, expected_nodes)

    def _sum_edges(self, weights: np.ndarray, node_tables: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Return sums over all edges: log partition function, flat node marginals, and expected counts of edge patterns."""
        graph = self.graph
        expected_nodes, expected, log_partition = np.zeros_like(node_tables), np.zeros(graph.graph.layout.size), 0.0
        for start, stop in graph.edge_chunks():
            tables, log_partitions = pair_tables(graph, weights, node_tables, start, stop)
            log_partition += float(log_partitions.sum())
            graph.add_edge_counts(tables, expected, start, stop)
            pairs.add_to_nodes(*_pair_arrays(graph, start, stop), tables, expected_nodes)
        return log_partition, expected_nodes, expected

    def _sum_shared_edges(self, weights: np.ndarray, node_tables: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Return the result of `_sum_edges` for edges that share tables."""
        graph, shared = self.graph, self._shared_tables
        assert shared is not None
        edge_tables = shared.graph.edge_log_potentials(weights)
        node_top, node_weight = np.empty(graph.n_nodes), np.empty_like(node_tables)

        def exponentiate(start: int, stop: int) -> None:
            cells = slice(graph.state_start[start], graph.state_start[stop])
            start_in_lane = graph.state_start[start : stop + 1] - graph.state_start[start]
            node_top[start:stop], node_weight[cells] = _exponentials(start_in_lane, node_tables[cells])

        map_lanes(graph.n_nodes, 4 * len(node_tables), exponentiate)
        table_top, edge_weight = _exponentials(shared.graph.table_start, edge_tables)

        def sum_lane(start: int, stop: int) -> tuple[float, np.ndarray, np.ndarray]:
            node_sum, edge_sum = np.zeros_like(node_tables), np.zeros_like(edge_tables)
            log_partition = self._shared_kernel(
                graph.edges[start:stop],
                graph.cardinality,
                graph.state_start,
                shared.table_start[start:stop],
                node_tables,
                node_weight,
                edge_tables,
                edge_weight,
                node_sum,
                edge_sum,
            )
            return log_partition, node_sum, edge_sum

        log_partitions, node_sums, edge_sums = zip(
            *map_lanes(graph.n_edges, int(graph.table_start[-1]), sum_lane), strict=True
        )
        linked = self._degree > 0
        log_partition = sum(log_partitions) + float((self._degree * node_top)[linked].sum())
        log_partition += float((shared.n_edges * table_top).sum())
        expected = np.zeros(graph.graph.layout.size)
        shared.graph.add_edge_counts(add_in_place(edge_sums), expected)
        return log_partition, add_in_place(node_sums), expected


def _exponentials(start: np.ndarray, tables: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the maximum of each flat table of logarithms, and the exponentials divided by that of the maximum."""
    top = np.maximum.reduceat(tables, start[:-1])
    with np.errstate(invalid="ignore"):  # -inf - -inf for a table without a possible state
        return top, np.exp(tables - np.repeat(top, np.diff(start)))


def pair_tables(
    graph: ReducedGraph, weights: np.ndarray, node_tables: np.ndarray, start: int, stop: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the flat joint marginals and the log partition functions, shape (n,), of the n edges start..stop-1."""
    tables = graph.edge_log_potentials(weights, start, stop)
    log_partitions = np.empty(stop - start)
    pairs.pair_marginals(*_pair_arrays(graph, start, stop), node_tables, tables, log_partitions)
    return tables, log_partitions


def _pair_arrays(graph: ReducedGraph, start: int, stop: int) -> tuple[np.ndarray, ...]:
    """Return the first arguments of the kernels of pairs, for the edges start..stop-1 and tables of these edges only."""
    table_start = graph.table_start[start:stop] - graph.table_start[start]
    return graph.edges[start:stop], graph.cardinality, graph.state_start, table_start
