"""Piecewise likelihood: each factor, together with the unary factors of its variables, is a separate model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from relcrf.graph.reduction import CHUNK
from relcrf.graph.scopes import Potentials
from relcrf.kernels.distinct import distinct_rows
from relcrf.learning.pair_likelihood import PairLikelihood


@dataclass(frozen=True)
class PiecewiseLikelihood(PairLikelihood):
    """The negative sum over pieces of `log P(x_a | e)`; a piece is an edge or a clique, with its nodes' unary factors.

    Without cliques, this is the likelihood of pairs, `PairLikelihood`. As there, a node without edges is also a piece.

    Source: Sutton & McCallum, Piecewise training for undirected models (2005), where unary factors are
    separate pieces. Unary factors within the pieces determine how much of the observed counts they explain, so that
    the weights of larger factors represent only the remaining dependence.
    """

    @cached_property
    def observed_counts(self) -> np.ndarray:
        counts = super().observed_counts.copy()
        repetitions = np.zeros(int(self.graph.state_start[-1]))
        cells = self.graph.state_start[:-1] + self.states
        for terms in self.graph.clique_terms:
            repetitions[cells] += np.bincount(terms.node.ravel(), minlength=self.graph.n_nodes)
        self.graph.add_node_counts(repetitions, counts)
        return counts

    def expectation(self, weights: np.ndarray, added_potentials: np.ndarray | None) -> tuple[float, np.ndarray]:
        log_partition, expected = super().expectation(weights, added_potentials)
        if not self.graph.clique_terms:
            return log_partition, expected
        nodes, factors = self.graph.potentials(weights)
        if added_potentials is not None:
            nodes = nodes + added_potentials
        expected_nodes = np.zeros_like(nodes)
        factors[: int(self.graph.table_start[-1])] = 0.0  # the counts of the edges are in `expected`
        for members, cells, shape in self._pieces():
            tables = factors[cells].reshape(*shape, -1)
            states = [
                self.graph.state_start[node] + np.arange(k)[:, None] for node, k in zip(members, shape, strict=True)
            ]
            for slot, cell in enumerate(states):
                tables += np.expand_dims(nodes[cell], _other_axes(slot, len(shape)))
            axes = tuple(range(len(shape)))
            top = tables.max(axis=axes)
            np.exp(np.subtract(tables, top, out=tables), out=tables)
            totals = tables.sum(axis=axes)
            tables /= totals
            log_partition += float((np.log(totals) + top).sum())
            factors[cells] = tables.reshape(len(cells), -1)
            for slot, cell in enumerate(states):
                marginals = tables.sum(axis=_other_axes(slot, len(shape)))
                expected_nodes += np.bincount(cell.ravel(), marginals.ravel(), len(nodes))
        return log_partition, expected + self.graph.counts(Potentials(expected_nodes, factors))

    def _pieces(self) -> Iterator[tuple[np.ndarray, np.ndarray, tuple[int, ...]]]:
        """Yield chunks of n cliques of equal shape: nodes by slot (arity, n), cells of the tables (size, n), shape.

        The cliques are the last axis, because NumPy's sums over short last axes are slow.
        """
        table_start, first = self.graph.scopes.table_start, self.graph.n_edges
        for terms in self.graph.clique_terms:
            sizes = self.graph.cardinality[terms.node]
            for shape in distinct_rows(sizes):
                rows = np.flatnonzero((sizes == shape).all(axis=1))
                for start in range(0, len(rows), CHUNK):
                    chunk = rows[start : start + CHUNK]
                    cells = table_start[first + chunk] + np.arange(np.prod(shape))[:, None]
                    yield terms.node[chunk].T, cells, tuple(shape.tolist())
            first += len(terms.node)


def _other_axes(slot: int, arity: int) -> tuple[int, ...]:
    """Return the axes of a table other than the axis of the slot."""
    return tuple(axis for axis in range(arity) if axis != slot)
